"""Parse methods such as `knn`, `missforest(n_trees=30)` or `mcflow:paper`, build their imputers, and select them."""

from __future__ import annotations

__all__ = [
    "OURS",
    "REFERENCE",
    "ComparedMethod",
    "MethodSpec",
    "build_mcflow",
    "build_own",
    "compared_methods",
    "default_methods",
    "split_list",
]

import ast
import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from mcflow.config import check_parameter
from mcflow.errors import ParameterError, did_you_mean

REFERENCE = "mean"  #: The method whose error is the unit of relative errors.
OURS = "mcflow"  #: The method that all others are compared with.


def split_list(text: str) -> list[str]:
    """Split a list at its commas, except those inside brackets.

    Parameters
    ----------
    text : str
        Methods, separated by commas.

    Returns
    -------
    list of str
        The methods, without empty ones.

    Examples
    --------
    >>> split_list("mean, missforest(n_trees=30,max_rows=4000)")
    ['mean', 'missforest(n_trees=30,max_rows=4000)']
    """
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts if part.strip()]


@dataclass(frozen=True)
class MethodSpec:
    """An imputation method and its parameters."""

    name: str  #: A baseline of `mcflow.baselines`, ``mcflow``, ``mcflow:PRESET`` or ``python:package.module:factory``.
    parameters: tuple[tuple[str, Any], ...] = ()  #: Arguments of the imputer, sorted by name.

    @classmethod
    def parse(cls, text: str) -> MethodSpec:
        """Parse a name with optional parameters in brackets, such as ``missforest(n_trees=30)``."""
        match = re.fullmatch(r"([\w.:+-]+)\s*(?:\((.*)\))?", text.strip(), re.DOTALL)
        try:
            if match is None:
                raise ValueError
            call = ast.parse(f"f({match[2] or ''})", mode="eval").body
            if not isinstance(call, ast.Call) or call.args or any(word.arg is None for word in call.keywords):
                raise ValueError
            found = {str(word.arg): ast.literal_eval(word.value) for word in call.keywords}
        except (ValueError, SyntaxError) as error:
            raise ParameterError(
                f"{text!r} is not a method. Write a name and, in brackets, parameters: missforest(n_trees=30)."
            ) from error
        return cls(match[1], tuple(sorted(found.items())))

    def with_parameters(self, changes: Mapping[str, Any]) -> MethodSpec:
        """Return the same method with some parameters replaced."""
        return MethodSpec(self.name, tuple(sorted((dict(self.parameters) | dict(changes)).items())))

    def __str__(self) -> str:
        inside = ",".join(f"{name}={value!r}" for name, value in self.parameters)
        return f"{self.name}({inside})" if inside else self.name

    def build(self, seed: int, n_columns: int) -> Any:
        """Return an unfitted imputer that treats every column as continuous.

        Examples
        --------
        >>> MethodSpec.parse("python:sklearn.impute:KNNImputer(n_neighbors=3)").build(0, 4)
        KNNImputer(n_neighbors=3)
        """
        return self.build_with(seed, {"kinds": dict.fromkeys(range(n_columns), "continuous")})

    def build_with(self, seed: int, table: Mapping[str, Any], ours: Mapping[str, Any] | None = None) -> Any:
        """Return an unfitted imputer with column options in `table` and, for mcflow alone, the parameters `ours`."""
        family, _, rest = self.name.partition(":")
        own = dict(self.parameters)
        if family == "python":
            return build_own(rest, seed, own)
        given = {"random_state": seed, **table}
        if family == OURS:
            from mcflow import MCFlowImputer

            return build_mcflow(MCFlowImputer, rest, given | dict(ours or {}) | own)
        from mcflow.baselines import make

        return make(self.name, **given | own)


def build_mcflow(kind: Any, preset: str, parameters: dict[str, Any]) -> Any:
    """Build an imputer of class `kind` after checking the names of its parameters."""
    known = inspect.signature(kind).parameters
    for name in parameters:
        if name not in known:
            raise ParameterError(f"mcflow has no parameter {name!r}.{did_you_mean(name, known)}")
    if preset:
        check_parameter("preset", preset)
        parameters = {"preset": preset} | parameters
    return kind(**parameters)


def build_own(place: str, seed: int, parameters: dict[str, Any]) -> Any:
    """Call a factory given as ``package.module:factory``, with the seed if it accepts one."""
    module, _, attribute = place.partition(":")
    try:
        factory = getattr(import_module(module), attribute)
        takes_seed = "random_state" in inspect.signature(factory).parameters
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        raise ParameterError(f"python:{place} cannot be used: {error}. Write python:package.module:factory.") from error
    return factory(**({"random_state": seed} if takes_seed else {}) | parameters)


@dataclass(frozen=True)
class ComparedMethod:
    """A method of an evaluation."""

    name: str  # displayed; without parameters where that is unique
    spec: MethodSpec

    @property
    def ours(self) -> bool:
        """Whether the method is a preset of mcflow."""
        return self.spec.name.partition(":")[0] == OURS

    def build(self, seed: int, table: Mapping[str, Any], *, max_time: float | None, verbose: bool | str) -> Any:
        """Return an unfitted imputer with column options in `table`."""
        given = {"keep_empty_features": True, **table}
        return self.spec.build_with(seed, given, {"max_time": max_time, "verbose": verbose})


def default_methods(n_columns: int) -> tuple[str, ...]:
    """Return the methods that mcflow is compared with by default, sized for a table with `n_columns` columns."""
    n_trees, n_rows = np.clip(1500 // n_columns, 5, 50), np.clip(60_000 // n_columns, 500, 4000)
    return "mean", "mice(n_chains=5,n_rounds=5)", f"missforest(max_rounds=2,max_rows={n_rows},n_trees={n_trees})"


def compared_methods(methods: Sequence[str]) -> list[ComparedMethod]:
    """Parse the methods of an evaluation, and add the mean and mcflow where they are not named; mcflow is last."""
    specs = [MethodSpec.parse(text) for text in methods]
    twice = {str(spec) for spec in specs if specs.count(spec) > 1}
    if twice:
        raise ParameterError(f"methods names {', '.join(sorted(twice))} more than once. Name each once.")
    ours = [spec for spec in specs if spec.name == OURS] or [MethodSpec(OURS)]
    if len(ours) > 1:
        raise ParameterError(f"methods names mcflow {len(ours)} times. Name it once, or a preset such as mcflow:paper.")
    others = [spec for spec in specs if spec not in ours]
    if MethodSpec(REFERENCE) not in others:
        others.insert(0, MethodSpec(REFERENCE))
    names = [spec.name for spec in others]
    found = [ComparedMethod(spec.name if names.count(spec.name) == 1 else str(spec), spec) for spec in others]
    return [*found, ComparedMethod(OURS, ours[0])]
