"""Folders of pictures: modes, masks, transparency, round trips and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from mcflow.errors import DataError, OutputError
from mcflow.images.folders import read_image_folder, write_image_folder


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def save(pixels: np.ndarray, path) -> None:
    path.parent.mkdir(exist_ok=True)
    Image.fromarray(pixels).save(path)


@pytest.mark.parametrize("shape", [(4, 5, 6), (4, 5, 6, 3)])
def test_written_pictures_come_back_in_the_order_of_their_names(tmp_path, rng, shape) -> None:
    images = rng.integers(0, 256, shape, dtype=np.uint8)
    files = write_image_folder(images, tmp_path / "out" / "deep", ["c.jpg", "a", "b.PNG", "d.v2"])
    assert [file.name for file in files] == ["c.png", "a.png", "b.png", "d.v2.png"]
    found, mask, names = read_image_folder(tmp_path / "out" / "deep")
    assert (found == images[[1, 2, 0, 3]]).all()
    assert names == ["a.png", "b.png", "c.png", "d.v2.png"]
    assert mask.shape == shape[:3]
    assert not mask.any()
    assert not [file for file in (tmp_path / "out" / "deep").iterdir() if file.name.startswith(".")]


def test_floats_are_written_by_black_and_white_and_one_channel_is_grey(tmp_path) -> None:
    images = np.array([0.0, 0.2, 1.0, 0.5019]).reshape(1, 2, 2, 1)
    write_image_folder(images, tmp_path, ["a"])
    assert np.asarray(Image.open(tmp_path / "a.png")).tolist() == [[0, 51], [255, 128]]


@pytest.mark.parametrize("ending", [".png", ".webp", ".bmp", ".jpg", ".jpeg", ".PNG"])
def test_every_format_is_read_and_other_files_are_left_alone(tmp_path, ending) -> None:
    save(np.full((8, 8, 3), 200, dtype=np.uint8), tmp_path / f"a{ending}")
    (tmp_path / "notes.txt").write_text("x")
    (tmp_path / ".hidden.png").write_text("x")
    (tmp_path / "folder.png").mkdir()
    images, _, names = read_image_folder(tmp_path)
    assert names == [f"a{ending}"]
    assert np.abs(images.astype(int) - 200).max() <= 1


def test_white_of_mask_pictures_is_missing(tmp_path, rng) -> None:
    images = rng.integers(0, 256, (3, 4, 5, 3), dtype=np.uint8)
    write_image_folder(images, tmp_path / "in", ["a", "b", "c"])
    white = np.zeros((4, 5), dtype=np.uint8)
    white[1, 2:] = 255
    white[0, 0] = 127
    white[0, 1] = 128
    save(white, tmp_path / "masks" / "a.png")
    save(np.repeat(white[..., None], 3, axis=-1), tmp_path / "masks" / "c.bmp")
    found, mask, _ = read_image_folder(tmp_path / "in", tmp_path / "masks")
    assert (found == images).all()
    assert (mask[0] == (white >= 128)).all()
    assert (mask[2] == mask[0]).all()
    assert not mask[1].any(), "a picture without a mask is complete"
    Image.fromarray(white > 127).save(tmp_path / "masks" / "b.png")
    assert (read_image_folder(tmp_path / "in", tmp_path / "masks")[1] == mask[0]).all(), "one bit a pixel"


@pytest.mark.parametrize("channels", [1, 3])
def test_wholly_transparent_pixels_are_missing_and_others_are_not(tmp_path, rng, channels) -> None:
    pixels = rng.integers(0, 256, (1, 3, 3, channels + 1), dtype=np.uint8)
    pixels[0, ..., -1] = [[0, 1, 255], [255, 0, 255], [128, 255, 255]]
    mode = {1: "LA", 3: "RGBA"}[channels]
    Image.fromarray(pixels[0]).convert(mode).save(tmp_path / "a.png")
    images, mask, _ = read_image_folder(tmp_path)
    assert mask[0].tolist() == (pixels[0, ..., -1] == 0).tolist()
    assert (images[0].reshape(3, 3, channels) == pixels[0, ..., :-1]).all()


def test_transparency_and_mask_picture_are_added(tmp_path) -> None:
    pixels = np.full((2, 2, 4), 255, dtype=np.uint8)
    pixels[0, 0, 3] = 0
    save(pixels, tmp_path / "in" / "a.png")
    save(np.array([[0, 0], [0, 255]], dtype=np.uint8), tmp_path / "masks" / "a.png")
    assert read_image_folder(tmp_path / "in", tmp_path / "masks")[1][0].tolist() == [[True, False], [False, True]]


def test_palettes_and_colour_keys_are_read_as_colours_with_transparency(tmp_path) -> None:
    picture = Image.fromarray(np.array([[0, 1]], dtype=np.uint8)).convert("P")
    picture.putpalette([10, 20, 30, 40, 50, 60])
    picture.save(tmp_path / "a.png")
    picture.save(tmp_path / "b.png", transparency=1)
    Image.fromarray(np.array([[[10, 20, 30], [40, 50, 60]]], dtype=np.uint8)).save(
        tmp_path / "c.png", transparency=(40, 50, 60)
    )
    images, mask, _ = read_image_folder(tmp_path)
    assert images.tolist() == [[[[10, 20, 30], [40, 50, 60]]]] * 3
    assert mask.tolist() == [[[False, False]], [[False, True]], [[False, True]]]


def test_picture_that_was_held_sideways_is_turned(tmp_path) -> None:
    picture = Image.fromarray(np.repeat(np.array([[0, 255]], dtype=np.uint8), 16, axis=0).repeat(16, axis=1))
    note = Image.Exif()
    note[0x0112] = 6
    picture.save(tmp_path / "a.jpg", exif=note)
    images, _, _ = read_image_folder(tmp_path)
    assert images.shape == (1, 32, 16)
    assert images[0, :12].max() < 50
    assert images[0, -12:].min() > 200


def test_pictures_that_differ_are_refused_by_name(tmp_path) -> None:
    save(np.zeros((4, 5, 3), dtype=np.uint8), tmp_path / "size" / "a.png")
    save(np.zeros((5, 5, 3), dtype=np.uint8), tmp_path / "size" / "b.png")
    with pytest.raises(DataError, match=r"b\.png is 5 × 5 pixels, but a\.png is 5 × 4"):
        read_image_folder(tmp_path / "size")
    save(np.zeros((4, 5, 3), dtype=np.uint8), tmp_path / "mode" / "a.png")
    save(np.zeros((4, 5), dtype=np.uint8), tmp_path / "mode" / "b.png")
    with pytest.raises(DataError, match=r"b\.png is grey, but a\.png is in colour"):
        read_image_folder(tmp_path / "mode")
    save(np.zeros((4, 5), dtype=np.uint16), tmp_path / "deep" / "a.png")
    with pytest.raises(DataError, match=r"a\.png has the mode 'I;16'"):
        read_image_folder(tmp_path / "deep")
    save(np.zeros((4, 5), dtype=np.uint8), tmp_path / "twice" / "a.png")
    save(np.zeros((4, 5), dtype=np.uint8), tmp_path / "twice" / "a.bmp")
    with pytest.raises(DataError, match="differ only in their extension"):
        read_image_folder(tmp_path / "twice")


def test_masks_that_fit_no_picture_are_refused_by_name(tmp_path) -> None:
    write_image_folder(np.zeros((1, 4, 5), dtype=np.uint8), tmp_path / "in", ["a"])
    (tmp_path / "masks").mkdir()
    with pytest.raises(DataError, match="has no mask pictures"):
        read_image_folder(tmp_path / "in", tmp_path / "masks")
    save(np.zeros((4, 4), dtype=np.uint8), tmp_path / "masks" / "a.png")
    with pytest.raises(DataError, match=r"a\.png is 4 × 4 pixels, but a\.png is 5 × 4"):
        read_image_folder(tmp_path / "in", tmp_path / "masks")
    save(np.zeros((4, 5), dtype=np.uint8), tmp_path / "masks" / "z.png")
    with pytest.raises(DataError, match=r"z\.png has no picture"):
        read_image_folder(tmp_path / "in", tmp_path / "masks")


def test_folders_without_pictures_are_refused(tmp_path) -> None:
    with pytest.raises(DataError, match="has no pictures"):
        read_image_folder(tmp_path)
    with pytest.raises(DataError, match="is not a folder"):
        read_image_folder(tmp_path / "none")


@pytest.mark.parametrize(
    ("images", "names", "message"),
    [
        (np.zeros((1, 2, 2), dtype=np.uint8), [], "1 images and 0 names"),
        (np.zeros((2, 2, 2), dtype=np.uint8), ["a.jpg", "a.png"], "written to a.png"),
        (np.zeros((1, 2, 2), dtype=np.uint8), ["../a"], "not the name of a file"),
        (np.zeros((1, 2, 2), dtype=np.uint8), ["x/a.png"], "not the name of a file"),
        (np.zeros((1, 2, 2), dtype=np.uint8), [""], "not the name of a file"),
        (np.zeros((1, 2, 2, 2), dtype=np.uint8), ["a"], "cannot be written as pictures"),
        (np.zeros((2, 2), dtype=np.uint8), ["a", "b"], "cannot be written as pictures"),
        (np.zeros((1, 2, 2), dtype=int), ["a"], "convert them to uint8"),
        (np.full((1, 2, 2), 1.5), ["a"], "between 0 and 1"),
        (np.full((1, 2, 2), np.nan), ["a"], "between 0 and 1"),
    ],
)
def test_images_that_cannot_be_pictures_are_refused_before_anything_is_written(
    tmp_path, images, names, message
) -> None:
    with pytest.raises(DataError, match=message):
        write_image_folder(images, tmp_path / "out", names)
    assert not (tmp_path / "out").exists()


def test_folder_that_cannot_be_made_is_an_output_error(tmp_path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(OutputError, match="cannot be created"):
        write_image_folder(np.zeros((1, 2, 2), dtype=np.uint8), tmp_path / "file", ["a"])
