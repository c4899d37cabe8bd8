"""Every code block, link and picture of the pages works."""

from __future__ import annotations

import gzip
import importlib
import importlib.util
import io
import json
import pkgutil
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import chdir, redirect_stdout
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from unittest import mock

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from mcflow.cli.app import app, main
from mcflow.files.datasets import nhanes_path

ROOT = Path(__file__).parent.parent
PAGES = sorted(
    str(path.relative_to(ROOT))
    for path in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    if "_build" not in path.parts
)

#: Packages whose names are public, and documented in the API reference.
PUBLIC = (
    *("baselines", "engines", "errors", "evaluation", "images"),
    *("imputers", "metrics", "missingness", "pool", "report"),
)

#: Blocks that no test runs, and why.
SHOWN = {
    "text": "output of a program",
    "bibtex": "a citation",
    "ini": "settings of another program",
    "nginx": "settings of another program",
    "dockerfile": "building an image takes minutes and a network",
    "yaml": "settings of another program",
    "javascript": "runs in a browser, which has tests of its own",
    "http": "an exchange with the server, which has tests of its own",
}
#: Commands of `mcflow` whose flags are checked but that are not run, and why.
LONG = {
    "completion": "may write start-up files of a shell, and has tests of its own",
    "benchmark": "takes hours, and has tests of its own",
    "demo": "trains for half a minute, and has tests of its own",
    "serve": "runs until it is stopped, and has tests of its own",
}
#: Other programs, which are not run either, and why.
OTHERS = {
    "pip": "changes the environment; the names of extras are checked",
    "make": "sets up an environment; the names of targets are checked",
    "git": "needs a network",
    "docker": "needs a network",
    "curl": "needs a running server, which has tests of its own",
    "ssh": "needs another machine",
    "systemctl": "needs another machine",
    "sudo": "needs another machine",
    "Rscript": "a script that is part of an example",
    "echo": "writes a start-up file of a shell",
    "export": "sets a variable of a shell",
    "source": "reads a start-up file of a shell",
    "cd": "changes the folder",
    "mkdir": "makes a folder",
    "sphinx-build": "builds the pages, which `make docs` does",
    "venv-pack": "packs an environment for Spark, and is no part of it",
}
#: Programs that start mcflow elsewhere; what they are to start is checked, and they are not run.
LAUNCHERS = ("kubectl", "ray", "spark-submit", "torchrun")
#: Flags of `mcflow` with which a command is checked and not run, and why.
ELSEWHERE = {"--engine": "starts a cluster, and has tests of its own"}
#: Words that stand for something else in a synopsis.
PLACEHOLDERS = {"COMMAND", "[OPTIONS]", "NAME", "FOLDER", "VARIANT"}
#: Packages that blocks compare mcflow with, and that the tests do not need.
ABSENT = ("miceforest", "hyperimpute")
#: Commands that are run, and flags that keep them short; the rest is as shown.
SHORT: dict[str, dict[str, str]] = {
    "impute": {"--max-epochs": "1"},
    "fit": {"--max-epochs": "1"},
    "impute-images": {"--max-epochs": "1"},
    "inspect": {},
    "schema": {},
    "check": {},
    "evaluate": {"--max-time": "1", "--repeats": "1"},
    "doctor": {},
}


@dataclass(frozen=True)
class Block:
    """A fenced block: where it begins, its language and its text."""

    page: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks_of(page: str) -> Iterator[Block]:
    lines = (ROOT / page).read_text(encoding="utf-8").splitlines()
    opened: tuple[int, str, int] | None = None
    for place, line in enumerate(lines):
        fence = re.match(r"( *)```(.*)", line)
        if fence is None:
            continue
        if opened is None:
            opened = (place, fence[2].strip(), len(fence[1]))
        else:
            start, language, indent = opened
            text = "\n".join(each[indent:] for each in lines[start + 1 : place])
            yield Block(page, start + 1, language, text)
            opened = None
    assert opened is None, f"{page} ends inside a block"


