"""The pages whose examples are run, and their code blocks.

All blocks of shell and Python of a page are run in the order of the page. A block that cannot be run has a comment
``<!-- not run: REASON -->`` on the line above its fence.
"""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs" / "start").glob("*.md")),
    *sorted((ROOT / "docs" / "howto").glob("*.md")),
]
RUNNABLE = ("sh", "python")
OTHERS = ("text", "toml", "ini", "json", "yaml", "{math}", "{toctree}", "{note}", "{tip}", "{warning}", "{glossary}")
FENCE = re.compile(
    r"^(?:<!-- not run: (?P<reason>[^\n]*?) -->\n+)?^(?P<ticks>```+|:::+)(?P<language>[^\n`]*)\n(?P<text>.*?)^(?P=ticks)$",
    re.DOTALL | re.MULTILINE,
)


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text, the line that it begins on, and why it is not run."""

    language: str
    text: str
    line: int
    reason: str | None


def blocks_of(path):
    """Return the fenced blocks of a page in their order."""
    page = path.read_text(encoding="utf-8")
    return [
        Block(match["language"].strip(), match["text"], page.count("\n", 0, match.start("text")), match["reason"])
        for match in FENCE.finditer(page)
    ]


def name_of(path):
    """Return a page's name within the project."""
    return path.relative_to(ROOT).as_posix()
