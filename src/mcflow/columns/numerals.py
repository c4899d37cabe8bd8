"""Numbers and booleans in text: detected in any spelling, read, and written back alike."""

from __future__ import annotations

__all__ = ["NumberFormat", "NumberShapes", "TRUTH_WORDS", "decimals_of", "read_truth", "truth_words"]

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mcflow.errors import warn
from mcflow.typing import FloatArray

MAX_SHAPES = 2_000  # maximum number of different shapes of the cells of a column of numbers
MIN_UNIT_SHARE = 0.5  # minimum fraction of cells with the unit of a column; the others have none
MOSTLY_NUMBERS = 0.8  # minimum fraction of numbers in a column of text for a warning that names the other cells
MAX_DECIMALS = 12  # largest number of decimals that is distinguished from full precision
MAX_WRITTEN_OUT = 1e40  # number above which all digits are no longer written out

#: Pairs of words that are booleans even when their spelling does not vary.
TRUTH_WORDS = (("True", "False"), ("true", "false"), ("TRUE", "FALSE"))
#: Words for true and false in lower case; other pairs of one spelling stay categories.
_PAIRS = (("true", "false"), ("yes", "no"), ("y", "n"), ("t", "f"), ("1", "0"))
_TRUE, _FALSE = ({pair[k] for pair in _PAIRS} for k in (0, 1))

_CURRENCY = (
    r"AUD|BRL|CAD|CHF|CNY|CZK|DKK|EUR|GBP|HKD|HUF|INR|JPY|KRW|MXN|NOK|NZD|PLN|RUB|SEK|SGD|TRY|USD|ZAR|Rs\.?|kr\.?"
)
_SYMBOL = r"[$€£¥₹₽₩₺₴₫₪฿¢]"
_SPACE = "[ \u00a0\u2009\u202f]"
_GROUP = "[ \u00a0\u2009\u202f'’]"
#: A cell in which every digit is 9, and a zero before other digits is 0.
_SHAPE = re.compile(
    rf"(?P<open>\()?(?P<limit>[<>≤≥]=?{_SPACE}?)?(?P<sign>[-+−])?(?P<prefix>(?:(?:[A-Z]{{0,2}}{_SYMBOL}|{_CURRENCY}){_SPACE}?)?)"
    rf"(?P<inner>[-−])?(?P<digits>9(?:[9.,]|{_GROUP}(?=9))*|[.,]9+)(?P<exponent>[eE][-+]?0?9+)?"
    rf"(?P<suffix>(?:{_SPACE}?(?:[%‰°]|{_SYMBOL}|[^\W\d_])(?:[^\W\d_]|[%°²³/.]|{_SPACE}){{0,11}})?)(?P<close>\))?"
)
_MONEY = re.compile(rf"{_SYMBOL}|{_CURRENCY}")
#: Digits by the decimal mark that they require, after spaces and apostrophes are removed.
_DECISIVE = {
    ".": re.compile(r"9{1,3}(?:,999){2,}|9{1,3}(?:,999)+\.9*|(?:9*|9{4,})\.9*"),
    ",": re.compile(r"9{1,3}(?:\.999){2,}|9{1,3}(?:\.999)+,9*|(?:9*|9{4,}),9*"),
}
_AMBIGUOUS = re.compile(r"9{1,3}(?P<mark>[.,])999")  # digits with one mark that separates thousands or decimals
#: The digits before a decimal mark or the first thousands mark in a shape, and a sign before them.
_WHOLE, _SIGN = re.compile(r"(?<![.,9])9+"), re.compile(r"^[-+−](?=[9.,])")
_NUMBER = r"^-?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?$"
_SWAP = {".": "\0", ",": ".", "\0": ","}