def commands_of(block: Block) -> Iterator[str]:
    """Yield the commands of a block, lines that end in a backslash put together."""
    if block.language not in ("console", "bash", "sh"):
        return
    lines = block.text.replace("\\\n", " ").splitlines()
    if block.language == "console":
        lines = [line[2:] for line in lines if line.startswith("$ ")]
    yield from (line for line in lines if line.strip() and not line.lstrip().startswith("#"))


def parts_of(command: str) -> list[list[str]]:
    """Split a command at its pipes into words, without comments, redirections and variables before the program."""
    lexer = shlex.shlex(command, posix=True, punctuation_chars="|><&;")
    lexer.whitespace_split = True
    words = list(lexer)
    parts: list[list[str]] = [[]]
    redirected = False
    for word in words:
        if word in ("|", "&&", ";", "&"):
            parts.append([])
        elif set(word) <= set("<>&"):
            redirected = True
        elif redirected:
            redirected = False
        elif not (not parts[-1] and re.fullmatch(r"[A-Z_]+=.*", word)):
            parts[-1].append(word)
    return [part for part in parts if part]


def program_of(words: list[str]) -> tuple[str, list[str]]:
    """Return the name of a program and its arguments; `python -m mcflow` is mcflow."""
    if words[:3] == ["python", "-m", "mcflow"]:
        return "mcflow", words[3:]
    return Path(words[0]).name if words[0].startswith(".venv/") else words[0], words[1:]


BLOCKS = [block for page in PAGES for block in blocks_of(page)]
COMMANDS = [(block, command) for block in BLOCKS for command in commands_of(block)]


def plain_python() -> list[Block]:
    return [block for block in BLOCKS if block.language == "python" and ">>>" not in block.text]


# ---------------------------------------------------------------- blocks


def test_every_block_has_a_language_that_is_tested_or_a_reason_not_to() -> None:
    tested = {"python", "console", "bash", "sh", "r", "json", "toml"}
    for block in BLOCKS:
        name = block.language
        assert name.startswith("{") or name in tested or name in SHOWN, f"{block}: nobody tests blocks of {name!r}"


def test_every_block_with_a_prompt_stands_where_doctests_are_collected() -> None:
    for block in BLOCKS:
        if ">>>" in block.text:
            assert block.language == "python", block
            assert block.page == "README.md" or block.page.startswith("docs/"), block


def test_every_block_of_json_or_toml_can_be_read() -> None:
    for block in BLOCKS:
        if block.language == "json":
            json.loads(block.text)
        if block.language == "toml":
            tomllib.loads(block.text)


@pytest.mark.parametrize("block", plain_python(), ids=str)
def test_python_without_a_prompt_runs_as_a_script(block, workplace) -> None:
    code = compile(block.text, str(block), "exec")
    for name in ABSENT:
        if re.search(rf"^import {name}|^from {name}", block.text, re.MULTILINE) and not importlib.util.find_spec(name):
            pytest.skip(f"{name} is not installed; the block was compiled")
    with chdir(workplace):
        exec(code, {"__name__": "__main__"})


