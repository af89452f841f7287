"""Formulas as MathML, which browsers draw themselves: a page asks for nothing from another machine."""

from __future__ import annotations

import re
from html import escape, unescape
from xml.etree import ElementTree

from docutils import nodes
from docutils.utils.math import MathError, latex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.math import get_node_equation_number
from sphinx.writers.html5 import HTML5Translator

logger = logging.getLogger(__name__)

NAMESPACE = "http://www.w3.org/1998/Math/MathML"
ENTITY = re.compile(r"&(?!(?:amp|lt|gt);)[A-Za-z]+;")
"""An entity of HTML, which XML does not know."""
OVERLINE = "\N{OVERLINE}"
ElementTree.register_namespace("", NAMESPACE)


def with_accents(mathml: str) -> str:
    """Return a formula whose accents stand on letters alone, with the letters' indices behind them.

    docutils puts the index of an accented letter below it, as if it were the limit of a sum.
    """
    root = ElementTree.fromstring(ENTITY.sub(lambda entity: unescape(entity[0]), mathml))  # noqa: S314 - made by docutils
    for element in root.iter(f"{{{NAMESPACE}}}munderover"):
        base, index, accent = element
        if accent.tag == f"{{{NAMESPACE}}}mo" and (accent.get("accent") or accent.get("stretchy") == "false"):
            accented = ElementTree.Element(f"{{{NAMESPACE}}}mover", {"accent": "true"})
            if accent.text == "_":
                accent.text = OVERLINE
            accented.extend([base, accent])
            element.tag = f"{{{NAMESPACE}}}msub"
            element[:] = [accented, index]
    return ElementTree.tostring(root, encoding="unicode")


def convert(node: nodes.Element, *, block: bool) -> str:
    """Return the MathML of a formula; warn of one that has unknown commands, and return its source."""
    source = node.astext()
    try:
        return with_accents(latex2mathml.tex2mathml(source, as_block=block))
    except MathError as error:
        logger.warning("formula %r: %s", source, error, location=node, type="math")
        return f"<code>{escape(source)}</code>"


def visit_math(self: HTML5Translator, node: nodes.math) -> None:
    """Write a formula within a line."""
    self.body.append(f'<span class="math notranslate">{convert(node, block=False)}</span>')
    raise nodes.SkipNode


def visit_displaymath(self: HTML5Translator, node: nodes.math_block) -> None:
    """Write a formula of its own, with its number if it has one."""
    self.body.append(self.starttag(node, "div", "", CLASS="math notranslate"))
    if node["number"]:
        self.body.append(f'<span class="eqno">({get_node_equation_number(self, node)})')
        self.add_permalink_ref(node, "Link to this equation")
        self.body.append("</span>")
    self.body.append(convert(node, block=True) + "</div>\n")
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the renderer `mathml`."""
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_displaymath, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
