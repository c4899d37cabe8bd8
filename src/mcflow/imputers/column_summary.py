"""Summary of a fit by column, as a data frame and for notebooks."""

from __future__ import annotations

__all__ = ["SummaryMixin"]

from typing import TYPE_CHECKING, Any

from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

if TYPE_CHECKING:
    import pandas as pd

    from mcflow.columns.schema import TableSchema


class SummaryMixin(BaseEstimator):  # type: ignore[misc]
    """An estimator with a `schema_` that describes its fit, also below its diagram in notebooks."""

    schema_: TableSchema

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
