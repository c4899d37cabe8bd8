"""MCFlowImputer, the imputer of tables."""

from __future__ import annotations

__all__ = ["MCFlowImputer", "warn_of_equal_rows"]

import contextlib
import dataclasses
import itertools
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from mcflow.columns.checking import CheckReport, check_table
from mcflow.columns.frames import build_frame, cells_of, read_frame, read_where, type_named
from mcflow.columns.schema import CATEGORY_KINDS, Column
from mcflow.config import Interval, Options, check_parameter
from mcflow.errors import DataError, McflowWarning, ParameterError
from mcflow.fitting.progress import progress_callbacks
from mcflow.imputers import presets
from mcflow.imputers.base import TableImputer
from mcflow.imputers.presets import Config
from mcflow.masked.config import MaskedConfig
from mcflow.paper.config import PaperConfig
from mcflow.random import Streams, checked_ids, hash_rows, seed_from
from mcflow.typing import FloatArray, RandomState, TableT

if TYPE_CHECKING:  # these import torch, which loads at the first fit
    from mcflow.fitting.distributed import Workers
    from mcflow.fitting.out_of_core import RestOfRows
    from mcflow.imputers.presets import TableModel
    from mcflow.imputers.sensitivity import Sensitivity
    from mcflow.paper.chain import ChainTrace

EQUAL_SHARE = 0.01  # fraction of the incomplete rows that may be equal to others before a warning is issued
EQUAL_ROWS = 10  # number of incomplete rows that may be equal to others before a warning is issued


def _has_categories(imputer: MCFlowImputer) -> bool:
    """Check that the model has categorical columns; without a model, `predict_proba` raises its own error."""
    if hasattr(imputer, "model_") and not imputer.model_.categories:
        raise AttributeError(
            "The table of the fit had no categorical column, so there are no probabilities to predict."
        )
    return True


