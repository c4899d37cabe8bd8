"""Methods as words on a command line: `knn`, `missforest(n_trees=30)`, `mcflow:paper(max_epochs=64)`, your own."""

from __future__ import annotations

__all__ = ["IMAGES", "WRONG_METHOD", "MethodSpec", "main", "split_list"]

import ast
import inspect
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from mcflow.errors import ParameterError, did_you_mean

#: Exit code of this module as a program when a method or a parameter does not exist.
WRONG_METHOD = 2
#: Its first argument when the methods are those of images.
IMAGES = "--images"


def split_list(text: str) -> list[str]:
    """Split a list at its commas, except those inside brackets.

    Parameters
    ----------
    text : str
        What a flag was given.

    Returns
    -------
    list of str
        Without the white space around them; empty entries are left out.

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
    """A method and its parameters.

    Parameters
    ----------
    name : str
        A baseline of `mcflow.baselines.NAMES`, ``mcflow``, ``mcflow:PRESET`` or ``python:package.module:factory``.
    parameters : tuple of (str, object)
        Arguments of the imputer, sorted by name.

    Examples
    --------
    >>> spec = MethodSpec.parse("missforest(n_trees=30, max_rows=4000)")
    >>> spec.name, str(spec)
    ('missforest', 'missforest(max_rows=4000,n_trees=30)')
    >>> str(spec.with_parameters({"n_trees": 10}))
    'missforest(max_rows=4000,n_trees=10)'
    """

    name: str
    parameters: tuple[tuple[str, Any], ...] = ()

    @classmethod
    def parse(cls, text: str) -> MethodSpec:
        """Read what `str` wrote, or a person.

        Parameters
        ----------
        text : str
            Name and, in brackets, parameters as in Python.

        Returns
        -------
        MethodSpec

        Raises
        ------
        ParameterError
            When the brackets do not hold ``name=value`` with plain values.
        """
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
        """Return the imputer, not fitted yet, which takes every column for continuous numbers.

        Parameters
        ----------
        seed : int
            Its random_state.
        n_columns : int
            Columns of the table.

        Returns
        -------
        object
            With `fit` and `transform`.

        Raises
        ------
        ParameterError
            When there is no such method, preset or parameter.

        Examples
        --------
        >>> MethodSpec.parse("python:sklearn.impute:KNNImputer(n_neighbors=3)").build(0, 4)
        KNNImputer(n_neighbors=3)
        """
        return self.build_with(seed, {"kinds": dict.fromkeys(range(n_columns), "continuous")})

    def build_with(self, seed: int, table: Mapping[str, Any], ours: Mapping[str, Any] | None = None) -> Any:
        """Return the imputer of tables, not fitted yet.

        Parameters
        ----------
        seed : int
            Its random_state.
        table : mapping
            Arguments that every imputer of the package takes, such as kinds; a method of the user's own has none.
        ours : mapping, optional
            Further arguments that only mcflow takes. Parameters of the method itself come before both.

        Returns
        -------
        object
            With `fit` and `transform`.

        Raises
        ------
        ParameterError
            When there is no such method, preset or parameter.
        """
        family, _, rest = self.name.partition(":")
        own = dict(self.parameters)
        if family == "python":
            return _own_method(rest, seed, own)
        given = {"random_state": seed, **table}
        if family == "mcflow":
            from mcflow import MCFlowImputer

            return _mcflow(MCFlowImputer, rest, given | dict(ours or {}) | own)
        from mcflow.baselines import make

        return make(self.name, **given | own)

    def build_for_images(self, seed: int) -> Any:
        """Return the imputer of images, not fitted yet.

        Parameters
        ----------
        seed : int
            Its random_state.

        Returns
        -------
        object
            With `fit` and `transform`, which take a mask.

        Raises
        ------
        ParameterError
            When there is no such method, preset or parameter.

        Examples
        --------
        >>> MethodSpec.parse("gain(max_epochs=3)").build_for_images(0)
        GainImageImputer(max_epochs=3, random_state=0)
        """
        family, _, rest = self.name.partition(":")
        own = dict(self.parameters)
        if family == "python":
            return _own_method(rest, seed, own)
        if family == "mcflow":
            from mcflow.imputers.image import MCFlowImageImputer

            return _mcflow(MCFlowImageImputer, rest, {"random_state": seed} | own)
        from mcflow.baselines.image_registry import make_image_baseline

        return make_image_baseline(self.name, **({"random_state": seed} | own))


def _mcflow(kind: Any, preset: str, parameters: dict[str, Any]) -> Any:
    from mcflow.config import check_parameter

    known = inspect.signature(kind).parameters
    for name in parameters:
        if name not in known:
            raise ParameterError(f"mcflow has no parameter {name!r}.{did_you_mean(name, known)}")
    if preset:
        check_parameter("preset", preset)
        parameters = {"preset": preset} | parameters
    return kind(**parameters)


def _own_method(place: str, seed: int, parameters: dict[str, Any]) -> Any:
    """Call a factory of the user's, with the seed when it takes one."""
    module, _, attribute = place.partition(":")
    try:
        factory = getattr(import_module(module), attribute)
        takes_seed = "random_state" in inspect.signature(factory).parameters
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        raise ParameterError(f"python:{place} cannot be used: {error}. Write python:package.module:factory.") from error
    return factory(**({"random_state": seed} if takes_seed else {}) | parameters)


def main(methods: Sequence[str]) -> int:
    """Build methods to see whether they exist, and print what is wrong with the first that does not.

    Parameters
    ----------
    methods : sequence of str
        As `MethodSpec` writes them; after `IMAGES` those that fill images.

    Returns
    -------
    int
        0 or `WRONG_METHOD`. What else may go wrong is left to the cells.
    """
    images = IMAGES in methods[:1]
    for method in methods[images:]:
        try:
            spec = MethodSpec.parse(method)
            _ = spec.build_for_images(0) if images else spec.build(0, 1)
        except ParameterError as error:
            sys.stdout.write(f"{error}\n")
            return WRONG_METHOD
        except Exception:  # noqa: S112 - the cells of this method will tell
            continue
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
