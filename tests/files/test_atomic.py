"""Files that replace others whole, with their modes and links; and lock files with one holder at a time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from mcflow.errors import OutputError
from mcflow.files.atomic import holding, replacing, write_tensors, write_text

HOLD = """
import sys, time
from pathlib import Path
from mcflow.files.atomic import holding
with holding(Path(sys.argv[1]), "the folder"):
    print("held", flush=True)
    time.sleep(600)
"""


def test_second_holder_is_refused_until_the_first_one_ends(tmp_path) -> None:
    path = tmp_path / ".lock"
    with holding(path, "the folder"):
        words = rf"Process {os.getpid()} is at work on the folder\. Wait until it ends, or choose another folder"
        with pytest.raises(OutputError, match=words), holding(path, "the folder"):
            pass
    with holding(path, "the folder"):
        assert path.exists()
    assert not path.exists()


def test_lock_of_a_killed_process_is_free(tmp_path) -> None:
    path = tmp_path / ".lock"
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    with holder:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(OutputError, match=f"Process {holder.pid} is at work on"), holding(path, "the folder"):
            pass
        holder.kill()
    with holding(path, "the folder"):
        assert path.read_text() == str(os.getpid())


def test_folder_that_cannot_be_written_is_named() -> None:
    path = Path(os.devnull) / ".lock"
    with pytest.raises(OutputError, match=r"\.lock cannot be written: .*Choose another folder"), holding(path, "x"):
        pass


@pytest.mark.skipif(os.name != "posix", reason="Windows has no such modes")
def test_replaced_file_keeps_its_mode_and_a_new_one_follows_the_umask(tmp_path) -> None:
    old, new = tmp_path / "old.txt", tmp_path / "new.mcflow"
    old.write_text("old")
    old.chmod(0o640)
    write_text(old, "new")
    assert old.stat().st_mode & 0o777 == 0o640
    before = os.umask(0o027)
    try:
        write_tensors(new, "model", {}, {"x": np.ones(3)})
    finally:
        os.umask(before)
    assert new.stat().st_mode & 0o777 == 0o640


@pytest.mark.skipif(os.name != "posix" or os.getuid() != 0, reason="only root may give files away")
def test_replaced_file_keeps_its_owner(tmp_path) -> None:
    path = tmp_path / "file.txt"
    path.write_text("old")
    os.chown(path, 12345, 54321)
    write_text(path, "new")
    assert (path.stat().st_uid, path.stat().st_gid) == (12345, 54321)


def test_symbolic_link_is_followed_and_stays(tmp_path) -> None:
    (tmp_path / "far").mkdir()
    target, link, circle = tmp_path / "far" / "file.txt", tmp_path / "link.txt", tmp_path / "circle.txt"
    link.symlink_to(target)
    write_text(link, "first")
    write_text(link, "second")
    assert link.is_symlink()
    assert target.read_text() == "second"
    assert [p.name for p in target.parent.iterdir()] == ["file.txt"]
    circle.symlink_to(circle)
    with pytest.raises(OutputError, match="circle"):
        write_text(circle, "never")


def test_restart_sweeps_temporary_files_of_killed_processes_only(tmp_path) -> None:
    path = tmp_path / "a [1].txt"
    killed = "import os, signal, sys; from pathlib import Path; from mcflow.files.atomic import replacing\n"
    killed += "with replacing(Path(sys.argv[1])) as t: t.write_text('half'); os.kill(os.getpid(), signal.SIGKILL)"
    subprocess.run([sys.executable, "-c", killed, str(path)], check=False)
    (left,) = tmp_path.iterdir()
    foreign = tmp_path / left.name.replace(".txt.", ".txt.0")  # of another machine
    foreign.touch()
    with replacing(path) as mine:
        mine.write_text("outer")
        write_text(path, "inner")
        assert mine.exists()
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([path.name, foreign.name])
    assert path.read_text() == "outer"


FULL = """
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
from mcflow.cli.app import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.skipif(os.name != "posix", reason="needs a limit of file sizes")
@pytest.mark.parametrize("checkpoints", [False, True])
def test_full_disk_while_a_model_or_checkpoint_is_written_is_an_output_error(tmp_path, checkpoints) -> None:
    source = tmp_path / "rows.csv"
    rows = np.random.default_rng(0).normal(size=(60, 3)).round(3)
    source.write_text("a,b,c\n" + "".join(f"{a},{b},{c if k % 5 else ''}\n" for k, (a, b, c) in enumerate(rows)))
    where = ["--checkpoint-dir", str(tmp_path / "state")] if checkpoints else []
    command = ["fit", str(source), "-o", str(tmp_path / "model.mcflow"), "--max-epochs", "1", "--quiet", *where]
    done = subprocess.run([sys.executable, "-c", FULL, *command], capture_output=True, text=True, check=False)
    assert done.returncode == 4, done.stderr
    assert "cannot be written" in done.stderr
    assert "Traceback" not in done.stderr
    assert [p.name for p in tmp_path.rglob("*") if p.is_file()] == ["rows.csv"]