@pytest.mark.parametrize("page", sorted({block.page for block in BLOCKS if block.language == "r"}))
def test_blocks_of_r_run_one_after_the_other(page, tmp_path) -> None:
    rscript = shutil.which("Rscript")
    text = "\n".join(block.text for block in BLOCKS if block.page == page and block.language == "r")
    if rscript is None or subprocess.run([rscript, "-e", "library(mice)"], check=False, capture_output=True).returncode:
        pytest.skip("R or its package mice is not installed")
    (tmp_path / "blocks.R").write_text(text)
    done = subprocess.run([rscript, "blocks.R"], check=False, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# ---------------------------------------------------------------- commands


@pytest.mark.parametrize(("block", "command"), COMMANDS, ids=lambda value: str(value)[:60])
def test_command_has_a_known_program_and_flags_that_exist(block, command) -> None:
    for words in parts_of(command):
        name, arguments = program_of(words)
        if name == "mcflow":
            check_mcflow(arguments)
        elif name == "python":
            check_script(arguments)
        elif name == "make":
            check_make(arguments)
        elif name in ("pip", "python -m pip"):
            check_pip(arguments)
        elif name in LAUNCHERS:
            check_launcher(arguments)
        else:
            assert name in OTHERS or shutil.which(name), f"{block}: nobody knows {name!r}"


def check_mcflow(arguments: list[str]) -> None:
    command = arguments[0] if arguments else "--help"
    if PLACEHOLDERS.isdisjoint(arguments):
        assert command in SHORT or command in LONG or command.startswith("-"), f"nobody knows mcflow {command}"
        app.parse_args(arguments, exit_on_error=False, print_error=True)


def check_launcher(arguments: list[str]) -> None:
    """See that the files of the project that a launcher is given exist, and the flags of mcflow after its name."""
    words = [part for word in arguments for part in (shlex.split(word) if word.startswith("mcflow ") else [word])]
    for place, word in enumerate(words):
        if word.startswith("deploy/"):
            assert (ROOT / word).is_file(), f"there is no {word}"
        if word in ("mcflow", "deploy/submit.py"):
            check_mcflow(words[place + 1 :])


def check_script(arguments: list[str]) -> None:
    assert (ROOT / arguments[0]).is_file(), f"there is no {arguments[0]}"
    flags = [word.partition("=")[0] for word in arguments[1:] if word.startswith("--")]
    for flag in flags:
        assert re.search(rf"{flag}\b", help_of(arguments[0])), f"{arguments[0]} has no {flag}"


@cache
def help_of(script: str) -> str:
    """Return what a script prints about its flags; run here, where its imports are already loaded."""
    said = io.StringIO()
    with redirect_stdout(said), mock.patch.object(sys, "argv", [script, "--help"]), pytest.raises(SystemExit) as ended:
        runpy.run_path(str(ROOT / script), run_name="__main__")
    assert not ended.value.code
    return said.getvalue()


def check_make(arguments: list[str]) -> None:
    makefile = (ROOT / "Makefile").read_text()
    for word in arguments:
        assert "=" in word or re.search(rf"^{re.escape(word)}:", makefile, re.MULTILINE), f"no target {word}"


def check_pip(arguments: list[str]) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for word in arguments:
        for extra in re.findall(r"\[([\w,]+)\]", word):
            assert set(extra.split(",")) <= set(extras), f"no extra {extra}"


def runs(command: str) -> bool:
    """Say whether a command is one of mcflow's that a test runs, alone or behind a plain filter."""
    calls = [program_of(words) for words in parts_of(command)]
    ours = [arguments for name, arguments in calls if name == "mcflow"]
    return (
        bool(ours)
        and all(arguments and arguments[0] in SHORT and PLACEHOLDERS.isdisjoint(arguments) for arguments in ours)
        and all(name in ("mcflow", "cat", "zcat") for name, _ in calls)
        and all(set(ELSEWHERE).isdisjoint(arguments) for arguments in ours)
    )


@pytest.mark.parametrize("page", sorted({block.page for block, command in COMMANDS if runs(command)}))
def test_commands_of_a_page_run_one_after_the_other(page, workplace, capsys) -> None:
    for block, command in COMMANDS:
        if block.page != page or not runs(command):
            continue
        with chdir(workplace):
            code = run_command(command)
        assert code == 0, f"{block}: {command}\n{capsys.readouterr().err}"


def run_command(command: str) -> int:
    """Run a command as shown, with less training: here, or where it has pipes in a shell."""
    calls = parts_of(command)
    if len(calls) == 1 and not {">", "<"} & set(command.replace("<=", "").replace(">=", "")):
        return main(shortened(program_of(calls[0])[1]))
    program = f"{shlex.quote(sys.executable)} -m mcflow"
    done = subprocess.run(["bash", "-c", re.sub(r"\bmcflow (?=[a-z])", f"{program} ", command)], check=False)
    return done.returncode


def shortened(arguments: list[str]) -> list[str]:
    """Return the arguments with flags that keep a fit short, in place of those that were given or added."""
    short = {} if "--model" in arguments else SHORT[arguments[0]]
    given = list(arguments)
    for flag, value in short.items():
        if flag in given:
            given[given.index(flag) + 1] = value
        else:
            given += [flag, value]
    return given


@pytest.fixture(scope="module")
def inputs(tmp_path_factory) -> Path:
    """Make the files that pages read: some rows of NHANES under the names of the pages, a model, pictures."""
    folder = tmp_path_factory.mktemp("inputs")
    rows = pd.read_parquet(nhanes_path())[["age", "gender", "bmi", "dbp1", "sbp1"]]
    rows["dbp1"] = rows["dbp1"].mask(rows["dbp1"] == 0)  # no sound was heard
    rows = rows.rename(columns={"dbp1": "low", "sbp1": "high"}).head(120)
    for name in ("data", "survey"):
        rows.head(80).to_csv(folder / f"{name}.csv", index=False)
    for name in ("new", "more", "today"):
        rows.tail(40).to_csv(folder / f"{name}.csv", index=False)
    for name in ("data", "history"):
        rows.head(80).to_parquet(folder / f"{name}.parquet", index=False)
    (folder / "examples").mkdir()
    shutil.copy(ROOT / "examples" / "nhanes.csv", folder / "examples")
    with gzip.open(folder / "rows.csv.gz", "wt") as packed:
        rows.tail(40).to_csv(packed, index=False)
    rng = np.random.default_rng(0)
    for name, top in (("pictures", 256), ("masks", 2)):
        (folder / name).mkdir()
        for place in range(6):
            pixels = rng.integers(0, top, (8, 8)) * (255 if name == "masks" else 1)
            Image.fromarray(pixels.astype(np.uint8)).save(folder / name / f"{place}.png")
    with chdir(folder):
        assert main(["fit", "data.csv", "-o", "model.mcflow", "--max-epochs", "1", "--quiet"]) == 0
    return folder


@pytest.fixture
def workplace(inputs, tmp_path) -> Path:
    return Path(shutil.copytree(inputs, tmp_path / "work"))


# ---------------------------------------------------------------- links

LINK = re.compile(r"\]\(([^)\s]+)\)|(?:src|srcset|href)=\"([^\"]+)\"")


def targets_of(page: str) -> Iterator[str]:
    """Yield where the links and pictures of a page point to, those of its text and of its directives."""
    lines = (ROOT / page).read_text(encoding="utf-8").splitlines()
    for block in blocks_of(page):
        directive, _, target = block.language.partition(" ")
        if directive in ("{image}", "{figure}"):
            yield target
        for place in range(block.line - 1, min(len(lines), block.line + block.text.count("\n") + 2)):
            lines[place] = ""
    for found in LINK.findall("\n".join(lines)):
        yield next(filter(None, found))


def slugs_of(path: Path) -> set[str]:
    """Return the anchors that GitHub and the built pages give to headings, and those that are set by hand."""
    text = path.read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", text, flags=re.DOTALL), re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings)
    return set(plain) | set(re.findall(r"^\(([\w-]+)\)=$", text, re.MULTILINE))


@pytest.mark.parametrize("page", PAGES)
def test_links_and_pictures_of_a_page_exist(page) -> None:
    path = ROOT / page
    for target, _, anchor in (found.partition("#") for found in targets_of(page)):
        if re.match(r"[a-z]+:", target):
            continue
        other = (path.parent / target).resolve() if target else path
        assert other.exists(), f"{page} points to {target}, which is not there"
        if anchor and other.suffix == ".md":
            assert anchor in slugs_of(other), f"{page} points to #{anchor}, which {other.name} does not have"


def test_every_picture_of_the_docs_is_shown_on_a_page() -> None:
    text = "\n".join((ROOT / page).read_text(encoding="utf-8") for page in PAGES)
    drawn = [path.name for path in (ROOT / "docs" / "pictures").iterdir()]
    # Tests in a browser keep more screenshots than the pages have room for.
    unseen = [name for name in drawn if f"pictures/{name}" not in text and not name.startswith(("serve_", "report_"))]
    assert not unseen, f"no page shows {unseen}"


@pytest.mark.parametrize("name", ["flow", "hidden", "latent"])
def test_picture_is_drawn_for_light_and_dark_pages(name, tmp_path, monkeypatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "docs")
    import drawing.latent
    import make_pictures

    monkeypatch.setattr(drawing.latent, "STEPS", 2)
    monkeypatch.setattr(sys, "argv", ["make_pictures.py", name, "--output", str(tmp_path)])
    make_pictures.main()
    assert {path.name for path in tmp_path.iterdir()} == {f"{name}.svg", f"{name}-dark.svg"}


@pytest.mark.parametrize("package", ["mcflow", *(f"mcflow.{name}" for name in PUBLIC)])
def test_every_public_name_has_a_place_in_the_api_reference(package) -> None:
    text = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "docs" / "api").glob("*.md"))
    whole = re.search(rf"^.. automodule:: {re.escape(package)}\n   :members:$", text, re.MULTILINE)
    for name in importlib.import_module(package).__all__:
        shown = whole or name == "__version__" or re.search(rf"\b{name}\b", text)
        assert shown, f"no page of docs/api has {package}.{name}"


