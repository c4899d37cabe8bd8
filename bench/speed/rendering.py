"""Render stored results as blocks of pages, and draw the pictures of growth."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from mcflow.files.atomic import replacing
from mcflow_bench.report.blocks import Figure, Grid, Paragraph, to_markdown

Result = dict[str, Any]


def epoch(result: Result) -> str:
    return (
        f'One epoch of `preset="paper"` on {result["rows"]:,} × {result["columns"]} cells ({result["data"]}): '
        f"**{result['fast_epoch_s']:.2f} s**, against {result['plain_epoch_s']:.2f} s of a plain implementation, "
        f"**{result['times_faster']:.1f} times faster**. From the same weights the losses of the first 50 steps differ "
        f"by at most {result['largest_loss_difference_50_steps']:g}. ({_under(result)})"
    )


def start(result: Result) -> str:
    rows = tuple((name, f"{seconds:.2f} s") for name, seconds in result["seconds"].items())
    words = f"Shortest of {result['rounds']} starts of Python. ({_under(result)})"
    return to_markdown([Grid(("started", "time"), rows), Paragraph(words)])


def growth(result: Result) -> str:
    header = ("rows", "columns", "networks", "one epoch", "filled rows per second")
    rows = tuple(
        (
            f"{one['rows']:,}",
            f"{one['columns']}",
            f"{one['n_members']} × {one['width']} wide",
            f"{one['epoch_s']:.3g} s",
            f"{one['transform_rows_per_s']:,}",
            f"{one['fit_peak_mib']:,.0f} MiB",
            f"{one['transform_peak_mib']:,.0f} MiB",
        )
        for one in (*result["by_rows"], *result["by_columns"])
    )
    exponents = (
        f"From {result['rows_exponent_from']:,} rows on, an epoch takes time as {_powers(result, 'rows')}; in the "
        f"number of columns as {_powers(result, 'columns')} (least squares of the logarithms). ({_under(result)})"
    )
    time = "Seconds of an epoch and of filling, by rows and by columns"
    memory = "Peak memory of the fit and of filling, by rows and by columns"
    return to_markdown(
        [
            Paragraph(exponents),
            Figure("pictures/growth_time.svg", "", time),
            Figure("pictures/growth_memory.svg", "", memory),
            Grid((*header, "peak of the fit", "peak of filling"), rows),
        ]
    )


def _powers(result: Result, axis: str) -> str:
    found = result[f"{axis}_exponent"]
    fit, fill = (f"{axis}^{found[name]:.2f}" for name in ("epoch_s", "transform_s"))
    return f"**{fit}** and filling as **{fill}**"


def images(result: Result) -> str:
    header = ("image", "one epoch", "filled images per second", "drawn images per second", "peak of a fit")
    rows = tuple(
        (
            one["size"],
            f"{one['pass_s']:.0f} s for {one['images_in_a_pass']:,}",
            f"{one['filled_images_per_s']:,}",
            f"{one['drawn_images_per_s']:,}",
            f"{one['peak_mib']:,} MiB with {one['images']:,} images",
        )
        for one in result["sizes"]
    )
    fill = (
        f"Half of the pixels missing. The first fill of {result['first_fill_images']:,} digits by the paper's preset "
        f"takes {result['first_fill_s']:.1f} s. ({_under(result)})"
    )
    return to_markdown([Grid(header, rows), Paragraph(fill)])


def million(result: Result) -> str:
    met = result["fit_s"] < result["limit_s"] and result["peak_gib"] < result["limit_gib"]
    return (
        f"{result['rows']:,} × {result['columns']} cells of float32, fitted with `max_time={result['max_time_s']:g}`: "
        f"**{result['fit_s']:.0f} s** and **{result['peak_gib']:.2f} GiB** at the peak, table included. The limits of "
        f"{result['limit_s']:.0f} s and {result['limit_gib']:g} GiB are {'kept' if met else '**not** kept'}. "
        f"({_under(result)})"
    )


def matmul(result: Result) -> str:
    shapes = tuple(next(iter(result["gflops"].values())))
    speeds = tuple(
        (n_threads, *(f"{found[shape]:,.0f} GFLOP/s" for shape in shapes))
        for n_threads, found in result["gflops"].items()
    )
    parts = list(dict.fromkeys([*result["training_parts"], *result["transform_parts"]]))
    where = tuple(
        (part, *(_percent(result[f"{act}_parts"].get(part)) for act in ("training", "transform"))) for part in parts
    )
    loops = tuple(
        (name, f"{speed:,}", f"{result['transform_rows_per_s'] / speed:.1f}")
        for name, speed in result["boosted_rows_per_s"].items()
    )
    return to_markdown(
        [
            Paragraph(_reached(result)),
            Grid(("threads", *(shape.replace("x", " × ") for shape in shapes)), speeds),
            Paragraph("Where the time goes, by kind of operation:"),
            Grid(("", "training", "transform"), where),
            Paragraph(
                f"`transform` fills {result['transform_rows_per_s']:,} rows per second. It should be at least "
                f"{result['asked_ratio']:g} times as fast as loops of boosted trees on the same rows:"
            ),
            Grid(("loop", "filled rows per second", "`transform` is faster by"), loops),
        ]
    )


def _reached(result: Result) -> str:
    return (
        f"On {result['columns']} integer columns and with the network sizes for {result['train_rows']:,} rows "
        f"({result['n_members']} × {result['width']} wide, batches of {result['batch_size']}), training reaches "
        f"**{_percent(result['training_share'])}** of the rate, and filling {result['rows']:,} rows "
        f"**{_percent(result['transform_share'])}** (required: {_percent(result['asked_share'])}). A row takes "
        f"{result['multiply_adds_per_row']:,} multiply-adds. The rate of the machine, float32, in the same run "
        f"({_under(result)}):"
    )


def draws(result: Result) -> str:
    kept = "kept" if result["ratio"] <= result["asked_ratio"] else "passed"
    return (
        f"{result['rows']:,} × {result['columns']} cells like Credit's, a fifth of them missing: one fill takes "
        f"{result['transform_s']:.1f} s, both tables of an interval {result['interval_s']:.1f} s, and "
        f"{result['draws']} draws {result['draw_s']:.1f} s, **{result['ratio']:.1f} times** a fill. The limit of "
        f"{result['asked_ratio']:.0f} times is {kept}. ({_under(result)})"
    )


def evaluate(result: Result) -> str:
    header = ("table", "rows", "columns", "hidden cells", "mcflow", *result["others"], "coverage", "whole command")
    rows = tuple(
        (
            one["table"],
            f"{one['rows']:,}",
            f"{one['columns']}",
            f"{one['hidden_cells']:,}",
            *(f"{one['relative'][name]:.3f}" for name in ("mcflow", *result["others"])),
            _percent(one["coverage"]),
            f"{one['seconds']:.0f} s",
        )
        for one in result["tables"]
    )
    notes = (
        "Errors are relative to those of the mean; coverage is that of mcflow's 90 % intervals on the hidden numbers. "
        f"({_under(result)})"
    )
    words = [Paragraph(f"**{one['table']}.** {' '.join(one['verdict'])}") for one in result["tables"]]
    return to_markdown([Grid(header, rows), Paragraph(notes), *words])


def sizing(result: Result) -> str:
    machines = list(result["tasks"][0]["hours"])
    header = ("task", "rows per second and core", *(f"{n} machine{'s' if n != '1' else ''}" for n in machines))
    rows = tuple(
        (
            one["task"],
            f"{one['rows_per_s_core']:,}",
            *(f"{one['hours'][n]:,.2g} h" if n in one["hours"] else "–" for n in machines),
            f"{one['core_hours']:,.0f}",
            f"{one['cost']:,.2f} USD",  # a dollar sign would begin a formula
        )
        for one in result["tasks"]
    )
    shares = {one["task"]: one["kept_share"] for one in result["tasks"] if one["kept_share"] is not None}
    listed = ", ".join(f"{name} {_percent(share)}" for name, share in shares.items())
    kept = (
        f"Two workers keep this fraction of the speed of single ones, and more are assumed to keep it too: {listed}."
        if shares
        else "Cores and machines are assumed not to slow each other down."
    )
    where = "from file to file on a table" if result["from_files"] else "in memory on a table"
    words = (
        f"{result['rows']:,} rows × {result['columns']} columns, on machines with {result['cores_a_machine']} cores at "
        f"an assumed {result['price_a_core_hour']:.2f} USD for a core and hour. Filling was measured {where} of "
        f"{result['measured_rows']:,} rows ({_under(result)}); all else is arithmetic. {kept} The table is "
        f"{result['table_gb']:,} GB before compression, and each machine that fills reads and writes "
        f"{result['mb_per_s_machine']:,} MB per second. A fit keeps {result['fit_disk_gb']:,} GB on disk."
    )
    return to_markdown([Grid((*header, "core hours", "cost"), rows), Paragraph(words)])


def streams(result: Result) -> str:
    limits, in_memory = result["limits"], result["in_memory"]
    header = ("act", "rows", "rows per second", "peak memory", "RMSE")
    fits = (("fit on files", result["fit"]), ("fit in memory on a sample", result["fit_of_sample"]))
    rows = (
        *((name, f"{one['rows']:,}", "–", f"{one['peak_gib']:.2f} GiB", f"{one['rmse']:.4f}") for name, one in fits),
        *(
            ("fill files", f"{one['rows']:,}", f"{one['rows_per_s']:,}", f"{one['peak_gib']:.2f} GiB", "–")
            for one in result["fills"]
        ),
        ("fill in memory", f"{in_memory['rows']:,}", f"{in_memory['rows_per_s']:,}", "–", "–"),
    )
    words = (
        f"Rows of the Letter table with noise, {result['columns']} columns, a fifth of the cells hidden, in Parquet "
        f"files; both fits with `max_time={result['max_time_s']:g}`, RMSE over hidden cells of other rows in units of "
        f"15. The limit of {limits['fit_gib']:g} GiB for the fit is {_kept(limits['fit_kept'])}, that of "
        f"{limits['fill_gib']:g} GiB for filling, with no more than {_percent(limits['growth'] - 1)} of growth, is "
        f"{_kept(limits['fill_kept'])}. Filling files reaches **{_percent(result['pace'])}** of the rows per second in "
        f"memory. ({_under(result)})"
    )
    return to_markdown([Grid(header, rows), Paragraph(words)])


def _kept(kept: bool) -> str:
    return "kept" if kept else "**not** kept"


def ray(result: Result) -> str:
    header = ("workers", "rows per second", "all parts", "start of the workers")
    rows = tuple(
        (f"{one['workers']}", f"{one['rows_per_s']:,}", f"{one['seconds']:.0f} s", f"{one['start_s']:.0f} s")
        for one in result["cases"]
    )
    words = (
        f"{result['rows']:,} rows × {result['columns']} columns in {result['cases'][0]['parts']} parts, on a cluster "
        f"of one machine that took {result['cluster_start_s']:.0f} s to start; each worker computes with one thread. "
        f"Once all are at work, {result['workers']} workers fill **{result['speedup']:.2f} times** the rows of one. "
        f"({_under(result)})"
    )
    return to_markdown([Grid(header, rows), Paragraph(words)])


def parallel(result: Result) -> str:
    header = (
        "batch size",
        "one process",
        f"{result['workers']} processes",
        "times",
        "epochs alone",
        "exchange of gradients",
    )
    rows = tuple(
        (
            f"{one['batch_size']:,}",
            f"{one['one_rows_per_s']:,} rows per second",
            f"{one['rows_per_s']:,} rows per second",
            f"**{one['speedup']:.2f}**",
            f"{one['speedup_of_epochs']:.2f}",
            _percent(one["exchange_share"]),
        )
        for one in result["cases"]
    )
    fast, epochs = (_batches(result, of) for of in ("speedup", "speedup_of_epochs"))
    words = (
        f"{result['rows']:,} × {result['columns']} cells like Letter's, {result['epochs']} epochs, one thread per "
        "process, from a table in memory to a fitted model, and the epochs alone. The required speedup of "
        f"{result['asked_speedup']:.1f} is {fast} by the whole fit, and {epochs} by its epochs; the density and the "
        f"calibration are computed by one process. Every step exchanges {result['cases'][0]['parameters']:,} "
        "gradients. Losses differ from those of one process by at most "
        f"{max(one['largest_loss_difference'] for one in result['cases']):g}. ({_under(result)})"
    )
    return to_markdown([Grid(header, rows), Paragraph(words)])


def _batches(result: Result, speedup: str) -> str:
    fast = [f"{one['batch_size']:,}" for one in result["cases"] if one[speedup] >= result["asked_speedup"]]
    return f"reached with batches of {' and '.join(fast)} rows" if fast else "**not** reached"


def load(result: Result) -> str:
    words = (
        f"{result['clients']} clients sent files of mixed sizes for {result['minutes']:g} minutes to a server with a "
        f"queue of 20, a tenth of them hostile or slow. {result['accepted']:,} jobs were accepted, and all of them "
        f"ended in a correct file; {result.get('refused', 0):,} requests were refused with a status, a message and the "
        f"time after which to try again; {result['hostile']:,} requests were hostile or slow. The server held "
        f"{result['second_quarter_mib']:.0f} MiB on average in the second quarter of the time and "
        f"{result['last_quarter_mib']:.0f} MiB in the last. ({_under(result)})"
    )
    return to_markdown([Paragraph(words)])


def serve(result: Result) -> str:
    many, limit = result["many"], result["limit_gib"]
    own, both = (result[of] <= limit for of in ("server_gib", "with_jobs_gib"))
    words = (
        f"A CSV file of {result['megabytes']:.0f} MB, {result['rows']:,} rows × {result['columns']} columns, took "
        f"{result['sent_s']:.0f} s to send and {result['done_s']:.0f} s until the filled file, the report and all "
        f"intervals were there, with a fit of {result['max_time_s']:.0f} s. The server held at most "
        f"**{1024 * result['server_gib']:.0f} MiB**; together with the process of its job "
        f"{result['with_jobs_gib']:.2f} GiB. The limit of {limit:.0f} GiB is {_kept(own)} by the server "
        f"and {_kept(both)} by both together. Of {many['clients']} clients that sent a file at the same time, "
        f"{many['waiting']} had to wait, and {many['done']} received a filled file, all within "
        f"{many['seconds']:.0f} s. "
        f"({_under(result)})"
    )
    return to_markdown([Paragraph(words)])


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.0f} %"


def _under(result: Result) -> str:
    return f"{result['machine']}, {result['threads']} threads, load {result['load'][0]:.1f}, torch {result['torch']}"


_INK = "#22313f"
_FIT = "#5b8db8"
_FILL = "#e8963a"

#: For each picture, the label of its axis, and its lines with the stored name, the label and the colour.
PICTURES = {
    "growth_time": (
        "seconds",
        (("epoch_s", "one epoch", _FIT), ("transform_s", "filling all rows", _FILL)),
    ),
    "growth_memory": (
        "peak memory, MiB",
        (("fit_peak_mib", "fit", _FIT), ("transform_peak_mib", "filling all rows", _FILL)),
    ),
}


def draw(result: dict[str, Any], unit: str, lines: Sequence[tuple[str, str, str]]) -> Any:
    """Return a figure of two panels, by rows and by columns, with logarithmic axes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.4, 3.6), facecolor="white", layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    for axes, axis, fixed in zip(panels, ("rows", "columns"), ("columns", "rows"), strict=True):
        cases = result[f"by_{axis}"]
        for name, words, colour in lines:
            axes.loglog([c[axis] for c in cases], [c[name] for c in cases], "o-", color=colour, label=words, lw=1.6)
        same = {f"{c[fixed]:,}" for c in cases}
        axes.set_xlabel(f"{axis}, at {', '.join(sorted(same))} {fixed}", color=_INK)
        axes.grid(visible=True, which="major", color="#e3e8ec", lw=0.8)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel(unit, color=_INK)
    panels[0].legend(frameon=False)
    return figure


def draw_growth(result: Result, folder: Path) -> None:
    """Draw how time and memory grow; the same results give the same bytes."""
    import matplotlib as mpl

    folder.mkdir(exist_ok=True)
    with mpl.rc_context({"svg.hashsalt": "mcflow", "svg.fonttype": "path"}):
        for name, (unit, lines) in PICTURES.items():
            with replacing(folder / f"{name}.svg") as temporary:
                draw(result, unit, lines).savefig(temporary, format="svg", metadata={"Date": None})


#: The functions that render a result, by its name.
RENDER: dict[str, Callable[[Result], str]] = {
    "epoch": epoch,
    "start": start,
    "growth": growth,
    "million": million,
    "matmul": matmul,
    "draws": draws,
    "images": images,
    "evaluate": evaluate,
    "parallel": parallel,
    "ray": ray,
    "sizing": sizing,
    "streams": streams,
    "serve": serve,
    "load": load,
}
