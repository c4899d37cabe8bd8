"""Public image sets by name."""

from __future__ import annotations

__all__ = ["IMAGE_SETS", "ImageSet", "NamedImageSet", "load_image_set", "read_image_npz"]

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mcflow.errors import DataError, ParameterError, did_you_mean
from mcflow.files.atomic import cache_folder
from mcflow.typing import Array
from mcflow_bench.data.downloads import Source, data_folder, fetch
from mcflow_bench.data.image_files import (
    read_celeba_folder,
    read_cifar_binary,
    read_cifar_tar,
    read_idx,
    read_npz,
    read_strips,
)

_MNIST_MIRRORS = ("https://storage.googleapis.com/cvdf-datasets/mnist", "https://ossci-datasets.s3.amazonaws.com/mnist")
_CIFAR = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"

#: Files of MNIST in the order of the arrays of `ImageSet`, with the SHA-256 of their compressed form.
_MNIST_FILES = {
    "train-images-idx3-ubyte": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    "t10k-images-idx3-ubyte": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    "train-labels-idx1-ubyte": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    "t10k-labels-idx1-ubyte": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
}
_CIFAR_SHA256 = "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"

#: Maximum size of the test set that is cut from the end of a set without one.
_N_TEST = 2000

#: Number of images of CelebA.
_CELEBA_ALL = 202_599
#: Number of its official training images, which are the first.
_CELEBA_TRAIN = 162_770
#: Number of its official test images, which are the last.
_CELEBA_TEST = 19_962


@dataclass(frozen=True)
class ImageSet:
    """Training and test images."""

    name: str
    train: Array  # complete images, (n_images, height, width) or (n_images, height, width, channels)
    test: Array  # of the same shape but for n_images
    train_labels: Array | None = None  # (n_images,) classes as integers, if the set has them
    test_labels: Array | None = None

    @property
    def is_digits(self) -> bool:
        """Return whether LeNet can judge the set: grey images of 28 × 28 pixels with labels."""
        labelled = self.train_labels is not None and self.test_labels is not None
        return labelled and self.train.shape[1:] in {(28, 28), (28, 28, 1)}

    def __post_init__(self) -> None:
        for part, images, labels in (
            ("training", self.train, self.train_labels),
            ("test", self.test, self.test_labels),
        ):
            if images.ndim not in (3, 4) or images.dtype != np.uint8 or images.shape[1:] != self.train.shape[1:]:
                raise DataError(
                    f"The {part} images of {self.name} are of type {images.dtype} and shape {images.shape}, but have "
                    "to be uint8 of shape (n_images, height, width) or (n_images, height, width, channels), all alike."
                )
            if labels is not None and labels.shape != (len(images),):
                raise DataError(
                    f"{self.name} has {len(images)} {part} images and labels of shape {labels.shape}. Each needs one."
                )


def read_image_npz(path: str | Path, name: str | None = None) -> ImageSet:
    """Read an image set from an NPZ file."""
    path = Path(path)
    arrays = read_npz(path)
    if "x_train" in arrays and "x_test" in arrays:
        return _from_arrays(name or path.stem, arrays)
    if "images" in arrays:
        return _split(name or path.stem, arrays["images"])
    raise DataError(
        f"{path} holds {', '.join(sorted(arrays)) or 'nothing'}, but has to hold x_train and x_test, or images."
    )


def _from_arrays(name: str, arrays: dict[str, Array]) -> ImageSet:
    return ImageSet(name, arrays["x_train"], arrays["x_test"], arrays.get("y_train"), arrays.get("y_test"))


