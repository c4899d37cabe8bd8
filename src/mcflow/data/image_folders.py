"""Folders of pictures in and out: what is missing comes from mask pictures or from transparency."""

from __future__ import annotations

__all__ = ["PICTURE_ENDINGS", "read_image_folder", "write_image_folder"]

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mcflow.data.files import replacing
from mcflow.data.image_files import read_picture
from mcflow.errors import DataError, OutputError
from mcflow.typing import Array, BoolArray

if TYPE_CHECKING:
    from PIL import Image

#: Endings of the names of pictures, in small letters.
PICTURE_ENDINGS = (".png", ".jpg", ".jpeg", ".webp", ".bmp")

#: How pictures of each mode of Pillow are read.
_MODES = {"1": "L", "L": "L", "LA": "LA", "RGB": "RGB", "RGBA": "RGBA", "PA": "RGBA"}
_WORDS = {1: "grey", 3: "in colour"}


class _Picture(NamedTuple):
    """One picture: pixels of shape (height, width) or (height, width, 3), and which are transparent, if any may be."""

    pixels: Array
    missing: BoolArray | None


def read_image_folder(path: str | Path, masks: str | Path | None = None) -> tuple[Array, BoolArray, list[str]]:
    """Read all pictures of a folder and what is missing in them.

    Parameters
    ----------
    path : path-like
        With PNG, JPEG, WebP or BMP files, all of one size, and all grey or all in colour; other files are left alone.
    masks : path-like, optional
        A folder of mask pictures, named as the pictures are but for the ending: white is missing, black is observed. A
        picture without one has no more missing than its transparency says.

    Returns
    -------
    images : ndarray of uint8 of shape (n_images, height, width) or (n_images, height, width, 3)
        In the order of the files' names.
    mask : ndarray of bool of shape (n_images, height, width)
        True where a pixel is missing: white in its mask, or wholly transparent in the picture.
    names : list of str
        The files' names.

    Raises
    ------
    DataError
        When there are no pictures, or one cannot be read, has another size or other channels than the first, shares
        its name with another, or when a mask belongs to no picture or has another size.

    Notes
    -----
    Greys of a mask count as white from the middle upwards, so that the ripples of a JPEG do no harm. Cameras' notes of
    how a picture was held are followed.

    Examples
    --------
    >>> import tempfile
    >>> pictures = np.zeros((2, 4, 5, 3), dtype=np.uint8)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = write_image_folder(pictures, folder, ["a", "b"])
    ...     images, mask, names = read_image_folder(folder)
    >>> images.shape, mask.any().item(), names
    ((2, 4, 5, 3), False, ['a.png', 'b.png'])
    """
    files = _pictures(Path(path))
    if not files:
        raise DataError(f"{path} has no pictures. It has to hold {', '.join(PICTURE_ENDINGS)} files.")
    mask_files = {} if masks is None else _mask_files(Path(masks), files)
    first = _read(next(iter(files.values())))
    images = np.empty((len(files), *first.pixels.shape), dtype=np.uint8)
    mask = np.zeros(images.shape[:3], dtype=bool)
    for place, (stem, file) in enumerate(files.items()):
        picture = _read(file)
        _check_alike(file, picture.pixels, first.pixels, next(iter(files.values())))
        images[place] = picture.pixels
        if picture.missing is not None:
            mask[place] = picture.missing
        if stem in mask_files:
            mask[place] |= _read_mask(mask_files[stem], file, images.shape[1:3])
    return images, mask, [file.name for file in files.values()]


def _pictures(folder: Path) -> dict[str, Path]:
    """Return the pictures of a folder by their names without endings, in the order of the names."""
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder. Give one that holds pictures.")
    files: dict[str, Path] = {}
    for file in sorted(folder.iterdir()):
        if file.suffix.lower() in PICTURE_ENDINGS and not file.name.startswith(".") and file.is_file():
            if file.stem in files:
                raise DataError(f"{files[file.stem]} and {file} differ in their ending alone. Rename one of them.")
            files[file.stem] = file
    return files


def _mask_files(folder: Path, files: dict[str, Path]) -> dict[str, Path]:
    masks = _pictures(folder)
    if not masks:
        raise DataError(f"{folder} has no mask pictures. Give one for each picture, white where a pixel is missing.")
    for stem, file in masks.items():
        if stem not in files:
            raise DataError(f"The mask {file} belongs to no picture: there is none with the name {stem!r}.")
    return masks


def _read(file: Path) -> _Picture:
    from PIL import ImageOps

    picture = _plain(ImageOps.exif_transpose(read_picture(file, str(file))), file)
    values = np.asarray(picture)
    if picture.mode in ("LA", "RGBA"):
        pixels = values[..., 0] if picture.mode == "LA" else values[..., :3]
        return _Picture(pixels, values[..., -1] == 0)
    return _Picture(values, None)


