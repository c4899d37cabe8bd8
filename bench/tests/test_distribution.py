"""The wheel of mcflow holds no benchmark and no method that only a comparison needs."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import subprocess
import sys

import pytest

import mcflow
import mcflow_bench
from mcflow.baselines import make
from mcflow.errors import ParameterError

MODULES = [module.name for module in pkgutil.walk_packages(mcflow_bench.__path__, "mcflow_bench.")]

WITHOUT_ENTRY_POINTS = """
import importlib.metadata, sys
importlib.metadata.entry_points = lambda **_: ()
from mcflow.cli.app import main
sys.exit(main(sys.argv[1:]))
"""


def test_mcflow_has_no_module_of_a_rival_or_a_benchmark() -> None:
    names = [module.name for module in pkgutil.walk_packages(mcflow.__path__, "mcflow.")]
    assert "mcflow.baselines.mice" in names
    rivals = {"gain", "misgan", "autoencoder", "softimpute"}
    found = [name for name in names if (last := name.rpartition(".")[2]) in rivals or last.startswith("benchmark")]
    assert found == []


@pytest.mark.parametrize("words", [["benchmark"], ["benchmark", "tables", "--quick"]])
def test_benchmark_without_the_distribution_says_in_one_line_how_to_get_it(words) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_ENTRY_POINTS, *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 3
    (line,) = done.stderr.splitlines()
    assert "pip install" in line
    assert "bench" in line
    assert done.stdout == ""


def test_rival_without_the_distribution_says_how_to_get_it(monkeypatch) -> None:
    assert type(make("gain")).__module__ == "mcflow_bench.rivals.gain"
    monkeypatch.setattr("mcflow.baselines.entry_points", lambda **_: ())
    with pytest.raises(ParameterError, match=r"'gain' needs mcflow-bench.*pip install .*bench"):
        make("gain")


@pytest.mark.parametrize("name", MODULES)
def test_all_lists_the_public_names_of_a_module(name) -> None:
    module = importlib.import_module(name)
    listed = set(getattr(module, "__all__", ()))
    assert all(hasattr(module, exported) for exported in listed)
    own = {
        key
        for key, value in vars(module).items()
        if not key.startswith("_") and (inspect.isclass(value) or inspect.isfunction(value))
        if value.__module__ == name
    }
    assert own <= listed
