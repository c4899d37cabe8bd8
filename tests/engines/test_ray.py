"""Tables on a Ray cluster: the bytes of the local engine, with a killed actor too, and rows of Ray datasets."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mcflow import MCFlowImputer
from mcflow.cli.app import main
from mcflow.engines import Scorer, impute_dataset
from mcflow.engines import ray as on_ray
from mcflow.engines.ray import connected
from mcflow.errors import DataError, EngineError, MissingExtraError, ParameterError

# Ray warns of itself.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning:ray"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


def rows(n: int, seed: int = 0) -> pa.Table:
    """Numbers, integers and categories that depend on each other, with missing cells, and a number for each row."""
    rng = np.random.default_rng(seed)
    base, missing = rng.normal(size=n), rng.random((n, 3)) < 0.2
    return pa.table(
        {
            "x": pa.array(base.astype(np.float32), mask=missing[:, 0]),
            "n": pa.array(np.rint(1000 * base).astype(np.int16), mask=missing[:, 1]),
            "y": pa.array(base + rng.normal(size=n)),
            "word": pa.array(np.where(base > 0, "high", "low"), mask=missing[:, 2]),
            "row": pa.array(np.arange(n)),
        }
    )


@pytest.fixture(scope="module")
def scorer() -> Scorer:
    return Scorer(MCFlowImputer(max_epochs=3, random_state=0, roles={"row": "ignore"}).fit(rows(300)))


def write(path: Path, table: pa.Table, group: int = 100) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, row_group_size=group)
    return path


def content(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_files_are_those_of_the_local_engine_byte_for_byte(ray_cluster, scorer, tmp_path) -> None:
    write(tmp_path / "in" / "k=1" / "a.parquet", rows(500, 1))
    write(tmp_path / "in" / "k=2" / "b.parquet", rows(90, 2))
    heard = []
    done = on_ray.impute_dataset(
        tmp_path / "in", tmp_path / "ray", scorer, part_rows=200, listen=lambda *said: heard.append(said)
    )
    impute_dataset(tmp_path / "in", tmp_path / "local", scorer, part_rows=200)
    assert content(tmp_path / "ray") == content(tmp_path / "local")
    assert (done.parts, done.found, done.rows) == (4, 0, 590)
    assert heard[-1] == (590, 590)
    assert len(heard) == 4


def test_command_goes_on_where_the_local_engine_was_stopped(ray_cluster, scorer, tmp_path, monkeypatch, capsys) -> None:
    for name in "abc":
        write(tmp_path / "in" / f"{name}.parquet", rows(100, ord(name)))
    scorer.imputer.save(tmp_path / "m.mcflow")
    impute_dataset(tmp_path / "in", tmp_path / "out", scorer)
    before = content(tmp_path / "out")
    (tmp_path / "out" / "b.parquet").unlink()
    monkeypatch.chdir(tmp_path)
    assert main(["impute", "in", "-o", "out", "--model", "m.mcflow", "--engine", "ray", "--workers", "1"]) == 0
    assert "Filled 100 rows" in capsys.readouterr().out
    assert content(tmp_path / "out") == before


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="finds the actor by /proc")
def test_killed_actor_is_replaced_and_the_bytes_are_those_of_a_calm_run(ray_processes, scorer, tmp_path) -> None:
    source, killed, found = write(tmp_path / "big.parquet", rows(800, 1), 100), [], []
    wishes = {"draws": 10, "seed": 1, "part_rows": 100}

    def kill(done: int, total: int) -> None:
        if not killed:
            killed.append(ray_processes("PartFiller")[0])
            os.kill(killed[0], signal.SIGKILL)
            found.extend((tmp_path / "ray" / "draw=10").glob("*.parquet"))

    done = on_ray.impute_dataset(source, tmp_path / "ray", scorer, **wishes, listen=kill)
    impute_dataset(source, tmp_path / "calm", scorer, **wishes)
    assert 1 <= len(found) <= 6, "killed in the middle"
    assert (done.rows, done.parts) == (800, 8)
    assert content(tmp_path / "ray") == content(tmp_path / "calm")


def test_error_of_a_part_comes_back_with_its_name_and_the_others_stay(ray_cluster, scorer, tmp_path) -> None:
    for name in "ab":
        write(tmp_path / "in" / f"{name}.parquet", rows(200))
    torn = bytearray((tmp_path / "in" / "b.parquet").read_bytes())
    torn[4:400] = bytes(396)
    (tmp_path / "in" / "b.parquet").write_bytes(torn)
    with pytest.raises(DataError, match=r"b\.parquet") as caught:
        on_ray.impute_dataset(tmp_path / "in", tmp_path / "out", scorer, workers=1)
    assert "Traceback" not in str(caught.value)
    assert not (tmp_path / "out" / "b.parquet").exists()


def test_dataset_is_filled_with_the_cells_and_types_of_the_scorer(ray_cluster, scorer) -> None:
    table = rows(300, 4)
    more = table.select(["word", "y", "row", "x", "n"]).append_column("more", pa.array([{"k": k} for k in range(300)]))
    given = ray_cluster.data.from_arrow(more)
    filled = pa.concat_tables(ray_cluster.get(on_ray.fill(given, scorer, workers=1, batch_rows=64).to_arrow_refs()))
    assert (filled.column_names, filled.schema.types) == (more.column_names, more.schema.types)
    assert [one["k"] for one in filled["more"].to_pylist()] == filled["row"].to_pylist()
    near(filled.sort_by("row"), scorer.fill(table))


def test_draws_of_a_dataset_are_rows_with_their_number_whatever_the_batches(ray_cluster, scorer) -> None:
    table = rows(200, 5)
    drawn = on_ray.fill(ray_cluster.data.from_arrow(table), scorer, draws=2, seed=7, workers=1, batch_rows=64)
    found = pa.concat_tables(ray_cluster.get(drawn.to_arrow_refs())).sort_by(
        [("draw", "ascending"), ("row", "ascending")]
    )
    assert found.column_names == [*table.column_names, "draw"]
    assert found["draw"].to_pylist() == [1] * 200 + [2] * 200
    wanted = pa.concat_tables(scorer.draw(table, 2, 7))
    near(found.drop(["draw"]), wanted)


def near(found: pa.Table, wanted: pa.Table) -> None:
    """The same cells, to the rounding of float32."""
    np.testing.assert_allclose(found["x"].to_numpy(), wanted["x"].to_numpy(), rtol=1e-5, atol=1e-5)
    for name in ("n", "word", "row"):
        assert found[name].to_pylist() == wanted[name].to_pylist()


# ---------------------------------------------------------------- addresses


@pytest.fixture
def no_connection(monkeypatch):
    ray = pytest.importorskip("ray")
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    calls = []
    monkeypatch.setattr(ray, "init", lambda **given: calls.append(given))
    monkeypatch.setattr(ray, "shutdown", lambda: calls.append("shutdown"))
    return calls


def test_no_address_and_no_connection_starts_nothing(no_connection, scorer, tmp_path) -> None:
    write(tmp_path / "a.parquet", rows(20))
    with pytest.raises(ParameterError, match="local to start one on this machine"):
        on_ray.impute_dataset(tmp_path / "a.parquet", tmp_path / "out", scorer)
    assert not no_connection


def test_local_cluster_is_small_and_ends_with_the_block(no_connection) -> None:
    before = dict(os.environ)
    with connected("local", cpus=5):
        assert no_connection[0]["num_cpus"] >= 5
        assert no_connection[0]["include_dashboard"] is False
    assert no_connection[1:] == ["shutdown"]
    assert dict(os.environ) == before


@pytest.mark.parametrize("by_environment", [False, True])
def test_running_cluster_is_joined_by_its_address_and_left(no_connection, monkeypatch, by_environment) -> None:
    if by_environment:
        monkeypatch.setenv("RAY_ADDRESS", "head:6379")
    with connected(None if by_environment else "head:6379"):
        assert no_connection[0]["address"] == "head:6379"
        assert "num_cpus" not in no_connection[0]
    assert no_connection[1:] == ["shutdown"]


def test_existing_connection_is_used_and_kept(no_connection, monkeypatch) -> None:
    monkeypatch.setattr("ray.is_initialized", lambda: True)
    with connected("head:6379"):
        pass
    assert not no_connection


def test_cluster_that_does_not_answer_raises(no_connection, monkeypatch) -> None:
    def fail(**_):
        raise ConnectionError("Could not find any running Ray instance.\nMore words")

    monkeypatch.setattr("ray.init", fail)
    with pytest.raises(EngineError, match=r"No Ray cluster answers at 'auto': Could not find .* instance\. Check"):
        connected("auto").__enter__()


def test_cluster_that_asks_for_a_token_is_distinguished_from_an_absent_one(no_connection, monkeypatch) -> None:
    def fail(**_):
        raise ConnectionError("Failed to connect") from RuntimeError("ray.exceptions.AuthenticationError: no token")

    monkeypatch.setattr("ray.init", fail)
    with pytest.raises(EngineError, match="'head:6379' requires a token"):
        connected("head:6379").__enter__()


def test_absent_ray_is_answered_with_the_line_that_installs_it(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"pip install '.*\[ray\]'"):
        connected("local").__enter__()
