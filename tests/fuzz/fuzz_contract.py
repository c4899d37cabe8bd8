"""The contract of all fuzzers: a documented error, or a filled table with its observed cells unchanged."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from mcflow.columns.frames import Frame, read_frame
from mcflow.errors import McflowError

#: Most seconds of the processor and most additional bytes that a case may take.
SECONDS, BYTES = 10.0, 1 << 30


class Finding(AssertionError):  # noqa: N818
    """A case that breaks the contract."""


def check_contract(act: Callable[[], tuple[Any, Any, Any] | None], *, strict: bool = True) -> str:
    """Run a case, and return "refused" or "filled"; raise `Finding` if it breaks the contract.

    `act` returns a table, the filled table and the schema of the imputer, or None if it has compared them itself.
    `strict` makes warnings of numpy errors.
    """
    memory, start = _reset_peak(), time.process_time()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if strict:
                warnings.simplefilter("error", RuntimeWarning)
            found = act()
            if found is not None:
                compare(*found)
        outcome = "filled"
    except McflowError as error:
        if not str(error).strip():
            raise Finding("an error without a message") from error
        outcome = "refused"
    except Finding:
        raise
    except BaseException as error:  # panics of Rust are no exceptions
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        raise Finding(f"{type(error).__name__}: {error}") from error
    seconds, size = time.process_time() - start, _peak() - memory
    if seconds > SECONDS or size > BYTES:
        raise Finding(f"{outcome} in {seconds:.1f} s with {size / 2**20:.0f} MiB")
    return outcome


def compare(before: Any, after: Any, schema: Any) -> None:
    """Raise `Finding` if an observed cell differs, or a cell of a column that is filled is still missing."""
    old, new = read_frame(before), read_frame(after)
    if (old.n_rows, len(old.names)) != (new.n_rows, len(new.names)) or repr(old.names) != repr(new.names):
        raise Finding(f"{old.names} with {old.n_rows} rows became {new.names} with {new.n_rows}")
    for place, column in enumerate(schema.columns):
        missing, still = old.missing(place, column), new.missing(place, column)
        if (still & ~missing).any() or (column.filled and still.any()):
            raise Finding(f"column {column.name!r} ({column.kind}) has {int(still.sum())} missing cells afterwards")
        if not _same(old, new, place, ~missing):
            raise Finding(f"observed cells of column {column.name!r} ({column.kind}) have changed")


def _same(old: Frame, new: Frame, place: int, seen: np.ndarray) -> bool:
    if not seen.any():
        return True
    before, after = old.arrow(place), new.arrow(place)
    if before is not None and after is not None and not pa.types.is_dictionary(before.type):
        kept, found = before.filter(pa.array(seen)), after.filter(pa.array(seen))
        return bool(kept.equals(found if found.type == kept.type else found.cast(kept.type, safe=False)))
    cells = [frame.series(place) for frame in (old, new)]
    lists = [one.tolist() if isinstance(one, np.ndarray) else one.to_list() for one in cells]
    rows = np.flatnonzero(seen).tolist()
    return _equal([lists[0][k] for k in rows], [lists[1][k] for k in rows])


def _equal(old: list[Any], new: list[Any]) -> bool:
    return all(a is b or a == b or (a != a and b != b) for a, b in zip(old, new, strict=True))


def _reset_peak() -> int:
    """Reset the peak of the resident memory where the system can, and return the memory now."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return 0
    return _status("VmRSS")


def _peak() -> int:
    try:
        return _status("VmHWM")
    except OSError:
        return 0


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))
