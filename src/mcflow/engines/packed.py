"""A fitted model as bytes, to be sent to other processes and machines once."""

from __future__ import annotations

__all__ = ["PackedModel", "as_scorer"]

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from mcflow.engines.scorer import Scorer
from mcflow.imputers import MCFlowImputer


def as_scorer(model: Scorer | MCFlowImputer | str | Path) -> Scorer:
    """Return a model in whatever form it is given as one that fills Arrow tables.

    Parameters
    ----------
    model : Scorer, MCFlowImputer or path-like
        Fitted, or the file of a fitted one.

    Returns
    -------
    Scorer
    """
    if isinstance(model, str | Path):
        return Scorer.from_file(model)
    return Scorer(model) if isinstance(model, MCFlowImputer) else model


@dataclass(frozen=True)
class PackedModel:
    """What `MCFlowImputer.save` writes, in memory.

    Parameters
    ----------
    content : bytes
        Of the file.
    device : str
        Where to compute.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from mcflow import MCFlowImputer
    >>> rows = pa.table({"a": [1.0, 2.0, None, 4.0], "b": [2.0, 4.0, 6.0, 8.0]})
    >>> scorer = Scorer(MCFlowImputer(max_epochs=2, random_state=0).fit(rows))
    >>> PackedModel.of(scorer).scorer().fingerprint() == scorer.fingerprint()
    True
    """

    content: bytes
    device: str = "auto"

    @classmethod
    def of(cls, scorer: Scorer) -> Self:
        """Pack a model.

        Parameters
        ----------
        scorer : Scorer
            With a fitted imputer.

        Returns
        -------
        PackedModel
        """
        with tempfile.TemporaryDirectory(prefix="mcflow-model-") as folder:
            path = Path(folder) / "model.mcflow"
            scorer.imputer.save(path)
            return cls(path.read_bytes(), scorer.imputer.device)

    def scorer(self) -> Scorer:
        """Build the model.

        Returns
        -------
        Scorer
            Its cells are those of the packed one, bit for bit on the same device.
        """
        with tempfile.TemporaryDirectory(prefix="mcflow-model-") as folder:
            path = Path(folder) / "model.mcflow"
            path.write_bytes(self.content)
            return Scorer.from_file(path, device=self.device)
