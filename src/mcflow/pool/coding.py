"""Columns of a completed table as the numbers that a regression works with."""

from __future__ import annotations

__all__ = ["Coding", "Feature", "read_coding", "read_target"]

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mcflow.data.frames import Frame
from mcflow.data.series import is_text
from mcflow.errors import DataError, ParameterError, did_you_mean
from mcflow.typing import Array, FloatArray


@dataclass(frozen=True)
class Feature:
    """A column that a model reads.

    Parameters
    ----------
    name : object
        Its name in the table.
    label : str
        Its name among the terms.
    levels : tuple or None
        Its levels, the first of which has no term of its own; None for numbers.
    """

    name: Any
    label: str
    levels: tuple[Any, ...] | None = None

    @property
    def terms(self) -> list[str]:
        """Return the names of its terms."""
        if self.levels is None:
            return [self.label]
        return [f"{self.label}[T.{level}]" for level in self.levels[1:]]


@dataclass(frozen=True)
class Coding:
    """How features become numbers: numbers as they are, levels as zeros and ones against the first of them.

    Parameters
    ----------
    features : tuple of Feature
        From left to right.
    """

    features: tuple[Feature, ...]

    @property
    def terms(self) -> list[str]:
        """Return the names of the columns of `matrix`."""
        return [term for feature in self.features for term in feature.terms]

    def matrix(self, frame: Frame) -> FloatArray:
        """Return the features of a table.

        Parameters
        ----------
        frame : Frame
            With columns of the same names and types.

        Returns
        -------
        ndarray of shape (n_rows, n_terms)

        Raises
        ------
        DataError
            When a cell is missing, or a level was not in the first table.
        """
        parts = [_coded(_array(frame, feature.name), feature) for feature in self.features]
        return np.concatenate(parts, axis=1) if parts else np.empty((frame.n_rows, 0))


def read_coding(frame: Frame, features: Sequence[Any] | None, target: Any) -> Coding:
    """Find out how the features of a table are coded.

    Parameters
    ----------
    frame : Frame
        The first completed table; it says which levels there are.
    features : sequence or None
        Names of columns, positions for numpy; None for all but the target.
    target : object
        Name or position of the outcome.

    Returns
    -------
    Coding

    Raises
    ------
    ParameterError
        When there is no such column, or the outcome is among the features.
    DataError
        When a column is neither of numbers nor of levels.
    """
    chosen = [name for name in frame.names if name != target] if features is None else list(features)
    if target in chosen:
        raise ParameterError(f"The target {target!r} is among the features. Leave it out there.")
    return Coding(tuple(_feature(frame, name) for name in chosen))


def read_target(frame: Frame, target: Any, *, classes: bool) -> Array:
    """Return the outcome of a table.

    Parameters
    ----------
    frame : Frame
        A completed table.
    target : object
        Name or position of the outcome.
    classes : bool
        Whether it may be of levels.

    Returns
    -------
    ndarray of shape (n_rows,)

    Raises
    ------
    DataError
        When a cell is missing, or there are levels where numbers are needed.
    """
    array = _array(frame, target)
    if classes:
        return np.array(array.to_pylist()) if _levels(array) else array.to_numpy(zero_copy_only=False)
    if _levels(array):
        raise DataError(f"The target {target!r} is of type {array.type}, but a regression needs numbers.")
    return _floats(array, target)


def _array(frame: Frame, name: Any) -> pa.Array:
    """Return a column without missing cells; levels of a dictionary keep it."""
    if name not in frame.names:
        known = [str(column) for column in frame.names]
        raise ParameterError(
            f"There is no column {name!r}. The table has {', '.join(known)}.{did_you_mean(name, known)}"
        )
    array = frame.arrow(frame.names.index(name))
    if array is None:
        raise DataError(f"Column {name!r} holds cells of several types. Give it one type, or leave it out.")
    if array.null_count:
        raise DataError(
            f"Column {name!r} has {array.null_count} missing cell(s), but completed tables are needed, such as those "
            "of imputer.draw(X)."
        )
    return array


def _levels(array: pa.Array) -> bool:
    kind = array.type
    return bool(pa.types.is_dictionary(kind) or pa.types.is_boolean(kind) or is_text(kind))


def _feature(frame: Frame, name: Any) -> Feature:
    array, label = _array(frame, name), f"x{name}" if frame.container == "numpy" else str(name)
    if not _levels(array):
        _floats(array, name)
        return Feature(name, label)
    found = set(pc.unique(_plain(array)).to_pylist())
    if pa.types.is_dictionary(array.type):
        order = [level for level in array.dictionary.to_pylist() if level in found]
    else:
        order = sorted(found)
    return Feature(name, label, tuple(order))


def _plain(array: pa.Array) -> pa.Array:
    """Return levels as themselves."""
    plain = array.dictionary_decode() if pa.types.is_dictionary(array.type) else array
    return plain.cast(pa.large_string()) if str(plain.type) == "string_view" else plain


def _coded(array: pa.Array, feature: Feature) -> FloatArray:
    if feature.levels is None:
        return _floats(array, feature.name)[:, None]
    plain = _plain(array)
    codes = pc.index_in(plain, value_set=pa.array(feature.levels, plain.type))
    if codes.null_count:
        new = sorted(set(map(str, pc.unique(plain).to_pylist())) - set(map(str, feature.levels)))
        raise DataError(
            f"Column {feature.name!r} has the level(s) {', '.join(new)}, which the first table did not have. Every "
            "table has to have the same levels; join rare ones before the imputation."
        )
    places: Array = codes.to_numpy(zero_copy_only=False)
    coded: FloatArray = (places[:, None] == np.arange(1, len(feature.levels))).astype(np.float64)
    return coded


def _floats(array: pa.Array, name: Any) -> FloatArray:
    kind = array.type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
        raise DataError(
            f"Column {name!r} is of type {kind}, which a regression cannot use. Leave it out or convert it."
        )
    values: FloatArray = array.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return values
