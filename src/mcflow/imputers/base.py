"""What every table imputer shares: frames, schema, names, indicators, and observed cells left alone."""

from __future__ import annotations

__all__ = ["TableImputer"]

import abc
import warnings
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils._set_output import _get_output_config
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted

from mcflow.config import check_parameter
from mcflow.data.frames import Frame, build_frame, convert, read_frame
from mcflow.data.schema import TableSchema
from mcflow.errors import DataError
from mcflow.typing import Array, FloatArray


class TableImputer(TransformerMixin, BaseEstimator, abc.ABC):  # type: ignore[misc]
    """Base of all imputers of tables.

    A subclass learns in `_fit_values` from the columns that vary, and fills them in `_fill_values`; everything
    that has to do with frames, names and columns that need no model happens here.

    Attributes
    ----------
    schema_ : TableSchema
        Columns and their roles.
    n_features_in_ : int
        Columns at fit.
    feature_names_in_ : ndarray of str
        Their names, when all have one.
    """

    add_indicator: bool
    keep_empty_features: bool
    schema_: TableSchema

    @abc.abstractmethod
    def _fit_values(self, values: FloatArray) -> None:
        """Learn from the columns that vary, of shape (n_rows, n_columns), NaN where missing."""

    @abc.abstractmethod
    def _fill_values(self, values: FloatArray) -> FloatArray:
        """Return the same columns without a hole."""

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn from a table with holes.

        Parameters
        ----------
        X : array-like or data frame of shape (n_rows, n_columns)
            numpy, pandas, polars or pyarrow. NaN and null are missing. Columns that are not numbers are
            handed through untouched by `transform`.
        y : None
            Not used; scikit-learn's convention.

        Returns
        -------
        self

        Raises
        ------
        DataError
            When the table cannot be learned from: no rows, no column of numbers, infinite values.
        ParameterError
            When a parameter is out of range.
        """
        self._check_parameters()
        frame = read_frame(X)
        schema = TableSchema.from_frame(frame)
        if schema.places("empty") and not self.keep_empty_features:
            empty = [schema.columns[p].name for p in schema.places("empty")]
            warnings.warn(
                f"Skipping features without any observed values: {empty}. At least one observed value is needed to "
                "fill a column; keep_empty_features=True keeps such columns and fills them with 0.",
                stacklevel=2,
            )
        self._fit_values(frame.values[:, schema.among_numeric("model")])
        self._remember(schema)
        return self

    def _remember(self, schema: TableSchema) -> None:
        self.schema_ = schema
        self.n_features_in_ = len(schema.columns)
        if schema.named:
            self.feature_names_in_ = np.array([column.name for column in schema.columns], dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_

    def _check_parameters(self) -> None:
        for name, value in self.get_params(deep=False).items():
            check_parameter(name, value)

    def transform(self, X: Any) -> Any:
        """Fill the holes of a table. Never refits.

        Parameters
        ----------
        X : array-like or data frame of shape (n_rows, n_columns)
            The same columns as at fit.

        Returns
        -------
        array or data frame
            The same kind as X unless `set_output` says otherwise. Only missing cells differ; a row's answer does
            not depend on the rows it comes with.

        Raises
        ------
        DataError
            When the columns are not those of the fit.
        """
        check_is_fitted(self)
        frame = self._read(X)
        filled = frame.fill(self._filled(frame.values))
        return self._outgoing(self._arrange(frame, filled))

    def _filled(self, values: FloatArray) -> FloatArray:
        """Return all columns of numbers without a hole, those without observed values as zeros."""
        filled = np.where(np.isnan(values), 0.0, values)
        for k, position in enumerate(self.schema_.numeric):
            column = self.schema_.columns[position]
            if column.role == "constant":
                filled[:, k] = np.where(np.isnan(values[:, k]), column.value, values[:, k])
        modelled = self.schema_.among_numeric("model")
        if modelled.any() and np.isnan(values[:, modelled]).any():
            filled[:, modelled] = self._fill_values(values[:, modelled])
        return filled

    def _arrange(self, frame: Frame, filled: Any) -> Any:
        """Drop empty columns and add indicators."""
        drop = set() if self.keep_empty_features else set(self.schema_.places("empty"))
        keep = [p for p in range(self.n_features_in_) if p not in drop]
        indicators = self._indicators(frame.values)
        if frame.kind == "numpy":
            return np.column_stack([filled[:, keep], *indicators.values()]) if drop or indicators else filled
        if not drop and not indicators:
            return filled
        import narwhals as nw

        native = nw.from_native(filled, eager_only=True)[:, keep]
        added = [nw.new_series(name, v, backend=native.implementation) for name, v in indicators.items()]
        return native.with_columns(*added).to_native()

    def _indicators(self, values: FloatArray) -> dict[str, FloatArray]:
        if not self.add_indicator:
            return {}
        missing = np.isnan(values)
        places = [(k, p) for k, p in enumerate(self.schema_.numeric) if self.schema_.columns[p].missing]
        names = self._names_in(None)
        return {f"missingindicator_{names[p]}": missing[:, k].astype(np.float64) for k, p in places}

    def _outgoing(self, result: Any) -> Any:
        wanted = _get_output_config("transform", self)["dense"]
        if wanted == "default" or isinstance(result, np.ndarray):
            return result
        return convert(result, wanted)

    def _read(self, X: Any) -> Frame:
        """Read a table and make sure that its columns are those of the fit."""
        frame = read_frame(X, numeric=self._known_numeric(X))
        self._check_columns(frame)
        return frame

    def _known_numeric(self, X: Any) -> list[int] | None:
        """Return which positions have to be numbers, when X has the right number of columns to ask for them."""
        shape = getattr(X, "shape", None)
        fits = shape is not None and len(shape) == 2 and shape[1] == self.n_features_in_
        return self.schema_.numeric if fits and self._same_names(X) else None

    def _same_names(self, X: Any) -> bool:
        names = getattr(X, "column_names", None) or getattr(X, "columns", None)
        known = getattr(self, "feature_names_in_", None)
        return names is None or known is None or [str(n) for n in names] == list(known)

    def _check_columns(self, frame: Frame) -> None:
        class_name = type(self).__name__
        known = getattr(self, "feature_names_in_", None)
        if known is not None and frame.named:
            self._check_names(list(known), frame.names)
        elif known is not None and frame.kind == "numpy":
            warnings.warn(
                f"X does not have valid feature names, but {class_name} was fitted with feature names", stacklevel=4
            )
        elif known is None and frame.named:
            warnings.warn(f"X has feature names, but {class_name} was fitted without feature names", stacklevel=4)
        if len(frame.names) != self.n_features_in_:
            raise DataError(
                f"X has {len(frame.names)} features, but {class_name} is expecting {self.n_features_in_} features as "
                "input. Give the columns that the model was fitted on."
            )

    @staticmethod
    def _check_names(known: list[str], given: list[str]) -> None:
        if known == given:
            return
        message = "The feature names should match those that were passed during fit.\n"
        new = [name for name in given if name not in set(known)]
        gone = [name for name in known if name not in set(given)]
        if new:
            message += "Feature names unseen at fit time:\n" + _bullets(new)
        if gone:
            message += "Feature names seen at fit time, yet now missing:\n" + _bullets(gone)
        if not new and not gone:
            message += "Feature names must be in the same order as they were in fit.\n"
        raise DataError(message)

    def _names_in(self, input_features: Any) -> Array:
        names: Array = _check_feature_names_in(self, input_features)
        return names

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Return the names of the columns that `transform` gives back.

        Parameters
        ----------
        input_features : array-like of str, optional
            Names to use when the fit had none.

        Returns
        -------
        ndarray of str
        """
        check_is_fitted(self, "n_features_in_")
        names = self._names_in(input_features)
        drop = set() if self.keep_empty_features else set(self.schema_.places("empty"))
        kept = [name for p, name in enumerate(names) if p not in drop]
        if self.add_indicator:
            kept += [f"missingindicator_{names[p]}" for p in self.schema_.numeric if self.schema_.columns[p].missing]
        return np.array(kept, dtype=object)

    def _new_table(self, values: FloatArray) -> Any:
        """Build a table of the kind seen at fit from complete columns of numbers, all but the empty ones."""
        columns: dict[Any, Array] = {}
        for k, position in enumerate(self.schema_.places("model", "constant")):
            column = self.schema_.columns[position]
            numbers: Array = values[:, k]
            columns[column.name] = _as_dtype(numbers, column.dtype)
        return build_frame(self.schema_.kind, columns)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _as_dtype(numbers: FloatArray, dtype: str) -> Array:
    if "int" in dtype:
        return np.rint(numbers).astype(np.int64)
    return numbers.astype(np.float32) if dtype == "float32" else numbers


def _bullets(names: list[str], most: int = 5) -> str:
    lines = "".join(f"- {name}\n" for name in names[:most])
    return lines + (f"- ... and {len(names) - most} more\n" if len(names) > most else "")
