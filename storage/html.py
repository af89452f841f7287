"""Small HTML tables with which notebooks show corpora, models and results; all text is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TypeAlias

from collapsium.storage.printable import printable

# Colours that are readable on light and dark pages, because the notebook chooses the background
BAR, TRACK, FAINT = "#0072b2", "rgba(127,127,127,.18)", "rgba(127,127,127,.35)"
BAR_WIDTH = 90  # Pixels
CELL = "padding:2px 12px 2px 0;text-align:{side};vertical-align:top;white-space:{wrap}"
SHORT = 60  # Characters of a cell that is not broken into lines


class Html(str):
    """Text that is HTML already, and is not escaped again."""

    __slots__ = ()


Cell: TypeAlias = "Html | str | int | float | None"


def text(value: Cell) -> Html:
    """Return a value as HTML."""
    if isinstance(value, Html):
        return value
    if isinstance(value, float):
        value = f"{value:.4g}"
    if isinstance(value, int) and not isinstance(value, bool):
        value = f"{value:,}"
    return Html(escape(printable("" if value is None else str(value))))


def bar(share: float, max_share: float) -> Html:
    """Return a bar for a share, with its percentage, in relation to the largest one."""
    width = round(BAR_WIDTH * min(max(share / max_share if max_share > 0.0 else 0.0, 0.0), 1.0))
    track = f"display:inline-block;width:{BAR_WIDTH}px;height:9px;background:{TRACK}"
    inner = f"display:block;width:{width}px;height:9px;background:{BAR}"
    drawn = f'<span style="{track}"><span style="{inner}"></span></span>'
    return Html(f'<span style="white-space:nowrap">{drawn} {share:.1%}</span>')


def table(columns: Sequence[str], rows: Iterable[Sequence[Cell]]) -> Html:
    """Return a table; numbers are aligned at the right."""
    body = []
    for row in rows:
        sides = ["right" if isinstance(cell, (int, float)) else "left" for cell in row]
        cells = (f'<td style="{_style(cell, side)}">{text(cell)}</td>' for cell, side in zip(row, sides, strict=True))
        body.append(f"<tr>{''.join(cells)}</tr>")
    head = "".join(
        f'<th style="{_style(name, "left")};border-bottom:1px solid {FAINT}">{text(name)}</th>' for name in columns
    )
    style = "border-collapse:collapse;font-size:90%"
    drawn = f'<table style="{style}"><thead><tr>{head}</tr></thead><tbody>{"".join(body)}</tbody></table>'
    return Html(f'<div style="overflow-x:auto">{drawn}</div>')


def _style(cell: Cell, side: str) -> str:
    return CELL.format(side=side, wrap="nowrap" if len(str(cell)) <= SHORT else "normal;min-width:16em")


def details(summary: str, body: Html) -> Html:
    """Return a part that is folded until it is clicked."""
    return Html(f'<details style="margin:4px 0"><summary>{text(summary)}</summary>{body}</details>')


def facts(pairs: Iterable[tuple[str, Cell]]) -> Html:
    """Return names and values, a line each."""
    return table(["", ""], pairs)


def block(title: str, *parts: Html) -> str:
    """Return a title with the parts below it."""
    return f"<div><p style='margin:2px 0 6px'><b>{text(title)}</b></p>{''.join(parts)}</div>"
