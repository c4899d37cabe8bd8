"""Names, flags and settings that have to agree with each other."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pkgutil
import subprocess
import sys

import numpy as np
import pytest

import mcflow
from mcflow import MCFlowImputer
from mcflow.cli.options import ColumnOptions, FitOptions
from mcflow.config import CONSTRAINTS, OVERRIDES, PRESETS, Settings, resolve
from mcflow.errors import McflowError, ParameterError

MODULES = sorted(
    module.name for module in pkgutil.walk_packages(mcflow.__path__, "mcflow.") if not module.name.endswith("__main__")
)


LIGHT = """
import sys
import mcflow.benchmarks.cell, mcflow.benchmarks.protocol, mcflow.benchmarks.image_protocol
from mcflow.baselines import make
for name in ("mean", "knn", "mice", "missforest", "boosted"):
    make(name)
assert "torch" not in sys.modules, "torch is loaded"
"""


def test_methods_without_networks_do_not_load_torch() -> None:
    done = subprocess.run([sys.executable, "-c", LIGHT], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_packages_list_names_before_they_are_imported() -> None:
    assert dir(mcflow) == mcflow.__all__
    with pytest.raises(AttributeError, match="'mcflow' has no attribute 'MCFlow'"):
        _ = mcflow.MCFlow


@pytest.mark.parametrize("name", ["mcflow", *MODULES])
def test_all_names_what_a_module_has(name) -> None:
    module = importlib.import_module(name)
    for exported in getattr(module, "__all__", []):
        assert hasattr(module, exported), f"{name}.{exported}"
    if name != "mcflow" and not hasattr(module, "__path__"):
        own = {
            key
            for key, value in vars(module).items()
            if not key.startswith("_")
            and (inspect.isclass(value) or inspect.isfunction(value))
            and value.__module__ == name
        }
        assert hasattr(module, "__all__"), name
        public = own - set(module.__all__)
        assert not public, f"{name} has public names that __all__ does not list: {public}"


def test_package_lists_its_names_and_refuses_others() -> None:
    assert dir(mcflow) == ["MCFlowImageImputer", "MCFlowImputer", "__version__", "evaluate", "fit_pooled", "load"]
    with pytest.raises(AttributeError, match="nothing"):
        _ = mcflow.nothing


def test_every_override_is_a_field_an_argument_a_flag_and_has_a_constraint() -> None:
    arguments = inspect.signature(MCFlowImputer).parameters
    flags = {field.name for field in dataclasses.fields(FitOptions)}
    for name, section in OVERRIDES.items():
        assert name in {f.name for f in dataclasses.fields(getattr(Settings(), section))}
        assert name in arguments
        assert name in flags
        assert name in CONSTRAINTS


def test_every_argument_is_a_flag_unless_files_have_no_use_for_it() -> None:
    fit = {field.name: field.default for field in dataclasses.fields(FitOptions)}
    defaults = {name: argument.default for name, argument in inspect.signature(MCFlowImputer).parameters.items()}
    about_columns = set(ColumnOptions().parameters())
    assert about_columns <= set(defaults)
    assert set(defaults) - set(fit) - about_columns == {
        *("random_state", "verbose"),  # --seed and --quiet
        *("add_indicator", "keep_empty_features", "restore_integers", "warm_start"),
    }
    assert {name: fit[name] for name in fit if name in defaults} == {
        name: defaults[name] for name in fit if name in defaults
    }


def test_arguments_without_a_constraint_are_checked_elsewhere() -> None:
    free = set(inspect.signature(MCFlowImputer).parameters) - set(CONSTRAINTS)
    assert free == {"checkpoint_dir", "random_state", "kinds", "roles", "bounds", "allowed", "rules"}


def test_paper_preset_carries_the_paper_s_settings() -> None:
    paper = PRESETS["paper"]
    assert (paper.train.batch_size, paper.train.learning_rate, paper.train.max_epochs) == (128, 1e-4, 500)
    assert (paper.flow.n_couplings, paper.flow.n_layers, paper.latent.n_layers) == (6, 4, 5)


def test_settings_survive_a_dictionary_and_overrides_leave_presets_alone() -> None:
    changed = resolve("paper", batch_size=np.int64(7), learning_rate=1)
    assert changed.train.batch_size == 7
    assert type(changed.train.batch_size) is int
    assert type(changed.train.learning_rate) is float
    assert PRESETS["paper"].train.batch_size == 128
    assert Settings.from_dict(changed.to_dict()) == changed
    with pytest.raises(ParameterError, match="Did you mean 'batch_size'"):
        resolve("paper", bach_size=3)


def test_errors_are_also_builtins() -> None:
    for leaf in McflowError.__subclasses__():
        assert issubclass(leaf, ValueError | RuntimeError | OSError | ImportError), leaf
