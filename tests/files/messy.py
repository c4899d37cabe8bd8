"""Messy files as people have them, each with the truth beside it: `python tests/files/messy.py FOLDER` writes them."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np

N = 60
RNG = np.random.default_rng(0)
BASE = RNG.normal(size=N)
AGES = RNG.integers(20, 80, N)
MONEY = np.exp(8 + BASE).round(2)
DAYS = [date(2024, 1, 1) + timedelta(int(k)) for k in RNG.integers(0, 300, N)]


@dataclass(frozen=True)
class MessyColumn:
    """A column: what is written in it, and what is true of it."""

    cells: list[Any]
    kind: str  # kind that has to be found
    missing: tuple[int, ...] = ()  # rows whose cells are missing
    form: str = ""  # regular expression of fills; empty if missing cells stay as they are


@dataclass(frozen=True)
class MessyFile:
    """A file, how it is read, and what is true of it."""

    name: str
    columns: dict[str, MessyColumn]
    separator: str = ","
    encoding: str = "utf-8"
    newline: str = "\n"
    titles: tuple[str, ...] = ()  # lines above the header
    header: tuple[str, ...] = ()  # names in the file where they differ from those of the columns
    na: tuple[str, ...] = ()  # values of --na
    warns: tuple[str, ...] = field(default=())  # regular expressions of the warnings that have to come

    def content(self) -> bytes:
        """Return the bytes of the file."""
        names, rows = self.header or tuple(self.columns), zip(*(c.cells for c in self.columns.values()), strict=True)
        if self.name.endswith(".xlsx"):
            return _workbook([*([title] for title in self.titles), list(names), *map(list, rows)])
        text = io.StringIO()
        text.writelines(line + self.newline for line in self.titles)
        writer = csv.writer(text, delimiter=self.separator, lineterminator=self.newline)
        writer.writerows([names, *rows])
        return text.getvalue().encode(self.encoding)

    def truth(self) -> dict[str, Any]:
        """Return what is true of the columns, for a file of its own."""
        return {name: {"kind": c.kind, "missing": list(c.missing), "form": c.form} for name, c in self.columns.items()}


def _workbook(rows: list[list[Any]]) -> bytes:
    import openpyxl

    book, stream = openpyxl.Workbook(), io.BytesIO()
    for row in rows:
        book.active.append(row)
    book.save(stream)
    return stream.getvalue()


def written(
    kind: str, form: str, text: Callable[[int], Any], *, every: int = 7, start: int = 2, mark: Any = ""
) -> MessyColumn:
    """Write a column by row, with a mark in every seventh cell, which is missing."""
    missing = tuple(range(start, N, every))
    return MessyColumn([mark if k in missing else text(k) for k in range(N)], kind, missing, form)


def whole(**how: Any) -> MessyColumn:
    return written("integer", r"\d+", lambda k: str(AGES[k]), **how)


def real(**how: Any) -> MessyColumn:
    return written("continuous", r"-?\d+\.\d", lambda k: f"{BASE[k] * 10 + 40:.1f}", **how)


def comma(cell: str) -> str:
    return cell.replace(",", "\0").replace(".", ",").replace("\0", ".")


def days(pattern: str, form: str) -> MessyColumn:
    return written("datetime", form, lambda k: DAYS[k].strftime(pattern))


def words(*choices: str, kind: str = "category", **how: Any) -> MessyColumn:
    return written(kind, "|".join(choices), lambda k: choices[int(AGES[k]) % len(choices)], **how)


def messy_files() -> Iterator[MessyFile]:
    """Yield all files."""
    age, x = whole(start=1), real()
    yield MessyFile("plain.csv", {"x": x, "age": age})
    semicolons = written("continuous", r"-?\d+,\d", lambda k: comma(f"{BASE[k] * 10 + 40:.1f}"))
    yield MessyFile("semicolons.csv", {"x": semicolons, "age": age}, separator=";", newline="\r\n")
    city = words("Zürich", "Köln", "Århus")
    yield MessyFile("cp1252.csv", {"city": city, "x": semicolons, "age": age}, separator=";", encoding="cp1252")
    yield MessyFile("utf16.csv", {"city": city, "age": age}, separator="\t", encoding="utf-16")
    coded = written("integer", r"\d+", lambda k: str(AGES[k]), mark="-999")
    warns = ("'age' holds -999 in 9 cells",)
    silent = MessyColumn(coded.cells, "integer")
    yield MessyFile("sentinel_unseen.csv", {"age": silent, "x": x}, warns=warns)
    yield MessyFile("sentinel_named.csv", {"age": coded, "x": x}, na=("age=-999",))
    yield MessyFile("sentinel_found.csv", {"age": coded, "x": x}, na=("auto",), warns=warns)
    nines = written("continuous", r"\d+\.\d", lambda k: f"{7 + BASE[k]:.1f}", mark="99")
    yield MessyFile("sentinel_99.csv", {"sleep": nines, "age": age}, na=("99",))
    zeros = written("integer", r"\d+", lambda k: str(AGES[k] // 3 + 70), mark="0")
    yield MessyFile("sentinel_zero.csv", {"bp": zeros, "x": x}, na=("auto",), warns=("'bp' holds 0 in 9 cells",))
    dollars = written("continuous", r"\$\d{1,3}(,\d{3})*\.\d\d", lambda k: f"${MONEY[k]:,.2f}")
    yield MessyFile("dollars.csv", {"price": dollars, "age": age})
    euros = written("continuous", r"€ \d{1,3}(\.\d{3})*,\d\d", lambda k: "€ " + comma(f"{MONEY[k]:,.2f}"))
    yield MessyFile("euros.csv", {"price": euros, "age": age}, separator=";")
    german = written("continuous", r"\d{1,3}(\.\d{3})*,\d\d", lambda k: comma(f"{MONEY[k]:,.2f}"))
    yield MessyFile("thousands_points.csv", {"price": german, "age": age})
    spaced = written("continuous", r"\d{1,3}(\xa0\d{3})*,\d", lambda k: f"{MONEY[k]:,.1f}".translate({44: 160, 46: 44}))
    yield MessyFile("thousands_spaces.csv", {"price": spaced, "age": age}, separator=";")
    percent = written("continuous", r"\d+\.\d%", lambda k: f"{abs(BASE[k]) * 20 + 3.1:.1f}%")
    yield MessyFile("percent.csv", {"share": percent, "age": age})
    units = written("integer", r"\d+ kg", lambda k: f"{AGES[k] + 20} kg", mark="-")
    yield MessyFile("units.csv", {"weight": units, "x": x}, warns=("'weight' holds texts that are read as missing",))
    lod = written("continuous", r"-?\d+\.\d", lambda k: f"{abs(BASE[k]) + 1:.1f}", mark="<LOD")
    yield MessyFile("detection.csv", {"lead": lod, "age": age}, warns=("'lead' holds texts .*Limits of detection",))
    limits = whole()
    limits.cells[0], limits.cells[3] = "<30", ">200"
    yield MessyFile("limits.csv", {"age": limits, "x": x}, warns=("'age' holds 2 cells with a limit.*'<30'",))
    ranges = words("<=50K", ">50K")
    yield MessyFile("ranges.csv", {"income": ranges, "age": age})
    truth = words("TRUE", "yes", "no", "N", "false", "1", kind="boolean")
    yield MessyFile("booleans.csv", {"ok": truth, "age": age})
    unknown = whole(mark="Unknown")
    missing = real(mark="\xa0")
    said = ("'age' holds texts that are read as missing",)
    yield MessyFile("words.csv", {"age": unknown, "x": missing}, warns=said)
    yield MessyFile("excel_errors.csv", {"x": real(mark="#N/A"), "age": whole(start=1, mark="NAN")})
    kept = MessyColumn(words("clerk", "unknown").cells, "category", words("a").missing, "clerk|unknown")
    yield MessyFile("category_unknown.csv", {"job": kept, "age": age}, warns=("'job' holds 'unknown' in",))
    named = MessyColumn([f"{k * 7919 % 100000:05d}x" for k in range(N)], "identifier")
    yield MessyFile(
        "identifier.csv", {"id": named, "x": x, "age": age}, warns=("'id' has a different text in every row",)
    )
    codes = words("01067", "80331", "04109")
    yield MessyFile("zip_codes.csv", {"zip": codes, "x": x})
    yield MessyFile("dates_iso.csv", {"day": days("%Y-%m-%d", r"2024-\d\d-\d\d"), "age": age})
    yield MessyFile("dates_german.csv", {"day": days("%d.%m.%Y", r"\d\d\.\d\d\.2024"), "age": age})
    yield MessyFile("dates_american.csv", {"day": days("%m/%d/%Y", r"\d\d/\d\d/2024"), "age": age})
    yield MessyFile("dates_slashes.csv", {"day": days("%Y/%m/%d", r"2024/\d\d/\d\d"), "age": age})
    yield MessyFile("times.csv", {"at": days("%d/%m/%Y 10:30", r"\d\d/\d\d/2024 \d\d:\d\d"), "age": age})
    yield MessyFile("titles.csv", {"x": x, "age": age}, titles=("Survey, 2024", "", "by us"))
    twice = ("names columns more than once. The later ones are called 'x.1'",)
    yield MessyFile("names_twice.csv", {"x": x, "x.1": age}, header=("x", "x"), warns=twice)
    yield MessyFile("one_column.csv", {"age": whole(mark="NA")})
    yield MessyFile("wide.csv", {f"c{k}": real(start=k % 7) for k in range(80)})
    mixed = real()
    mixed.cells[0], mixed.cells[8] = "41,5", "39,2"
    yield MessyFile("mixed_marks.csv", {"x": mixed, "age": age}, warns=("'x' holds 2 cells with the decimal mark ','",))
    huge = written("integer", r"\d{20}", lambda k: str(10**19 + int(AGES[k]) * 10**17))
    yield MessyFile("huge.csv", {"n": huge, "x": x})
    price = written("continuous", r"\$\d{1,3}(,\d{3})*\.\d\d", lambda k: f"${MONEY[k]:,.2f}", mark=None)
    plain = written("integer", r"\d+", lambda k: int(AGES[k]), mark="unknown")
    both = {"price": price, "age": plain, "day": written("datetime", r"2024-.*", lambda k: DAYS[k], mark=None)}
    yield MessyFile("workbook.xlsx", both, titles=("Survey",), warns=said)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for one in messy_files():
        (folder / one.name).write_bytes(one.content())
        (folder / f"{one.name}.truth.json").write_text(json.dumps(one.truth(), indent=1, ensure_ascii=False))
