"""Several processes fit like one: the same losses, weights and ending, and no waiting for dead processes.

Run as a script, this file is one of two processes that run all `CASES` and write their results to a file.
"""

from __future__ import annotations

import os
import pickle
import platform
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from torch import distributed

from mcflow import MCFlowImputer
from mcflow.errors import DataError, McflowError, ParameterError, TrainingError
from mcflow.fitting import shared_memory as shared
from mcflow.fitting.checkpoint import Checkpointer
from mcflow.fitting.distributed import ALONE, GradientMean, Workers, current, fresh_store, joined
from mcflow.masked import network as masked_network
from mcflow.masked.config import MaskedConfig
from mcflow.masked.network import MaskedTrainer

SMALL = MaskedConfig(width=16, n_members=2)


def rows(n: int = 120, seed: int = 0) -> np.ndarray:
    """Four correlated columns with missing cells, some of them missing together."""
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(n, 1)) + 0.4 * rng.normal(size=(n, 4))
    values[rng.random(values.shape) < 0.1] = np.nan
    values[::5, 2:] = np.nan
    return values


def small(**settings: Any) -> MCFlowImputer:
    return MCFlowImputer(**({"preset": SMALL, "max_epochs": 5, "batch_size": 32, "random_state": 0} | settings))


def seen_of(imputer: MCFlowImputer) -> dict[str, Any]:
    return {
        "tensors": imputer.model_.tensors(),
        "losses": imputer.history_.column("latent_loss"),
        "errors": imputer.history_.column("validation_error"),
        "ending": imputer.history_.ending,
        "epochs": imputer.n_epochs_,
        "seed": imputer.seed_,
        "filled": imputer.transform(rows()),
    }


def plain(_: Workers) -> dict[str, Any]:
    return seen_of(small().fit(rows()))


def sent(_: Workers) -> dict[str, Any]:
    """Gradients that are sent, as between machines."""
    made, shared._made = shared._made, lambda size: None
    try:
        return seen_of(small().fit(rows()))
    finally:
        shared._made = made


def few_rows(_: Workers) -> dict[str, Any]:
    """Batches of a single row: one worker has nothing to do."""
    return seen_of(small(batch_size=1, max_epochs=2).fit(rows(9)))


def without_knots_in_memory(_: Workers) -> dict[str, Any]:
    known, masked_network.KNOWN_CELLS = masked_network.KNOWN_CELLS, 0
    try:
        return seen_of(small(max_epochs=2).fit(rows()))
    finally:
        masked_network.KNOWN_CELLS = known


def several_models(_: Workers) -> dict[str, Any]:
    imputer = small(max_epochs=3, n_models=2).fit(rows())
    return seen_of(imputer) | {"tensors": imputer.other_models_[0].tensors()}


def early_stop(_: Workers) -> dict[str, Any]:
    noise = np.random.default_rng(0).normal(size=(60, 3))
    imputer = small(max_epochs=80, learning_rate=0.05, random_state=1).fit(noise)
    return {"ending": imputer.history_.ending, "errors": imputer.history_.column("validation_error")}


def streamed(_: Workers) -> dict[str, Any]:
    names, left = [f"c{k}" for k in range(4)], []
    table = pa.table(dict(zip(names, rows(300).T, strict=True)))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "made"

        def rest() -> Iterator[pa.Table]:
            left.append(len(list(folder.iterdir())))
            yield from (table.slice(first, 50) for first in range(100, 300, 50))

        imputer = small(max_epochs=2).fit_stream(table.slice(0, 100), rest, 200, folder=folder)
    tensors = imputer.model_.tensors()
    return {"tensors": tensors, "losses": imputer.history_.column("latent_loss"), "left": left}


def two_machines(workers: Workers) -> dict[str, Any]:
    named, socket.gethostname = socket.gethostname, lambda: f"machine-{workers.rank}"
    try:
        return streamed(workers)
    finally:
        socket.gethostname = named


def max_time(workers: Workers) -> dict[str, Any]:
    steps: list[float] = []
    step = MaskedTrainer._step

    def counting(self: MaskedTrainer, part: int, batch: torch.Tensor) -> torch.Tensor:
        steps.append(self.optimisers[part].rate)
        time.sleep(0.02 * workers.rank)  # the clocks of the two would say different things
        return step(self, part, batch)

    MaskedTrainer._step = counting
    try:
        return seen_of(small(max_epochs=10_000, max_time=1.0).fit(rows())) | {"rates": steps}
    finally:
        MaskedTrainer._step = step


def no_seed(_: Workers) -> dict[str, Any]:
    return seen_of(small(random_state=None, max_epochs=1).fit(rows()))


