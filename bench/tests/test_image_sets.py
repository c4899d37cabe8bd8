"""Sets of images by name: folders, downloads from local files, and splits. No network is used."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile

import numpy as np
import pytest
from PIL import Image

from mcflow.errors import DataError, ParameterError
from mcflow_bench.data import image_sets as sets
from mcflow_bench.data.downloads import Source
from mcflow_bench.data.image_sets import IMAGE_SETS, ImageSet, load_image_set, read_image_npz


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MCFLOW_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("MCFLOW_DATA", raising=False)
    return tmp_path / "cache"


def idx(array: np.ndarray) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + np.array(array.shape, dtype=">u4").tobytes() + array.tobytes()


@pytest.fixture
def mnist(rng) -> dict[str, np.ndarray]:
    return {
        "train-images-idx3-ubyte": rng.integers(0, 256, (7, 28, 28), dtype=np.uint8),
        "t10k-images-idx3-ubyte": rng.integers(0, 256, (3, 28, 28), dtype=np.uint8),
        "train-labels-idx1-ubyte": rng.integers(0, 10, 7, dtype=np.uint8),
        "t10k-labels-idx1-ubyte": rng.integers(0, 10, 3, dtype=np.uint8),
    }


def assert_mnist(found: ImageSet, mnist: dict[str, np.ndarray]) -> None:
    assert found.name == "mnist"
    got = (found.train, found.test, found.train_labels, found.test_labels)
    for array, expected in zip(got, mnist.values(), strict=True):
        assert (array == expected).all()


def cifar_records(images: np.ndarray, labels: np.ndarray) -> bytes:
    return np.hstack([labels[:, None], images.transpose(0, 3, 1, 2).reshape(len(images), -1)]).tobytes()


@pytest.mark.parametrize("ending", ["", ".gz"])
@pytest.mark.parametrize("below", ["", "mnist"])
def test_mnist_is_read_from_idx_files_of_a_folder(tmp_path, cache, mnist, ending, below) -> None:
    (tmp_path / below).mkdir(exist_ok=True)
    for name, array in mnist.items():
        data = gzip.compress(idx(array)) if ending else idx(array)
        (tmp_path / below / f"{name}{ending}").write_bytes(data)
    assert_mnist(load_image_set("mnist", tmp_path), mnist)
    (tmp_path / below / f"t10k-labels-idx1-ubyte{ending}").unlink()
    with pytest.raises(DataError, match=r"lacks t10k-labels-idx1-ubyte.gz. MNIST is four files"):
        load_image_set("mnist", tmp_path)


def test_environment_names_the_folder_and_npz_comes_first(tmp_path, cache, mnist, monkeypatch) -> None:
    keys = ("x_train", "x_test", "y_train", "y_test")
    np.savez(tmp_path / "mnist.npz", **dict(zip(keys, mnist.values(), strict=True)))
    (tmp_path / "train-images-idx3-ubyte").write_bytes(b"broken")
    monkeypatch.setenv("MCFLOW_DATA", str(tmp_path))
    assert_mnist(load_image_set("mnist"), mnist)


def test_mnist_is_downloaded_once_and_checked(tmp_path, cache, mnist, monkeypatch) -> None:
    origin = tmp_path / "origin"
    origin.mkdir()
    sums = {}
    for name, array in mnist.items():
        (origin / f"{name}.gz").write_bytes(gzip.compress(idx(array), mtime=0))
        sums[name] = hashlib.sha256((origin / f"{name}.gz").read_bytes()).hexdigest()
    monkeypatch.setattr(sets, "_MNIST_MIRRORS", ((tmp_path / "none").as_uri(), origin.as_uri()))
    monkeypatch.setattr(sets, "_MNIST_FILES", sums)
    empty = tmp_path / "empty"
    empty.mkdir()
    assert_mnist(load_image_set("mnist", empty), mnist)
    for file in origin.iterdir():
        file.unlink()
    assert_mnist(load_image_set("mnist"), mnist)
    (cache / "mnist-train-images-idx3-ubyte.gz").write_bytes(b"other")
    with pytest.raises(DataError, match="checksum differs"):
        load_image_set("mnist")


def test_download_that_fails_says_which_files_to_get(tmp_path, cache, monkeypatch) -> None:
    monkeypatch.setattr(sets, "_MNIST_MIRRORS", ((tmp_path / "none").as_uri(),))
    with pytest.raises(DataError, match=r"cannot be downloaded.*Put mnist\.npz, or the four IDX files") as caught:
        load_image_set("mnist")
    assert ".parquet" not in str(caught.value)


def test_cifar_is_read_from_its_folder_its_archive_and_the_archive_s_address(tmp_path, cache, rng, monkeypatch) -> None:
    batches = {f"data_batch_{k}.bin": (rng.integers(0, 256, (2, 32, 32, 3), dtype=np.uint8), [k, k]) for k in (1, 2, 3)}
    batches["test_batch.bin"] = (rng.integers(0, 256, (3, 32, 32, 3), dtype=np.uint8), [7, 8, 9])
    unpacked = tmp_path / "unpacked" / "cifar-10-batches-bin"
    unpacked.mkdir(parents=True)
    for name, (pictures, labels) in batches.items():
        (unpacked / name).write_bytes(cifar_records(pictures, np.array(labels, dtype=np.uint8)))
    packed = tmp_path / "packed"
    packed.mkdir()
    with tarfile.open(packed / "cifar-10-binary.tar.gz", "w:gz") as archive:
        archive.add(unpacked, "cifar-10-batches-bin")
    found = [load_image_set("cifar10", unpacked.parent), load_image_set("cifar10", packed)]
    monkeypatch.setattr(sets, "_CIFAR", (packed / "cifar-10-binary.tar.gz").as_uri())
    monkeypatch.setattr(sets, "_CIFAR_SHA256", None)
    found.append(load_image_set("cifar10"))
    for image_set in found:
        assert (image_set.train == np.concatenate([batches[f"data_batch_{k}.bin"][0] for k in (1, 2, 3)])).all()
        assert (image_set.test == batches["test_batch.bin"][0]).all()
        assert image_set.train_labels.tolist() == [1, 1, 2, 2, 3, 3]
        assert image_set.test_labels.tolist() == [7, 8, 9]


def test_celeba_is_not_downloaded_and_the_error_says_what_to_get(tmp_path, cache) -> None:
    with pytest.raises(DataError, match=r"cannot be downloaded for you.*mmlab.*img_align_celeba\.zip.*MCFLOW_DATA"):
        load_image_set("celeba", tmp_path)


def test_celeba_is_found_in_the_cache_and_its_last_images_are_the_test_set(tmp_path, cache, rng) -> None:
    cache.mkdir()
    faces = rng.integers(0, 256, (25, 32, 32, 3), dtype=np.uint8)
    np.savez(cache / "celeba32.npz", images=faces, ids=np.arange(25))
    found = load_image_set("celeba", tmp_path)
    assert (found.train == faces[:20]).all()
    assert (found.test == faces[20:]).all()
    assert found.train_labels is None


def test_celeba_folder_is_split_and_all_of_celeba_has_its_official_split(tmp_path, monkeypatch) -> None:
    folder = tmp_path / "img_align_celeba"
    folder.mkdir()
    for k in range(10):
        Image.new("RGB", (178, 218), (10 * k, 0, 0)).save(folder / f"{k:06d}.png")
    found = load_image_set("celeba", tmp_path)
    assert [len(found.train), len(found.test)] == [8, 2]
    assert found.test[:, 0, 0, 0].tolist() == [80, 90]
    monkeypatch.setattr(sets, "_CELEBA_ALL", 10)
    monkeypatch.setattr(sets, "_CELEBA_TRAIN", 6)
    monkeypatch.setattr(sets, "_CELEBA_TEST", 3)
    found = load_image_set("celeba", tmp_path)
    assert found.train[:, 0, 0, 0].tolist() == [0, 10, 20, 30, 40, 50]
    assert found.test[:, 0, 0, 0].tolist() == [70, 80, 90]


def test_large_set_without_a_test_set_gives_its_last_2000_images(tmp_path) -> None:
    pictures = np.zeros((10_500, 1, 1), dtype=np.uint8)
    pictures[-2000:] = 1
    np.savez(tmp_path / "dots.npz", images=pictures)
    found = load_image_set("dots", tmp_path)
    assert found.name == "dots"
    assert found.train.max() == 0
    assert found.test.min() == 1


def test_unknown_sets_and_folders_are_refused(tmp_path, cache) -> None:
    with pytest.raises(ParameterError, match=r"no image set 'mnst'.*Did you mean 'mnist'"):
        load_image_set("mnst", tmp_path)
    with pytest.raises(ParameterError, match="is not a folder"):
        load_image_set("mnist", tmp_path / "none")


def test_npz_without_images_is_refused(tmp_path) -> None:
    np.savez(tmp_path / "x.npz", other=np.zeros(3))
    with pytest.raises(DataError, match="holds other, but has to hold x_train"):
        read_image_npz(tmp_path / "x.npz")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"train": np.zeros((2, 3, 3))}, "training images of s are of type float64"),
        ({"test": np.zeros((2, 3, 4), dtype=np.uint8)}, "test images of s"),
        ({"train_labels": np.zeros(3)}, "Each needs one"),
    ],
)
def test_arrays_that_do_not_fit_each_other_are_refused(change, message) -> None:
    whole = {"train": np.zeros((2, 3, 3), dtype=np.uint8), "test": np.zeros((1, 3, 3), dtype=np.uint8)}
    with pytest.raises(DataError, match=message):
        ImageSet("s", **(whole | change))


def test_every_download_has_a_known_checksum() -> None:
    assert all(len(sha256) == 64 for sha256 in (*sets._MNIST_FILES.values(), sets._CIFAR_SHA256))
    assert Source(sets._CIFAR).url.startswith("https://")
    assert IMAGE_SETS["celeba"].download is None


def load_real(name: str, data_folder) -> ImageSet:
    try:
        return load_image_set(name, data_folder)
    except DataError as error:
        pytest.skip(str(error))


def test_real_mnist_has_its_counts_and_its_checksum(data_folder) -> None:
    if not (data_folder / "mnist.npz").exists():
        pytest.skip("MCFLOW_DATA has no mnist.npz")
    found = load_real("mnist", data_folder)
    assert np.bincount(found.train_labels).tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    content = idx(found.train)
    assert hashlib.md5(content).hexdigest() == "6bbc9ace898e44ae57da46a324031adb", "the original file's"
    assert found.test.shape == (10_000, 28, 28)


def test_real_cifar_strips_have_the_moments_of_the_set(data_folder) -> None:
    if not (data_folder / "cifar10.zip").exists():
        pytest.skip("MCFLOW_DATA has no cifar10.zip")
    found = load_real("cifar10", data_folder)
    assert found.test.shape == (10_000, 32, 32, 3)
    assert np.bincount(found.test_labels).tolist() == [1000] * 10
    assert found.test.mean(axis=(0, 1, 2)) / 255 == pytest.approx([0.4942, 0.4851, 0.4504], abs=1e-4)


def test_real_faces_are_split_at_the_last_2000(data_folder) -> None:
    if not (data_folder / "celeba32.npz").exists():
        pytest.skip("MCFLOW_DATA has no celeba32.npz")
    found = load_real("celeba", data_folder)
    assert (found.train.shape, found.test.shape) == ((8000, 32, 32, 3), (2000, 32, 32, 3))


def test_archive_is_not_unpacked_to_disk(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name in ("../data_batch_1.bin", "x/test_batch.bin"):
            member = tarfile.TarInfo(name)
            member.size = 3073
            archive.addfile(member, io.BytesIO(bytes(3073)))
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "cifar-10-binary.tar.gz").write_bytes(buffer.getvalue())
    assert load_image_set("cifar10", folder).train.shape == (1, 32, 32, 3)
    assert sorted(path.name for path in tmp_path.rglob("*.bin")) == []
