"""`mcflow doctor`: what mcflow runs on, and whether it can do its work there."""

from __future__ import annotations

__all__ = ["doctor"]

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from mcflow.errors import McflowError

if TYPE_CHECKING:
    from mcflow.cli.checkup import Check


def doctor(*, json: Annotated[bool, Parameter(negative="")] = False) -> None:
    """Say what mcflow runs on: versions, device, threads, memory, folders and extras.

    Ends with exit code 3 when something is broken that mcflow cannot do without.

    Parameters
    ----------
    json
        Print one JSON object instead of lines.
    """
    from mcflow.cli.checkup import check_up

    checks = check_up()
    broken = [check.name for check in checks if check.essential and not check.good]
    if json:
        _print_json(checks, good=not broken)
    else:
        _print_lines(checks)
    if broken:
        raise McflowError(f"mcflow cannot work here: {', '.join(broken)}. The lines marked ! say what to do.")


def _print_json(checks: list[Check], *, good: bool) -> None:
    import dataclasses
    import json

    print(json.dumps({"good": good, "checks": [dataclasses.asdict(check) for check in checks]}, indent=2))


def _print_lines(checks: list[Check]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 1))
    for check in checks:
        mark, style = ("✓", "green") if check.good else ("!", "red") if check.essential else ("-", "yellow")
        words = check.found if check.good or not check.advice else f"{check.found}; {check.advice}"
        table.add_row(Text(mark, style=style), Text(check.name), Text(words))
    Console().print(table)