@dataclass(frozen=True)
class NumberFormat:
    """How a column writes numbers."""

    decimal: str = "."  # decimal mark
    thousands: str = ""  # mark between groups of three digits
    prefix: str = ""  # text before the digits, such as a currency
    suffix: str = ""  # text after the digits, such as a unit
    decimals: int | None = None  # fewest decimals of written numbers; None if cells differ
    brackets: bool = False  # whether negative numbers are written in brackets

    @property
    def is_plain(self) -> bool:
        """Whether numbers are digits and a decimal mark."""
        return not (self.thousands or self.prefix or self.suffix or self.brackets)

    def read(self, cells: Any) -> Any:
        """Read cells as float64, null where a cell is not a number."""
        texts = cells.cast(pa.string())
        for part in {self.prefix.strip(), self.suffix.strip()} - {""}:
            texts = pc.replace_substring(texts, part, "", max_replacements=1)
        texts = pc.replace_substring_regex(texts, rf"^{_SPACE}*\((.*)\){_SPACE}*$", r"-\1")
        texts = pc.replace_substring(texts, "−", "-")
        texts = pc.replace_substring_regex(texts, rf"[<>≤≥=\s]|{_GROUP}|^{_SPACE}*\+", "")
        if self.decimal == ",":
            for old, new in _SWAP.items():
                texts = pc.replace_substring(texts, old, new)
        texts = _without(texts, r"^-?\d{1,3}(?:,\d{3})+(?:\.\d*)?$", ",")
        texts = _without(texts, r"^-?\d{1,3}(?:\.\d{3})+,\d*$|^-?\d{1,3}(?:\.\d{3}){2,}$", ".")
        texts = pc.replace_substring(texts, ",", ".")
        numbers = pc.match_substring_regex(texts, _NUMBER)
        return pc.if_else(numbers, texts, pa.scalar(None, pa.string())).cast(pa.float64())

    def write(self, values: Any) -> Any:
        """Write numbers with as many digits as they have, and at least `decimals` decimals."""
        texts = [None if value is None or math.isnan(value) else self._text(value) for value in values.to_pylist()]
        array = pa.array(texts, pa.string())
        return pa.chunked_array([array]) if isinstance(values, pa.ChunkedArray) else array

    def _text(self, value: Any) -> str:
        number = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
        if abs(number) >= MAX_WRITTEN_OUT or (self.decimals is None and number and abs(number) < 1e-12):
            return repr(value).replace(".", self.decimal)
        whole, _, fraction = f"{abs(number):,f}".partition(".")
        fraction = fraction.rstrip("0").ljust(self.decimals or 0, "0")
        text = whole.replace(",", self.thousands) + (self.decimal + fraction if fraction else "")
        text, negative = self.prefix + text + self.suffix, number < 0
        return (f"({text})" if self.brackets else f"-{text}") if negative else text


def _without(texts: Any, pattern: str, mark: str) -> Any:
    """Remove a mark from the texts that match a pattern."""
    return pc.if_else(pc.match_substring_regex(texts, pattern), pc.replace_substring(texts, mark, ""), texts)


