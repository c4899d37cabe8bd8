"""Names, flags and configurations that have to agree with each other."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pkgutil
import subprocess
import sys
import typing

import numpy as np
import pytest

import mcflow
from mcflow import MCFlowImputer
from mcflow.cli.options import ColumnOptions, FitOptions
from mcflow.config import CONSTRAINTS
from mcflow.errors import DataError, McflowError, ParameterError, TrainingError, error_named
from mcflow.imputers.model_checks import parse_config
from mcflow.imputers.presets import OVERRIDES, PRESETS, config_to_dict, resolve

MODULES = sorted(
    module.name for module in pkgutil.walk_packages(mcflow.__path__, "mcflow.") if not module.name.endswith("__main__")
)


LIGHT = """
import sys
import mcflow_bench.cells, mcflow_bench.protocol, mcflow_bench.data.image_sets
from mcflow.baselines import make
for name in ("mean", "knn", "mice", "missforest", "boosted"):
    make(name)
assert "torch" not in sys.modules, "torch is loaded"
"""

START = """
import sys
import sklearn.impute, sklearn.base
by_sklearn = set(sys.modules)
from mcflow import MCFlowImputer, evaluate, fit_pooled
repr(MCFlowImputer(max_time=5))
heavy = {"torch", "lightgbm", "pandas", "pyarrow", "matplotlib", "statsmodels", "rich"}
assert not heavy & (set(sys.modules) - by_sklearn), heavy & (set(sys.modules) - by_sklearn)
"""

HELP = """
import sys
from mcflow.cli.app import main
sys.argv = ["mcflow", "--help"]
try:
    main()
finally:
    heavy = {"torch", "lightgbm", "pandas", "pyarrow", "sklearn", "numpy"}
    assert not heavy & set(sys.modules), heavy & set(sys.modules)
"""


@pytest.mark.parametrize("code", [START, HELP], ids=["import", "help"])
def test_start_loads_nothing_heavy(code) -> None:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


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
    fields = {field.name for config in PRESETS.values() for field in dataclasses.fields(config)}
    for name in OVERRIDES:
        assert name in fields
        assert name in arguments
        assert name in flags
        assert name in CONSTRAINTS


def test_every_argument_is_a_flag_unless_files_have_no_use_for_it() -> None:
    fit = {field.name: field.default for field in dataclasses.fields(FitOptions)}
    defaults = {name: argument.default for name, argument in inspect.signature(MCFlowImputer).parameters.items()}
    about_columns = set(ColumnOptions().parameters())
    reading = {"missing_values", "decimals"}  # --na, and always as observed
    assert about_columns <= set(defaults)
    assert set(defaults) - set(fit) - about_columns - reading == {
        *("random_state", "verbose"),  # --seed and --quiet
        *("add_indicator", "keep_empty_features", "restore_integers", "warm_start", "density"),
    }
    assert {name: fit[name] for name in fit if name in defaults} == {
        name: defaults[name] for name in fit if name in defaults
    }


def test_arguments_without_a_constraint_are_checked_elsewhere() -> None:
    free = set(inspect.signature(MCFlowImputer).parameters) - set(CONSTRAINTS)
    columns = {"schema", "kinds", "roles", "bounds", "allowed", "rules", "missing_values"}
    assert free == {"checkpoint_dir", "random_state", *columns}


def test_paper_preset_carries_the_paper_s_settings() -> None:
    paper = PRESETS["paper"]
    assert (paper.batch_size, paper.learning_rate, paper.max_epochs) == (128, 1e-4, 500)
    assert (paper.n_couplings, paper.n_flow_layers, paper.n_latent_layers) == (6, 4, 5)


def test_settings_survive_a_dictionary_and_overrides_leave_presets_alone() -> None:
    changed = resolve("paper", batch_size=np.int64(7), learning_rate=1)
    assert changed.batch_size == 7
    assert type(changed.batch_size) is int
    assert type(changed.learning_rate) is float
    assert PRESETS["paper"].batch_size == 128
    assert parse_config(config_to_dict(changed)) == changed
    with pytest.raises(ParameterError, match="Did you mean 'batch_size'"):
        resolve("paper", bach_size=3)


def test_errors_are_also_builtins() -> None:
    for leaf in McflowError.__subclasses__():
        assert issubclass(leaf, ValueError | RuntimeError | OSError | ImportError), leaf


@pytest.mark.parametrize(
    ("name", "found"), [("TrainingError", TrainingError), ("KeyError", DataError), ("difflib", DataError)]
)
def test_errors_are_found_by_name_and_others_are_data_errors(name, found) -> None:
    assert error_named(name) is found


@pytest.mark.parametrize("name", ["transform", "draw", "interval"])
def test_results_have_the_type_of_the_table_for_type_checkers(name) -> None:
    hints = typing.get_type_hints(getattr(MCFlowImputer, name))
    assert isinstance(hints["X"], typing.TypeVar)
    assert hints["X"] in (hints["return"], *typing.get_args(hints["return"]))
