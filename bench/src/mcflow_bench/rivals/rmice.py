"""R's mice as an imputer, run by Rscript: chained equations with the methods norm, default, pmm, cart and rf."""

from __future__ import annotations

__all__ = ["INSTALL", "R_METHODS", "RMiceImputer", "available", "build_method", "is_r", "mice_version"]

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mcflow.errors import DataError, ParameterError, did_you_mean
from mcflow.evaluation.methods import MethodSpec
from mcflow.typing import Array, FloatArray

#: Methods of mice that can be used, as they are named in a list of methods, and the R package that each needs.
R_METHODS = {
    "R:mice.norm": "nnet",
    "R:mice.default": "nnet",
    "R:mice.pmm": "mice",
    "R:mice.cart": "rpart",
    "R:mice.rf": "ranger",
}
#: How to install R with mice.
INSTALL = "Install R with mice, on Debian by: apt-get install r-cran-mice r-cran-rpart r-cran-ranger r-cran-nnet"

_PREFIX = "R:"
_SCRIPT = Path(__file__).with_name("mice.R")


def is_r(method: str) -> bool:
    """Tell whether a method is one of R's."""
    return method.startswith(_PREFIX)


@cache
def _packages() -> dict[str, str]:
    """Return the versions of the R packages that are installed."""
    if shutil.which("Rscript") is None:
        return {}
    code = (
        'for (p in c("mice", "rpart", "ranger", "nnet")) if (requireNamespace(p, quietly = TRUE)) '
        'cat(p, as.character(packageVersion(p)), "\\n")'
    )
    done = _rscript(["-e", code])
    return dict(line.split()[:2] for line in done.stdout.splitlines() if line.strip())


def mice_version() -> str | None:
    """Return the version of R's mice, or None if it is not installed."""
    return _packages().get("mice")


def available(methods: Sequence[str]) -> list[str]:
    """Return the methods without those of R whose packages are not installed."""
    found = _packages() if any(map(is_r, methods)) else {}
    return [one for one in methods if not is_r(one) or {"mice", R_METHODS[MethodSpec.parse(one).name]} <= set(found)]


def build_method(
    spec: MethodSpec, seed: int, table: Mapping[str, Any] | None = None, ours: Mapping[str, Any] | None = None
) -> Any:
    """Return an unfitted imputer: one of R's, or what `MethodSpec.build_with` returns.

    Examples
    --------
    >>> build_method(MethodSpec.parse("R:mice.pmm(maxit=2)"), 0).maxit
    2
    """
    if not is_r(spec.name):
        return spec.build_with(seed, table or {}, ours)
    if spec.name not in R_METHODS:
        known, hint = ", ".join(R_METHODS), did_you_mean(spec.name, R_METHODS)
        raise ParameterError(f"There is no method {spec.name!r}. Known are {known}.{hint}")
    wrong = [name for name, _ in spec.parameters if name != "maxit"]
    if wrong:
        raise ParameterError(f"{spec.name} has no parameter {wrong[0]!r}. It has maxit.")
    return RMiceImputer(spec.name.rpartition(".")[2], random_state=seed, **dict(spec.parameters))


