"""Methods that need versions of their own: each runs in a virtual environment that `make anytime` installs."""

from __future__ import annotations

__all__ = ["EnvironmentImputer"]

import json
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from mcflow.errors import EngineError, MissingExtraError
from mcflow.typing import FloatArray

#: Program that the interpreter of an environment runs.
PROGRAM = Path(__file__).with_name("apart.py")


class EnvironmentImputer:
    """Fill rows by a method of another virtual environment, in one shot.

    The methods cannot fill new rows, so training and test rows are filled together, when `transform` is called.

    Parameters
    ----------
    name : str
        "miceforest" or "hyperimpute".
    folder : str
        Virtual environment that has it.
    random_state : int, default=0
        Seed of the method.

    Attributes
    ----------
    categories : dict
        Number of categories of each categorical column; none unless they are set.
    cost_ : dict
        Seconds and peak memory that the program measured itself, without its start and its imports.
    """

    def __init__(self, *, name: str, folder: str, random_state: int = 0) -> None:
        self.name, self.folder, self.random_state = name, folder, random_state
        self.categories: Mapping[int, int] = {}

    def fit(self, X: FloatArray) -> EnvironmentImputer:
        """Keep the training rows."""
        self.rows_ = X
        return self

    def transform(self, X: FloatArray) -> FloatArray:
        """Fill training and test rows together, and return the test rows."""
        python = Path(self.folder) / "bin" / "python"
        if not python.is_file():
            raise MissingExtraError(f"{self.name} is not installed in {self.folder}. `make anytime` installs it.")
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            pairs = np.array(list(self.categories.items()), dtype=np.int64).reshape(-1, 2)
            np.savez(
                folder / "rows.npz", rows=np.concatenate([self.rows_, X]), categories=pairs, seed=self.random_state
            )
            # -I keeps the packages of this process out of the other environment.
            words = [str(python), "-I", str(PROGRAM), self.name, str(folder)]
            done = subprocess.run(words, capture_output=True, text=True, check=False)  # noqa: S603 - a program of ours
            if done.returncode:
                last = " ".join(done.stderr.strip().splitlines()[-1:])
                raise EngineError(f"{self.name} ended with code {done.returncode}: {last}")
            cost: dict[str, Any] = json.loads((folder / "cost.json").read_text())
            self.cost_ = {"fit_s": cost["seconds"], "transform_s": 0.0, "peak_mib": cost["peak_mib"]}
            filled: FloatArray = np.load(folder / "filled.npz")["filled"]
        return filled[len(self.rows_) :]
