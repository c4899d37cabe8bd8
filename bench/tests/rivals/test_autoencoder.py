"""The denoising auto-encoder: its shape, what it learns, and what its loss counts."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mcflow.errors import ParameterError, TrainingError
from mcflow_bench.rivals.autoencoder import AutoencoderImputer, DenoisingAutoencoder
from mcflow_bench.rivals.networks import (
    batches,
    column_means,
    count_steps,
    dense_network,
    hide_columns,
    split_validation,
)


def line(n_rows: int = 400, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return a table of two hidden factors, and the same with a fifth of its cells missing."""
    rng = np.random.default_rng(seed)
    whole = rng.normal(size=(n_rows, 2)) @ rng.normal(size=(2, 5)) + 0.05 * rng.normal(size=(n_rows, 5))
    return whole, np.where(rng.random(whole.shape) < 0.2, np.nan, whole)


def error(filled: np.ndarray, whole: np.ndarray, incomplete: np.ndarray) -> float:
    return float(np.sqrt(((filled - whole)[np.isnan(incomplete)] ** 2).mean()))


def test_linear_table_is_filled_far_better_than_by_the_mean() -> None:
    whole, incomplete = line()
    filled = AutoencoderImputer(max_epochs=120, random_state=0).fit_transform(incomplete)
    by_mean = np.where(np.isnan(incomplete), np.nanmean(incomplete, axis=0), incomplete)
    assert error(filled, whole, incomplete) < 0.65 * error(by_mean, whole, incomplete)


def test_layers_widen_by_theta_three_times_and_narrow_again() -> None:
    network = DenoisingAutoencoder(torch.zeros(5), 7, torch.Generator().manual_seed(0))
    widths = [tuple(w.shape) for w in network.parameters() if w.dim() == 2]
    assert widths == [(12, 5), (19, 12), (26, 19), (19, 26), (12, 19), (5, 12)]


def test_hidden_cell_has_no_influence_on_the_network() -> None:
    network = DenoisingAutoencoder(torch.full((3,), 0.4), 7, torch.Generator().manual_seed(0))
    seen = torch.tensor([[1.0, 0.0, 1.0]])
    one, two = torch.tensor([[0.1, 0.2, 0.3]]), torch.tensor([[0.1, 0.9, 0.3]])
    assert (network(one, seen) == network(two, seen)).all()
    assert (network(one, torch.ones(1, 3)) != network(two, torch.ones(1, 3))).any()


def test_same_seed_gives_the_same_bits_and_leaves_the_global_state_alone() -> None:
    _, incomplete = line(60)
    state = torch.random.get_rng_state()
    one, two = (AutoencoderImputer(max_epochs=3, random_state=5).fit_transform(incomplete) for _ in range(2))
    assert one.tobytes() == two.tobytes()
    assert (torch.random.get_rng_state() == state).all()
    assert (AutoencoderImputer(max_epochs=3, random_state=6).fit_transform(incomplete) != one).any()


def test_loss_that_is_no_number_is_refused_with_advice(monkeypatch) -> None:
    _, incomplete = line(20)
    monkeypatch.setattr(
        "mcflow_bench.rivals.autoencoder.column_means", lambda rows, seen: torch.full((rows.shape[1],), torch.nan)
    )
    with pytest.raises(TrainingError, match="Lower learning_rate"):
        AutoencoderImputer(max_epochs=2, random_state=0).fit(incomplete)


@pytest.mark.parametrize("given", [{"theta": -1}, {"dropout": 1.5}, {"max_epochs": None}, {"batch_size": 0}])
def test_parameter_out_of_range_is_refused(given) -> None:
    with pytest.raises(ParameterError, match=next(iter(given))):
        AutoencoderImputer(**given).fit(line(20)[1])


def test_places_of_one_column_are_hidden_together_at_the_given_share() -> None:
    owner = torch.tensor([0, 1, 1, 2])
    hidden = hide_columns(torch.zeros(20_000, 4), owner, 0.3, torch.Generator().manual_seed(0))
    assert (hidden[:, 1] == hidden[:, 2]).all()
    assert hidden[:, [0, 1, 3]].float().mean(0).numpy() == pytest.approx([0.3] * 3, abs=0.02)
    assert (hidden[:, 0] & hidden[:, 3]).float().mean().item() == pytest.approx(0.09, abs=0.02)


def test_batches_go_over_all_rows_before_any_comes_again() -> None:
    feed = batches(10, 4, torch.Generator().manual_seed(0))
    passes = [torch.cat([next(feed) for _ in range(3)]) for _ in range(2)]
    assert all(sorted(p.tolist()) == list(range(10)) for p in passes)
    assert (passes[0] != passes[1]).any()


def test_validation_cells_are_observed_ones_that_training_does_not_see() -> None:
    rows = torch.rand(500, 4, generator=torch.Generator().manual_seed(1))
    rows[rows < 0.2] = torch.nan
    left, validation = split_validation(rows, torch.arange(4), 0.1, torch.Generator().manual_seed(0))
    assert left.sum() + validation.hidden.sum() == (~rows.isnan()).sum()
    assert not (validation.mask * validation.hidden).any()
    off = validation.error(lambda shown, mask, uniforms: validation.rows + 0.25)
    assert off == pytest.approx(0.25, rel=1e-5)
    assert validation.error(lambda shown, mask, uniforms: shown) > 0.2


def test_few_rows_have_no_validation_cells() -> None:
    left, validation = split_validation(torch.ones(10, 2), torch.arange(2), 0.5, torch.Generator().manual_seed(0))
    assert left.all()
    assert len(validation.rows) == 0


def test_column_means_count_seen_cells_only() -> None:
    rows = torch.tensor([[1.0, 5.0], [3.0, 5.0], [100.0, 5.0]])
    seen = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 0.0]])
    assert column_means(rows, seen).tolist() == [2.0, 0.5]


def test_steps_are_bound_by_epochs_and_by_steps() -> None:
    assert count_steps(129, 128, 3, 1000) == 6
    assert count_steps(129, 128, 3, 5) == 5


def test_dense_network_draws_from_its_generator_alone() -> None:
    one, two = (dense_network([3, 4, 2], torch.Generator().manual_seed(3)) for _ in range(2))
    rows = torch.rand(5, 3, generator=torch.Generator().manual_seed(0))
    assert (one(rows) == two(rows)).all()