class RMiceImputer:
    """Chained equations of R's mice.

    Every call of `draw` runs the chains on its rows: mice has no model for new rows. All columns have the same method,
    except that `norm` and `default`, which is pmm for numbers, impute categories by logistic regression.

    Parameters
    ----------
    method : {"norm", "default", "pmm", "cart", "rf"}, default="default"
        The univariate method.
    maxit : int, default=5
        Iterations of each chain.
    random_state : int, default=0
        Seed of a draw that is given none.
    """

    def __init__(self, method: str = "default", *, maxit: int = 5, random_state: int = 0) -> None:
        self.method = method
        self.maxit = maxit
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> RMiceImputer:
        """Check that R and mice are installed."""
        if not available([f"R:mice.{self.method}"]):
            raise DataError(f"R's mice with the method {self.method} is not installed. {INSTALL}")
        return self

    def transform(self, X: Any) -> Any:
        """Return one draw."""
        return next(self.draw(X, 1))

    def draw(self, X: Any, m: int, random_state: int | None = None) -> Iterator[Any]:
        """Yield m completed tables of the kind that was given, pandas or pyarrow."""
        arrow = X if isinstance(X, pa.Table) else pa.Table.from_pandas(X, preserve_index=False)
        columns = [_coded(column) for column in arrow.columns]
        cells = np.column_stack([codes for codes, _ in columns])
        seed = self.random_state if random_state is None else random_state
        imputed = _run(cells, [len(words) for _, words in columns], self.method, str(m), str(self.maxit), str(seed))
        missing = np.isnan(cells)
        for table in imputed:
            if left := int((np.isnan(table) & missing).sum()):
                raise DataError(f"mice left {left} cells missing.")
            filled = arrow
            for k in np.flatnonzero(missing.any(axis=0)).tolist():
                column = _filled(arrow.column(k), missing[:, k], table[:, k], columns[k][1])
                filled = filled.set_column(k, arrow.column_names[k], column)
            yield filled if isinstance(X, pa.Table) else filled.to_pandas().set_axis(X.index)


def _coded(column: pa.ChunkedArray) -> tuple[FloatArray, list[Any]]:
    """Return a column as numbers with NaN, and its categories if it has some."""
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        numbers: FloatArray = column.cast(pa.float64()).to_numpy()
        return numbers, []
    cells = column.to_pylist()
    found = set(cells) - {None}
    kept = column.combine_chunks().dictionary.to_pylist() if pa.types.is_dictionary(column.type) else sorted(found)
    words = [word for word in kept if word in found]  # mice would fit models of categories that never occur
    places = {word: place for place, word in enumerate(words)}
    return np.array([places.get(cell, np.nan) for cell in cells], dtype=np.float64), words


def _filled(column: pa.ChunkedArray, missing: Array, imputed: FloatArray, words: list[Any]) -> pa.ChunkedArray:
    values = [words[int(code)] for code in imputed[missing]] if words else imputed[missing]
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    plain = column.combine_chunks()
    plain = plain.dictionary_decode() if pa.types.is_dictionary(plain.type) else plain
    if not words and pa.types.is_integer(kind):  # norm imputes fractions
        kind, plain = pa.float64(), plain.cast(pa.float64())
    filled = pc.replace_with_mask(plain, pa.array(missing), pa.array(values, kind))
    if not pa.types.is_dictionary(column.type):
        return filled
    dictionary = column.combine_chunks().dictionary
    coded = pa.DictionaryArray.from_arrays(pc.index_in(filled, dictionary), dictionary)
    return coded.cast(column.type)


def _run(cells: FloatArray, n_categories: list[int], *words: str) -> FloatArray:
    """Run mice on codes with NaN; `words` are its method, m, maxit and seed. Return (m, n_rows, n_columns)."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        (path / "shape.txt").write_text(" ".join(map(str, [len(cells), *n_categories])))
        (path / "cells.bin").write_bytes(cells.astype("<f8").tobytes(order="F"))
        done = _rscript([str(_SCRIPT), folder, *words])
        if done.returncode:
            raise DataError(f"mice failed: {' '.join(done.stderr.split())[-300:]}")
        return np.fromfile(path / "imputed.bin", "<f8").reshape(-1, *cells.shape)


def _rscript(words: Sequence[str]) -> subprocess.CompletedProcess[str]:
    threads = os.environ.get("OMP_NUM_THREADS", "1")
    return subprocess.run(  # noqa: S603 - a script of this package
        [shutil.which("Rscript") or "Rscript", "--vanilla", *words],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"R_RANGER_NUM_THREADS": threads, "LC_ALL": "C.UTF-8"},
    )
