"""Sample texts that every machine with Python has: the documentation strings of chosen parts of the standard library.

They are for tutorials and first trials. Source files are read with `ast`; nothing is imported or downloaded.
"""

from __future__ import annotations

import json
import os
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

from collapsium.pipeline.workflows.demo.docstrings import Module, docstrings, module_name
from collapsium.storage.errors import OccupiedError
from collapsium.storage.io.file import File

MIN_WORDS = 25
"""Shorter texts are left out: they say too little to have a topic."""

SUBJECTS = {
    "compression": "bz2 gzip lzma tarfile zipfile",
    "concurrency": "asyncio concurrent multiprocessing queue sched subprocess threading",
    "data types": "bisect collections contextlib copy dataclasses enum functools graphlib heapq operator weakref",
    "dates": "calendar datetime",
    "file formats": "base64 codecs configparser csv json pickletools plistlib shelve wave",
    "files": "filecmp fileinput fnmatch glob pathlib shutil stat tempfile",
    "graphics": "tkinter turtle",
    "internet": "ftplib http imaplib poplib smtplib urllib webbrowser wsgiref xmlrpc",
    "language": "ast dis importlib inspect pkgutil pyclbr symtable tokenize typing",
    "mail": "email mailbox mimetypes",
    "markup": "html xml",
    "networking": "ipaddress selectors socket socketserver ssl",
    "numbers": "fractions numbers random statistics",
    "programs": "argparse cmd getopt logging optparse platform",
    "testing": "bdb doctest pdb pstats timeit trace traceback unittest",
    "text": "difflib locale re string textwrap",
}
"""Packages of the standard library by subject, as the chapters of Python's library reference group them."""


def sample_texts() -> list[dict[str, str]]:
    """Return about a thousand short texts with labels, for tutorials and first trials.

    They are the documentation strings of chosen packages of the standard library. A text is that of a module, of a
    function, or of a class and its methods; a blank line parts its paragraphs. The same Python version has the same
    texts; a Python without Tk has fewer.

    Returns
    -------
    list of dict
        Sorted by id. Each has ``id`` and ``title`` (dotted name of the module, class or function), ``text``, and three
        labels: ``subject`` (such as ``networking``), ``package`` (``email``) and ``module`` (``email.message``).

    Examples
    --------
    >>> from collapsium.pipeline import sample_texts
    >>> texts = sample_texts()
    >>> sorted(texts[0])
    ['id', 'module', 'package', 'subject', 'text', 'title']
    """
    paragraphs: dict[tuple[str, str, str, str], list[tuple[str, str]]] = {}
    for subject, module in _modules():
        for name, docstring in docstrings(module):
            inside = name.removeprefix(module.name).strip(".").partition(".")[0]
            owner = f"{module.name}.{inside}".rstrip(".")
            paragraphs.setdefault((owner, subject, module.package, module.name), []).append((name, docstring))
    records = []
    for (owner, subject, package, name), named in sorted(paragraphs.items()):
        text = "\n\n".join(docstring for _, docstring in sorted(named))
        if len(text.split()) >= MIN_WORDS:
            labels = {"subject": subject, "package": package, "module": name}
            records.append({"id": owner, "title": owner, "text": text} | labels)
    return records


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
        local.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
        target.put(local)
    return len(records)


def _modules() -> Iterator[tuple[str, Module]]:
    """Yield the source files of the chosen packages, each with its subject; packages that Python lacks are left out."""
    root = Path(sysconfig.get_paths()["stdlib"])
    for subject, packages in SUBJECTS.items():
        for package in packages.split():
            for path in (root / f"{package}.py", *(root / package).rglob("*.py")):
                name = module_name(path.relative_to(root))
                if name:
                    yield subject, Module(package, name, path)