def generators(_: Workers) -> dict[str, Any]:
    states: list[bytes] = []
    begin = MaskedTrainer._run_epoch

    def watching(self: MaskedTrainer) -> None:
        begin(self)
        states.append(self.streams.order.get_state().numpy().tobytes())

    MaskedTrainer._run_epoch = watching
    try:
        small(max_epochs=3).fit(rows())
    finally:
        MaskedTrainer._run_epoch = begin
    return {"states": states}


def gone_on(workers: Workers) -> dict[str, Any]:
    """A fit that stopped after two epochs goes on, though only the first worker has its state."""
    defaults, Checkpointer.__init__.__defaults__ = Checkpointer.__init__.__defaults__, (0.0,)
    run = MaskedTrainer._run_epoch
    with tempfile.TemporaryDirectory() as folder:  # each worker has its own
        imputer = small(checkpoint_dir=folder)

        def stopping(self: MaskedTrainer) -> None:
            if self.epoch == 2:
                raise StoppedError
            run(self)

        MaskedTrainer._run_epoch = stopping
        try:
            imputer.fit(rows())
        except StoppedError:
            kept = [path.name for path in Path(folder).iterdir()]
        MaskedTrainer._run_epoch = run
        begun = len(imputer.fit(rows()).history_.epochs)
    Checkpointer.__init__.__defaults__ = defaults
    return seen_of(imputer) | {"kept": kept, "begun": begun, "rank": workers.rank}


class StoppedError(Exception):
    pass


def raised(function: Callable[[], object]) -> dict[str, Any]:
    start = time.perf_counter()
    try:
        function()
    except McflowError as error:
        return {"kind": type(error), "words": str(error), "seconds": time.perf_counter() - start}
    return {"kind": None}


def other_table(workers: Workers) -> dict[str, Any]:
    return raised(lambda: small().fit(rows(seed=workers.rank)))


def paper(_: Workers) -> dict[str, Any]:
    return raised(lambda: MCFlowImputer(preset="paper", max_epochs=1).fit(rows()))


def failing(workers: Workers) -> dict[str, Any]:
    """The last case: the second worker fails in the middle of an epoch, and leaves."""
    step, count = MaskedTrainer._step, [0]

    def broken(self: MaskedTrainer, part: int, batch: torch.Tensor) -> torch.Tensor:
        count[0] += 1
        if workers.rank == 1 and count[0] == 3:
            raise TrainingError("broken on purpose")
        return step(self, part, batch)

    def fit() -> None:
        with joined():
            small().fit(rows())

    MaskedTrainer._step = broken
    return raised(fit)


CASES = {
    function.__name__: function
    for function in (
        *(plain, sent, few_rows, without_knots_in_memory, several_models, early_stop, streamed),
        *(two_machines, max_time, no_seed, generators, gone_on, other_table, paper, failing),
    )
}


