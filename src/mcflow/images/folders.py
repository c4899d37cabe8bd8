"""Read and write folders of pictures; missing pixels are given by mask pictures or by transparency."""

from __future__ import annotations

__all__ = ["PICTURE_ENDINGS", "read_image_folder", "read_picture", "write_image_folder"]

from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from mcflow.errors import DataError, OutputError
from mcflow.files.atomic import replacing
from mcflow.typing import Array, BoolArray

PICTURE_ENDINGS = (".png", ".jpg", ".jpeg", ".webp", ".bmp")  #: File extensions of pictures, in lower case.

#: Mode to which pictures of each mode of Pillow are converted.
_MODES = {"1": "L", "L": "L", "LA": "LA", "RGB": "RGB", "RGBA": "RGBA", "PA": "RGBA"}


def read_image_folder(path: str | Path, masks: str | Path | None = None) -> tuple[Array, BoolArray, list[str]]:
    """Read all pictures of a folder and their missing pixels.

    Parameters
    ----------
    path : path-like
        Folder of PNG, JPEG, WebP or BMP files, all of one size, and all grey or all in colour. Other files are ignored.
    masks : path-like, optional
        Folder of mask pictures with the names of the pictures, apart from the extension: white is missing, black is
        observed. In pictures without a mask, only transparent pixels are missing.

    Returns
    -------
    images : ndarray of uint8 of shape (n_images, height, width) or (n_images, height, width, 3)
        The pictures, sorted by file name.
    mask : ndarray of bool of shape (n_images, height, width)
        True where a pixel is missing: white in its mask, or fully transparent in the picture.
    names : list of str
        File names.

    Raises
    ------
    DataError
        If there are no pictures, a picture cannot be read, differs from the first one in size or channels, or has the
        name of another one, or if a mask has no picture or a different size.

    Notes
    -----
    Mask values from 128 count as white, so that JPEG artefacts have no effect. The EXIF orientation is applied.

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
        raise DataError(f"{path} has no pictures. It has to contain {', '.join(PICTURE_ENDINGS)} files.")
    mask_files = {} if masks is None else _mask_files(Path(masks), files)
    first_file = next(iter(files.values()))
    first, _ = _read(first_file)
    images = np.empty((len(files), *first.shape), dtype=np.uint8)
    mask = np.empty(images.shape[:3], dtype=bool)
    for place, (stem, file) in enumerate(files.items()):
        pixels, transparent = _read(file)
        _check_same(file, pixels, first, first_file)
        images[place], mask[place] = pixels, transparent
        if stem in mask_files:
            mask[place] |= _read_mask(mask_files[stem], file, images.shape[1:3])
    return images, mask, [file.name for file in files.values()]


def _pictures(folder: Path) -> dict[str, Path]:
    """Return the pictures of a folder by their names without extensions, sorted by name."""
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder. Give one that holds pictures.")
    files: dict[str, Path] = {}
    for file in sorted(folder.iterdir()):
        if file.suffix.lower() in PICTURE_ENDINGS and not file.name.startswith(".") and file.is_file():
            if file.stem in files:
                raise DataError(f"{files[file.stem]} and {file} differ only in their extension. Rename one of them.")
            files[file.stem] = file
    return files


def _mask_files(folder: Path, files: dict[str, Path]) -> dict[str, Path]:
    masks = _pictures(folder)
    if not masks:
        raise DataError(f"{folder} has no mask pictures. Give one for each picture, white where a pixel is missing.")
    for stem, file in masks.items():
        if stem not in files:
            raise DataError(f"The mask {file} has no picture: there is none with the name {stem!r}.")
    return masks


def _read(file: Path) -> tuple[Array, BoolArray]:
    """Return the pixels (height, width) or (height, width, 3) of a picture, and which of them are transparent."""
    picture = _plain(ImageOps.exif_transpose(read_picture(file, str(file))), file)
    values = np.asarray(picture)
    if picture.mode in ("LA", "RGBA"):
        pixels = values[..., 0] if picture.mode == "LA" else values[..., :3]
        return pixels, values[..., -1] == 0
    return values, np.zeros(values.shape[:2], dtype=bool)


def _plain(picture: Image.Image, file: Path) -> Image.Image:
    """Return a picture with 8 bits per channel, grey or in colour, with transparency if it has any."""
    if picture.mode == "P":
        return picture.convert("RGBA" if picture.has_transparency_data else "RGB")
    if picture.mode not in _MODES:
        raise DataError(
            f"{file} has the mode {picture.mode!r}, but pictures have to be grey or RGB with 8 bits per channel. "
            "Convert it, or give images as arrays."
        )
    if picture.mode in ("L", "RGB") and picture.has_transparency_data:
        return picture.convert(f"{picture.mode}A")
    return picture.convert(_MODES[picture.mode])


def _check_same(file: Path, pixels: Array, first: Array, first_file: Path) -> None:
    if pixels.shape[:2] != first.shape[:2]:
        raise DataError(
            f"{file} is {_size(pixels)} pixels, but {first_file.name} is {_size(first)}, and all have to be equal. "
            "Crop or resize it."
        )
    if pixels.shape != first.shape:
        here, there = ("grey" if image.ndim == 2 else "in colour" for image in (pixels, first))
        raise DataError(f"{file} is {here}, but {first_file.name} is {there}, and all have to be equal. Convert it.")


def _size(pixels: Array) -> str:
    return f"{pixels.shape[1]} × {pixels.shape[0]}"


def _read_mask(file: Path, picture: Path, size: tuple[int, ...]) -> BoolArray:
    pixels, _ = _read(file)
    if pixels.shape[:2] != size:
        raise DataError(
            f"The mask {file} is {_size(pixels)} pixels, but {picture.name} is {size[1]} × {size[0]}. Resize one."
        )
    grey = pixels if pixels.ndim == 2 else pixels.mean(axis=2)
    return grey >= 128


def write_image_folder(images: Array, folder: str | Path, names: Sequence[str]) -> list[Path]:
    """Write images as PNG files to a folder, which is created if necessary.

    Parameters
    ----------
    images : ndarray of shape (n_images, height, width) or (n_images, height, width, channels)
        Values of type uint8, or floats between 0 and 1, with 1, 3 or 4 channels.
    folder : path-like
        Existing files with the same names are replaced atomically.
    names : sequence of str
        A name for each image; extensions of pictures are replaced by .png.

    Returns
    -------
    list of Path
        The files.

    Raises
    ------
    DataError
        If the images cannot be written as pictures, or names are too few, not distinct, or contain folders.
    OutputError
        If a file cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     [path.name for path in write_image_folder(np.zeros((1, 4, 4), np.uint8), folder, ["face.jpg"])]
    ['face.png']
    """
    pixels = _bytes(np.asarray(images))
    folder = Path(folder)
    files = _targets(folder, names, len(pixels))
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"The folder {folder} cannot be created: {error.strerror}. Choose another one.") from error
    for image, file in zip(pixels, files, strict=True):
        with replacing(file) as temporary:
            Image.fromarray(image).save(temporary, format="PNG")
    return files


def _bytes(images: Array) -> Array:
    """Return images as uint8 in a shape that PNG supports."""
    if images.ndim == 4 and images.shape[3] == 1:
        images = images[..., 0]
    if images.ndim not in (3, 4) or (images.ndim == 4 and images.shape[3] not in (3, 4)) or 0 in images.shape[1:]:
        raise DataError(
            f"Images of shape {images.shape} cannot be written as pictures; they need the shape (n_images, height, "
            "width) or (n_images, height, width, channels) with 1, 3 or 4 channels."
        )
    if np.issubdtype(images.dtype, np.floating) and not ((images >= 0) & (images <= 1)).all():
        raise DataError("Images of floats have to lie between 0 and 1, without NaN, to be written as pictures.")
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
        twice = next(stem for stem in stems if stems.count(stem) > 1)
        raise DataError(f"Two images would be written to {twice}.png. Give each its own name.")
    return [folder / f"{stem}.png" for stem in stems]


def read_picture(file: Path | BinaryIO, name: str) -> Image.Image:
    """Read a picture; errors mention its name."""
    try:
        with Image.open(file) as picture:
            picture.load()
    except UnidentifiedImageError as error:
        raise DataError(f"{name} is not a picture that can be read. Use PNG, JPEG, WebP or BMP.") from error
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise DataError(f"{name} cannot be read: {error}. Get or write it again.") from error
    return picture
