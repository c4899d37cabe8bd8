"""A saved model: the same answers, or an error that says what is wrong with the file."""

from __future__ import annotations

import json
import os
import pickle

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load_file, save_file

from mcflow import load
from mcflow.errors import ModelFileError, OutputError
from mcflow.files import atomic as files


@pytest.fixture
def path(fitted, tmp_path):
    fitted.save(tmp_path / "model.mcflow")
    return tmp_path / "model.mcflow"


def test_loaded_model_gives_the_same_bits(fitted, table, path) -> None:
    loaded = load(path)
    assert (loaded.transform(table) == fitted.transform(table)).all()
    assert (loaded.score_samples(table) == fitted.score_samples(table)).all()
    assert (loaded.sample(20, random_state=1) == fitted.sample(20, random_state=1)).all()
    assert loaded.history_ == fitted.history_
    assert loaded.config_ == fitted.config_
    assert loaded.schema_ == fitted.schema_
    assert loaded.get_params()["max_epochs"] == 9
    assert loaded.get_params()["random_state"] == 0


def test_model_of_a_frame_keeps_names_and_roles(table, tmp_path, quick) -> None:
    frame = pd.DataFrame(table, columns=list("abcd")).assign(text="x", one=2.0)
    imputer = quick(random_state=np.random.default_rng(0), add_indicator=True).fit(frame)
    imputer.save(tmp_path / "m.mcflow")
    loaded = load(str(tmp_path / "m.mcflow"))
    pd.testing.assert_frame_equal(loaded.transform(frame), imputer.transform(frame))
    assert list(loaded.get_feature_names_out()) == list(imputer.get_feature_names_out())


def test_model_without_networks_is_saved_too(tmp_path, quick) -> None:
    quick().fit(np.ones((3, 2))).save(tmp_path / "m.mcflow")
    assert (load(tmp_path / "m.mcflow").transform(np.full((1, 2), np.nan)) == 1).all()


def test_loaded_model_can_be_saved_and_pickled(path, table, tmp_path) -> None:
    loaded = load(path)
    loaded.save(tmp_path / "again.mcflow")
    assert (load(tmp_path / "again.mcflow").transform(table) == loaded.transform(table)).all()
    assert (pickle.loads(pickle.dumps(loaded)).transform(table) == loaded.transform(table)).all()


def test_file_holds_tensors_and_json_only(path, preset) -> None:
    tensors = load_file(path)
    assert {"default": "network.weights.0", "paper": "stage.0.theta"}[preset] in tensors
    start = path.read_bytes()
    length = int.from_bytes(start[:8], "little")
    header = json.loads(json.loads(start[8 : 8 + length])["__metadata__"]["header"])
    assert header["config"]["batch_size"] == {"default": 75, "paper": 128}[preset]
    assert [column["kind"] for column in header["schema"]["columns"]] == ["continuous"] * 4


@pytest.mark.parametrize("keep", [0, 5, 100, -1, -1000])
def test_truncated_file_is_refused(path, keep) -> None:
    whole = path.read_bytes()
    path.write_bytes(whole[:keep])
    with pytest.raises(ModelFileError, match="cut short"):
        load(path)


def test_file_altered_anywhere_is_refused(path, table) -> None:
    whole = path.read_bytes()
    for place in np.linspace(0, len(whole) - 1, 120).astype(int):
        broken = bytearray(whole)
        broken[place] ^= 0x21
        path.write_bytes(bytes(broken))
        with pytest.raises(ModelFileError):
            load(path)


@pytest.mark.parametrize("word", [b'"program"', b'"kind"', b'"format"', b'"header"', b'"sha256"'])
def test_file_whose_keys_are_altered_is_refused(path, word) -> None:
    whole = path.read_bytes()
    place = whole.index(word) + 2
    path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x01]) + whole[place + 1 :])
    with pytest.raises(ModelFileError):
        load(path)


def test_file_of_another_program_is_refused(tmp_path) -> None:
    save_file({"x": np.ones(3)}, tmp_path / "other.mcflow", metadata={"format": "pt"})
    with pytest.raises(ModelFileError, match="not written by mcflow"):
        load(tmp_path / "other.mcflow")
    (tmp_path / "text.mcflow").write_text("hello, this is no model")
    with pytest.raises(ModelFileError, match=r"text\.mcflow is not a model"):
        load(tmp_path / "text.mcflow")


def test_file_of_another_kind_is_refused(table, tmp_path, quick) -> None:
    quick(checkpoint_dir=tmp_path).fit(table)
    with pytest.raises(ModelFileError, match="as a model"):
        load(tmp_path / "fit.checkpoint")


def test_newer_format_is_refused_with_advice(fitted, tmp_path, monkeypatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(files, "FORMAT_VERSION", files.FORMAT_VERSION + 1)
        fitted.save(tmp_path / "new.mcflow")
    with pytest.raises(ModelFileError, match=rf"format {files.FORMAT_VERSION + 1}.*Upgrade mcflow"):
        load(tmp_path / "new.mcflow")


def test_file_that_is_not_there_is_named(tmp_path) -> None:
    with pytest.raises(FileNotFoundError, match=r"nothing\.mcflow"):
        load(tmp_path / "nothing.mcflow")


def test_place_that_cannot_be_written_is_refused(fitted, tmp_path) -> None:
    with pytest.raises(OutputError, match="not a folder"):
        fitted.save(tmp_path / "no" / "such" / "model.mcflow")
    with pytest.raises(OutputError, match="is a folder"):
        fitted.save(tmp_path)


def test_write_that_fails_leaves_the_old_file_and_no_other(fitted, path, monkeypatch) -> None:
    before = path.read_bytes()

    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OutputError, match="No space left"):
        fitted.save(path)
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == [path.name]