def main(folder: Path, rank: int, number: int) -> None:
    """Be one of some processes, and write what was seen in each case."""
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=number)
    found = {}
    with joined(timedelta(seconds=60)) as workers:
        for name, case in CASES.items():
            found[name] = case(workers) if name != "failing" else None
    found["failing"] = failing(Workers(distributed.group.WORLD))
    (folder / f"{rank}.found").write_bytes(pickle.dumps(found))
    time.sleep(1)  # whoever is left must not need this one's end
    distributed.destroy_process_group()


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each of two processes saw."""
    folder = tmp_path_factory.mktemp("workers")
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, __file__, str(folder)]
    started = [subprocess.Popen([*command, str(rank), "2"], env=environment) for rank in range(2)]
    try:
        assert [one.wait(180) for one in started] == [0, 0]
    finally:
        for one in started:
            one.kill()
            one.wait()
    return [pickle.loads((folder / f"{rank}.found").read_bytes()) for rank in range(2)]


def near(one: dict[str, np.ndarray], other: dict[str, np.ndarray], tolerance: float) -> None:
    assert one.keys() == other.keys()
    for name, array in one.items():
        # The calibration counts cells below a bound, and rounding may tip a split of a tree; fills are compared too.
        if not name.startswith(("calibration", "trees", "donors")):
            np.testing.assert_allclose(array, other[name], rtol=tolerance, atol=tolerance, err_msg=name)


@pytest.mark.parametrize("case", ["plain", "sent", "few_rows", "without_knots_in_memory", "several_models", "streamed"])
def test_two_workers_when_they_fit_then_have_the_losses_and_weights_of_one(seen, case) -> None:
    alone = CASES[case](ALONE)
    for found in seen:
        np.testing.assert_allclose(found[case]["losses"], alone["losses"], rtol=1e-4)
        near(found[case]["tensors"], alone["tensors"], 2e-3)
        if case != "streamed":  # which fits a table of its own
            np.testing.assert_allclose(found[case]["filled"], alone["filled"], atol=0.02)


@pytest.mark.parametrize("case", ["plain", "sent", "several_models", "streamed", "max_time", "no_seed", "gone_on"])
def test_workers_when_a_fit_is_over_then_have_the_same_model_bit_for_bit(seen, case) -> None:
    first, second = (found[case] for found in seen)
    assert first["tensors"].keys() == second["tensors"].keys()
    for name, array in first["tensors"].items():
        assert array.tobytes() == second["tensors"][name].tobytes(), name
    assert first["losses"] == second["losses"]


def test_rows_on_disk_when_workers_are_on_one_machine_then_are_written_once(seen) -> None:
    assert len(seen[0]["streamed"]["left"]) == 1
    assert not seen[1]["streamed"]["left"]
    assert len(seen[0]["two_machines"]["left"]) == len(seen[1]["two_machines"]["left"]) == 1
    for found in seen:
        np.testing.assert_array_equal(found["streamed"]["losses"], found["two_machines"]["losses"])


@pytest.mark.skipif(os.name != "posix", reason="open files cannot be unlinked")
def test_rows_on_disk_when_the_process_is_killed_then_are_gone_with_it(seen) -> None:
    assert streamed(ALONE)["left"] == seen[0]["streamed"]["left"] == [0], "no file has a name while it is written"


def test_gradients_when_shared_or_sent_then_lead_to_the_same_fit(seen) -> None:
    near(seen[0]["plain"]["tensors"], seen[0]["sent"]["tensors"], 2e-3)
    assert not np.isnan(seen[1]["plain"]["filled"]).any()


def test_fit_when_the_validation_error_stops_improving_then_ends_for_all_at_the_same_epoch(seen) -> None:
    first, second = (found["early_stop"] for found in seen)
    assert first["ending"] == second["ending"] == "early_stopping"
    assert first["errors"] == second["errors"]


def test_fit_when_its_time_is_up_then_ends_for_all_at_the_same_step(seen) -> None:
    first, second = (found["max_time"] for found in seen)
    assert first["ending"] == second["ending"] == "max_time"
    assert first["rates"] == second["rates"], "the learning rate follows the clock of the first worker"
    assert len(first["rates"]) > 2


def test_fit_without_a_seed_when_shared_then_takes_that_of_the_first(seen) -> None:
    assert seen[0]["no_seed"]["seed"] == seen[1]["no_seed"]["seed"]


def test_generators_after_every_epoch_are_in_step(seen) -> None:
    alone = generators(ALONE)["states"]
    assert seen[0]["generators"]["states"] == seen[1]["generators"]["states"] == alone


def test_stopped_fit_when_only_the_first_has_its_state_then_all_go_on_from_there(seen) -> None:
    first, second = (found["gone_on"] for found in seen)
    assert first["kept"] == ["fit.checkpoint"]
    assert second["kept"] == [], "only the first one writes"
    assert first["begun"] == second["begun"] == 5
    whole = seen[0]["plain"]["tensors"]
    for name, array in first["tensors"].items():
        assert array.tobytes() == whole[name].tobytes(), name


def test_fit_when_tables_differ_then_is_refused_by_all(seen) -> None:
    for found in seen:
        assert found["other_table"]["kind"] is DataError
        assert "Worker 2 of 2 has another table" in found["other_table"]["words"]


def test_fit_when_the_preset_is_the_papers_then_is_refused(seen) -> None:
    for found in seen:
        assert found["paper"]["kind"] is ParameterError
        assert "fitted by one process, and there are 2" in found["paper"]["words"]


def test_error_of_one_worker_when_others_wait_for_it_then_ends_them_at_once(seen) -> None:
    first, second = (found["failing"] for found in seen)
    assert second["words"] == "broken on purpose"
    assert first["kind"] is TrainingError
    assert "lost the others" in first["words"]
    assert first["seconds"] < 60


def test_fit_in_a_group_of_one_is_the_fit_without_bit_for_bit(tmp_path) -> None:
    alone = plain(ALONE)
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        with joined() as workers:
            assert workers is ALONE
            together = plain(workers)
    finally:
        distributed.destroy_process_group()
    for name, array in alone["tensors"].items():
        assert array.tobytes() == together["tensors"][name].tobytes(), name
    assert alone["losses"] == together["losses"]


def test_process_group_without_the_block_is_ignored() -> None:
    assert current() is ALONE


def test_store_when_an_earlier_start_has_written_to_it_then_all_get_an_empty_part() -> None:
    store, words = distributed.HashStore(), []
    for life in range(3):
        with ThreadPoolExecutor(3) as pool:  # the first comes last, when the others have read what was left there
            waiting = [pool.submit(fresh_store, store, rank, 3) for rank in (2, 1)]
            time.sleep(0.1)
            parts = [pool.submit(fresh_store, store, 0, 3).result(), *(one.result(30) for one in waiting)]
        parts[0].set("address", str(life))
        assert {part.get("address") for part in parts} == {str(life).encode()}
        words.append(store.get("mcflow/word/0"))
    assert len(set(words)) == 3


@pytest.mark.parametrize(("n_rows", "number"), [(10, 3), (1, 4), (0, 2), (256, 2)])
def test_parts_of_a_batch_make_up_the_whole(n_rows, number) -> None:
    workers = Workers()
    workers.number = number
    parts = []
    for workers.rank in range(number):
        parts += range(n_rows)[workers.part(n_rows)]
    assert parts == list(range(n_rows))


def test_slots_when_there_is_no_room_then_are_not_made(monkeypatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    assert shared._made(1 << 20) is None
    assert shared._opened("/not/there") is None


class Neighbour(Workers):
    """One of two workers, in a thread of this process."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        self.number, self.rank = 2, rank