def _split(name: str, images: Array) -> ImageSet:
    n_test = min(_N_TEST, len(images) // 5)
    return ImageSet(name, images[: len(images) - n_test], images[len(images) - n_test :])


@dataclass(frozen=True)
class NamedImageSet:
    """A public image set."""

    title: str  # its name in reports
    forms: dict[str, Callable[[Path], ImageSet]]  # readers by the name of the file or folder; a star is any ending
    download: Callable[[], ImageSet] | None  # downloads and reads it, if its licence allows that
    advice: str  # which files to get by hand, and where to put them
    citation: str  # reference to cite


def load_image_set(name: str, folder: str | Path | None = None) -> ImageSet:
    """Return a public image set: from the folder, else from the cache, else downloaded into the cache.

    The folder is searched in this order: for MNIST mnist.npz and the four IDX files; for CIFAR-10 cifar10.npz,
    cifar10.zip (see `read_strips`), cifar-10-binary.tar.gz and the folder cifar-10-batches-bin; for CelebA celeba32.npz
    and the folder img_align_celeba. The test set of CelebA is the official one if all 202,599 faces are there, else the
    last 2,000.
    """
    place = data_folder(folder)
    if place is not None and (found := _found(name, place)) is not None:
        return found
    if name not in IMAGE_SETS:
        where = f" in {place}, and none" if place else ""
        known, hint = ", ".join(IMAGE_SETS), did_you_mean(name, IMAGE_SETS)
        raise ParameterError(f"There is no image set {name!r}{where} to download. Known are {known}.{hint}")
    entry = IMAGE_SETS[name]
    if entry.download is not None:
        return _downloaded(entry)
    if (found := _found(name, cache_folder())) is not None:
        return found
    looked = " or ".join(str(p) for p in (place, cache_folder()) if p is not None)
    raise DataError(f"{entry.title} is not in {looked} and cannot be downloaded for you. {entry.advice}")


def _found(name: str, folder: Path) -> ImageSet | None:
    forms = IMAGE_SETS[name].forms if name in IMAGE_SETS else {f"{name}.npz": lambda path: read_image_npz(path, name)}
    for form, read in forms.items():
        if next(folder.glob(form), None) is not None:
            return read(folder / form.removesuffix("*"))
    return None


def _downloaded(entry: NamedImageSet) -> ImageSet:
    assert entry.download is not None
    try:
        return entry.download()
    except DataError as error:
        reason = str(error).partition(" Try again when")[0]
        raise DataError(f"{reason} {entry.advice}") from error


def _mnist_folder(path: Path) -> ImageSet:
    """Read MNIST from four IDX files of one folder, plain or compressed; `path` is the first one without its ending."""
    arrays = []
    for name in _MNIST_FILES:
        file = next((f for f in (path.with_name(name), path.with_name(f"{name}.gz")) if f.is_file()), None)
        if file is None:
            raise DataError(f"{path.parent} lacks {name}.gz. MNIST is four files: {', '.join(_MNIST_FILES)}.")
        arrays.append(read_idx(file))
    return ImageSet("mnist", *arrays)


def _mnist_download() -> ImageSet:
    arrays = []
    for name, sha256 in _MNIST_FILES.items():
        sources = tuple(Source(f"{mirror}/{name}.gz", ".gz", sha256) for mirror in _MNIST_MIRRORS)
        arrays.append(read_idx(fetch(f"mnist-{name}", sources)))
    return ImageSet("mnist", *arrays)


def _cifar_folder(path: Path) -> ImageSet:
    train, train_labels = read_cifar_binary(sorted(path.glob("data_batch_*.bin")))
    test, test_labels = read_cifar_binary(sorted(path.glob("test_batch.bin")))
    return ImageSet("cifar10", train, test, train_labels, test_labels)


def _cifar_tar(path: Path) -> ImageSet:
    (train, train_labels), (test, test_labels) = read_cifar_tar(path)
    return ImageSet("cifar10", train, test, train_labels, test_labels)


def _cifar_download() -> ImageSet:
    return _cifar_tar(fetch("cifar-10-binary", (Source(_CIFAR, ".tar.gz", _CIFAR_SHA256),)))


def _celeba_folder(path: Path) -> ImageSet:
    faces = read_celeba_folder(path)
    if len(faces) == _CELEBA_ALL:
        return ImageSet("celeba", faces[:_CELEBA_TRAIN], faces[-_CELEBA_TEST:])
    return _split("celeba", faces)


#: The public sets; a folder may hold others.
IMAGE_SETS: dict[str, NamedImageSet] = {
    "mnist": NamedImageSet(
        title="MNIST",
        forms={
            "mnist.npz": lambda path: read_image_npz(path, "mnist"),
            "train-images-idx3-ubyte*": _mnist_folder,
            "mnist/train-images-idx3-ubyte*": _mnist_folder,
        },
        download=_mnist_download,
        advice="Put mnist.npz, or the four IDX files such as train-images-idx3-ubyte.gz, into a folder and name it "
        "with --data or MCFLOW_DATA.",
        citation="LeCun et al. (1998), Gradient-based learning applied to document recognition",
    ),
    "cifar10": NamedImageSet(
        title="CIFAR-10",
        forms={
            "cifar10.npz": lambda path: read_image_npz(path, "cifar10"),
            "cifar10.zip": lambda path: _from_arrays("cifar10", read_strips(path)),
            "cifar-10-binary.tar.gz": _cifar_tar,
            "cifar-10-batches-bin": _cifar_folder,
        },
        download=_cifar_download,
        advice="Put cifar-10-binary.tar.gz into a folder and name it with --data or MCFLOW_DATA.",
        citation="Krizhevsky (2009), Learning multiple layers of features from tiny images",
    ),
    "celeba": NamedImageSet(
        title="CelebA",
        forms={
            "celeba32.npz": lambda path: read_image_npz(path, "celeba"),
            "img_align_celeba": _celeba_folder,
            "celeba/img_align_celeba": _celeba_folder,
        },
        download=None,
        advice="Its licence requires everyone to get it from its authors: agree to it at "
        "https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html, get img_align_celeba.zip, unpack it into a folder and "
        "name that folder with --data or MCFLOW_DATA.",
        citation="Liu et al. (2015), Deep learning face attributes in the wild",
    ),
}