def test_walk_of_a_cell_names_at_most_15_functions_that_exist() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    walk = page.split("## Follow a cell")[1].split("\n## ")[0]
    named = re.findall(r"\{py:obj\}`([\w.]+)`", walk)
    assert 8 <= len(named) <= 15
    for name in named:
        assert pkgutil.resolve_name(_as_place(name)) is not None


def _as_place(name: str) -> str:
    """Return a dotted name with a colon after its module, as `pkgutil.resolve_name` wants it."""
    parts = name.split(".")
    for k in range(len(parts), 0, -1):
        try:
            importlib.import_module(".".join(parts[:k]))
        except ImportError:
            continue
        return ".".join(parts[:k]) + ":" + ".".join(parts[k:])
    raise AssertionError(f"{name} does not exist")


def test_readme_opens_with_a_picture_and_has_at_most_150_lines() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "docs/pictures/" in text.split("\n## ")[0]
    assert len(text.splitlines()) <= 150


# ---------------------------------------------------------------- tutorials

TUTORIALS = [path for path in sorted((ROOT / "docs" / "tutorials").glob("*.md")) if path.stem != "index"]


@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_tutorial_is_executed_on_real_data_and_says_what_to_read_next(path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.startswith("---\nfile_format: mystnb\n")
    cells = [block.text for block in blocks_of(str(path.relative_to(ROOT))) if block.language.startswith("{code-cell}")]
    assert cells
    assert any("max_time=5" in cell for cell in cells)
    for word in ("max_epochs", "np.random", "default_rng"):
        assert not any(word in cell for cell in cells), f"{path.name} uses {word}"
    assert re.search(r"^## What to read next\n\n- \[", text, re.MULTILINE)
    assert any("plot" in cell or "figure" in cell for cell in cells)
    assert all("alt:" in cell for cell in cells if "plot" in cell.split("---")[-1] and "import" not in cell)


def test_quick_start_prints_a_table_like_the_one_on_the_page() -> None:
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = page.split("<!-- result quick-start -->")[1].split("```text\n")[1].split("\n```")[0]
    found = runpy.run_path(str(ROOT / "docs" / "quick_start.py"))
    printed = found["output_of"](found["quick_start"]())
    first, *rows = shown.splitlines()
    other, *others = printed.splitlines()
    assert first.split() == other.split() == ["age", "gender", "bmi", "waist_cm", "filled", "low", "high"]
    assert [row.split()[:5] for row in rows] == [row.split()[:5] for row in others]
