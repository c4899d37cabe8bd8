"""MCFlowImputer: both presets under scikit-learn's contract."""

from __future__ import annotations

__all__ = ["MCFlowImputer"]

import contextlib
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from mcflow.config import OVERRIDES, Settings, resolve
from mcflow.data.checking import CheckReport, check_table
from mcflow.data.frames import read_frame
from mcflow.data.schema import LEVEL_KINDS, Column
from mcflow.errors import DataError, McflowWarning, ParameterError
from mcflow.imputers.base import TableImputer
from mcflow.imputers.fitting import check_same, choose_device, fit_seed, listeners
from mcflow.imputers.masked_model import AGAIN_SHARE, MaskedModel
from mcflow.imputers.model import FlowModel
from mcflow.imputers.streamed import RestOfRows
from mcflow.imputers.uncertainty import UncertaintyMixin
from mcflow.random import Streams, seed_from
from mcflow.training import Callback, progress_listeners
from mcflow.training.parallel import Workers, current
from mcflow.typing import FloatArray, RandomState

#: Parameters that the default preset has no use for.
PAPER_ONLY = ("scaling", "likelihood_weight", "tolerance")


def _has_levels(imputer: MCFlowImputer) -> bool:
    """Tell whether there is a probability to ask for; an imputer that is not fitted says so itself."""
    if hasattr(imputer, "model_") and not imputer.model_.levels:
        raise AttributeError("The table of the fit had no column of levels, so there are no probabilities to ask for.")
    return True


