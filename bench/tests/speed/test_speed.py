"""The arithmetic of the speed measurements, their tables, their blocks, and the pages that show them."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import growth
import harness
import images
import matmul
import parallel
import ray_fill
import rendering
import serve
from harness import correlated, letter_like
from mcflow import MCFlowImputer
from mcflow.engines.ray import PartDone
from mcflow.files.partitioned import parquet_parts

UNDER = {"machine": "m", "threads": 2, "load": [0.5, 0.4, 0.3], "torch": "2"}


def a_case(rows: int, columns: int) -> dict:
    return {
        "rows": rows,
        "columns": columns,
        "epoch_s": 3e-5 * rows,
        "transform_s": 1e-5 * rows * columns**0.5,
        "transform_rows_per_s": 100_000,
        "fit_peak_mib": 600.0 + rows / 1e3,
        "transform_peak_mib": 500.0,
        "width": 128,
        "n_members": 4,
    }


@pytest.fixture
def grown() -> dict:
    by_rows = [a_case(rows, 30) for rows in (1_000, 10_000, 100_000, 1_000_000)]
    by_rows[0]["epoch_s"] = 1e3  # below the rows that are used
    by_columns = [a_case(10_000, columns) for columns in (10, 30, 100)]
    found = {"by_rows": by_rows, "by_columns": by_columns, "rows_exponent_from": growth.MANY_ROWS}
    found |= {f"{axis}_exponent": growth.exponents(found[f"by_{axis}"], axis) for axis in ("rows", "columns")}
    return found | UNDER


@pytest.mark.parametrize("power", [0.5, 1.0, 1.7])
def test_exponent_of_a_power_law_is_its_power(power) -> None:
    sizes = [10, 100, 500, 3000]
    assert growth.exponent(sizes, [7 * n**power for n in sizes]) == pytest.approx(power)


def test_exponent_of_noisy_times_is_the_line_of_least_squares() -> None:
    sizes, seconds = [1.0, 2.0, 5.0, 9.0], [1.0, 2.5, 4.0, 11.0]
    expected = np.polynomial.polynomial.polyfit(np.log(sizes), np.log(seconds), 1)[1]
    assert growth.exponent(sizes, seconds) == pytest.approx(expected)


def test_exponents_when_some_tables_are_small_leave_these_out(grown) -> None:
    assert grown["rows_exponent"] == {"epoch_s": 1.0, "transform_s": 1.0}
    assert grown["columns_exponent"] == {"epoch_s": 0.0, "transform_s": 0.5}


def test_exponents_of_one_case_are_not_known() -> None:
    assert growth.exponents([a_case(10_000, 30)], "rows") == {"epoch_s": None, "transform_s": None}


def test_multiply_adds_of_layers_count_weights_of_all_members_and_no_bias() -> None:
    layers = [torch.zeros(2, 5, 3), torch.zeros(2, 1, 3), torch.zeros(2, 3, 4), torch.zeros(2, 1, 4)]
    assert matmul.multiply_adds(layers) == 2 * (5 * 3 + 3 * 4)


def test_multiply_adds_of_a_fitted_model_are_those_of_its_products(table) -> None:
    from torch.utils.flop_counter import FlopCounterMode

    network = MCFlowImputer(max_epochs=1, random_state=0).fit(table).model_.network
    rows = torch.zeros(network.n_members, 7, table.shape[1])
    with FlopCounterMode(display=False) as counter:
        network(rows, rows)
    copies = network.n_members * network.copier.numel()  # a product that only copies cells does not count as work
    assert counter.get_total_flops() == 2 * 7 * (matmul.multiply_adds(network.weights) + copies)


def test_reached_share_is_work_over_time_and_rate() -> None:
    assert matmul.reached(3e9, 2.0, 6e9) == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("chain", "kind"),
    [
        (["aten::copy_", "aten::baddbmm"], "matrix multiplies"),
        (["aten::sum", "autograd::engine::evaluate_function: BaddbmmBackward0"], "matrix multiplies"),
        (["aten::index_select", "mcflow::encode"], "encoding"),
        (["aten::index"], "choosing rows and cells"),
        (["aten::exp", "_CrossEntropyBackward"], "softmax and cross-entropy"),
        (["aten::_fused_adamw_", "Optimizer.step#AdamW.step"], "optimiser"),
        (["aten::native_layer_norm", "aten::layer_norm"], "activations and norms"),
        (["aten::add"], "other kernels"),
    ],
)
def test_kind_of_an_op_follows_from_the_names_around_it(chain, kind) -> None:
    assert matmul.kind_of(chain) == kind


def test_shares_of_parts_add_up_to_one_with_the_time_between_them() -> None:
    found = matmul.shares({"encoding": 1.0, "optimiser": 2.0}, 10.0)
    assert found == {matmul.BETWEEN: 0.7, "optimiser": 0.2, "encoding": 0.1}
    assert list(found) == [matmul.BETWEEN, "optimiser", "encoding"]


def test_breakdown_of_a_small_fit_and_transform_finds_every_kind_of_work(table) -> None:
    training = matmul.parts_of_training(table)
    imputer = MCFlowImputer(max_epochs=1, random_state=0).fit(table)
    filling = matmul.parts_of_transform(imputer, table)
    assert {*matmul.KINDS, matmul.BETWEEN} <= set(training)
    assert {"encoding", "matrix multiplies", "softmax and cross-entropy", matmul.FRAMES} <= set(filling)
    for found in (training, filling):
        assert sum(found.values()) == pytest.approx(1, abs=0.05)
        assert min(found.values()) >= 0


def test_made_table_is_float32_with_a_fifth_missing_and_related_columns() -> None:
    rows = correlated(20_000, 12)
    assert rows.dtype == np.float32
    assert np.isnan(rows).mean() == pytest.approx(0.2, abs=0.01)
    unbent = rows[:, ::3][~np.isnan(rows[:, ::3]).any(axis=1)]
    assert np.abs(np.corrcoef(unbent.T) - np.eye(4)).max() > 0.3
    np.testing.assert_array_equal(rows, correlated(20_000, 12))


def test_letter_like_table_holds_whole_numbers_up_to_15() -> None:
    rows = letter_like(3_000)
    seen = rows[~np.isnan(rows)]
    assert rows.shape == (3_000, 16)
    assert set(np.unique(seen)) == set(range(16))
    assert np.isnan(rows).mean() == pytest.approx(0.2, abs=0.01)


def test_act_runs_in_a_process_of_its_own_with_its_arguments(tmp_path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import json, os, sys\n"
        "print('noise')\n"
        "print(json.dumps({'pid': os.getpid(), 'words': sys.argv[1:], 'threads': os.environ['OMP_NUM_THREADS']}))\n"
    )
    found = harness.apart(str(script), "fit", {"rows": 3, "model": tmp_path}, threads=1)
    assert found["pid"] != os.getpid()
    assert found["words"][:2] == ["--act", "fit"]
    assert json.loads(found["words"][2]) == {"rows": 3, "model": str(tmp_path)}
    assert found["threads"] == "1"


def test_act_of_a_script_prints_what_it_found(tmp_path, monkeypatch, capsys) -> None:
    model = tmp_path / "model.mcflow"
    size = {"rows": 60, "columns": 3}
    for act, given in (("fit", {"max_epochs": 1, "calibrate": False, "density": False}), ("transform", {})):
        arguments = json.dumps(size | given | {"model": str(model)})
        monkeypatch.setattr(sys, "argv", ["growth.py", "--act", act, arguments])
        harness.main("growth", "", growth.measure, growth.ACTS)
        found = json.loads(capsys.readouterr().out)
        assert 50 < found["peak_mib"] < 16_000
        assert found["n_epochs"] == 1 if act == "fit" else found["transform_s"] > 0
    assert model.is_file()


@pytest.mark.parametrize("dry", [True, False])
def test_script_reads_flags_of_its_defaults_and_stores_its_result(dry, tmp_path, monkeypatch, capsys) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- result million -->\n<!-- end -->\n")
    for name, value in {"ROOT": tmp_path, "RESULTS": tmp_path / "results", "PAGES": ("page.md",)}.items():
        monkeypatch.setattr(harness, name, value)
    monkeypatch.setattr(harness, "RENDER", {"million": lambda result: f"{result['rows']} in {result['limits']}"})
    monkeypatch.setattr(sys, "argv", ["million.py", "--rows", "7", "--limits", "1.5", "2", *(["--dry"] if dry else [])])

    def measure(options: argparse.Namespace) -> dict:
        return {"rows": options.rows, "limits": options.limits, "threads": 1}

    harness.main("million", "", measure, rows=10, limits=[3.0])
    printed = json.loads(capsys.readouterr().out)
    assert (printed["rows"], printed["limits"], printed["threads"]) == (7, [1.5, 2.0], 1)
    assert printed["torch"] == torch.__version__
    assert (harness.stored("million") is None) is dry
    assert ("7 in [1.5, 2.0]" in page.read_text()) is not dry


def test_scripts_are_listed_with_what_they_measure() -> None:
    folder = Path(harness.__file__).parent
    done = subprocess.run([sys.executable, folder], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    modules = {"harness", "rendering", "__main__"}
    assert {line.split()[1] for line in lines} == {
        f"bench/speed/{path.name}" for path in folder.glob("*.py") if path.stem not in modules
    }
    assert all(len(line.split()) > 4 for line in lines)


def test_growth_block_shows_every_case_and_both_exponents(grown) -> None:
    text = rendering.growth(grown)
    assert text.count("\n| ") == 8
    assert "rows^1.00" in text
    assert "columns^0.50" in text


@pytest.mark.parametrize(("seconds", "words"), [(300.0, "are kept"), (400.0, "are **not** kept")])
def test_million_block_says_whether_the_limits_are_kept(seconds, words) -> None:
    found = {"rows": 1_000_000, "columns": 30, "max_time_s": 300.0, "fit_s": seconds, "peak_gib": 1.5}
    assert words in rendering.million(found | {"limit_s": 360.0, "limit_gib": 3.0} | UNDER)


def test_pictures_of_the_same_results_are_the_same_bytes(grown, tmp_path, monkeypatch) -> None:
    rendering.draw_growth(grown, tmp_path / "a")
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == ["growth_memory.svg", "growth_time.svg"]
    monkeypatch.setattr(rendering, "PICTURES", {"growth_time": rendering.PICTURES["growth_time"]})
    rendering.draw_growth(grown, tmp_path / "b")
    again, first = (tmp_path / folder / "growth_time.svg" for folder in ("b", "a"))
    assert again.read_bytes() == first.read_bytes()


def test_images_block_shows_every_size_and_the_first_fill() -> None:
    sizes = [{"size": "4 × 4 × 1", "images_in_a_pass": 60_000, "pass_s": 200.0, "filled_images_per_s": 900}]
    sizes[0] |= {"drawn_images_per_s": 90, "images": 2048, "peak_mib": 700}
    text = rendering.images({"sizes": sizes, "first_fill_images": 60_000, "first_fill_s": 9.5} | UNDER)
    assert "| 4 × 4 × 1 | 200 s for 60,000 | 900 | 90 | 700 MiB with 2,048 images |" in text
    assert "9.5 s" in text


def test_waves_of_any_shape_are_images() -> None:
    assert images.smooth(3, (6, 5)).shape == (3, 6, 5)
    assert images.smooth(3, (6, 5, 3)).std() > 10


def test_rows_per_second_count_from_when_all_workers_are_running(tmp_path) -> None:
    part = parquet_parts(tmp_path, [ray_fill.make(tmp_path, 100, 1)])[0]
    times = [("a", 0.0, 4.0), ("a", 4.0, 6.0), ("b", 3.0, 5.0), ("b", 5.0, 7.0)]
    done = [PartDone(part, worker, began, ended) for worker, began, ended in times]
    assert ray_fill.rows_per_second(done) == pytest.approx((25 + 100 + 100 + 100) / 4)


def test_ray_block_shows_every_number_of_workers_and_the_ratio() -> None:
    cases = [{"workers": n, "parts": 8, "start_s": 5.0, "seconds": 40.0 / n, "rows_per_s": 5_000 * n} for n in (1, 2)]
    found = {"rows": 200_000, "columns": 16, "cluster_start_s": 9.0, "cases": cases, "workers": 2, "speedup": 2.0}
    text = rendering.ray(found | UNDER)
    assert "| 2 | 10,000 | 20 s | 5 s |" in text
    assert "**2.00 times**" in text


def a_fit(seconds: float, losses: list[float]) -> dict:
    return {"fit_s": seconds, "epochs_s": seconds - 1, "exchange_s": 2.0, "losses": losses, "parameters": 1234}


@pytest.mark.parametrize(
    ("seconds", "words"), [(14.0, "is reached with batches of 256 rows by the"), (15.1, "is **not** reached by the")]
)
def test_parallel_block_says_how_two_processes_compare_with_one(seconds, words) -> None:
    found = parallel.compared(a_fit(21.0, [3.0, 2.0]), a_fit(seconds, [3.0, 2.5]), 1_000, 42)
    assert found["one_rows_per_s"] == 2_000
    assert found["speedup"] == pytest.approx(21 / seconds, abs=1e-3)
    assert found["speedup_of_epochs"] == pytest.approx(20 / (seconds - 1), abs=1e-3)
    said = {"rows": 1_000, "columns": 16, "epochs": 42, "workers": 2, "asked_speedup": 1.4}
    text = rendering.parallel(said | {"cases": [found | {"batch_size": 256}]} | UNDER)
    assert f"**{21 / seconds:.2f}** | {20 / (seconds - 1):.2f} | {200 / seconds:.0f} %" in text
    assert words in text
    assert "and reached with batches of 256 rows by its epochs" in text
    assert "by at most 0.5" in text


def test_exchanges_of_gradients_are_timed(monkeypatch) -> None:
    def average(self: object, *numbers: float) -> list[float]:
        return list(numbers)

    monkeypatch.setattr(parallel.GradientMean, "average", average)
    seconds = parallel.timed_exchange()
    assert parallel.GradientMean.average(None, 1.0, 2.0) == [1.0, 2.0]
    assert len(seconds) == 1


@pytest.mark.parametrize(
    ("server", "both", "words"),
    [
        (0.3, 1.9, "is kept by the server and kept by both"),
        (0.3, 2.1, "is kept by the server and **not** kept by both"),
    ],
)
def test_serve_block_says_whose_memory_is_meant(server, both, words) -> None:
    found = {"rows": 1_000, "columns": 16, "megabytes": 100.2, "sent_s": 2.0, "done_s": 200.0, "max_time_s": 60.0}
    found |= {"server_gib": server, "with_jobs_gib": both, "limit_gib": 2.0}
    text = rendering.serve(found | {"many": {"clients": 10, "waiting": 8, "done": 9, "seconds": 80.0}} | UNDER)
    assert "**307 MiB**" in text
    assert words in text
    assert "Of 10 clients that sent a file at the same time, 8 had to wait, and 9 received a filled file" in text


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory of processes is read from Linux's /proc")
def test_memory_of_a_process_includes_its_descendants() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        sizes = serve.resident(os.getpid())
        child.communicate(b"\n")
    assert sizes[0] > 50
    assert len(sizes) >= 2


@pytest.mark.parametrize("page", harness.PAGES)
def test_page_shows_the_stored_results(page) -> None:
    text = (harness.ROOT / page).read_text()
    own = {"images": "images", "evaluate": "evaluate", "scale": "sizing", "server": "serve"}
    assert f"<!-- result {own.get(Path(page).stem, 'epoch')} -->" in text
    assert harness.rendered(text) == text, "run `python bench/speed/harness.py`"
