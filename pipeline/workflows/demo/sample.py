"""Sample texts that ship with the package: addresses of the presidents of the United States, in paragraphs.

The annual addresses to Congress, 1945 to 2006, and the inaugural addresses, 1789 to 2021, are in the public domain. The
texts come from NLTK's corpora `state_union` and `inaugural`; the presidents' parties were added, and marks of
applause and laughter removed.
"""

from __future__ import annotations

import json
import lzma
import os
import tempfile
from collections.abc import Iterable
from importlib import resources
from pathlib import Path

from collapsium.storage.errors import OccupiedError
from collapsium.storage.io.file import File

# Lines of fewer words, such as headings and greetings, join the next paragraph: they have no topic of their own
MIN_WORDS = 20


def sample_texts() -> list[dict[str, str | int]]:
    """Return the paragraphs of 124 addresses of presidents of the United States, for tutorials and first trials.

    They are the annual addresses on the state of the union, 1945 to 2006 (5,451 paragraphs), and the inaugural
    addresses, 1789 to 2021 (1,408 paragraphs).

    Returns
    -------
    list of dict
        In the order of the addresses, first the annual and then the inaugural ones. Each has ``id`` (such as
        ``1961-Kennedy/007``), ``title`` (``John F. Kennedy, 1961``), ``text``, ``year`` (a whole number), and the
        labels ``president``, ``party``, ``address`` (``1961-Kennedy``) and ``kind`` (``annual`` or ``inaugural``).

    Examples
    --------
    >>> from collapsium.pipeline import sample_texts
    >>> texts = sample_texts()
    >>> len(texts), sorted(texts[0])
    (6859, ['address', 'id', 'kind', 'party', 'president', 'text', 'title', 'year'])
    """
    packed = resources.files(__package__).joinpath("addresses.jsonl.xz").read_bytes()
    texts: list[dict[str, str | int]] = []
    for line in lzma.decompress(packed).decode().splitlines():
        address = json.loads(line)
        name = address.pop("id") + ("-inaugural" if address["kind"] == "inaugural" else "")
        fields = {"title": f"{address['president']}, {address['year']}", **address, "address": name}
        for number, text in enumerate(_paragraphs(fields.pop("text")), start=1):
            texts.append({"id": f"{name}/{number:03d}", "text": text, **fields})
    return texts


def _paragraphs(text: str) -> list[str]:
    """Return the non-empty lines of a text; a short one joins the next, or the one before if it is the last."""
    paragraphs, short = list[str](), ""
    for line in filter(None, map(str.strip, text.split("\n"))):
        short = f"{short} {line}".lstrip()
        if len(line.split()) >= MIN_WORDS:
            paragraphs.append(short)
            short = ""
    return [*paragraphs[:-1], f"{paragraphs[-1]} {short}".rstrip()] if paragraphs else [short]


def written(texts: Iterable[dict[str, str | int]]) -> str:
    """Return texts as JSON lines."""
    return "".join(json.dumps(text) + "\n" for text in texts)


def write_sample_texts(out: str | os.PathLike[str]) -> int:
    """Write the sample texts as JSON lines, an object a line.

    Parameters
    ----------
    out : str or path-like
        File to write, local or an fsspec URL.

    Returns
    -------
    int
        Number of texts.

    Raises
    ------
    OccupiedError
        The file exists.
    """
    target = File(out)
    if target.exists():
        raise OccupiedError(f"{out}: exists already; remove it, or name another file")
    records = sample_texts()
    with tempfile.TemporaryDirectory() as folder:
        local = Path(folder, "texts.jsonl")
        local.write_text(written(records), encoding="utf-8")
        target.put(local)
    return len(records)