@dataclass(frozen=True)
class NumberShapes:
    """The shapes of cells, with 9 for every digit, and what they show about numbers; shapes of pieces can be joined."""

    counts: Mapping[str, int]
    examples: Mapping[str, str] = field(default_factory=dict)  # the first cell of each shape

    @classmethod
    def of(cls, cells: Any) -> NumberShapes:
        """Count the shapes of observed cells: every digit is 9, but a zero before other digits is 0."""
        cells = cells.combine_chunks() if isinstance(cells, pa.ChunkedArray) else cells
        zeros = pc.replace_substring_regex(cells, rf"(^|[^\d.,{_GROUP[1:-1]}])0(\d)", "\\1\x01\\2")
        nines = pc.replace_substring_regex(zeros, r"\d", "9")
        coded = pc.replace_substring(nines, "\x01", "0").dictionary_encode()
        if len(coded.dictionary) > MAX_SHAPES:
            return cls({"": len(cells)})
        return cls._counted(cells, coded.indices.to_numpy(), coded.dictionary.to_pylist())

    @classmethod
    def of_plain(cls, cells: Any, mark: str) -> NumberShapes:
        """Count the shapes of plain numbers with a decimal mark, without a regular expression for each cell."""
        cells = cells.combine_chunks() if isinstance(cells, pa.ChunkedArray) else cells
        if pc.any(pc.match_substring_regex(cells, f"[^0-9{mark}-]")).as_py():
            return cls.of(cells)
        sizes, places = pc.utf8_length(cells).to_numpy(), pc.find_substring(cells, mark).to_numpy()
        marked = places >= 0
        whole = np.where(marked, places, sizes) - pc.starts_with(cells, "-").to_numpy(zero_copy_only=False)
        fraction = np.where(marked, sizes - places - 1, -1)
        kinds, index = np.unique(np.clip(whole, 0, 4) + 8 * (fraction + 1), return_inverse=True)
        shapes = ["9" * (kind % 8) + (mark + "9" * (kind // 8 - 1)) * (kind >= 8) for kind in kinds.tolist()]
        return cls._counted(cells, index, shapes)

    @classmethod
    def _counted(cls, cells: Any, index: Any, shapes: list[str]) -> NumberShapes:
        """Count shapes, given the index of the shape of each cell; only what tells formats apart is kept of them."""
        _, first, counts = np.unique(index, return_index=True, return_counts=True)
        total, examples = Counter[str](), dict[str, str]()
        for shape, count, example in zip(shapes, counts.tolist(), cells.take(pa.array(first)).to_pylist(), strict=True):
            short = _WHOLE.sub(lambda run: "9999" if len(run[0]) > 3 else "9", _SIGN.sub("", shape), count=1)
            total[short] += count
            examples.setdefault(short, example)
        return cls(dict(total), examples)

    def joined(self, other: NumberShapes) -> NumberShapes:
        """Return the shapes of both."""
        total = Counter(self.counts) + Counter(other.counts)
        if len(total) > MAX_SHAPES:
            return NumberShapes({"": total.total()})
        return NumberShapes(dict(total), {**other.examples, **self.examples})

    def _matches(self) -> list[tuple[re.Match[str], str, int]]:
        """Return the shapes that are numbers, their digits without spaces, and their counts."""
        found = []
        for shape, count in self.counts.items():
            match = _SHAPE.fullmatch(shape)
            if match is None or (match["open"] is None) != (match["close"] is None):
                continue
            digits = match["digits"]
            spaced = re.search(_GROUP, digits)
            if spaced and not re.fullmatch(rf"9{{1,3}}(?:{spaced[0]}999)+(?:[.,]9*)?", digits):
                continue
            bare = re.sub(_GROUP, "", digits)
            if bare.isdigit() or _AMBIGUOUS.fullmatch(bare) or any(form.fullmatch(bare) for form in _DECISIVE.values()):
                found.append((match, bare, count))
        return found

    @property
    def share(self) -> float:
        """Fraction of the cells that are numbers."""
        return sum(count for *_, count in self._matches()) / max(sum(self.counts.values()), 1)

    def marks(self) -> dict[str, int]:
        """Count the cells that require each decimal mark."""
        found = self._matches()
        return {mark: sum(count for _, bare, count in found if _requires(bare, mark)) for mark in _DECISIVE}

    def format(self, decimal: str = ".") -> NumberFormat | None:
        """Return the format of all cells, with `decimal` where they do not show it; None unless numbers of one unit."""
        found = self._matches()
        if len(found) < len(self.counts) or all(match["limit"] for match, *_ in found):
            return None  # a column of limits alone, as in <=50K and >50K, is a column of ranges
        marks = self.marks()
        if marks["."] != marks[","]:
            decimal = max(marks, key=marks.__getitem__)
        units = {side: _common(found, side) for side in ("prefix", "suffix")}
        if None in units.values() or (units["prefix"] and units["suffix"]):
            return None
        open_marks = {mark for mark in ".," for _, bare, _ in found if mark in bare}
        if marks["."] == marks[","] and len(open_marks) == 1 and _MONEY.search(f"{units['prefix']}{units['suffix']}"):
            decimal = "," if "." in open_marks else "."  # money has no three decimals
        digits = [_digits(bare, decimal) for _, bare, _ in found]
        fixed = {len(fraction) for _, _, fraction in digits} if not any(m["exponent"] for m, *_ in found) else {-1}
        groups = Counter[str]()
        for (match, _, count), (group, whole, _) in zip(found, digits, strict=True):
            spaced = re.search(_GROUP, match["digits"])
            if spaced or group or len(whole) > 3:
                groups[spaced[0] if spaced else group] += count
        thousands = max(groups, key=groups.__getitem__) if groups else ""
        brackets = any(match["open"] for match, *_ in found)
        fewest = fixed.pop() if len(fixed) == 1 and fixed != {-1} else None
        return NumberFormat(decimal, thousands, str(units["prefix"]), str(units["suffix"]), fewest, brackets)

    def may_group(self, mark: str) -> bool:
        """Tell whether all cells with a mark may have it between thousands, as in 1.234."""
        return all(_ambiguous(bare) for _, bare, _ in self._matches() if mark in bare)

    def warn_of_others(self, name: Any) -> None:
        """Warn of cells that are not numbers in a column in which most are."""
        numbers = {match[0] for match, *_ in self._matches()}
        others = [shape for shape in self.counts if shape not in numbers]
        coded = any(re.match(r"\D*09", shape) for shape in others)
        if not coded and others and MOSTLY_NUMBERS <= self.share < 1:
            found = self._some(others)
            warn(
                f"Column {name!r} holds numbers and also text, such as {found}, so it is read as text.",
                f"Set missing_values={{{name!r}: [{found}]}} to take these cells as missing.",
                f"Add --na {name}={found.replace(chr(39), '').replace(', ', ',')} to take these cells as missing.",
            )

    def warn_of_odd(self, name: Any, form: NumberFormat) -> None:
        """Warn of cells that are written unlike the others of their column, and say how they are read."""
        other, unit = "," if form.decimal == "." else ".", (form.prefix or form.suffix).strip()
        found = self._matches()
        odd = {
            f"with the decimal mark {other!r}, unlike the others, read by that mark": {
                match[0] for match, bare, _ in found if _requires(bare, other)
            },
            "with a limit, read as the number in it": {match[0] for match, *_ in found if match["limit"]},
            f"without the unit {unit!r}, read as if they had it": {
                match[0] for match, *_ in found if unit and not (match["prefix"] + match["suffix"]).strip()
            },
        }
        for what, shapes in odd.items():
            number = sum(self.counts[shape] for shape in shapes)
            if number:
                warn(f"Column {name!r} holds {number:,} cell{'s' * (number > 1)} {what}, such as {self._some(shapes)}.")

    def _some(self, shapes: Iterable[str], most: int = 5) -> str:
        """Return the first cells of some shapes, quoted."""
        return ", ".join(repr(self.examples.get(shape, shape)) for shape in sorted(shapes)[:most])


def _ambiguous(bare: str) -> bool:
    return _AMBIGUOUS.fullmatch(bare) is not None


def _requires(bare: str, mark: str) -> bool:
    """Tell whether digits require a decimal mark."""
    return _DECISIVE[mark].fullmatch(bare) is not None and not _ambiguous(bare)


def _common(found: Iterable[tuple[re.Match[str], str, int]], side: str) -> str | None:
    """Return the prefix or suffix of most cells; None if there are several, or too few cells have one."""
    counts = Counter[str]()
    for match, _, count in found:
        counts[match[side]] += count
    given = {text.strip(): 0 for text in counts if text.strip()}
    total, having = counts.total(), sum(count for text, count in counts.items() if text.strip())
    if len(given) > 1 or (given and having < MIN_UNIT_SHARE * total):
        return None
    return max((text for text in counts if text.strip()), key=counts.__getitem__, default="")


def _digits(bare: str, decimal: str) -> tuple[str, str, str]:
    """Return the thousands mark, the whole part and the fraction of digits."""
    group = "," if decimal == "." else "."
    if _requires(bare, group):  # a cell with the other decimal mark
        group, decimal = decimal, group
    whole, _, fraction = bare.partition(decimal)
    return group if group in whole else "", whole, fraction


def decimals_of(values: FloatArray) -> int | None:
    """Return the number of decimals of the finite numbers, or None if they have more than can be distinguished."""
    finite = values[np.isfinite(values)]
    largest = float(np.abs(finite).max(initial=0))
    for digits in range(MAX_DECIMALS + 1):
        if largest * 10.0**digits >= 2.0**52:
            return None
        finite = finite[np.round(finite, digits) != finite]
        if not len(finite):
            return digits
    return None


def truth_words(counts: Mapping[str, int]) -> tuple[str, str] | None:
    """Return how a column spells true and false, given counts of its cells; None if it is no column of booleans."""
    if not counts or not {word.lower() for word in counts} <= _TRUE | _FALSE:
        return None
    known = [pair for pair in TRUTH_WORDS if set(counts) <= set(pair)]
    if known:
        return known[0]
    pairs = [pair for pair in _PAIRS if {word.lower() for word in counts} <= set(pair)]
    if pairs and any(set(counts) <= {style(word) for word in pairs[0]} for style in (str.lower, str.upper, str.title)):
        return None
    sides = [{w: n for w, n in counts.items() if w.lower() in words} for words in (_TRUE, _FALSE)]
    pair = next(pair for pair in _PAIRS if max(counts, key=counts.__getitem__).lower() in pair)
    likely = [max(side, key=side.__getitem__) if side else pair[k] for k, side in enumerate(sides)]
    return likely[0], likely[1]


def read_truth(texts: Any) -> Any:
    """Read words as booleans, null where a text is not one of them."""
    lower = pc.utf8_lower(pc.utf8_trim_whitespace(texts))
    true, false = (pc.is_in(lower, value_set=pa.array(sorted(words), texts.type)) for words in (_TRUE, _FALSE))
    return pc.if_else(pc.or_(true, false), true, pa.scalar(None, pa.bool_()))
