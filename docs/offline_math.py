"""Formulas as MathML, which browsers draw themselves: the pages load nothing from other hosts."""

from __future__ import annotations

__all__ = ["as_mathml", "setup"]

import re
from typing import Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml

#: What is written in formulas and not known to docutils, and what says the same.
SPELLINGS = {
    r"\\dots\b": r"\\ldots",
    r"\\[bB]ig(?=[(\[{|])": r"\\bigl",
    r"\\[bB]ig(?=[)\]}])": r"\\bigr",
    "½": r"\\tfrac12 ",
    "²": "^2",
    r"\\([td]?)frac(\w)(\w)": r"\\\1frac{\2}{\3}",
    r"\\(hat|tilde|dot|bar)\s*(\\[a-z]+|[A-Za-z])": r"{\\\1{\2}}",
}


#: A letter with an accent and an index: docutils puts the index below the letter, where it belongs beside it.
INDEXED = re.compile(
    r"<munderover>\s*(<mi>[^<]*</mi>)(.*?)(<mo stretchy=\"false\">[ˆ~˙ˉ]</mo>)\s*</munderover>", re.DOTALL
)


def as_mathml(formula: str, *, block: bool) -> str:
    """Return a formula as MathML."""
    for pattern, spelling in SPELLINGS.items():
        formula = re.sub(pattern, spelling, formula)
    found = str(tex2mathml(formula, as_block=block))
    return INDEXED.sub(r'<msub><mover accent="true">\1\3</mover>\2</msub>', found)


def _inline(translator: Any, node: nodes.math) -> None:
    translator.body.append(as_mathml(node.astext(), block=False))
    raise nodes.SkipNode


def _block(translator: Any, node: nodes.math_block) -> None:
    translator.body.append(f'<div class="math-block">{as_mathml(node.astext(), block=True)}</div>\n')
    raise nodes.SkipNode


def setup(app: Any) -> dict[str, Any]:
    """Tell Sphinx of the renderer."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
