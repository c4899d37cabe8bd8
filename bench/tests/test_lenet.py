"""The classifier of digits: what it learns, what it answers, and its cache."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from safetensors import safe_open

from mcflow.errors import DataError, OutputError
from mcflow_bench import lenet
from mcflow_bench.data.image_sets import ImageSet, load_image_set
from mcflow_bench.image_metrics import frechet_distance
from mcflow_bench.lenet import LeNet, accuracy, features, lenet_for, train_lenet


def digits(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Noisy pictures of ten classes: a bright square whose place determines the class."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 10, n).astype(np.uint8)
    images = rng.integers(0, 60, (n, 28, 28), dtype=np.uint8)
    for image, label in zip(images, labels, strict=True):
        top, left = 2 + 12 * (label // 5), 1 + 5 * (label % 5)
        image[top : top + 10, left : left + 5] += 180
    return images, labels


@pytest.fixture(scope="module")
def trained() -> LeNet:
    return train_lenet(*digits(1500, 0), 0, n_epochs=4)


@pytest.fixture
def image_set() -> ImageSet:
    train, test = digits(200, 0), digits(50, 1)
    return ImageSet("squares", train[0], test[0], train[1], test[1])


@pytest.fixture
def quick(monkeypatch) -> None:
    monkeypatch.setattr(lenet, "_SETTINGS", lenet._SETTINGS | {"n_epochs": 1})


def test_network_learns_what_can_be_learned(trained) -> None:
    images, labels = digits(500, 1)
    assert accuracy(trained, images, labels) > 0.95
    assert accuracy(trained, images, (labels + 1) % 10) < 0.05
    assert not trained.training


def test_accuracy_and_features_agree_with_the_network_itself(trained) -> None:
    images, labels = digits(60, 2)
    pixels = torch.from_numpy(images / np.float32(255)).float()[:, None]
    with torch.no_grad():
        scores, hidden = trained(pixels), trained.features(pixels)
        again = trained.linear3(hidden)
    assert accuracy(trained, images, labels) == (scores.argmax(1).numpy() == labels).mean()
    assert features(trained, images) == pytest.approx(hidden.double().numpy(), abs=1e-5)
    assert torch.allclose(again, scores, atol=1e-5), "features are what the last layer reads"


def test_features_do_not_depend_on_the_type_the_axis_of_channels_or_the_batch(trained, monkeypatch) -> None:
    images, _ = digits(23, 3)
    found = features(trained, images)
    assert found.shape == (23, 84)
    assert found.dtype == np.float64
    assert features(trained, images / 255) == pytest.approx(found, abs=1e-4)
    assert features(trained, images[..., None]) == pytest.approx(found, abs=1e-12)
    monkeypatch.setattr(lenet, "_IMAGES_AT_ONCE", 4)
    assert features(trained, images) == pytest.approx(found, abs=1e-4)


def test_distance_of_features_grows_with_damage(trained) -> None:
    images, _ = digits(400, 4)
    clean = features(trained, images)
    rng = np.random.default_rng(0)
    hurt = [np.where(rng.random(images.shape) < share, 0, images).astype(np.uint8) for share in (0.2, 0.8)]
    far = [frechet_distance(clean, features(trained, damaged)) for damaged in hurt]
    assert frechet_distance(clean, features(trained, images[::-1])) < 1e-3 < far[0] < far[1]


def test_same_seed_gives_the_same_weights_and_global_streams_are_left_alone() -> None:
    images, labels = digits(150, 0)
    before = torch.get_rng_state()
    first, second, third = (train_lenet(images, labels, seed, n_epochs=1) for seed in (3, 3, 4))
    assert torch.equal(torch.get_rng_state(), before)
    for a, b in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(a, b)
    assert not torch.equal(first.linear1.weight, third.linear1.weight)


def test_shifted_images_are_shifted_by_whole_pixels_and_each_on_its_own() -> None:
    pixels = torch.zeros(400, 1, 28, 28)
    pixels[:, 0, 13, 14] = 1
    shifted = lenet._shifted(pixels, torch.Generator().manual_seed(0))
    assert shifted.shape == pixels.shape
    places = {tuple(place) for place in shifted.nonzero()[:, 2:].tolist()}
    assert places == {(y, x) for y in range(11, 16) for x in range(12, 17)}
    assert shifted.sum() == 400


def test_trained_network_is_cached_and_read_back(tmp_path, image_set, quick, monkeypatch) -> None:
    first = lenet_for(image_set, tmp_path / "cache")
    (file,) = (tmp_path / "cache").iterdir()
    assert file.name.startswith("lenet-squares-")
    with safe_open(file, framework="numpy") as opened:
        header = json.loads(opened.metadata()["header"])
    assert header["test_accuracy"] == accuracy(first, image_set.test, image_set.test_labels)
    monkeypatch.setattr(lenet, "train_lenet", lambda *_: pytest.fail("trained again"))
    second = lenet_for(image_set, tmp_path / "cache")
    assert (features(second, image_set.test) == features(first, image_set.test)).all()


def test_other_images_labels_seeds_and_settings_have_files_of_their_own(
    tmp_path, image_set, quick, monkeypatch
) -> None:
    images, labels = image_set.train.copy(), image_set.train_labels.copy()
    images[0, 0, 0] ^= 1
    labels[0] = (labels[0] + 1) % 10
    lenet_for(image_set, tmp_path)
    lenet_for(image_set, tmp_path, seed=1)
    lenet_for(ImageSet("squares", images, image_set.test, image_set.train_labels), tmp_path)
    lenet_for(ImageSet("squares", image_set.train, image_set.test, labels), tmp_path)
    assert len(list(tmp_path.iterdir())) == 4
    monkeypatch.setattr(lenet, "_SETTINGS", lenet._SETTINGS | {"batch_size": 64})
    lenet_for(image_set, tmp_path)
    assert len(list(tmp_path.iterdir())) == 5


def test_broken_file_is_made_anew(tmp_path, image_set, quick, monkeypatch) -> None:
    first = lenet_for(image_set, tmp_path)
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:-100])
    again = lenet_for(image_set, tmp_path)
    monkeypatch.setattr(lenet, "train_lenet", lambda *_: pytest.fail("trained again"))
    for network in (again, lenet_for(image_set, tmp_path)):
        assert (features(network, image_set.test) == features(first, image_set.test)).all()


def test_cache_follows_the_environment_and_one_that_cannot_be_made_is_refused(
    tmp_path, image_set, quick, monkeypatch
) -> None:
    monkeypatch.setenv("MCFLOW_CACHE", str(tmp_path / "c"))
    lenet_for(image_set)
    assert len(list((tmp_path / "c").glob("lenet-*.safetensors"))) == 1
    (tmp_path / "file").write_text("x")
    with pytest.raises(OutputError, match="cannot be made"):
        lenet_for(image_set, tmp_path / "file" / "below")


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (np.zeros((2, 32, 32, 3), dtype=np.uint8), r"grey images of shape \(n_images, 28, 28\)"),
        (np.zeros((28, 28), dtype=np.uint8), "grey images"),
        (np.zeros((0, 28, 28), dtype=np.uint8), "grey images"),
        (np.full((2, 28, 28), np.nan), "between 0 and 1"),
        (np.full((2, 28, 28), 255.0), "between 0 and 1"),
        (np.zeros((2, 28, 28), dtype=int), "between 0 and 1"),
    ],
)
def test_images_that_are_not_grey_digits_are_refused(images, message) -> None:
    with pytest.raises(DataError, match=message):
        features(LeNet(), images)


@pytest.mark.parametrize("labels", [[1], [1, 10], [0, -1], [0.0, 1.0], [[1], [2]]])
def test_labels_that_do_not_fit_are_refused(labels) -> None:
    with pytest.raises(DataError, match="2 whole numbers from 0 to 9"):
        train_lenet(np.zeros((2, 28, 28), dtype=np.uint8), labels)


def test_sets_without_labels_or_of_another_size_are_refused(tmp_path, image_set) -> None:
    with pytest.raises(DataError, match="squares has no labels"):
        lenet_for(ImageSet("squares", image_set.train, image_set.test), tmp_path)
    small = np.zeros((2, 8, 8), dtype=np.uint8)
    with pytest.raises(DataError, match="grey images"):
        lenet_for(ImageSet("small", small, small, np.zeros(2, dtype=int)), tmp_path)


@pytest.mark.slow
def test_real_digits_are_read_as_well_as_the_literature_says(data_folder, tmp_path) -> None:
    if not (data_folder / "mnist.npz").exists():
        pytest.skip("MCFLOW_DATA has no mnist.npz")
    mnist = load_image_set("mnist", data_folder)
    assert accuracy(lenet_for(mnist, tmp_path), mnist.test, mnist.test_labels) >= 0.99
