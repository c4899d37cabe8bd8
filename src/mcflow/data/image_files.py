"""Readers of the files in which public sets of images come: IDX, NPZ, CIFAR's records, strips and CelebA's JPEGs."""

from __future__ import annotations

__all__ = [
    "read_celeba_folder",
    "read_cifar_binary",
    "read_cifar_tar",
    "read_idx",
    "read_npz",
    "read_picture",
    "read_strips",
]

import gzip
import io
import math
import tarfile
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from mcflow.errors import DataError
from mcflow.typing import Array

if TYPE_CHECKING:
    from PIL import Image

#: Types of numbers in IDX files, by their code.
_IDX_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}

_CIFAR_SIDE = 32
_CIFAR_RECORD = 1 + 3 * _CIFAR_SIDE**2

#: CelebA's aligned pictures, the square in their middle that is cropped, and the side it is brought to.
_CELEBA_SIZE, _CELEBA_CROP, _CELEBA_SIDE = (178, 218), 108, 32
_JPEG_ENDINGS = (".jpg", ".jpeg", ".png")


def read_idx(path: str | Path) -> Array:
    """Read an IDX file, the format of MNIST.

    Parameters
    ----------
    path : path-like
        Plain or compressed by gzip, whatever its name.

    Returns
    -------
    ndarray
        Of the shape and type that the file states.

    Raises
    ------
    DataError
        When the file is of another format or cut short.

    Notes
    -----
    Two zero bytes, one for the type and one for the number of axes; the axes as big-endian 32-bit numbers; the values.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "labels-idx1-ubyte"
    ...     _ = path.write_bytes(bytes([0, 0, 8, 1, 0, 0, 0, 3, 7, 8, 9]))
    ...     read_idx(path).tolist()
    [7, 8, 9]
    """
    path = Path(path)
    data = path.read_bytes()
    if data[:2] == b"\x1f\x8b":
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError, zlib.error) as error:
            raise DataError(f"{path} cannot be unpacked: {error}. Get it again.") from error
    if len(data) < 4 or data[:2] != b"\0\0" or data[2] not in _IDX_TYPES:
        raise DataError(f"{path} is not an IDX file, such as train-images-idx3-ubyte.gz of MNIST.")
    start, kind = 4 + 4 * data[3], np.dtype(_IDX_TYPES[data[2]])
    shape = [int.from_bytes(data[place : place + 4], "big") for place in range(4, start, 4)]
    size = start + math.prod(shape) * kind.itemsize
    if len(data) != size:
        raise DataError(f"{path} has {len(data):,} bytes where its header says {size:,}. Get it again.")
    return np.frombuffer(data, kind, offset=start).reshape(shape).astype(kind.newbyteorder("="))


def read_npz(file: str | Path | BinaryIO, name: str = "") -> dict[str, Array]:
    """Read all arrays of an NPZ file; one that would need pickle is refused.

    Parameters
    ----------
    file : path-like or binary file
        What `numpy.savez` or `numpy.savez_compressed` wrote.
    name : str
        What messages call it, by default its path.

    Returns
    -------
    dict of ndarray
        By name.

    Raises
    ------
    DataError
        When the file is of another format, cut short, or holds Python objects.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(Path(folder) / "a.npz", x_train=np.zeros((2, 3, 3)))
    ...     sorted(read_npz(Path(folder) / "a.npz"))
    ['x_train']
    """
    if isinstance(file, str | Path):
        # Opened here, as numpy leaves files open that turn out not to be its own.
        with Path(file).open("rb") as opened:
            return read_npz(opened, name or str(file))
    try:
        members = np.load(file, allow_pickle=False)
        if isinstance(members, np.ndarray):
            raise ValueError("it holds a single array without a name")
        return {member: members[member] for member in members.files}
    except (ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"{name} cannot be read as NPZ: {error}. Get it again.") from error


def read_cifar_binary(paths: Iterable[str | Path]) -> tuple[Array, Array]:
    """Read files of CIFAR-10's binary version.

    Parameters
    ----------
    paths : iterable of path-like
        Such as data_batch_1.bin to data_batch_5.bin, in their order.

    Returns
    -------
    images : ndarray of uint8 of shape (n_images, 32, 32, 3)
    labels : ndarray of uint8 of shape (n_images,)

    Raises
    ------
    DataError
        When a file is not made of whole records.

    Notes
    -----
    A record has 3,073 bytes: the label, then the 1,024 red, green and blue values row by row.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "test_batch.bin"
    ...     _ = path.write_bytes(bytes([6]) + bytes([255]) * 1024 + bytes(2048))
    ...     images, labels = read_cifar_binary([path])
    >>> labels.tolist(), images[0, 0, 0].tolist()
    ([6], [255, 0, 0])
    """
    parts = [_records(str(path), Path(path).read_bytes()) for path in paths]
    return _joined(parts)


def read_cifar_tar(path: str | Path) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """Read CIFAR-10's binary version from its archive, without unpacking it to disk.

    Parameters
    ----------
    path : path-like
        cifar-10-binary.tar.gz.

    Returns
    -------
    train, test : tuple of (images, labels)
        See `read_cifar_binary`.

    Raises
    ------
    DataError
        When the archive is broken or lacks the batches.
    """
    found: dict[str, bytes] = {}
    try:
        with tarfile.open(path) as archive:
            for member in archive:
                file = archive.extractfile(member) if member.name.endswith(".bin") else None
                if file is not None:
                    found[Path(member.name).name] = file.read()
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        if isinstance(error, FileNotFoundError):
            raise
        raise DataError(f"{path} cannot be unpacked: {error}. Get it again.") from error
    train = [_records(f"{path}: {name}", found[name]) for name in sorted(found) if name.startswith("data_batch")]
    if not train or "test_batch.bin" not in found:
        raise DataError(f"{path} lacks data_batch_1.bin or test_batch.bin. It has to be CIFAR-10's binary version.")
    return _joined(train), _records(f"{path}: test_batch.bin", found["test_batch.bin"])


