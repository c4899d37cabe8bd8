"""Base class of table imputers: data frames, column types, constraints, feature names, indicators and the summary."""

from __future__ import annotations

__all__ = ["TableImputer"]

import abc
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import narwhals as nw
import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils._set_output import _get_output_config
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted

from mcflow.columns import frames
from mcflow.columns.constraints import Constraints
from mcflow.columns.frames import Frame, read_frame, read_where
from mcflow.columns.planning import column_settings, plan_table
from mcflow.columns.schema import CATEGORY_KINDS, Column, TableSchema
from mcflow.config import Interval, Options, check_parameters
from mcflow.errors import DataError, McflowWarning, TrainingError
from mcflow.typing import Array, BoolArray, FloatArray, TableT

if TYPE_CHECKING:
    import pandas as pd

#: Parameters with settings of columns, which replace those of the schema.
COLUMN_SETTINGS = ("kinds", "roles", "bounds", "allowed", "rules", "missing_values")
MAX_NAMES = 5  #: Number of feature names that an error lists.


@dataclass(kw_only=True, eq=False, repr=False)
class TableImputer(TransformerMixin, BaseEstimator, abc.ABC):  # type: ignore[misc]
    """Base class of all table imputers.

    A subclass implements `_fit_values` and `_fill_values` on arrays of codes of the columns that vary. This class
    handles data frames, feature names, column types and constraints, and restores observed cells.

    Attributes
    ----------
    schema_ : TableSchema
        Columns with their types and roles.
    constraints_ : Constraints
        Constraints on filled values.
    n_features_in_ : int
        Number of columns seen during fit.
    feature_names_in_ : ndarray of str
        Names of these columns; defined only if all names are strings.
    """

    constraints: ClassVar[Mapping[str, Interval | Options]] = {}  #: Constraints on the parameters of the subclass.
    schema: str | Path | Mapping[str, Any] | None = None
    kinds: Mapping[Any, str] | None = None
    roles: Mapping[Any, str] | None = None
    bounds: Mapping[Any, tuple[Any, Any]] | None = None
    allowed: Mapping[Any, Any] | None = None
    rules: Sequence[str] | None = None
    unseen: str = "missing"
    missing_values: Any = None
    decimals: str | None = None
    restore_integers: bool = False
    add_indicator: bool = False
    keep_empty_features: bool = False

    @abc.abstractmethod
    def _fit_values(self, values: FloatArray, columns: list[Column], low: FloatArray, high: FloatArray) -> None:
        """Fit to the codes of the columns that vary, NaN where missing, with bounds `low` and `high`."""

    @abc.abstractmethod
    def _fill_values(self, values: FloatArray) -> FloatArray:
        """Return the same columns with missing cells filled; numbers may be out of bounds."""

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit the imputer to a table with missing cells.

        Parameters
        ----------
        X : array-like or data frame of shape (n_rows, n_columns)
            A numpy array, or a pandas, polars or pyarrow table. NaN and null are missing, and what
            `missing_values` names. Text may hold numbers such as "$8,610.00".
        y : None
            Ignored, present for API consistency.

        Returns
        -------
        self

        Raises
        ------
        DataError
            If the table has no rows, no observed values or infinite values.
        ParameterError
            If a parameter is out of range.
        """
        return self._fit_planned(*self._planned(X))

    def _fit_planned(self, schema: TableSchema, constraints: Constraints, values: FloatArray, *rest: Any) -> Self:
        model = schema.model_among_coded
        columns = [schema.columns[p] for p in schema.model]
        self._fit_values(values[:, model], columns, constraints.low[model], constraints.high[model], *rest)
        self._remember(schema, constraints)
        return self

    def _planned(self, X: Any) -> tuple[TableSchema, Constraints, FloatArray]:
        """Return schema and constraints of a table, and the codes of its coded columns."""
        check_parameters(self)
        frame = read_frame(X)
        given = {name: getattr(self, name) for name in (*COLUMN_SETTINGS, "decimals")}
        settings = column_settings(frame, self.schema, whole=self.restore_integers, **given)
        schema, constraints = plan_table(frame, settings)
        values = frame.codes(schema)
        if schema.empty and not self.keep_empty_features:
            warnings.warn(
                f"Skipping features without any observed values: {[schema.columns[p].name for p in schema.empty]}. At "
                "least one observed value is needed to fill a column; keep_empty_features=True keeps such columns, "
                "numbers filled with 0.",
                stacklevel=3,
            )
        return schema, constraints, values

    def _remember(self, schema: TableSchema, constraints: Constraints) -> None:
        self.schema_ = schema
        self.constraints_ = constraints
        self.n_features_in_ = len(schema.columns)
        if schema.named:
            self.feature_names_in_ = np.array([column.name for column in schema.columns], dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_

    if TYPE_CHECKING:

        def fit_transform(self, X: TableT, y: Any = None, **fit_params: Any) -> TableT:
            """Fit to a table and fill it."""

    def transform(self, X: TableT, *, where: Any = None) -> TableT:
        """Fill the missing cells of a table, without refitting.

        Parameters
        ----------
        X : array-like or data frame of shape (n_rows, n_columns)
            The same columns as at fit.
        where : array-like or data frame of bool, optional
            Missing cells to fill; others stay missing. A data frame may have some of the columns; cells of the others
            are not filled. By default, all missing cells are filled.

        Returns
        -------
        array or data frame
            The same type as X unless `set_output` says otherwise. Only missing cells change. The result for a row does
            not depend on the other rows.

        Raises
        ------
        DataError
            If the columns differ from those of the fit, or contain unseen categories.
        """
        check_is_fitted(self)
        frame, values = self._read(X)
        wanted = None if where is None else read_where(where, frame)
        filled: TableT = self._filled(frame, values, where=wanted)
        return filled

    def _filled(
        self,
        frame: Frame,
        values: FloatArray,
        codes: FloatArray | None = None,
        *,
        rules: bool = True,
        where: BoolArray | None = None,
    ) -> Any:
        """Return the table with missing cells filled as by `_completed`, in the requested output type."""
        filled = self._completed(values, codes, rules=rules)
        for k, position in enumerate(self.schema_.coded):
            if not self.schema_.columns[position].filled:
                filled[:, k] = values[:, k]
        if where is not None:
            filled = np.where(where[:, list(self.schema_.coded)], filled, values)
        return self._outgoing(frame, frame.fill(self.schema_, values, filled), where)

    def _tables(self, frame: Frame, values: FloatArray, series: Iterable[FloatArray], **how: Any) -> Iterator[Any]:
        """Yield a filled table, as `_filled` does, for each array of codes of the columns that vary."""
        for codes in series:
            yield self._filled(frame, values, codes, **how)

    def _seen_by_model(self, values: FloatArray) -> FloatArray:
        """Return the codes of the columns that vary, without those of columns with the role "targets_only"."""
        hidden = np.array([self.schema_.columns[p].role == "targets_only" for p in self.schema_.model], dtype=bool)
        given: FloatArray = values[:, self.schema_.model_among_coded]
        given[:, hidden] = np.nan
        return given

    def _completed(self, values: FloatArray, codes: FloatArray | None = None, *, rules: bool = True) -> FloatArray:
        """Return all coded columns with missing cells filled, by `codes` of the columns of the model if given."""
        missing = np.isnan(values)
        filled, given = values.copy(), self._seen_by_model(values)
        if np.isnan(given).any():
            filled[:, self.schema_.model_among_coded] = self._fill_values(given) if codes is None else codes
        for k, position in enumerate(self.schema_.coded):
            column = self.schema_.columns[position]
            if not column.in_model:
                filled[:, k] = column.low
        done = self.constraints_.apply(np.where(missing, filled, values), missing, rules=rules)
        self._refuse_unfilled(done, missing, quantiles=not rules)
        return done

    def _refuse_unfilled(self, values: FloatArray, missing: BoolArray, *, quantiles: bool) -> None:
        """Raise `TrainingError` if a cell that has to be filled is not; quantiles leave unordered categories out."""
        columns = [self.schema_.columns[p] for p in self.schema_.coded]
        wanted = np.array([not (quantiles and c.kind in ("boolean", "category")) for c in columns], dtype=bool)
        counts = (missing & ~np.isfinite(values) & wanted).sum(axis=0)
        if counts.any():
            found = ", ".join(f"{c.name!r} ({count:,})" for c, count in zip(columns, counts, strict=True) if count)
            raise TrainingError(
                f"The model gives no finite value for missing cells of these columns, with their counts: {found}. "
                "Its weights are damaged or its training diverged: fit it again, or load another file."
            )

    def _outgoing(self, frame: Frame, filled: Any, where: BoolArray | None) -> Any:
        """Drop empty columns, add indicators, and convert to the requested output type."""
        keep = self._kept()
        empty = {p: frame.missing(p, self.schema_.columns[p]) for p in self.schema_.empty}
        empty = empty if where is None else {p: missing & where[:, p] for p, missing in empty.items()}
        indicators = self._indicators(frame)
        if frame.container == "numpy":
            for p, missing in empty.items():
                filled[missing, p] = 0
            whole = len(keep) == self.n_features_in_ and not indicators
            return filled if whole else np.column_stack([filled[:, keep], *indicators.values()])
        if self.keep_empty_features and empty:
            filled = self._with_zeros(frame, filled, empty)
        if self.restore_integers:
            integers = [c.name for c in self.schema_.columns if (c.base or c.kind) == "integer"]
            filled = frames.whole_columns(filled, integers)
        if len(keep) < self.n_features_in_:
            filled = frames.select(filled, keep)
        filled = frames.add_columns(filled, indicators) if indicators else filled
        wanted = _get_output_config("transform", self)["dense"]
        return filled if wanted == "default" else frames.convert(filled, wanted)

    def _kept(self) -> list[int]:
        drop = set() if self.keep_empty_features else set(self.schema_.empty)
        return [p for p in range(self.n_features_in_) if p not in drop]

    def _with_zeros(self, frame: Frame, filled: Any, empty: Mapping[int, BoolArray]) -> Any:
        """Fill cells of empty numeric columns with 0, given which of them by column."""
        fresh = []
        for p, missing in empty.items():
            column = self.schema_.columns[p]
            kind = frames.type_named(column.dtype)
            if kind is not None and not frames.is_time(kind) and missing.any():
                number = replace(column, kind="continuous", whole=True)
                fresh.append(frames.fill_native(frame.series(p), missing, np.zeros(frame.n_rows), number))
        return nw.from_native(filled, eager_only=True).with_columns(*fresh).to_native() if fresh else filled

    def _indicators(self, frame: Frame) -> dict[str, FloatArray]:
        if not self.add_indicator:
            return {}
        names = _check_feature_names_in(self, None)
        columns = self.schema_.columns
        masks = {p: frame.missing(p, columns[p]).astype(np.float64) for p in self.schema_.incomplete}
        return {f"missingindicator_{names[p]}": mask for p, mask in masks.items()}

    def _read(self, X: Any) -> tuple[Frame, FloatArray]:
        """Read a table, check that its columns are those of the fit, and return it with its codes."""
        frame = read_frame(X)
        self._check_columns(frame)
        values = frame.codes(self.schema_, self.unseen)
        if self.unseen == "missing":
            self._warn_of_unseen(frame, values)
        return frame, values

    def _warn_of_unseen(self, frame: Frame, values: FloatArray) -> None:
        """Warn of observed cells without a code. The text names columns only, so that folds repeat the same text."""
        columns = [(k, p, self.schema_.columns[p]) for k, p in enumerate(self.schema_.coded)]
        lacking = [(np.isnan(values[:, k]), p, c) for k, p, c in columns if (c.base or c.kind) in CATEGORY_KINDS]
        names = [c.name for absent, p, c in lacking if absent.any() and (absent & ~frame.missing(p, c)).any()]
        if names:
            warnings.warn(
                f"Categories that the fit did not see in: {', '.join(map(repr, names))}. They stay as they are and "
                "tell the model nothing about their rows. Use `check` to list them, or unseen='error' to reject them.",
                McflowWarning,
                stacklevel=4,
            )

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
                "input. Pass the columns that the model was fitted on."
            )

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Return the names of the columns that `transform` returns.

        Parameters
        ----------
        input_features : array-like of str, optional
            Names to use if the fit had none.

        Returns
        -------
        ndarray of str
        """
        check_is_fitted(self, "n_features_in_")
        names = _check_feature_names_in(self, input_features)
        kept = [names[p] for p in self._kept()]
        if self.add_indicator:
            kept += [f"missingindicator_{names[p]}" for p in self.schema_.incomplete]
        return np.array(kept, dtype=object)

    def summary(self) -> pd.DataFrame:
        """Return what the fit knows of each column.

        Returns
        -------
        pandas.DataFrame
            A row for each column of the table, with its `kind`, its `role`, the share of `missing` cells at fit, and
            the `error` on validation cells relative to that of the mean or the most frequent category: 0 is perfect,
            and 1 is no better than the mean. The error is NaN where it was not measured.
        """
        import pandas as pd

        check_is_fitted(self)
        schema = self.schema_
        history = getattr(self, "history_", None)
        errors = {schema.model[k]: error for k, _, error in getattr(history, "column_errors", ())}
        rows = [
            (column.kind, column.role, column.missing / schema.n_rows, errors.get(position, float("nan")))
            for position, column in enumerate(schema.columns)
        ]
        names = pd.Index([column.name for column in schema.columns], name="column")
        return pd.DataFrame(rows, index=names, columns=["kind", "role", "missing", "error"])

    def _repr_html_inner(self) -> str:
        """Return the diagram of scikit-learn and, after a fit, the summary."""
        diagram: str = super()._repr_html_inner()
        if not hasattr(self, "schema_"):
            return diagram
        table = self.summary()
        table["missing"] = table["missing"].map("{:.1%}".format)
        table["error"] = table["error"].map("{:.2f}".format).replace("nan", "–")
        shown: str = table.to_html(border=0)
        return diagram + shown

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        bundle: dict[str, str] = super()._repr_mimebundle_(**kwargs)
        return bundle | ({"text/html": self._repr_html_inner()} if "text/html" in bundle else {})

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
    for title, names in (("unseen at fit time", new), ("seen at fit time, yet now missing", gone)):
        if names:
            message += f"Feature names {title}:\n" + "".join(f"- {name}\n" for name in names[:MAX_NAMES])
        if len(names) > MAX_NAMES:
            message += f"- ... and {len(names) - MAX_NAMES} more\n"
    if not new and not gone:
        message += "Feature names must be in the same order as they were in fit.\n"
    raise DataError(message)