def two_slots(tmp_path: Path) -> list[shared.SharedSlots]:
    path = tmp_path / "memory"
    path.write_bytes(bytes(shared._size(2, 5)))
    return [shared.SharedSlots(shared._opened(str(path)), Neighbour(rank), 5) for rank in range(2)]


@pytest.mark.skipif(
    platform.machine() not in shared.ORDERED_MACHINES, reason="this machine meets by torch's connections"
)
def test_slots_when_all_have_written_give_sums_turn_after_turn(tmp_path) -> None:
    slots = two_slots(tmp_path)

    def work(rank: int) -> list[tuple[list[float], list[float]]]:
        found = []
        for turn in range(50):
            slots[rank].mine().copy_(torch.arange(5.0) * (rank + 1) + turn)
            time.sleep(0.001 * (turn % 3) * rank)
            found.append((slots[rank].meet([rank + 1.0, turn]), slots[rank].total().tolist()))
        return found

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(work, range(2))
    assert first == second
    assert first == [([3.0, 2.0 * turn], [3.0 * k + 2 * turn for k in range(5)]) for turn in range(50)]


@pytest.mark.skipif(
    platform.machine() not in shared.ORDERED_MACHINES, reason="this machine meets by torch's connections"
)
def test_slots_when_another_worker_has_left_then_nobody_waits_for_it(tmp_path) -> None:
    first, second = two_slots(tmp_path)
    second.close()
    second.close()  # once is enough
    begun = time.monotonic()
    with pytest.raises(TrainingError, match="lost the others"), first._workers.in_touch():
        first.meet([1.0])
    assert time.monotonic() - begun < 30


def test_slots_when_the_machine_writes_out_of_order_then_meet_by_connections(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    first, _ = two_slots(tmp_path)
    monkeypatch.setattr(first._workers, "add_up", lambda numbers: numbers.mul_(2))
    assert first.meet([1.0, 4.0]) == [2.0, 8.0]


def test_mean_of_gradients_counts_workers_by_their_weights(monkeypatch) -> None:
    monkeypatch.setattr(shared, "_made", lambda size: None)
    weight = torch.nn.Parameter(torch.zeros(3))
    weight.grad = torch.tensor([1.0, 2.0, 3.0])
    mean = GradientMean(ALONE, [weight])
    monkeypatch.setattr(mean, "_workers", Another())
    assert mean.average(9.0, 2.0, 5.0) == [8.0, 15.0]
    torch.testing.assert_close(weight.grad, torch.tensor([4.0, 5.0, 6.0]) / 8)


def test_mean_of_gradients_when_it_is_long_is_made_shorter(monkeypatch) -> None:
    monkeypatch.setattr(shared, "_made", lambda size: None)
    weight = torch.nn.Parameter(torch.zeros(3))
    weight.grad = torch.tensor([0.0, -3.0, 1.0])
    mean = GradientMean(ALONE, [weight])
    monkeypatch.setattr(mean, "_workers", Another())
    mean.average(0.5, 2.0, 5.0)
    torch.testing.assert_close(weight.grad, 0.5 * torch.tensor([0.6, 0.0, 0.8]))


class Another:
    """Adds what a second worker of weight 6 has."""

    def add_up(self, numbers: torch.Tensor) -> None:
        numbers += torch.tensor([3.0, 3.0, 3.0, 6.0, 10.0])


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