def _records(name: str, data: bytes) -> tuple[Array, Array]:
    if not data or len(data) % _CIFAR_RECORD:
        raise DataError(f"{name} has {len(data):,} bytes, which are not records of {_CIFAR_RECORD:,}. Get it again.")
    records = np.frombuffer(data, dtype=np.uint8).reshape(-1, _CIFAR_RECORD)
    planes = records[:, 1:].reshape(-1, 3, _CIFAR_SIDE, _CIFAR_SIDE)
    return np.ascontiguousarray(planes.transpose(0, 2, 3, 1)), records[:, 0].copy()


def _joined(parts: list[tuple[Array, Array]]) -> tuple[Array, Array]:
    if not parts:
        raise DataError("No file of CIFAR-10 was given. Name at least one, such as data_batch_1.bin.")
    return np.concatenate([images for images, _ in parts]), np.concatenate([labels for _, labels in parts])


def read_strips(path: str | Path) -> dict[str, Array]:
    """Read a zip of strips: lossless pictures, each of many square images one above the other.

    Parameters
    ----------
    path : path-like
        A zip with members train_000.webp, train_001.webp … and test_000.webp …, in the order of their names; PNG will
        do as well. labels.npz may hold y_train and y_test.

    Returns
    -------
    dict of ndarray
        x_train and x_test, uint8 of shape (n_images, side, side) or (n_images, side, side, 3), and what labels.npz
        holds.

    Raises
    ------
    DataError
        When the archive is broken, lacks strips, or a strip is not made of squares.
    """
    strips: dict[str, list[Array]] = {"train": [], "test": []}
    found: dict[str, Array] = {}
    try:
        with zipfile.ZipFile(path) as archive:
            for name in sorted(archive.namelist()):
                part = name.partition("_")[0]
                if part in strips:
                    strips[part].append(_strip(f"{path}: {name}", archive.read(name)))
                elif name == "labels.npz":
                    found |= read_npz(io.BytesIO(archive.read(name)), f"{path}: {name}")
    except (zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"{path} cannot be read: {error}. Get it again.") from error
    for part, images in strips.items():
        if not images:
            raise DataError(f"{path} has no strip {part}_000.webp.")
        found[f"x_{part}"] = np.concatenate(images)
    return found


def _strip(name: str, data: bytes) -> Array:
    picture = read_picture(io.BytesIO(data), name)
    pixels = np.asarray(picture if picture.mode == "L" else picture.convert("RGB"))
    height, side = pixels.shape[:2]
    if height % side:
        raise DataError(f"{name} is {side} wide and {height} high, which is not a whole number of squares.")
    return pixels.reshape(-1, side, *pixels.shape[1:])


def read_celeba_folder(folder: str | Path) -> Array:
    """Read CelebA's aligned faces as 32 × 32 pixels: the square of 108 in the middle, brought down by bicubic filter.

    Parameters
    ----------
    folder : path-like
        Of img_align_celeba: JPEGs of 178 × 218 pixels, or scaled versions of them, read in the order of their names.

    Returns
    -------
    ndarray of uint8 of shape (n_images, 32, 32, 3)

    Raises
    ------
    DataError
        When there are none, or one cannot be read or has other proportions.

    References
    ----------
    .. [1] Liu et al. (2015), "Deep Learning Face Attributes in the Wild", ICCV.
    """
    paths = sorted(path for path in Path(folder).iterdir() if path.suffix.lower() in _JPEG_ENDINGS)
    if not paths:
        raise DataError(f"{folder} has no JPEGs. It has to be the folder img_align_celeba.")
    faces = np.empty((len(paths), _CELEBA_SIDE, _CELEBA_SIDE, 3), dtype=np.uint8)
    for place, path in enumerate(paths):
        faces[place] = _face(path)
    return faces


def _face(path: Path) -> Array:
    from PIL import Image

    picture = read_picture(path, str(path))
    width, height = picture.size
    scale = width / _CELEBA_SIZE[0]
    if abs(height - scale * _CELEBA_SIZE[1]) > 1:
        raise DataError(
            f"{path} is {width} × {height} pixels, but CelebA's aligned faces are 178 × 218, or scaled from that."
        )
    side = scale * _CELEBA_CROP
    left, top = (width - side) / 2, (height - side) / 2
    # Cropped first, to whole pixels, so that the filter does not look past the square.
    square = picture.convert("RGB").crop(
        (math.floor(left), math.floor(top), math.ceil(left + side), math.ceil(top + side))
    )
    box = (left % 1, top % 1, left % 1 + side, top % 1 + side)
    return np.asarray(square.resize((_CELEBA_SIDE, _CELEBA_SIDE), Image.Resampling.BICUBIC, box=box))


def read_picture(file: Path | BinaryIO, name: str) -> Image.Image:
    """Read a picture, with errors that name it.

    Parameters
    ----------
    file : Path or binary file
        PNG, JPEG, WebP, BMP or anything else that Pillow reads.
    name : str
        What messages call it.

    Returns
    -------
    PIL.Image.Image
        Decoded; the file is closed.

    Raises
    ------
    DataError
        When it is no picture, or cut short.
    """
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(file) as picture:
            picture.load()
    except UnidentifiedImageError as error:
        raise DataError(f"{name} is not a picture that can be read. Use PNG, JPEG, WebP or BMP.") from error
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise DataError(f"{name} cannot be read: {error}. Get or write it again.") from error
    return picture
