"""Read the file formats of public image sets: IDX, NPZ, CIFAR records, strips of images and the JPEGs of CelebA."""

from __future__ import annotations

__all__ = [
    "read_celeba_folder",
    "read_cifar_binary",
    "read_cifar_tar",
    "read_idx",
    "read_npz",
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
from typing import BinaryIO

import numpy as np

from mcflow.errors import DataError
from mcflow.images.folders import read_picture
from mcflow.typing import Array

#: Number types of IDX files by their code.
_IDX_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}

_CIFAR_SIDE = 32
_CIFAR_RECORD = 1 + 3 * _CIFAR_SIDE**2

#: Width and height of CelebA's aligned pictures.
_CELEBA_SIZE = (178, 218)
#: Side of the square that is cropped from their middle.
_CELEBA_CROP = 108
#: Side of the square after resizing.
_CELEBA_SIDE = 32
_JPEG_ENDINGS = (".jpg", ".jpeg", ".png")


def read_idx(path: str | Path) -> Array:
    """Read an IDX file, the format of MNIST.

    It has two zero bytes, one byte for the type and one for the number of axes, then the sizes of the axes as
    big-endian 32-bit integers, then the values.
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
    """Read all arrays of an NPZ file without unpickling."""
    if isinstance(file, str | Path):
        # numpy leaves a file open that is not in its format.
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

    A record has 3,073 bytes: the label, then the 1,024 red, green and blue values row by row.

    Shapes: returns (n_images, 32, 32, 3), (n_images,).
    """
    parts = [_records(str(path), Path(path).read_bytes()) for path in paths]
    return _joined(parts)


def read_cifar_tar(path: str | Path) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """Read CIFAR-10's binary version from its archive, without unpacking it to disk."""
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
    """Read a zip of strips: lossless pictures that each stack many square images vertically."""
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
    """Read CelebA's aligned faces as 32 × 32 pixels: crop the 108 pixels in the middle, then resize bicubically.

    Shapes: returns (n_images, 32, 32, 3).
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
    # Crop to whole pixels first, so that the filter does not read pixels outside the square.
    square = picture.convert("RGB").crop(
        (math.floor(left), math.floor(top), math.ceil(left + side), math.ceil(top + side))
    )
    box = (left % 1, top % 1, left % 1 + side, top % 1 + side)
    return np.asarray(square.resize((_CELEBA_SIDE, _CELEBA_SIDE), Image.Resampling.BICUBIC, box=box))
