"""Predictive distributions with given means."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mcflow.masked.encoding import PointMarginals
from mcflow.masked.predictor import Predictive


def predictions(points: list[float], probabilities: torch.Tensor, *, discrete: bool = False) -> Predictive:
    grid = torch.tensor([points])
    marginals = PointMarginals(grid, torch.tensor([len(points)]), torch.tensor([discrete]))
    return Predictive(marginals, np.zeros(len(probabilities), dtype=int), probabilities)


def probabilities(n_cells: int, n_points: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.rand(n_cells, n_points, generator=generator).pow(3).softmax(-1)


@pytest.mark.parametrize("points", [[0.0, 1.0, 2.0, 3.0], [-1.0, -0.5, 0.0, 400.0]])
@pytest.mark.parametrize("discrete", [True, False])
def test_means_are_those_asked_for_also_with_a_long_tail(points, discrete) -> None:
    predicted = predictions(points, probabilities(50, 4), discrete=discrete)
    places = predicted.marginals.means()[0]
    wanted = np.random.default_rng(0).uniform(float(places[0]) + 0.2, float(places[-1]) / 3, size=50)
    found = predicted.with_means(wanted, np.ones(50, dtype=bool))
    means = (found.probabilities * places).sum(-1).numpy()
    np.testing.assert_allclose(means, wanted, atol=2e-3 * float(places[-1]))
    torch.testing.assert_close(found.probabilities.sum(-1), torch.ones(50))


def test_categories_and_unknown_means_are_left_alone() -> None:
    predicted = predictions([0.0, 1.0, 2.0], probabilities(3, 3))
    found = predicted.with_means(np.array([1.5, np.nan, 0.7]), np.array([True, True, False]))
    assert not torch.equal(found.probabilities[0], predicted.probabilities[0])
    assert torch.equal(found.probabilities[1:], predicted.probabilities[1:])


def test_mean_that_is_there_already_changes_nothing() -> None:
    predicted = predictions([0.0, 1.0, 2.0, 5.0], probabilities(20, 4))
    means = (predicted.probabilities * predicted.marginals.means()).sum(-1).numpy()
    torch.testing.assert_close(
        predicted.with_means(means, np.ones(20, dtype=bool)).probabilities, predicted.probabilities, atol=1e-5, rtol=0
    )


def test_calibration_of_draws_from_the_prediction_itself_changes_little() -> None:
    predicted = predictions([-2.0, -1.0, 0.0, 1.0, 3.0], probabilities(4000, 5))
    scores = torch.randn(1, 4000, generator=torch.Generator().manual_seed(1))
    _, truth = predicted.at(scores)
    means = (predicted.probabilities * predicted.marginals.means()).sum(-1).numpy()
    found = predicted.calibration(means, truth[0].numpy().astype(float), ())
    assert found.scale[0] == pytest.approx(1, abs=0.03)
    np.testing.assert_allclose(found.tails(0.05), 0.05, atol=0.012)


def test_scores_are_read_in_the_distribution_of_their_cell() -> None:
    predicted = predictions([0.0, 1.0, 2.0], torch.eye(3)[[2, 0]], discrete=True)
    places, units = predicted.at(torch.zeros(3, 2))
    assert places.tolist() == [[2, 0]] * 3
    assert units.tolist() == [[2.0, 0.0]] * 3
