"""Readers of image files against files written here, and the errors for files that are broken."""

from __future__ import annotations

import gzip
import io
import tarfile
import zipfile

import numpy as np
import pytest
from PIL import Image

from mcflow.errors import DataError
from mcflow.images.folders import read_picture
from mcflow_bench.data.image_files import (
    read_celeba_folder,
    read_cifar_binary,
    read_cifar_tar,
    read_idx,
    read_npz,
    read_strips,
)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.mark.parametrize(
    ("code", "kind"), [(8, ">u1"), (9, ">i1"), (0x0B, ">i2"), (0x0C, ">i4"), (0x0D, ">f4"), (0x0E, ">f8")]
)
@pytest.mark.parametrize("packed", [False, True])
def test_idx_of_every_type_comes_back(tmp_path, code, kind, packed) -> None:
    array = (np.arange(24).reshape(2, 3, 4) - (0 if code == 8 else 12)).astype(kind)
    data = bytes([0, 0, code, 3, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4]) + array.tobytes()
    (tmp_path / "x").write_bytes(gzip.compress(data, mtime=0) if packed else data)
    found = read_idx(tmp_path / "x")
    assert found.dtype == np.dtype(kind).newbyteorder("=")
    assert (found == array).all()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not an IDX file"),
        (b"PK\3\4....", "not an IDX file"),
        (bytes([0, 0, 8, 1, 0, 0, 0, 3, 1, 2]), "has 10 bytes where its header says 11"),
        (bytes([0, 0, 8, 3, 0, 0]), "where its header says"),
        (gzip.compress(bytes(1000), mtime=0)[:-9], "cannot be unpacked"),
    ],
)
def test_idx_that_is_none_or_cut_short_is_refused(tmp_path, data, message) -> None:
    (tmp_path / "x").write_bytes(data)
    with pytest.raises(DataError, match=message):
        read_idx(tmp_path / "x")


def test_npz_that_is_broken_or_holds_objects_is_refused(tmp_path) -> None:
    (tmp_path / "a.npz").write_bytes(b"PK\3\4 not a zip")
    np.save(tmp_path / "b.npy", np.zeros(3))
    np.savez(tmp_path / "c.npz", x=np.array([{}], dtype=object))
    for name in ("a.npz", "b.npy", "c.npz"):
        with pytest.raises(DataError, match=f"{name} cannot be read as NPZ"):
            read_npz(tmp_path / name)


def test_cifar_records_of_several_files_are_joined_in_order(tmp_path, rng) -> None:
    records = rng.integers(0, 256, (5, 3073), dtype=np.uint8)
    (tmp_path / "a.bin").write_bytes(records[:2].tobytes())
    (tmp_path / "b.bin").write_bytes(records[2:].tobytes())
    images, labels = read_cifar_binary([tmp_path / "a.bin", tmp_path / "b.bin"])
    assert labels.tolist() == records[:, 0].tolist()
    assert images[4, 3, 7].tolist() == [records[4, 1 + 1024 * c + 32 * 3 + 7] for c in range(3)]
    (tmp_path / "b.bin").write_bytes(records.tobytes()[:-1])
    with pytest.raises(DataError, match=r"b\.bin has 15,364 bytes, which are not records"):
        read_cifar_binary([tmp_path / "a.bin", tmp_path / "b.bin"])
    with pytest.raises(DataError, match="No file of CIFAR-10"):
        read_cifar_binary([])


def test_cifar_archive_that_is_broken_or_another_is_refused(tmp_path) -> None:
    path = tmp_path / "cifar-10-binary.tar.gz"
    path.write_bytes(b"no archive")
    with pytest.raises(DataError, match="cannot be unpacked"):
        read_cifar_tar(path)
    with tarfile.open(path, "w:gz") as archive:
        member = tarfile.TarInfo("train.bin")
        member.size = 3
        archive.addfile(member, io.BytesIO(b"abc"))
    with pytest.raises(DataError, match="binary version"):
        read_cifar_tar(path)


