"""MCFlowImputer: the paper's method under scikit-learn's contract."""

from __future__ import annotations

__all__ = ["MCFlowImputer", "choose_device"]

from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted

from mcflow.config import OVERRIDES, Settings, resolve
from mcflow.data.codecs import RangeCodec
from mcflow.errors import DataError, ParameterError
from mcflow.imputers.base import TableImputer
from mcflow.masks.initial import Marginals
from mcflow.random import Streams, seed_from
from mcflow.training import Callback, Checkpointer, History, ProgressDisplay, Stage, Trainer, complete_through
from mcflow.training.checkpoint import fingerprint
from mcflow.training.stages import ROWS_AT_ONCE
from mcflow.training.threads import one_thread_when_small
from mcflow.typing import FloatArray, RandomState


class MCFlowImputer(TableImputer):
    """Fill the holes of a table with a normalizing flow and a network in its latent space.

    Parameters
    ----------
    preset : {"paper"}, default="paper"
        The settings to start from. "paper" is the method of the MCFlow paper to the letter.
    max_epochs : int, optional
        Passes over the rows, at most; the preset's value when None (paper: 500).
    batch_size : int, optional
        Rows a step (paper: 128).
    learning_rate : float, optional
        Adam's rate (paper: 1e-4).
    likelihood_weight : float, optional
        The paper's λ, the weight of the log-density against the squared error in the loss of the latent network.
        The paper gives no value; 1e-3 did best on cells hidden from the training rows of two tables.
    tolerance : float, optional
        Training ends early when both losses move by at most this share of their range; 0 never ends early.
    n_couplings : int, optional
        Affine couplings in the flow (paper: 6).
    add_indicator : bool, default=False
        Append a column of zeros and ones for each column that had holes at fit, as scikit-learn does.
    keep_empty_features : bool, default=False
        Keep columns without any observed value, filled with 0, instead of dropping them.
    checkpoint_dir : path-like, optional
        Folder in which the fit keeps its state. A fit that was stopped goes on from there and ends with the same
        weights, bit for bit.
    device : str, default="auto"
        "cpu", "cuda", "cuda:1", "mps", or "auto" for the fastest at hand.
    random_state : int, Generator, RandomState or None, default=None
        Decides everything: the same seed gives the same bits, whatever the global state.
    verbose : bool, default=False
        Show epoch, both losses and the time left on standard error.

    Attributes
    ----------
    history_ : History
        Losses of every epoch.
    n_epochs_ : int
        Epochs trained.
    stages_ : list of Stage
        The networks that were kept at every refill; `transform` goes through all of them.
    settings_ : Settings
        The preset with its overrides.
    schema_ : TableSchema
        Columns and their roles.

    Notes
    -----
    The flow G maps rows to a standard normal latent space and is trained by maximum likelihood on the filled rows;
    H maps latent points to likelier ones that agree with the observed cells. At every epoch that is a power of two
    the missing cells are refilled with G⁻¹(H(G(x))), both networks are kept, and G starts anew. Constant columns
    need no model and are filled with their value.

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
        preset: str = "paper",
        max_epochs: int | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        likelihood_weight: float | None = None,
        tolerance: float | None = None,
        n_couplings: int | None = None,
        add_indicator: bool = False,
        keep_empty_features: bool = False,
        checkpoint_dir: str | Path | None = None,
        device: str = "auto",
        random_state: RandomState = None,
        verbose: bool = False,
    ) -> None:
        self.preset = preset
        self.max_epochs = max_epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.likelihood_weight = likelihood_weight
        self.tolerance = tolerance
        self.n_couplings = n_couplings
        self.add_indicator = add_indicator
        self.keep_empty_features = keep_empty_features
        self.checkpoint_dir = checkpoint_dir
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def _fit_values(self, values: FloatArray) -> None:
        settings = resolve(self.preset, **{name: getattr(self, name) for name in OVERRIDES})
        seed = self._seed()
        history, stages = History(ending="nothing to learn"), list[Stage]()
        codec = RangeCodec.from_values(values)
        scaled = codec.encode(values)
        marginals = Marginals.from_values(scaled)
        if values.shape[1]:
            history, stages = self._train(scaled, marginals, settings, seed)
        # Assigned together at the end: a fit that fails leaves an earlier one as it was.
        self.settings_, self.seed_, self.codec_, self.marginals_ = settings, seed, codec, marginals
        self.history_, self.stages_ = history, stages
        self.n_epochs_ = len(history.epochs)

    def _seed(self) -> int:
        """Return the fit's seed: a stopped fit without a fixed one goes on with the seed it had."""
        if self.random_state is None and self.checkpoint_dir is not None:
            found = Checkpointer.seed_in(Path(self.checkpoint_dir))
            if found is not None:
                return found
        return seed_from(self.random_state)

    def _train(
        self, scaled: FloatArray, marginals: Marginals, settings: Settings, seed: int
    ) -> tuple[History, list[Stage]]:
        streams = Streams(seed)
        rows = marginals.fill(scaled, streams.fill.random(scaled.shape))
        device = choose_device(self.device)
        trainer = Trainer(
            settings,
            torch.from_numpy(rows).to(device, torch.float32),
            torch.from_numpy(np.isnan(scaled)).to(device),
            streams,
            self._callbacks(scaled, settings, seed),
        )
        try:
            stages = trainer.train()
        finally:
            for callback in trainer.callbacks:
                callback.close()
        return trainer.history, stages

    def _callbacks(self, scaled: FloatArray, settings: Settings, seed: int) -> list[Callback]:
        callbacks: list[Callback] = []
        if self.checkpoint_dir is not None:
            identity = fingerprint(scaled, {"seed": seed, "settings": settings.to_dict()})
            callbacks.append(Checkpointer(Path(self.checkpoint_dir), identity, seed))
        if self.verbose:
            callbacks.append(ProgressDisplay())
        return callbacks

    def _fill_values(self, values: FloatArray) -> FloatArray:
        holes = np.isnan(values).any(axis=1)
        scaled = self.codec_.encode(values[holes])
        first = self.marginals_.fill_rows(scaled, self.seed_)
        device = self.stages_[0].flow.theta.device
        rows = torch.from_numpy(first).to(device, torch.float32)
        missing = torch.from_numpy(np.isnan(scaled)).to(device)
        through = complete_through(self.stages_, rows, missing)
        filled = values.copy()
        filled[holes] = self.codec_.decode(through.cpu().numpy().astype(np.float64))
        return np.where(np.isnan(values), filled, values)

    def score_samples(self, X: Any) -> FloatArray:
        """Return each row's log-density by the flow of the last stage, in the table's own units.

        Parameters
        ----------
        X : array-like or data frame of shape (n_rows, n_columns)
            The same columns as at fit. Holes are filled first, as `transform` does.

        Returns
        -------
        ndarray of shape (n_rows,)
            The density of the columns of numbers that vary; others play no part.
        """
        check_is_fitted(self)
        values = self._read(X).values
        modelled = self.schema_.among_numeric("model")
        self._need_model()
        rows = torch.from_numpy(self.codec_.encode(self._filled(values)[:, modelled]))
        flow = self.stages_[-1].flow
        with torch.inference_mode(), one_thread_when_small(rows.numel()):
            parts = [flow.log_prob(part) for part in rows.to(flow.theta).split(ROWS_AT_ONCE)]
        log_density: FloatArray = torch.cat(parts).cpu().numpy().astype(np.float64)
        return log_density - self.codec_.log_volume()

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
            The kind of table seen at fit, with its columns of numbers; whole numbers where the column's type is
            whole. Columns that are not numbers or had no observed value are left out.
        """
        check_is_fitted(self)
        self._need_model()
        if isinstance(n_samples, bool) or not isinstance(n_samples, int | np.integer) or n_samples < 1:
            raise ParameterError(f"n_samples is {n_samples!r}, but has to be a whole number of at least 1.")
        generator = torch.Generator().manual_seed(seed_from(random_state))
        drawn = self.stages_[-1].flow.sample(int(n_samples), generator).cpu().numpy()
        values = np.empty((n_samples, len(self.schema_.places("model", "constant"))))
        decoded = iter(self.codec_.decode(drawn.astype(np.float64)).T)
        for k, position in enumerate(self.schema_.places("model", "constant")):
            column = self.schema_.columns[position]
            values[:, k] = column.value if column.role == "constant" else next(decoded)
        return self._new_table(values)

    def _need_model(self) -> None:
        if not self.stages_:
            raise DataError(
                "Every column of numbers was constant at fit, so there is no density to ask. "
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


def choose_device(wanted: str) -> torch.device:
    """Return the device for a word such as "auto", "cpu", "cuda:1" or "mps".

    Parameters
    ----------
    wanted : str
        "auto" takes CUDA, then Apple's MPS, then the CPU.

    Returns
    -------
    torch.device

    Raises
    ------
    ParameterError
        When the machine has no such device.
    """
    cuda, mps = torch.cuda.is_available(), torch.backends.mps.is_available()
    if wanted == "auto":
        return torch.device("cuda" if cuda else "mps" if mps else "cpu")
    if (wanted.startswith("cuda") and not cuda) or (wanted == "mps" and not mps):
        raise ParameterError(f"device is {wanted!r}, which this machine does not have. Use device='auto' or 'cpu'.")
    return torch.device(wanted)
