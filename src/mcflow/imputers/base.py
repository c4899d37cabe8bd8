"""What every table imputer shares: frames, schema, constraints, names, indicators, and observed cells left alone."""

from __future__ import annotations

__all__ = ["TableImputer"]

import abc
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self

import narwhals as nw
import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils._set_output import _get_output_config
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted

from mcflow.config import Interval, Options, check_parameter
from mcflow.data.constraints import Constraints
from mcflow.data.frames import Frame, add_columns, build_frame, convert, read_frame, select, whole_columns
from mcflow.data.planning import Wishes, plan_table
from mcflow.data.schema import Column, TableSchema
from mcflow.data.series import cells_of, fill_native, is_time, type_named
from mcflow.errors import DataError
from mcflow.typing import Array, FloatArray


class TableImputer(TransformerMixin, BaseEstimator, abc.ABC):  # type: ignore[misc]
    """Base of all imputers of tables.

    A subclass learns in `_fit_values` from the columns that vary, and fills them in `_fill_values`; everything
    that has to do with frames, names, kinds and constraints happens here.

    Attributes
    ----------
    schema_ : TableSchema
        Columns, their kinds and roles.
    constraints_ : Constraints
        What may be filled in.
    n_features_in_ : int
        Columns at fit.
    feature_names_in_ : ndarray of str
        Their names, when all have one.
    """

    #: What the subclass's own parameters may be.
    constraints: ClassVar[Mapping[str, Interval | Options]] = {}
    kinds: Mapping[Any, str] | None = None
    roles: Mapping[Any, str] | None = None
    bounds: Mapping[Any, tuple[Any, Any]] | None = None
    allowed: Mapping[Any, Any] | None = None
    rules: Sequence[str] | None = None
    unseen: str = "error"
    restore_integers: bool = False
    add_indicator: bool = False
    keep_empty_features: bool = False
    schema_: TableSchema
    constraints_: Constraints

    @abc.abstractmethod
    def _fit_values(self, values: FloatArray, columns: list[Column], low: FloatArray, high: FloatArray) -> None:
        """Learn from the codes of the columns that vary, NaN where missing, and from their bounds."""

    @abc.abstractmethod
    def _fill_values(self, values: FloatArray) -> FloatArray:
        """Return the same columns without a hole, numbers perhaps outside their bounds."""

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn from a table with holes.

        Parameters
        ----------
        X : array-like or data frame of shape (n_rows, n_columns)
            numpy, pandas, polars or pyarrow. NaN and null are missing.
        y : None
            Not used; scikit-learn's convention.

        Returns
        -------
        self

        Raises
        ------
        DataError
            When the table cannot be learned from: no rows, nothing observed, infinite values.
        ParameterError
            When a parameter is out of range.
        """
        schema, constraints, values = self._planned(X)
        model = schema.among_coded(model=True)
        columns = [schema.columns[p] for p in schema.model]
        self._fit_values(values[:, model], columns, constraints.low[model], constraints.high[model])
        self._remember(schema, constraints)
        return self

    def _planned(self, X: Any) -> tuple[TableSchema, Constraints, FloatArray]:
        """Return what a table is, what may be filled in, and the codes of its coded columns."""
        self._check_parameters()
        frame = read_frame(X)
        schema, constraints = plan_table(frame, self._wishes())
        values = frame.codes(schema)
        if schema.empty and not self.keep_empty_features:
            self._warn_of_empty([schema.columns[p].name for p in schema.empty])
        return schema, constraints, values

    def _wishes(self) -> Wishes:
        given = {name: getattr(self, name) for name in ("kinds", "roles", "bounds", "allowed", "rules")}
        said = {name: value for name, value in given.items() if value is not None}
        return Wishes(**said, whole=self.restore_integers)

    @staticmethod
    def _warn_of_empty(names: list[Any]) -> None:
        warnings.warn(
            f"Skipping features without any observed values: {names}. At least one observed value is needed to "
            "fill a column; keep_empty_features=True keeps such columns, numbers filled with 0.",
            stacklevel=4,
        )

    def _remember(self, schema: TableSchema, constraints: Constraints) -> None:
        self.schema_ = schema
        self.constraints_ = constraints
        self.n_features_in_ = len(schema.columns)
        if schema.named:
            self.feature_names_in_ = np.array([column.name for column in schema.columns], dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_

    def _check_parameters(self) -> None:
        for name, value in self.get_params(deep=False).items():
            check_parameter(name, value, self.constraints.get(name))

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
            When the columns are not those of the fit, or hold levels that it did not see.
        """
        check_is_fitted(self)
        frame, values = self._read(X)
        return self._filled(frame, values, self._fill_values)

    def _filled(
        self, frame: Frame, values: FloatArray, fill: Callable[[FloatArray], FloatArray], *, rules: bool = True
    ) -> Any:
        """Return the table with its holes filled by `fill`, in the kind that was asked for."""
        filled = self._completed(values, fill, rules=rules)
        for k, position in enumerate(self.schema_.coded):
            if not self.schema_.columns[position].filled:
                filled[:, k] = values[:, k]
        return self._outgoing(frame, values, frame.fill(self.schema_, values, filled))

    def _tables(
        self, frame: Frame, values: FloatArray, series: Iterable[FloatArray], *, rules: bool = True
    ) -> Iterator[Any]:
        """Yield the table once for every array of the columns that vary, with its holes filled from it."""
        for codes in series:
            yield self._filled(frame, values, lambda _, codes=codes: codes, rules=rules)  # type: ignore[misc]

    def _seen_by_model(self, values: FloatArray) -> FloatArray:
        """Return the codes that the model fills from, of the columns that vary."""
        return self._usable(values)[:, self.schema_.among_coded(model=True)]

    def _completed(
        self, values: FloatArray, fill: Callable[[FloatArray], FloatArray] | None = None, *, rules: bool = True
    ) -> FloatArray:
        """Return all coded columns without a hole, within the constraints."""
        fill = fill or self._fill_values
        missing = np.isnan(values)
        hidden = self._usable(values)
        model = self.schema_.among_coded(model=True)
        if model.all():
            filled = fill(hidden.copy()) if np.isnan(hidden).any() else hidden
        else:
            filled = hidden.copy()
            if np.isnan(hidden[:, model]).any():
                filled[:, model] = fill(hidden[:, model])
        for k, position in enumerate(self.schema_.coded):
            column = self.schema_.columns[position]
            if not column.in_model:
                filled[:, k] = column.low
        return self.constraints_.apply(np.where(missing, filled, values), missing, rules=rules)

    def _usable(self, values: FloatArray) -> FloatArray:
        """Return the codes that others may be filled from: without those of columns that are targets only."""
        hidden = self.schema_.among_coded(role="targets_only")
        if not hidden.any():
            return values
        usable = values.copy()
        usable[:, hidden] = np.nan
        return usable

    def _outgoing(self, frame: Frame, values: FloatArray, filled: Any) -> Any:
        """Drop empty columns, add indicators, and give the kind of table that was asked for."""
        keep = self._kept()
        indicators = self._indicators(frame)
        if frame.container == "numpy":
            for p in self.schema_.empty:
                filled[frame.missing(p), p] = 0
            whole = len(keep) == self.n_features_in_ and not indicators
            return filled if whole else np.column_stack([filled[:, keep], *indicators.values()])
        if self.keep_empty_features and self.schema_.empty:
            filled = self._with_zeros(frame, filled)
        if self.restore_integers:
            filled = whole_columns(filled, [c.name for c in self.schema_.columns if (c.base or c.kind) == "integer"])
        if len(keep) < self.n_features_in_:
            filled = select(filled, keep)
        filled = add_columns(filled, indicators) if indicators else filled
        wanted = _get_output_config("transform", self)["dense"]
        return filled if wanted == "default" else convert(filled, wanted)

    def _kept(self) -> list[int]:
        drop = set() if self.keep_empty_features else set(self.schema_.empty)
        return [p for p in range(self.n_features_in_) if p not in drop]

    def _with_zeros(self, frame: Frame, filled: Any) -> Any:
        """Fill the empty columns of numbers with 0."""
        numbers = [(p, self.schema_.columns[p]) for p in self.schema_.empty]
        fresh = []
        for p, column in numbers:
            kind = type_named(column.dtype)
            if kind is not None and not is_time(kind) and frame.missing(p).any():
                number = replace(column, kind="continuous", whole=True)
                fresh.append(fill_native(frame.series(p), frame.missing(p), np.zeros(frame.n_rows), number))
        return nw.from_native(filled, eager_only=True).with_columns(*fresh).to_native() if fresh else filled

    def _indicators(self, frame: Frame) -> dict[str, FloatArray]:
        if not self.add_indicator:
            return {}
        names = self._names_in(None)
        return {f"missingindicator_{names[p]}": frame.missing(p).astype(np.float64) for p in self.schema_.holed}

    def _read(self, X: Any) -> tuple[Frame, FloatArray]:
        """Read a table, make sure that its columns are those of the fit, and return it with its codes."""
        frame = read_frame(X)
        self._check_columns(frame)
        return frame, frame.codes(self.schema_, self.unseen)

    def _check_columns(self, frame: Frame) -> None:
        class_name = type(self).__name__
        known = getattr(self, "feature_names_in_", None)
        if known is not None and frame.named:
            _check_names(list(known), frame.names)
        elif known is not None and frame.container == "numpy":
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
        kept = [names[p] for p in self._kept()]
        if self.add_indicator:
            kept += [f"missingindicator_{names[p]}" for p in self.schema_.holed]
        return np.array(kept, dtype=object)

    def _new_table(self, codes: FloatArray) -> Any:
        """Build a table of the kind seen at fit from the codes of all coded columns."""
        columns = [self.schema_.columns[p] for p in self.schema_.coded]
        cells = {c.name: cells_of(codes[:, k], c, type_named(c.dtype)) for k, c in enumerate(columns)}
        return build_frame(self.schema_.container, cells)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


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


def _bullets(names: list[str], most: int = 5) -> str:
    lines = "".join(f"- {name}\n" for name in names[:most])
    return lines + (f"- ... and {len(names) - most} more\n" if len(names) > most else "")