def strip(images: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(images.reshape(-1, *images.shape[2:])).save(buffer, format="WEBP", lossless=True, exact=True)
    return buffer.getvalue()


def test_strips_come_back_bit_for_bit_in_the_order_of_their_names(tmp_path, rng) -> None:
    images = rng.integers(0, 256, (12, 8, 8, 3), dtype=np.uint8)
    labels = io.BytesIO()
    np.savez(labels, y_train=np.arange(9), y_test=np.arange(3))
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr("test_000.webp", strip(images[9:]))
        archive.writestr("train_001.webp", strip(images[5:9]))
        archive.writestr("train_000.webp", strip(images[:5]))
        archive.writestr("labels.npz", labels.getvalue())
        archive.writestr("README", "left alone")
    found = read_strips(tmp_path / "x.zip")
    assert (found["x_train"] == images[:9]).all()
    assert (found["x_test"] == images[9:]).all()
    assert found["y_test"].tolist() == [0, 1, 2]


def test_strips_that_are_broken_are_refused(tmp_path, rng) -> None:
    path = tmp_path / "x.zip"
    path.write_bytes(b"no zip")
    with pytest.raises(DataError, match="cannot be read"):
        read_strips(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("train_000.webp", strip(rng.integers(0, 256, (2, 8, 8, 3), dtype=np.uint8)))
    with pytest.raises(DataError, match="no strip test_000"):
        read_strips(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("train_000.webp", strip(rng.integers(0, 256, (3, 3, 8, 3), dtype=np.uint8)))
    with pytest.raises(DataError, match="8 wide and 9 high"):
        read_strips(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("train_000.webp", b"no picture")
    with pytest.raises(DataError, match=r"train_000\.webp is not a picture"):
        read_strips(path)


def smooth(width: int, height: int) -> Image.Image:
    y, x = np.mgrid[0 : 1 : height * 1j, 0 : 1 : width * 1j]
    waves = [np.sin(7 * x + 3 * y), np.cos(5 * y), np.sin(4 * x * y)]
    return Image.fromarray(np.rint(127.5 + 127 * np.stack(waves, axis=-1)).astype(np.uint8))


def test_faces_are_the_middle_108_pixels_brought_down_by_bicubic_filter(tmp_path) -> None:
    picture = smooth(178, 218)
    picture.save(tmp_path / "000001.png")
    faces = read_celeba_folder(tmp_path)
    assert faces.shape == (1, 32, 32, 3)
    expected = picture.crop((35, 55, 143, 163)).resize((32, 32), Image.Resampling.BICUBIC)
    assert (faces[0] == np.asarray(expected)).all()


def test_half_size_faces_give_almost_the_same_pixels(tmp_path) -> None:
    picture = smooth(178, 218)
    for name, file in {"a": picture, "b": picture.resize((89, 109), Image.Resampling.BOX)}.items():
        file.save(tmp_path / f"{name}.jpg", quality=98)
    whole, half = read_celeba_folder(tmp_path).astype(int)
    assert np.abs(whole - half).max() <= 6


def test_faces_of_other_proportions_and_empty_folders_are_refused(tmp_path) -> None:
    with pytest.raises(DataError, match="no JPEGs"):
        read_celeba_folder(tmp_path)
    smooth(178, 178).save(tmp_path / "000001.jpg")
    with pytest.raises(DataError, match=r"000001\.jpg is 178 × 178 pixels"):
        read_celeba_folder(tmp_path)


def test_picture_that_is_cut_short_is_refused_by_name(tmp_path) -> None:
    buffer = io.BytesIO()
    smooth(60, 60).save(buffer, format="PNG")
    (tmp_path / "a.png").write_bytes(buffer.getvalue()[:500])
    with pytest.raises(DataError, match=r"a\.png cannot be read"):
        read_picture(tmp_path / "a.png", "a.png")
    with pytest.raises(DataError, match=r"b\.png cannot be read"):
        read_picture(tmp_path / "b.png", "b.png")
