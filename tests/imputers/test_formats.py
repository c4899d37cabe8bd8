"""Model files of earlier formats load, and give the results that were stored with them.

Each folder of `formats` has the models of one format, written by the version that had it: `<name>.model`, the input
`<name>.csv` or `<name>.npz`, and the results `<name>_results.npz`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from mcflow import load
from mcflow.errors import ParameterError
from mcflow.files.atomic import read_tensors

FOLDER = Path(__file__).parent / "formats"
TABLES = sorted(FOLDER.glob("*/table_*.model"))
IMAGES = sorted(FOLDER.glob("*/images_*.model"))


def named(path: Path) -> str:
    return f"format {path.parent.name}, {path.stem}"


def read_table(path: Path) -> pd.DataFrame:
    return pd.read_csv(path, dtype={"yes": "boolean"}, parse_dates=["day"])


def arrays_of(name: str, table: pd.DataFrame) -> dict[str, np.ndarray]:
    """Return the columns of a table as arrays without objects; missing cells are NaN, NaT or an empty text."""
    found = {}
    for column in table.columns:
        cells = table[column]
        if isinstance(cells.dtype, pd.CategoricalDtype) or cells.dtype == object or pd.api.types.is_string_dtype(cells):
            cells = cells.astype(object).fillna("").astype(str).to_numpy(dtype=str)
        elif cells.dtype == "boolean" or cells.dtype == bool:
            cells = cells.astype("Float64").to_numpy(dtype=float, na_value=np.nan)
        else:
            cells = cells.to_numpy()
        found[f"{name}.{column}"] = cells
    return found


def table_results(imputer: Any, rows: pd.DataFrame, n_draws: int = 3) -> dict[str, np.ndarray]:
    """Return all kinds of results for a table."""
    found = arrays_of("transform", imputer.transform(rows))
    for k, drawn in enumerate(imputer.draw(rows, m=n_draws, random_state=1) if n_draws else ()):
        found |= arrays_of(f"draw.{k}", drawn)
    low, high = imputer.interval(rows, 0.8)
    found |= arrays_of("low", low) | arrays_of("high", high)
    for column, table in imputer.predict_proba(rows).items():
        found |= arrays_of(f"probability.{column}", table)
    found |= arrays_of("sample", imputer.sample(5, random_state=2))
    return found | {"score": imputer.score_samples(rows)}


def image_results(imputer: Any, images: np.ndarray, mask: np.ndarray) -> dict[str, np.ndarray]:
    """Return all kinds of results for images."""
    low, high = imputer.interval(images, 0.8, mask=mask)
    return {
        "transform": imputer.transform(images, mask=mask),
        **{f"draw.{k}": drawn for k, drawn in enumerate(imputer.draw(images, 2, 1, mask=mask))},
        "low": low,
        "high": high,
        "score": imputer.score_samples(images, mask=mask),
        "sample": imputer.sample(2, random_state=2),
    }


def check(found: dict[str, np.ndarray], stored: Any) -> None:
    assert set(found) == set(stored)
    for name, array in found.items():
        wanted = stored[name]
        if wanted.dtype.kind in "fc":
            np.testing.assert_allclose(array, wanted, rtol=1e-5, atol=1e-5 * np.nanmax(np.abs(wanted)), err_msg=name)
        elif wanted.dtype.kind == "u":  # pixels, of which round-off may change the last step
            assert np.abs(array.astype(int) - wanted).max() <= 1, name
        else:
            np.testing.assert_array_equal(array.astype(wanted.dtype), wanted, err_msg=name)


def test_every_earlier_format_has_models_of_all_algorithms() -> None:
    for folder in FOLDER.iterdir():
        names = {path.stem for path in folder.glob("*.model")}
        assert names == {"table_default", "table_paper", "images_default", "images_paper"}
        assert {read_tensors(path, "model")[0] for path in folder.glob("*.model")} == {int(folder.name)}


@pytest.mark.parametrize("path", TABLES, ids=named)
def test_table_model_of_an_earlier_format_gives_the_stored_results(path) -> None:
    rows = read_table(path.with_suffix(".csv"))
    with np.load(path.with_name(f"{path.stem}_results.npz")) as file:
        stored = dict(file)
    imputer = load(path, device="cpu")
    if (path.parent.name, path.stem) == ("1", "table_default"):
        # These models have no donors. What they draw from is gone, and the error says so.
        with pytest.raises(ParameterError, match=r"no donors to draw from\. Fit the model again"):
            next(imputer.draw(rows, m=1, random_state=1))
        stored = {name: array for name, array in stored.items() if not name.startswith("draw.")}
        check(table_results(imputer, rows, n_draws=0), stored)
    else:
        check(table_results(imputer, rows), stored)


@pytest.mark.parametrize("path", IMAGES, ids=named)
def test_image_model_of_an_earlier_format_gives_the_stored_results(path) -> None:
    with np.load(path.with_suffix(".npz")) as given, np.load(path.with_name(f"{path.stem}_results.npz")) as stored:
        check(image_results(load(path, device="cpu"), given["images"], given["mask"]), stored)


@pytest.mark.parametrize("path", [*TABLES, *IMAGES], ids=named)
def test_model_of_an_earlier_format_when_saved_again_then_gives_the_same_bits(path, tmp_path) -> None:
    first = load(path, device="cpu")
    first.save(tmp_path / "again.mcflow")
    second = load(tmp_path / "again.mcflow", device="cpu")
    assert second.config_ == first.config_
    assert second.preset == first.preset
    assert second.history_ == first.history_
    mine, theirs = first.model_.tensors(), second.model_.tensors()
    assert mine.keys() == theirs.keys()
    assert all(array.tobytes() == theirs[name].tobytes() for name, array in mine.items())
