"""A LeNet that classifies digits, to judge filled images by its accuracy and its features."""

from __future__ import annotations

__all__ = ["LeNet", "LeNetJudge", "accuracy", "features", "lenet_for", "train_lenet"]

import hashlib
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from mcflow.errors import DataError, ModelFileError, OutputError
from mcflow.files.atomic import cache_folder, read_tensors, write_tensors
from mcflow.fitting.trainer import cosine
from mcflow.typing import Array, FloatArray
from mcflow_bench.data.image_sets import ImageSet

_KIND = "classifier"
_SIDE = 28
_N_CLASSES = 10
_N_FEATURES = 84
_IMAGES_AT_ONCE = 1000

#: Maximum shift of a training image in pixels.
_SHIFT = 2

#: Settings of the training; their hash is part of the name of the cached file.
_SETTINGS = {"version": 1, "n_epochs": 12, "batch_size": 128, "learning_rate": 4e-3, "shift": _SHIFT}


class LeNet(nn.Module):
    """LeNet-5 with ReLU and max pooling: two convolutions, then dense layers of 120, 84 and 10 units.

    Examples
    --------
    >>> network = LeNet(torch.Generator().manual_seed(0))
    >>> digits = torch.zeros(3, 1, 28, 28)
    >>> tuple(network(digits).shape), tuple(network.features(digits).shape)
    ((3, 10), (3, 84))
    """

    def __init__(self, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.conv1 = nn.utils.skip_init(nn.Conv2d, 1, 6, 5, padding=2)
        self.conv2 = nn.utils.skip_init(nn.Conv2d, 6, 16, 5)
        self.linear1 = nn.utils.skip_init(nn.Linear, 16 * 5 * 5, 120)
        self.linear2 = nn.utils.skip_init(nn.Linear, 120, _N_FEATURES)
        self.linear3 = nn.utils.skip_init(nn.Linear, _N_FEATURES, _N_CLASSES)
        for weights in self.parameters():
            if generator is None or weights.ndim == 1:
                nn.init.zeros_(weights)
            else:
                nn.init.kaiming_uniform_(weights, nonlinearity="relu", generator=generator)

    def features(self, pixels: Tensor) -> Tensor:
        """Return the last hidden layer, of shape (n_images, 84), for pixels of shape (n_images, 1, 28, 28)."""
        first = functional.max_pool2d(functional.relu(self.conv1(pixels)), 2)  # (n_images, 6, 14, 14)
        second = functional.max_pool2d(functional.relu(self.conv2(first)), 2)  # (n_images, 16, 5, 5)
        return functional.relu(self.linear2(functional.relu(self.linear1(second.flatten(1)))))

    def forward(self, pixels: Tensor) -> Tensor:
        """Return the logits of the ten classes, of shape (n_images, 10)."""
        scores: Tensor = self.linear3(self.features(pixels))
        return scores


def train_lenet(images: npt.ArrayLike, labels: npt.ArrayLike, seed: int = 0, *, n_epochs: int | None = None) -> LeNet:
    """Train a LeNet on complete digits that are shifted at random by up to two pixels.

    Adam with batches of 128; the learning rate rises to 0.004 within the first fifth of the steps and then decays to 0
    along a cosine.

    Shapes: `images` (n_images, 28, 28), `labels` (n_images,).
    """
    pixels = _pixels(images)
    classes = torch.from_numpy(_classes(labels, len(pixels)))
    generator = torch.Generator().manual_seed(seed)
    network = LeNet(generator)
    optimizer = torch.optim.Adam(network.parameters(), fused=True)
    batches = _batches(len(pixels), n_epochs or int(_SETTINGS["n_epochs"]), generator)
    for done, batch in batches:
        for group in optimizer.param_groups:
            group["lr"] = _SETTINGS["learning_rate"] * _rate(done)
        loss = functional.cross_entropy(network(_shifted(pixels[batch], generator)), classes[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return network.eval()


def _batches(n_images: int, n_epochs: int, generator: torch.Generator) -> Iterator[tuple[float, Tensor]]:
    """Yield the fraction of training that is done, and the positions of the next images."""
    size = int(_SETTINGS["batch_size"])
    n_steps = n_epochs * math.ceil(n_images / size)
    step = 0
    for _ in range(n_epochs):
        for batch in torch.randperm(n_images, generator=generator).split(size):
            yield step / n_steps, batch
            step += 1


def _rate(done: float, warm: float = 0.2) -> float:
    return (done + 0.01) / (warm + 0.01) if done < warm else cosine((done - warm) / (1 - warm))


def _shifted(pixels: Tensor, generator: torch.Generator) -> Tensor:
    """Shift each image by whole pixels, with black at the edges."""
    padded = functional.pad(pixels[:, 0], (_SHIFT,) * 4)
    shifts = torch.randint(2 * _SHIFT + 1, (2, len(pixels), 1), generator=generator)
    rows, columns = shifts + torch.arange(_SIDE)  # (n_images, 28) each
    return padded[torch.arange(len(pixels))[:, None, None], rows[:, :, None], columns[:, None, :]][:, None]


def lenet_for(image_set: ImageSet, cache_dir: str | Path | None = None, *, seed: int = 0) -> LeNet:
    """Return the LeNet of a set's training images: from the cache, or trained and stored there.

    The file name has a checksum of images, labels, seed and settings, so that another set or other settings have a file
    of their own. A broken file is replaced. The header of the file has the accuracy on the test images.
    """
    _pixels(image_set.train[:1])
    if image_set.train_labels is None:
        raise DataError(f"{image_set.name} has no labels, so no LeNet can be trained on it.")
    folder = Path(cache_dir) if cache_dir is not None else cache_folder()
    key = _key(image_set, seed)
    path = folder / f"lenet-{image_set.name}-{key[:16]}.safetensors"
    try:
        return _loaded(path, key)
    except (FileNotFoundError, ModelFileError):
        network = train_lenet(image_set.train, image_set.train_labels, seed)
        _keep(network, path, {"key": key, "seed": seed, "settings": _SETTINGS} | _facts(network, image_set))
        return network


def _key(image_set: ImageSet, seed: int) -> str:
    digest = hashlib.sha256(json.dumps([_SETTINGS, seed, image_set.train.shape], sort_keys=True).encode())
    digest.update(np.ascontiguousarray(image_set.train).tobytes())
    digest.update(np.ascontiguousarray(image_set.train_labels, dtype=np.int64).tobytes())
    return digest.hexdigest()


def _facts(network: LeNet, image_set: ImageSet) -> dict[str, Any]:
    if image_set.test_labels is None or not len(image_set.test):
        return {"set": image_set.name}
    return {"set": image_set.name, "test_accuracy": accuracy(network, image_set.test, image_set.test_labels)}


def _loaded(path: Path, key: str) -> LeNet:
    _, header, arrays = read_tensors(path, _KIND)
    network = LeNet()
    try:
        network.load_state_dict({name: torch.from_numpy(array) for name, array in arrays.items()})
    except RuntimeError as error:
        raise ModelFileError(f"{path} holds another network: {error}") from error
    if header.get("key") != key:
        raise ModelFileError(f"{path} belongs to other images.")
    return network.eval()


def _keep(network: LeNet, path: Path, header: dict[str, Any]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"The folder {path.parent} cannot be made: {error.strerror}. Choose another.") from error
    write_tensors(path, _KIND, header, {name: tensor.numpy() for name, tensor in network.state_dict().items()})


def accuracy(model: LeNet, images: npt.ArrayLike, labels: npt.ArrayLike) -> float:
    """Return the fraction of images that a network assigns their own class.

    Shapes: `images` (n_images, 28, 28), `labels` (n_images,).
    """
    scores = _evaluated(model, images)
    return float((scores.argmax(axis=1) == _classes(labels, len(scores))).mean())


def features(model: LeNet, images: npt.ArrayLike) -> FloatArray:
    """Return the last hidden layer of a network, for the Fréchet distance between sets of images.

    Shapes: `images` (n_images, 28, 28), returns (n_images, 84).
    """
    return _evaluated(model, images, model.features)


@dataclass(frozen=True)
class LeNetJudge:
    """A LeNet as the classifier that filled images are judged by."""

    network: LeNet

    def accuracy(self, images: Array, labels: Array) -> float:
        """Return the fraction of images that are assigned their own class."""
        return accuracy(self.network, images, labels)

    def features(self, images: Array) -> FloatArray:
        """Return the last hidden layer, of shape (n_images, 84)."""
        return features(self.network, images)


@torch.no_grad()
def _evaluated(model: LeNet, images: npt.ArrayLike, part: Callable[[Tensor], Tensor] | None = None) -> FloatArray:
    found = [(part or model)(pixels) for pixels in _pixels(images).split(_IMAGES_AT_ONCE)]
    return torch.cat(found).double().numpy()


def _pixels(images: npt.ArrayLike) -> Tensor:
    """Return digits as float32 of shape (n_images, 1, 28, 28) between 0 and 1."""
    given: Array = np.asarray(images)
    if given.ndim == 4 and given.shape[3] == 1:
        given = given[..., 0]
    if given.ndim != 3 or given.shape[1:] != (_SIDE, _SIDE) or not len(given):
        raise DataError(
            f"LeNet reads grey images of shape (n_images, 28, 28), as MNIST has, but these are of shape {given.shape}."
        )
    if given.dtype == np.uint8:
        return torch.from_numpy(given.astype(np.float32) / np.float32(255))[:, None]
    if not np.issubdtype(given.dtype, np.floating) or not ((given >= 0) & (given <= 1)).all():
        raise DataError("LeNet reads uint8, or floats between 0 and 1 without missing pixels. Scale the images first.")
    return torch.from_numpy(given.astype(np.float32))[:, None]


def _classes(labels: npt.ArrayLike, n_images: int) -> npt.NDArray[np.int64]:
    given: Array = np.asarray(labels)
    fits = given.shape == (n_images,) and np.issubdtype(given.dtype, np.integer)
    if not fits or not ((given >= 0) & (given < _N_CLASSES)).all():
        raise DataError(f"Labels have to be {n_images} whole numbers from 0 to {_N_CLASSES - 1}, one for each image.")
    classes: npt.NDArray[np.int64] = given.astype(np.int64)
    return classes