class MCFlowImputer(UncertaintyMixin, TableImputer):
    """Fill the holes of a table with a normalizing flow and a network in its latent space.

    Parameters
    ----------
    preset : {"default", "paper"} or Settings, default="default"
        The settings to start from. "default" learns to fill cells that are hidden on purpose, and is the more accurate;
        "paper" is the method of the MCFlow paper. Settings of your own are made with `mcflow.config`.
    kinds : dict, optional
        Kinds of columns, where the one that was found is not right: "continuous", "integer", "boolean", "category",
        "ordered", "datetime"; "text" or "identifier" leaves a column alone. Keys are names, or positions for arrays.
    roles : dict, optional
        What columns are used for: "ignore" passes one through; "predictors_only" uses it and never fills it;
        "targets_only" fills it and does not use it to fill others; "outcome" does neither.
    bounds : dict, optional
        Pairs of lowest and highest value that may be filled in, None for open, such as ``{"age": (0, 120)}``. The
        observed range when not given.
    allowed : dict, optional
        Lists of the only values that may be filled in, or "observed" for those that were seen.
    rules : list of str, optional
        Comparisons that filled rows have to meet, such as ``["low <= high", "age >= 18"]``.
    unseen : {"error", "missing"}, default="error"
        What to do with a level that the fit did not see: refuse the table, or fill the rest of its row as if it were
        missing. The cell itself stays as it is.
    restore_integers : bool, default=False
        Give columns of floats that hold whole numbers back as integers. Without it, a table of nothing but floats is
        taken for measurements: there, whole numbers within a range of less than 50 are filled with means, which may lie
        between them.
    scaling : {"range", "auto"}, optional
        With "paper", how numbers are scaled: by their observed range, as published; "auto" maps hard columns, with
        heavy tails or many equal values, by rank. "default" reads all numbers by their ranks and their values.
    max_epochs : int, optional
        Passes over the rows, at most; the preset's value when None (default: as many as fit the table; paper: 500).
    max_time : float, optional
        Seconds that a fit may take. The rate of learning follows the clock, so that a short fit is a finished one.
    warm_start : bool, default=False
        Let a second fit on a table with the same columns go on from what the first has learned; "default" only.
    batch_size : int, optional
        Rows a step (default: 256; paper: 128).
    learning_rate : float, optional
        Adam's rate (default: 2e-3 at its highest; paper: 1e-4).
    likelihood_weight : float, optional
        With "paper", its λ, the weight of the log-density against the squared error in the loss of the latent network.
        The paper gives no value; 1e-3 did best on cells hidden from the training rows of two tables.
    tolerance : float, optional
        With "paper", training ends early when both losses move by at most this share of their range; 0 never ends
        early. "default" ends early when held-out cells get no better.
    n_couplings : int, optional
        Affine couplings in the flow (both presets: 6).
    n_models : int, default=1
        Models to fit. The first learns from all rows; each of the others from as many rows drawn with replacement,
        starting, with "default", from the networks of the first, in about a quarter of its time. `draw` takes turns
        with them, so that analyses of draws also count what is not known of the model.
    calibrate : bool, default=True
        Set stated quantiles and draws right by cells that were held out of the fit.
    add_indicator : bool, default=False
        Append a column of zeros and ones for each column that had holes at fit, as scikit-learn does.
    keep_empty_features : bool, default=False
        Keep columns without any observed value, numbers filled with 0, instead of dropping them.
    checkpoint_dir : path-like, optional
        Folder in which the fit keeps its state. A fit that was stopped goes on from there and ends with the same
        weights, bit for bit.
    device : str, default="auto"
        "cpu", "cuda", "cuda:1", "mps", or "auto" for the fastest at hand.
    random_state : int, Generator, RandomState or None, default=None
        Decides everything: the same seed gives the same bits, whatever the global state.
    verbose : bool or {"auto", "plain", "json", "none"}, default=False
        Show epoch, both losses and the time left on standard error: True or "auto" live on a terminal or in a
        notebook and as lines elsewhere, "plain" as lines, "json" as one JSON object a line.

    Attributes
    ----------
    history_ : History
        Losses of every epoch.
    n_epochs_ : int
        Epochs trained.
    stages_ : list
        The networks G and H: one pair with "default"; with "paper" those kept at every refill, and `transform` goes
        through all of them.
    settings_ : Settings
        The preset with its overrides.
    schema_ : TableSchema
        Columns and their roles.

    Notes
    -----
    With "default", H reads the observed cells and the mask, and learns to fill cells that were hidden from it on
    purpose; it answers with a distribution for every missing cell, whose mean or likeliest level is filled in. G is a
    flow over the missing cells of a row given what H says of it, which makes the cells' distributions a joint one.
    Sizes and length of the training follow from the table.

    With "paper", G maps rows to a standard normal latent space and is trained by maximum likelihood on the filled rows;
    H maps latent points to likelier ones that agree with the observed cells. At every epoch that is a power of two
    the missing cells are refilled with G⁻¹(H(G(x))), both networks are kept, and G starts anew. Levels enter as a few
    noisy zeros and ones, and their probabilities are read off the completed rows. Constant columns need no model.

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

    def __init__(
        self,
        *,
        preset: str | Settings = "default",
        kinds: Mapping[Any, str] | None = None,
        roles: Mapping[Any, str] | None = None,
        bounds: Mapping[Any, tuple[Any, Any]] | None = None,
        allowed: Mapping[Any, Any] | None = None,
        rules: Sequence[str] | None = None,
        unseen: str = "error",
        restore_integers: bool = False,
        scaling: str | None = None,
        max_epochs: int | None = None,
        max_time: float | None = None,
        warm_start: bool = False,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        likelihood_weight: float | None = None,
        tolerance: float | None = None,
        n_couplings: int | None = None,
        n_models: int = 1,
        calibrate: bool = True,
        add_indicator: bool = False,
        keep_empty_features: bool = False,
        checkpoint_dir: str | Path | None = None,
        device: str = "auto",
        random_state: RandomState = None,
        verbose: bool | str = False,
    ) -> None:
        self.preset = preset
        self.kinds = kinds
        self.roles = roles
        self.bounds = bounds
        self.allowed = allowed
        self.rules = rules
        self.unseen = unseen
        self.restore_integers = restore_integers
        self.scaling = scaling
        self.max_epochs = max_epochs
        self.max_time = max_time
        self.warm_start = warm_start
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.likelihood_weight = likelihood_weight
        self.tolerance = tolerance
        self.n_couplings = n_couplings
        self.n_models = n_models
        self.calibrate = calibrate
        self.add_indicator = add_indicator
        self.keep_empty_features = keep_empty_features
        self.checkpoint_dir = checkpoint_dir
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def fit_stream(
        self, sample: Any, rest: Callable[[], Iterable[Any]], n_rest: int, *, folder: str | Path | None = None
    ) -> Self:
        """Learn from a table that does not fit in memory.

        Parameters
        ----------
        sample : data frame
            Rows from all over the table, with the lowest and highest values and all levels; `mcflow.data.survey` takes
            such. Kinds, ranges, knots, the density and the calibration are read off them.
        rest : callable
            Gives all other rows in batches, data frames with the same columns. H learns from them too.
        n_rest : int
            How many they are.
        folder : path-like, optional
            Where they are kept during the fit, with five bytes a cell; a folder for passing files when not given.

        Returns
        -------
        self

        Raises
        ------
        ParameterError
            With the preset "paper", which refills all rows in memory.
        """
        schema, constraints, values = self._planned(sample)
        model = schema.among_coded(model=True)

        def codes() -> Iterator[FloatArray]:
            for table in rest():
                yield read_frame(table).codes(schema, self.unseen)[:, model]

        more = RestOfRows(codes, n_rest, Path(tempfile.gettempdir() if folder is None else folder))
        columns = [schema.columns[p] for p in schema.model]
        self._learn(values[:, model], columns, (constraints.low[model], constraints.high[model]), more)
        self._remember(schema, constraints)
        return self

    def _fit_values(self, values: FloatArray, columns: list[Column], low: FloatArray, high: FloatArray) -> None:
        self._learn(values, columns, (low, high))

    def _learn(
        self,
        values: FloatArray,
        columns: list[Column],
        box: tuple[FloatArray, FloatArray],
        rest: RestOfRows | None = None,
    ) -> None:
        settings = resolve(self.preset, **{name: getattr(self, name) for name in OVERRIDES})
        settings = _with_time(settings, self.n_models)
        workers = current()
        seed = workers.from_first(fit_seed(self.random_state, self.checkpoint_dir))
        streams = Streams(seed)
        model = _prepared(values, columns, box, seed=seed, settings=settings, rest=rest)
        model.calibrates = self.calibrate
        settings = model.settings
        self._check_preset(model, workers)
        earlier = getattr(self, "model_", None)
        if self.warm_start and isinstance(model, MaskedModel) and isinstance(earlier, MaskedModel):
            model.go_on_from(earlier)
        if columns:
            said: dict[str, Any] = {"kinds": [c.kind for c in columns], "bounds": [bound.tolist() for bound in box]}
            said |= {"seed": seed, "settings": settings.to_dict()}
            said |= {} if rest is None else {"more": rest.n_rows}
            check_same(workers, values, said)
            callbacks = self._listeners(values, said) if workers.is_first else []
            together = {} if workers.alone else {"workers": workers}
            with contextlib.ExitStack() as stack:
                more = {} if rest is None else {"more": stack.enter_context(rest.encoded(values, model.grid, workers))}
                model.fit(values, streams, choose_device(self.device), callbacks, **more, **together)
        others = self._fit_others(model, values, seed, workers) if columns else []
        # Assigned at the end: a fit that fails leaves an earlier one as it was.
        self.model_, self.other_models_, self.settings_, self.seed_ = model, others, settings, seed
        self.history_, self.stages_ = model.history, model.stages
        self.n_epochs_ = len(self.history_.epochs)

    def _listeners(self, values: FloatArray, said: dict[str, Any]) -> list[Callback]:
        """Return who hears of the fit."""
        return listeners(self.verbose, self.checkpoint_dir, values, said)

    def _fit_others(self, first: Any, values: FloatArray, seed: int, workers: Workers) -> list[Any]:
        """Fit the models after the first, each on rows drawn with replacement."""
        others = []
        together = {} if workers.alone else {"workers": workers}
        for k in range(1, self.n_models):
            own_seed = seed_from(np.random.default_rng([seed, k]))
            other = first.again(own_seed)
            other.calibrates = False
            sample = _resampled(values, np.random.default_rng(own_seed))
            callbacks = progress_listeners(self.verbose) if workers.is_first else []
            other.fit(sample, Streams(own_seed), choose_device(self.device), callbacks, **together)
            others.append(other)
        return others

    def _check_preset(self, model: FlowModel | MaskedModel, workers: Workers) -> None:
        """Say which parameters the preset has no use for."""
        if not isinstance(model, MaskedModel):
            if not workers.alone:
                raise ParameterError(
                    f"The preset 'paper' is fitted by one process, and there are {workers.number}: its steps are too "
                    "small to be shared. Use preset='default', or start a single process."
                )
            if self.warm_start:
                raise ParameterError("warm_start=True needs preset='default'. Leave one of them out.")
            return
        idle = [name for name in PAPER_ONLY if getattr(self, name) is not None]
        if idle:
            warnings.warn(
                f"{', '.join(idle)} has no effect with this preset; preset='paper' uses it.",
                McflowWarning,
                stacklevel=5,
            )

    def _fill_values(self, values: FloatArray) -> FloatArray:
        return self.model_.fill(values)

    @available_if(_has_levels)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> dict[Any, Any]:
        """Return the probability of every level, for every column of levels that is filled.

        Parameters
        ----------
        X : array-like or data frame of shape (n_rows, n_columns)
            The same columns as at fit.

        Returns
        -------
        dict
            By column, a table of the same kind as X with a row for each of its rows and a column for each level. Where
            a cell is observed, its level has probability 1.
        """
        check_is_fitted(self)
        frame, values = self._read(X)
        model = self.schema_.among_coded(model=True)
        found = self.model_.probabilities(self._seen_by_model(values), values[:, model]) if model.any() else {}
        tables = {}
        for k, position in enumerate(self.schema_.model):
            column = self.schema_.columns[position]
            if column.kind in LEVEL_KINDS and column.filled:
                tables[column.name] = frame.table_like(dict(zip(column.levels, found[k].T, strict=True)))
        return tables

    def check(self, X: Any) -> CheckReport:
        """Compare new data with what was fitted, without filling or raising.

        Parameters
        ----------
        X : array-like or data frame
            New rows.

        Returns
        -------
        CheckReport
            What differs, as a plain object; `str` gives it as text.
        """
        check_is_fitted(self)
        return check_table(X, self.schema_, self.constraints_, self.unseen)

    def score_samples(self, X: Any) -> FloatArray:
        """Return each row's log-density by the flow of the last stage, in the table's own units.

        Parameters
        ----------
        X : array-like or data frame of shape (n_rows, n_columns)
            The same columns as at fit. Holes are filled first, as `transform` does.

        Returns
        -------
        ndarray of shape (n_rows,)
            The density of the columns that the model sees. Levels enter as the noisy zeros and ones of the codec.
        """
        check_is_fitted(self)
        _, values = self._read(X)
        self._need_model()
        return self.model_.log_density(self._completed(values)[:, self.schema_.among_coded(model=True)])

    def sample(self, n_samples: int = 1, random_state: RandomState = None) -> Any:
        """Draw new rows from the flow of the last stage.

        Parameters
        ----------
        n_samples : int, default=1
            Rows to draw.
        random_state : int, Generator, RandomState or None
            Decides the draws.

        Returns
        -------
        array or data frame of shape (n_samples, n_columns)
            The kind of table seen at fit, with the columns that are filled, within their constraints. Columns that
            are left alone or had no observed value are not there; levels come as plain values.
        """
        check_is_fitted(self)
        self._need_model()
        if isinstance(n_samples, bool) or not isinstance(n_samples, int | np.integer) or n_samples < 1:
            raise ParameterError(f"n_samples is {n_samples!r}, but has to be a whole number of at least 1.")
        drawn = self.model_.sample(int(n_samples), seed_from(random_state))
        codes = np.empty((n_samples, len(self.schema_.coded)))
        codes[:, self.schema_.among_coded(model=True)] = drawn
        for k, position in enumerate(self.schema_.coded):
            column = self.schema_.columns[position]
            if not column.in_model:
                codes[:, k] = column.low
        return self._new_table(self.constraints_.apply(codes, np.ones(codes.shape, dtype=bool)))

    def _need_model(self) -> None:
        if not self.stages_:
            raise DataError(
                "Every column was constant at fit, so there is no density to ask. "
                "Fit on a table in which at least one column varies."
            )

    def save(self, path: str | Path) -> None:
        """Write the fitted imputer to one file, tensors and a JSON header; `mcflow.load` reads it.

        Parameters
        ----------
        path : path-like
            The file to make or to replace.

        Raises
        ------
        OutputError
            When the file cannot be written.
        """
        from mcflow.imputers.persistence import save

        save(self, path)


def _with_time(settings: Settings, n_models: int) -> Settings:
    """Share a limit of time out among the models; those after the first take less."""
    share = 1 + AGAIN_SHARE * (n_models - 1) if settings.latent.masked else n_models
    return replace(settings, train=replace(settings.train, max_time=settings.train.max_time / share))


def _prepared(
    values: FloatArray,
    columns: list[Column],
    box: tuple[FloatArray, FloatArray],
    *,
    seed: int,
    settings: Settings,
    rest: RestOfRows | None,
) -> Any:
    """Return the preset's model for a table, not fitted yet."""
    if settings.latent.masked:
        n_rows = len(values) + (0 if rest is None else rest.n_rows)
        return MaskedModel.prepare(values, columns, box, seed, settings, n_rows=n_rows)
    if rest is not None:
        raise ParameterError(
            "The paper's method refills all rows in memory, and cannot learn from a stream. Use preset='default', or "
            "fit on a sample."
        )
    return FlowModel.prepare(values, columns, box, seed, settings)


def _resampled(values: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Return as many rows drawn with replacement; columns that would be left empty get a row that has them."""
    rows = rng.integers(len(values), size=len(values))
    seen = ~np.isnan(values)
    for place, column in enumerate(np.flatnonzero(~seen[rows].any(axis=0))):
        rows[place] = rng.choice(np.flatnonzero(seen[:, column]))
    return values[rows]