@dataclass(kw_only=True, eq=False, repr=False)
class MCFlowImputer(TableImputer):
    """Fill missing cells of tables with neural networks, with draws, intervals and densities.

    Parameters
    ----------
    preset : {"default", "paper"}, MaskedConfig or PaperConfig, default="default"
        Algorithm and hyper-parameters. "default" trains a network to predict hidden cells and is the more accurate one;
        "paper" is the method of the MCFlow paper. A configuration object sets every hyper-parameter.
    schema : path-like or dict, optional
        A schema file written by ``mcflow schema``, or its content: kinds, roles, bounds and other settings of columns.
        It fixes what would otherwise be detected, for example in every fold of a cross-validation. The parameters
        below replace its entries.
    kinds : dict, optional
        Types of columns that replace the detected ones: "continuous", "integer", "boolean", "category", "ordered" or
        "datetime"; "text" and "identifier" columns are not filled. Keys are names, or positions for arrays.
    roles : dict, optional
        Roles of columns: "ignore" passes a column through; "predictors_only" uses it but never fills it;
        "targets_only" fills it but does not use it to fill others; "outcome" does neither.
    bounds : dict, optional
        Pairs of lower and upper bounds of filled values, None for unbounded, such as ``{"age": (0, 120)}``. Defaults to
        the observed range.
    allowed : dict, optional
        Lists of the only values that may be filled in, or "observed" for the observed ones.
    rules : list of str, optional
        Comparisons that filled rows satisfy, such as ``["low <= high", "age >= 18"]``.
    unseen : {"missing", "error"}, default="missing"
        How to handle categories that were not seen at fit: treat the cell as missing when the rest of its row is
        filled, with a warning, or raise an error. The cell itself is never changed.
    missing_values : "auto", value, list or dict, optional
        Values that count as missing besides NaN and null, in all columns or by column, such as ``[-999]`` or
        ``{"sbp": [-999], "job": ["unknown"]}``. "auto" takes all values that the fit otherwise warns of: isolated
        codes such as -999, and words such as "unknown". An empty list keeps the values of a column without a warning.
    decimals : {None, "observed"}, default=None
        "observed" fills numbers with as many decimals as the observed cells of their column have. By default numbers
        have full precision.
    restore_integers : bool, default=False
        Return float columns of whole numbers as integers. Otherwise, a table of floats only is treated as measurements,
        and whole numbers with a range below 50 are filled with means, which may be fractions.
    scaling : {"range", "auto"}, optional
        For "paper": scale numbers by their observed range, as published, or, with "auto", map columns with heavy tails
        or many equal values by rank. "default" uses both values and ranks.
    max_epochs : int, optional
        Maximum number of epochs. Defaults to a number that depends on the table; 500 for "paper".
    max_time : float, optional
        Maximum time of the fit in seconds. The learning-rate schedule follows the clock, so that a short fit ends with
        a decayed learning rate too.
    warm_start : bool, default=False
        Start a second fit on a table with the same columns from the networks of the first; "default" only.
    batch_size : int, optional
        Rows per step. Defaults to 256; 128 for "paper".
    learning_rate : float, optional
        Learning rate. Defaults to a maximum of 2e-3, of 4e-3 for tables of up to 10,000 rows; 1e-4 for "paper".
    likelihood_weight : float, optional
        For "paper": λ, the weight of the log-density relative to the squared error in the loss of the latent network.
        The paper gives no value; 1e-3 was best on cells hidden from the training rows of two tables.
    tolerance : float, optional
        For "paper": training ends early when both losses change by at most this fraction of their range; 0 disables
        early stopping. "default" stops early on validation cells.
    n_couplings : int, optional
        Affine couplings of the flow. Defaults to 6.
    n_models : int, default=1
        Number of models. The first is fitted to all rows, the others to bootstrap samples; with "default" they start
        from the networks of the first and take about a quarter of its time. `draw` uses the models in turn, so that
        pooled analyses include the uncertainty of the model.
    density : {"auto", True, False}, default="auto"
        When the flow G of "default" is fitted. "auto" fits it at its first use, by `score_samples`, `sample` or `save`;
        until then the model keeps its training rows, at most 65,536 of them. True fits it in `fit`. False never fits
        it: `save` then writes a file without it, and `score_samples` and `sample` raise `ParameterError`.
        The same seed gives the same bits with "auto" and True. A fit shared by several processes treats "auto" as True.
    calibrate : bool, default=True
        Calibrate quantiles and draws on validation cells.
    add_indicator : bool, default=False
        Append a missing indicator for each column that had missing cells at fit, as scikit-learn does.
    keep_empty_features : bool, default=False
        Keep columns without observed values, with numbers filled with 0, instead of dropping them.
    checkpoint_dir : path-like, optional
        Folder for checkpoints. An interrupted fit resumes from there and ends with the same weights, bit for bit.
    device : str, default="auto"
        "cpu", "cuda", "cuda:1" or "mps"; "auto" chooses the fastest available one.
    random_state : int, Generator, RandomState or None, default=None
        Seed of all random numbers. The same seed gives the same bits, independent of any global state.
    verbose : bool or {"auto", "plain", "json", "none"}, default=False
        Show epochs, losses and the remaining time on standard error: True or "auto" as a live display in terminals and
        notebooks and as lines elsewhere, "plain" as lines, "json" as one JSON object per line.

    Attributes
    ----------
    history_ : History
        Losses of every epoch.
    n_epochs_ : int
        Number of epochs.
    config_ : MaskedConfig or PaperConfig
        Configuration of the fit, with all sizes chosen.
    schema_ : TableSchema
        Columns with their types and roles.

    Notes
    -----
    With "default", a network H reads the observed cells of a row and the mask, and is trained to predict cells that are
    hidden from it. It predicts a distribution for every missing cell. Boosted trees estimate the cell as well, from the
    observed cells alone and from rows completed by H. Numbers are filled with a blend of all estimates, whose weights
    are fitted on validation cells; categories are filled with the most probable one.

    `draw` starts from these predictions and then redraws each missing cell from donors: observed values in the same
    leaf of a tree. In tables of at most 5,000 rows a factored density draws cells instead where validation rows are
    clearly more probable under it.

    The flow G of "default" is a joint density of the missing cells of a row, given the predictions of H. It gives
    `score_samples` and `sample` only: `transform`, `predict_proba`, `quantile`, `interval` and `draw` do not use it.

    With "paper", the flow G maps rows to a Gaussian latent space and is trained by maximum likelihood on completed
    rows; H maps latent points to more probable ones that agree with the observed cells. At every epoch that is a power
    of two, the missing cells are refilled with G⁻¹(H(G(x))), both networks are kept, and G is initialised again.
    Categories are encoded as noisy indicators, and their probabilities are read off the completed rows.

    Constant columns need no model.

    References
    ----------
    T. W. Richardson, W. Wu, L. Lin, B. Xu and E. A. Bernal, "MCFlow: Monte Carlo Flow Models for Data
    Imputation", CVPR 2020.

    Examples
    --------
    >>> import numpy as np
    >>> from mcflow import MCFlowImputer
    >>> rows = np.random.default_rng(0).normal(size=(200, 3))
    >>> rows[::7, 1] = np.nan
    >>> filled = MCFlowImputer(max_epochs=4, random_state=0).fit_transform(rows)
    >>> bool(np.isnan(filled).any())
    False
    """

    constraints: ClassVar[Mapping[str, Interval | Options]] = {
        "preset": Options(tuple(presets.PRESETS), types=(MaskedConfig, PaperConfig))
    }
    preset: str | Config = "default"
    scaling: str | None = None
    max_epochs: int | None = None
    max_time: float | None = None
    warm_start: bool = False
    batch_size: int | None = None
    learning_rate: float | None = None
    likelihood_weight: float | None = None
    tolerance: float | None = None
    n_couplings: int | None = None
    n_models: int = 1
    density: bool | str = "auto"
    calibrate: bool = True
    checkpoint_dir: str | Path | None = None
    device: str = "auto"
    random_state: RandomState = None
    verbose: bool | str = False
    config_: Any = field(init=False)
    model_: TableModel = field(init=False)
    other_models_: list[TableModel] = field(init=False)

    def fit_stream(
        self, sample: Any, rest: Callable[[], Iterable[Any]], n_rest: int, *, folder: str | Path | None = None
    ) -> Self:
        """Fit the imputer to a table that does not fit in memory; "default" only.

        Column types, ranges, the encoding, the flow and the calibration are based on `sample`, which includes the
        smallest and largest values and all categories, as `mcflow.files.survey` takes it. H is also trained on the
        `n_rest` other rows, which `rest` returns as an iterable of data frames; `folder` holds them during the fit,
        five bytes per cell.
        """
        from mcflow.fitting.out_of_core import RestOfRows

        schema, constraints, values = self._planned(sample)
        model = schema.model_among_coded

        def codes() -> Iterator[FloatArray]:
            for table in rest():
                yield read_frame(table).codes(schema, self.unseen)[:, model]

        more = RestOfRows(codes, n_rest, Path(tempfile.gettempdir() if folder is None else folder))
        return self._fit_planned(schema, constraints, values, more)

    def _fit_values(
        self,
        values: FloatArray,
        columns: list[Column],
        low: FloatArray,
        high: FloatArray,
        rest: RestOfRows | None = None,
    ) -> None:
        from mcflow.fitting.distributed import current

        config = presets.resolve(self.preset, **{name: getattr(self, name) for name in presets.OVERRIDES})
        self._warn_of_unused(config)
        algorithm = presets.table_algorithm(config)
        workers = current()
        seed = workers.from_first(presets.fit_seed(self.random_state, self.checkpoint_dir))
        config = dataclasses.replace(config, max_time=config.max_time / algorithm.time_of_copies(config, self.n_models))
        n_rows = len(values) + (0 if rest is None else rest.n_rows)
        model: TableModel = algorithm.prepare(values, columns, (low, high), seed, config, n_rows=n_rows)
        model.calibrates, model.density = self.calibrate, self.density
        if self.warm_start:
            model.warm_start(getattr(self, "model_", None))
        if columns:
            inputs: dict[str, Any] = {"kinds": [c.kind for c in columns], "bounds": [low.tolist(), high.tolist()]}
            inputs |= {"seed": seed, "config": presets.config_to_dict(model.config), "rows": n_rows}
            presets.check_same(workers, values, inputs)
            shown = self.verbose, self.checkpoint_dir
            callbacks = presets.fit_callbacks(*shown, values, inputs) if workers.is_first else []
            with contextlib.ExitStack() as stack:
                more = None if rest is None else stack.enter_context(rest.encoded(values, model, workers))
                model.fit(values, Streams(seed), presets.choose_device(self.device), callbacks, more, workers=workers)
            for callback in callbacks:
                callback.on_fitted(model.history)
        others = self._fit_copies(model, values, seed, workers) if columns else []
        # Assigned at the end: a fit that fails leaves an earlier one as it was.
        presets.set_model(self, model, seed)
        self.other_models_ = others

    def _fit_copies(self, first: TableModel, values: FloatArray, seed: int, workers: Workers) -> list[TableModel]:
        """Fit the models after the first to bootstrap samples of the rows."""
        others = []
        for k in range(1, self.n_models):
            own_seed = seed_from(np.random.default_rng([seed, k]))
            other = first.bootstrap_copy(own_seed)
            other.calibrates = False
            sample = _resampled(values, np.random.default_rng(own_seed))
            callbacks = progress_callbacks(self.verbose) if workers.is_first else []
            other.fit(sample, Streams(own_seed), presets.choose_device(self.device), callbacks, workers=workers)
            others.append(other)
        return others

    def _warn_of_unused(self, config: Config) -> None:
        fields = {field.name for field in dataclasses.fields(config)}
        unused = [name for name in presets.OVERRIDES if getattr(self, name) is not None and name not in fields]
        if unused:
            warnings.warn(
                f"{', '.join(unused)} has no effect with this preset; preset='paper' uses it.",
                McflowWarning,
                stacklevel=5,
            )

    def _fill_values(self, values: FloatArray) -> FloatArray:
        return self.model_.fill(values)

    @available_if(_has_categories)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> dict[Any, Any]:
        """Return the probabilities of all categories, for every categorical column that is filled.

        Parameters
        ----------
        X : array-like or data frame of shape (n_rows, n_columns)
            The same columns as at fit.

        Returns
        -------
        dict
            By column, a table of the same type as X with a row for each row of X and a column for each category. The
            category of an observed cell has probability 1.
        """
        check_is_fitted(self)
        frame, values = self._read(X)
        model = self.schema_.model_among_coded
        found = self.model_.probabilities(self._seen_by_model(values), values[:, model]) if model.any() else {}
        tables = {}
        for k, position in enumerate(self.schema_.model):
            column = self.schema_.columns[position]
            if column.kind in CATEGORY_KINDS and column.filled:
                tables[column.name] = frame.table_like(dict(zip(column.categories, found[k].T, strict=True)))
        return tables

    def draw(
        self, X: TableT, m: int = 20, random_state: RandomState = None, *, row_ids: Any = None, where: Any = None
    ) -> Iterator[TableT]:
        """Draw completed tables from the distribution of the missing cells given the observed ones.

        Parameters
        ----------
        X : array-like or data frame of shape (n_rows, n_columns)
            The same columns as at fit; the rows may be new.
        m : int, default=20
            Number of tables to draw.
        random_state : int, Generator, RandomState or None
            Seed of the draws. The draws of a row depend on the seed and on the row only, not on the order or the
            number of rows.
        row_ids : array-like of shape (n_rows,), optional
            An integer that identifies each row. Without it, rows with equal cells get equal draws.
        where : array-like or data frame of bool, optional
            Missing cells to fill, as for `transform`. The others stay missing in all tables.

        Returns
        -------
        iterator
            m tables of the same type as X, generated one at a time. Only missing cells differ. The missing cells of a
            row are drawn jointly.

        Raises
        ------
        ParameterError
            If m is not a positive integer, row_ids has another length, or the draws need the flow G and the imputer was
            fitted with ``density=False``.
        DataError
            If the columns differ from those of the fit.

        Examples
        --------
        >>> import numpy as np
        >>> from mcflow import MCFlowImputer
        >>> rows = np.random.default_rng(0).normal(size=(200, 3))
        >>> rows[::7, 1] = np.nan
        >>> imputer = MCFlowImputer(max_epochs=4, random_state=0).fit(rows)
        >>> means = [table[:, 1].mean() for table in imputer.draw(rows, m=5, random_state=0)]
        >>> len(set(means))
        5
        """
        check_is_fitted(self)
        check_parameter("m", m, Interval(int, 1))
        frame, values = self._read(X)
        ids = None if row_ids is None else checked_ids("row_ids", row_ids, len(values))
        if ids is None:
            warn_of_equal_rows(values)
        wanted = None if where is None else read_where(where, frame)
        series = self._series(values, int(m), seed_from(random_state), ids)
        return self._tables(frame, values, series, where=wanted)

    def _series(self, values: FloatArray, m: int, seed: int, ids: FloatArray | None) -> Iterator[FloatArray]:
        """Yield draws of the columns that vary, from the models in turn."""
        models = [self.model_, *self.other_models_]
        given = self._seen_by_model(values)
        seeds = [seed, *(seed_from(np.random.default_rng([seed, k])) for k in range(1, len(models)))]
        counts = [len(range(k, m, len(models))) for k in range(len(models))]
        asked = zip(models, counts, seeds, strict=True)
        turns = [model.draws(given, count, own_seed, ids) for model, count, own_seed in asked]
        for k in range(m):
            yield next(turns[k % len(models)])

    def quantile(self, X: Any, q: Any) -> Any:
        """Fill missing cells with quantiles of their predictive distributions.

        Parameters
        ----------
        X : array-like or data frame of shape (n_rows, n_columns)
            The same columns as at fit.
        q : float or sequence of float
            Probabilities from 0 to 1.

        Returns
        -------
        table or list of tables
            One table of the same type as X per probability. Cells of unordered categories stay missing; use
            `predict_proba` for them.

        Raises
        ------
        ParameterError
            If a probability is not between 0 and 1.

        Notes
        -----
        With ``calibrate=True``, quantiles are corrected column by column on validation cells (split conformal
        prediction): at most a fraction q of new, exchangeable cells is below the quantile (above it for q > 0.5),
        whatever the accuracy of the model and the number of validation cells.
        """
        check_is_fitted(self)
        asked = np.asarray(q, dtype=np.float64)
        if asked.ndim > 1 or not asked.size or not ((asked >= 0) & (asked <= 1)).all():
            raise ParameterError(f"q is {q!r}, but has to be a number from 0 to 1, or several of them.")
        probabilities = np.atleast_1d(asked)
        frame, values = self._read(X)
        series = list(self.model_.quantiles(self._seen_by_model(values), probabilities))
        # Two calibrated quantiles near the median may have crossed.
        for before, after in itertools.pairwise(np.argsort(probabilities, kind="stable")):
            series[after] = np.fmax(series[before], series[after])
        tables = list(self._tables(frame, values, series, rules=False))
        return tables if asked.ndim else tables[0]

    def interval(self, X: TableT, level: float = 0.9) -> tuple[TableT, TableT]:
        """Return prediction intervals of the missing cells.

        Parameters
        ----------
        X : array-like or data frame of shape (n_rows, n_columns)
            The same columns as at fit.
        level : float, default=0.9
            Probability of the interval, between 0 and 1; the rest is split equally between both tails.

        Returns
        -------
        low, high : table
            Tables of the same type as X. Observed cells are the same in both. Cells of unordered categories stay
            missing.

        Raises
        ------
        ParameterError
            If the level is not between 0 and 1.

        Examples
        --------
        >>> import numpy as np
        >>> from mcflow import MCFlowImputer
        >>> rows = np.random.default_rng(0).normal(size=(200, 2))
        >>> rows[::7, 1] = np.nan
        >>> low, high = MCFlowImputer(max_epochs=4, random_state=0).fit(rows).interval(rows)
        >>> bool((low <= high).all())
        True
        """
        check_is_fitted(self)
        check_parameter("level", level, Interval(float, 0, 1, low_open=True))
        if level >= 1:
            raise ParameterError(f"level is {level!r}, but has to be below 1; 0.9 is usual.")
        low, high = self.quantile(X, [(1 - level) / 2, (1 + level) / 2])
        return low, high

    def sensitivity(self, X: Any, column: Any, deltas: Any, **how: Any) -> Sensitivity:
        """Shift the filled cells of a column by several amounts and repeat an analysis (delta adjustment).

        Parameters
        ----------
        X : array-like or data frame of shape (n_rows, n_columns)
            The same columns as at fit.
        column : object
            Name of the column, or its position for numpy.
        deltas : sequence of float
            Shifts of the filled cells: in the units of a numeric column, in days for dates, and in log-odds of each
            category against the one before it for ordered or binary columns.
        **how : object
            ``analysis``, ``m``, ``random_state``, ``level``, ``row_ids``, and arguments of `mcflow.pool.fit_pooled`
            such as ``target`` or ``formula``.

        Returns
        -------
        Sensitivity
            Draws and, with an analysis, pooled results at every delta, and the tipping points of its terms.
        """
        from mcflow.imputers.sensitivity import sensitivity

        check_is_fitted(self)
        return sensitivity(self, X, column, deltas, **how)

    def trace(self, X: Any, n_steps: int = 300, random_state: RandomState = None) -> ChainTrace:
        """Record the Markov chains of some rows from their start, to inspect convergence and mixing.

        Parameters
        ----------
        X : array-like or data frame of shape (n_rows, n_columns)
            A few incomplete rows, with the same columns as at fit.
        n_steps : int, default=300
            Number of steps to record.
        random_state : int, Generator, RandomState or None
            Seed of the chains, as for `draw`.

        Returns
        -------
        ChainTrace
            The input of `mcflow.report.plot_trace`.

        Raises
        ------
        ParameterError
            If the preset draws without Markov chains, as "default" does.
        """
        check_is_fitted(self)
        check_parameter("n_steps", n_steps, Interval(int, 1))
        if not hasattr(self.model_, "trace"):
            raise ParameterError(
                "This preset draws without Markov chains, so there is no trace; preset='paper' has one."
            )
        _, values = self._read(X)
        found: ChainTrace = self.model_.trace(self._seen_by_model(values), seed_from(random_state), int(n_steps))
        names = [self.schema_.columns[p].name for p in self.schema_.model]
        return found._replace(names=tuple(f"row {row}, {names[column]}" for row, column in found.cells))

    def check(self, X: Any) -> CheckReport:
        """Compare new data with the data of the fit, without filling or raising.

        Parameters
        ----------
        X : array-like or data frame
            New rows.

        Returns
        -------
        CheckReport
            The differences; `str` gives them as text.
        """
        check_is_fitted(self)
        return check_table(X, self.schema_, self.constraints_, self.unseen)

    def score_samples(self, X: Any) -> FloatArray:
        """Return the log-density of each row under the flow, in the units of the table.

        Parameters
        ----------
        X : array-like or data frame of shape (n_rows, n_columns)
            The same columns as at fit. Missing cells are filled first, as by `transform`.

        Returns
        -------
        ndarray of shape (n_rows,)
            Log-density of the columns of the model. Categories, and values that many cells share, contribute their
            log-probability with "default"; with "paper", categories contribute the density of their noisy indicators.

        Raises
        ------
        ParameterError
            If the imputer was fitted with ``density=False``.
        """
        check_is_fitted(self)
        _, values = self._read(X)
        self._need_model()
        return self.model_.log_density(self._completed(values)[:, self.schema_.model_among_coded])

    def sample(self, n_samples: int = 1, random_state: RandomState = None) -> Any:
        """Draw new rows from the flow.

        Parameters
        ----------
        n_samples : int, default=1
            Number of rows to draw.
        random_state : int, Generator, RandomState or None
            Seed of the draws.

        Returns
        -------
        array or data frame of shape (n_samples, n_columns)
            A table of the type seen at fit with the columns that are filled, within their constraints. Columns that
            are passed through or empty are left out; categories are plain values.

        Raises
        ------
        ParameterError
            If the imputer was fitted with ``density=False``.
        """
        check_is_fitted(self)
        self._need_model()
        check_parameter("n_samples", n_samples, Interval(int, 1))
        drawn = self.model_.sample(int(n_samples), seed_from(random_state))
        columns = [self.schema_.columns[p] for p in self.schema_.coded]
        codes = self._completed(np.full((n_samples, len(columns)), np.nan), drawn)
        cells = {c.name: cells_of(codes[:, k], c, type_named(c.dtype)) for k, c in enumerate(columns)}
        return build_frame(self.schema_.container, cells)

    def _need_model(self) -> None:
        if not self.model_.is_fitted:
            raise DataError(
                "Every column was constant at fit, so there is no density. "
                "Fit on a table in which at least one column varies."
            )

    def save(self, path: str | Path) -> None:
        """Save the fitted imputer to a file of tensors and a JSON header, which `mcflow.load` reads.

        Parameters
        ----------
        path : path-like
            The file to create or replace.

        Raises
        ------
        OutputError
            If the file cannot be written.
        """
        from mcflow.imputers.persistence import save

        save(self, path)


def _resampled(values: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Return a bootstrap sample of the rows in which every column has an observed cell."""
    rows = rng.integers(len(values), size=len(values))
    seen = ~np.isnan(values)
    for place, column in enumerate(np.flatnonzero(~seen[rows].any(axis=0))):
        rows[place] = rng.choice(np.flatnonzero(seen[:, column]))
    return values[rows]


def warn_of_equal_rows(values: FloatArray) -> None:
    """Warn if many incomplete rows are equal, as they get equal draws."""
    incomplete = values[np.isnan(values).any(axis=1)]
    if not len(incomplete):
        return
    n_equal = len(incomplete) - len(np.unique(hash_rows(incomplete, 0)))
    if n_equal > max(EQUAL_ROWS, EQUAL_SHARE * len(incomplete)):
        warnings.warn(
            f"{n_equal} of {len(incomplete)} incomplete rows are equal to another one and get the same draws. "
            "Pass row_ids= (--row-ids), an integer per row, to draw them independently.",
            McflowWarning,
            stacklevel=3,
        )
