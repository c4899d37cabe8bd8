"""Words for true and false in text: detection when their spelling varies, and reading."""

from __future__ import annotations

__all__ = ["TRUTH_WORDS", "read_truth", "truth_words"]

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

#: Pairs of words that are booleans even when their spelling does not vary.
TRUTH_WORDS = (("True", "False"), ("true", "false"), ("TRUE", "FALSE"))
#: Words for true and false in lower case; other pairs of one spelling stay categories.
_PAIRS = (("true", "false"), ("yes", "no"), ("y", "n"), ("t", "f"), ("1", "0"))
_TRUE, _FALSE = ({pair[k] for pair in _PAIRS} for k in (0, 1))


def truth_words(counts: Mapping[str, int]) -> tuple[str, str] | None:
    """Return how a column spells true and false, given counts of its cells; None if it is no column of booleans.

    Examples
    --------
    >>> truth_words({"yes": 3, "Yes": 1, "NO": 2}), truth_words({"yes": 3, "no": 2}), truth_words({"1": 1, "0": 2})
    (('yes', 'NO'), None, None)
    """
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