def _plain(picture: Image.Image, file: Path) -> Image.Image:
    """Return a picture of 8 bits a channel, grey or in colour, with transparency if it has any."""
    if picture.mode == "P":
        return picture.convert("RGBA" if picture.has_transparency_data else "RGB")
    if picture.mode not in _MODES:
        raise DataError(
            f"{file} has the mode {picture.mode!r}, but pictures have to be grey or RGB with 8 bits a channel. Convert "
            "it, or give images as arrays."
        )
    if picture.mode in ("L", "RGB") and picture.has_transparency_data:
        return picture.convert(f"{picture.mode}A")
    return picture.convert(_MODES[picture.mode])


def _check_alike(file: Path, pixels: Array, first: Array, first_file: Path) -> None:
    if pixels.shape[:2] != first.shape[:2]:
        raise DataError(
            f"{file} is {_size(pixels)} pixels, but {first_file.name} is {_size(first)}, and all have to be alike. "
            "Crop or resize it."
        )
    if pixels.shape != first.shape:
        here, there = (_WORDS[(*image.shape, 1)[2]] for image in (pixels, first))
        raise DataError(f"{file} is {here}, but {first_file.name} is {there}, and all have to be alike. Convert it.")


def _size(pixels: Array) -> str:
    return f"{pixels.shape[1]} × {pixels.shape[0]}"


def _read_mask(file: Path, picture: Path, size: tuple[int, ...]) -> BoolArray:
    pixels = _read(file).pixels
    if pixels.shape[:2] != size:
        raise DataError(
            f"The mask {file} is {_size(pixels)} pixels, but {picture.name} is {size[1]} × {size[0]}. Make them alike."
        )
    grey = pixels if pixels.ndim == 2 else pixels.mean(axis=2)
    missing: BoolArray = grey >= 128
    return missing


def write_image_folder(images: Array, folder: str | Path, names: Sequence[str]) -> list[Path]:
    """Write images as PNG files of a folder, which is made if it is not there.

    Parameters
    ----------
    images : ndarray of shape (n_images, height, width) or (n_images, height, width, channels)
        uint8, or floats between 0 and 1; 1, 3 or 4 channels.
    folder : path-like
        Files in it that have the same names are replaced, one by one, each when it is whole.
    names : sequence of str
        One an image; the endings of pictures give way to .png.

    Returns
    -------
    list of Path
        The files.

    Raises
    ------
    DataError
        When the images are not pictures, or names are too few, not distinct, or lead out of the folder.
    OutputError
        When a file cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     [path.name for path in write_image_folder(np.zeros((1, 4, 4), np.uint8), folder, ["face.jpg"])]
    ['face.png']
    """
    from PIL import Image

    pixels = _bytes(np.asarray(images))
    folder = Path(folder)
    files = _targets(folder, names, len(pixels))
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"The folder {folder} cannot be made: {error.strerror}. Choose another.") from error
    for image, file in zip(pixels, files, strict=True):
        with replacing(file) as temporary:
            Image.fromarray(image).save(temporary, format="PNG")
    return files


def _bytes(images: Array) -> Array:
    """Return images as uint8 in one of the shapes that PNG has."""
    if images.ndim == 4 and images.shape[3] == 1:
        images = images[..., 0]
    if images.ndim not in (3, 4) or (images.ndim == 4 and images.shape[3] not in (3, 4)) or 0 in images.shape[1:]:
        raise DataError(
            f"Images of shape {images.shape} cannot be written as pictures; they need the shape (n_images, height, "
            "width) or (n_images, height, width, channels) with 1, 3 or 4 channels."
        )
    if np.issubdtype(images.dtype, np.floating) and not ((images >= 0) & (images <= 1)).all():
        raise DataError("Images of floats have to lie between 0 and 1, without a hole, to be written as pictures.")
    if np.issubdtype(images.dtype, np.floating):
        images = np.rint(images * 255).astype(np.uint8)
    if images.dtype != np.uint8:
        raise DataError(f"Images of type {images.dtype} cannot be written as pictures; convert them to uint8.")
    return np.ascontiguousarray(images)


def _targets(folder: Path, names: Sequence[str], n_images: int) -> list[Path]:
    if len(names) != n_images:
        raise DataError(f"There are {n_images} images and {len(names)} names; each image needs one.")
    stems = [Path(name).stem if Path(name).suffix.lower() in PICTURE_ENDINGS else str(name) for name in names]
    for name, stem in zip(names, stems, strict=True):
        if not stem or Path(stem).name != stem or Path(name).name != name or "\\" in name:
            raise DataError(f"{name!r} is not the name of a file in a folder. Give names without folders.")
    if len(set(stems)) < len(stems):
        double = next(stem for stem in stems if stems.count(stem) > 1)
        raise DataError(f"Two images would be written to {double}.png. Give each its own name.")
    return [folder / f"{stem}.png" for stem in stems]
