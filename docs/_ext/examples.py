"""Run the examples of tutorials and gallery, and show the files that they write."""

from __future__ import annotations

import base64
import filecmp
import http.server
import io
import shutil
import subprocess
import threading
import time
from functools import partial
from html import escape
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from sphinx_gallery.scrapers import figure_rst

CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
SOURCES = (".py", ".rst")
PICTURES = (".png", ".svg")
WINDOW = (1280, 960)  # pixels
SCREENSHOT_SECONDS = 60
LIVE_SECONDS = 8
"""Time for a live page to connect to its server and draw its plots, before it is photographed."""


def embedded(figure: Figure) -> str:
    """Return a figure as an element of a page, as notebooks show the one that ends a cell."""
    written = io.BytesIO()
    figure.savefig(written, format="png", dpi=110)
    title = escape(figure.get_suptitle() or "Figure", quote=True)
    data = base64.b64encode(written.getvalue()).decode("ascii")
    return f'<img alt="{title}" style="max-width: 100%; background: white" src="data:image/png;base64,{data}">'


def prepare(docs: Path, work: Path, sections: list[str]) -> list[str]:
    """Copy the examples to a folder below `build`, where they run.

    Parameters
    ----------
    docs : Path
        The folder of the site's sources.
    work : Path
        The folder to copy to.
    sections : list of str
        Names of folders with examples.

    Returns
    -------
    list of str
        The folders of the copies.
    """
    for section in sections:
        source, target = docs / section, work / section
        target.mkdir(parents=True, exist_ok=True)
        names = {path.name for path in source.iterdir() if path.suffix in SOURCES}
        for name in sorted(names):
            if not (target / name).exists() or not filecmp.cmp(source / name, target / name, shallow=False):
                shutil.copyfile(source / name, target / name)
        for path in target.iterdir():
            if path.suffix in SOURCES and path.name not in names:
                path.unlink()
    return [str(work / section) for section in sections]


class CleanFolders:
    """Remove what earlier examples have written, before an example runs.

    Only entries of `work/SECTION` are removed, whatever Sphinx-Gallery passes as the example's name.

    Parameters
    ----------
    work : Path
        The folder with the copies of the examples, ``build/examples``.
    sections : list of str
        The folders in it.
    """

    def __init__(self, work: Path, sections: list[str]) -> None:
        if not work.is_absolute() or work.parts[-2:] != ("build", "examples"):
            raise ValueError(f"expected an absolute path that ends in build/examples; got {work}")
        self.folders = [work / section for section in sections]

    def __repr__(self) -> str:
        return "CleanFolders()"

    def __call__(self, gallery_conf: dict[str, Any], fname: object) -> None:  # noqa: ARG002 - Sphinx-Gallery passes both
        """Leave the examples themselves."""
        for folder in self.folders:
            for path in folder.iterdir():
                if path.is_symlink() or path.is_file():
                    if path.suffix not in SOURCES:
                        path.unlink()
                elif path.is_dir():
                    shutil.rmtree(path)


class FileScraper:
    """Show the pictures and pages that a block of an example has written into its folder.

    A picture is shown as it is. A page is shown as a screenshot that leads to it or, where there is no Chromium to take
    one with, within the page of the example. A file that ends in ``.url`` holds the address of a page
    on this machine. A screenshot of it is shown.

    Parameters
    ----------
    pages : Path
        Where pages are copied to; the site has them in its root.
    """

    def __init__(self, pages: Path) -> None:
        self.pages = pages
        self._shown: dict[Path, int] = {}

    def __repr__(self) -> str:
        return "FileScraper()"

    def __call__(self, block: object, block_vars: dict[str, Any], gallery_conf: dict[str, Any]) -> str:  # noqa: ARG002
        """Return the reST of what is new in the example's folder."""
        example = Path(block_vars["src_file"])
        blocks = []
        for path in sorted(example.parent.iterdir()):
            if path.suffix not in (*PICTURES, ".html", ".url"):
                continue
            changed = path.stat().st_mtime_ns
            if self._shown.get(path) == changed:
                continue
            self._shown[path] = changed
            if path.suffix == ".html":
                blocks.append(self._page(path, example, block_vars, gallery_conf))
            elif path.suffix == ".url":
                blocks.append(self._address(path, block_vars, gallery_conf))
            else:
                blocks.append(_picture(path, path.stem, block_vars, gallery_conf))
        return "\n".join(blocks)

    def _page(self, path: Path, example: Path, block_vars: dict[str, Any], gallery_conf: dict[str, Any]) -> str:
        name = f"{example.stem}_{path.name}"
        shutil.copyfile(path, self.pages / name)
        title = path.stem.replace("_", " ")
        photo = path.with_suffix(".page.png")
        if photograph(path.resolve().as_uri(), photo):
            self._shown[photo] = photo.stat().st_mtime_ns
            shown = _picture(photo, title, block_vars, gallery_conf)
        else:
            shown = f'.. raw:: html\n\n    <iframe class="example-page" src="../{name}" title="{title}"></iframe>\n'
        return f'{shown}\n.. raw:: html\n\n    <p><a href="../{name}">Open the page: {title}</a></p>\n'

    def _address(self, path: Path, block_vars: dict[str, Any], gallery_conf: dict[str, Any]) -> str:
        photo = path.with_suffix(".page.png")
        if not photograph_later(path.read_text().strip(), photo):
            return "This site was built without a browser, so that the page is not shown here.\n"
        self._shown[photo] = photo.stat().st_mtime_ns
        return _picture(photo, path.stem, block_vars, gallery_conf)


def _picture(path: Path, title: str, block_vars: dict[str, Any], gallery_conf: dict[str, Any]) -> str:
    target = Path(next(block_vars["image_path_iterator"])).with_suffix(path.suffix)
    shutil.copyfile(path, target)
    return figure_rst([target], gallery_conf["src_dir"], title.replace("_", " "))


def photograph(address: str, picture: Path, *, virtual: bool = True) -> bool:
    """Take a screenshot of a page with a Chromium that reaches no other machine.

    Parameters
    ----------
    address : str
        The page.
    picture : Path
        PNG file to write.
    virtual : bool, optional
        Let the page's clock run ahead for five seconds, so that its scripts are done.

    Returns
    -------
    bool
        False where there is no Chromium.
    """
    chromium = next((path for path in map(shutil.which, CHROMIUM) if path), None)
    if chromium is None:
        return False
    subprocess.run(  # noqa: S603 - a browser of the machine, with arguments of ours
        [
            chromium,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            "--force-device-scale-factor=1.5",
            "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE localhost, EXCLUDE 127.0.0.1",
            *(["--virtual-time-budget=5000"] if virtual else []),
            f"--window-size={WINDOW[0]},{WINDOW[1]}",
            f"--screenshot={picture}",
            address,
        ],
        check=False,
        capture_output=True,
        timeout=SCREENSHOT_SECONDS,
    )
    return picture.exists()


class _Frame(http.server.BaseHTTPRequestHandler):
    """Serves a page that shows another one in a frame, and counts as loaded only after some seconds."""

    def __init__(self, address: str, *arguments: Any) -> None:
        self.address = address
        super().__init__(*arguments)

    def do_GET(self) -> None:
        """Answer with the page, or with an image that comes late."""
        if self.path == "/late.svg":
            time.sleep(LIVE_SECONDS)
            kind, text = "image/svg+xml", '<svg xmlns="http://www.w3.org/2000/svg" width="1" height="1"/>'
        else:
            frame = f'<iframe src="{escape(self.address)}" style="border:0;width:100vw;height:100vh"></iframe>'
            kind, text = "text/html", f'<body style="margin:0">{frame}<img src="/late.svg" alt=""></body>'
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: Any) -> None:
        """Write nothing."""


def photograph_later(address: str, picture: Path) -> bool:
    """Take a screenshot of a page that goes on drawing when it is loaded; return False where there is no Chromium."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(_Frame, address)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        taken = photograph(f"http://127.0.0.1:{server.server_port}/", picture, virtual=False)
        server.shutdown()
    return taken


class Order:
    """Sorts examples: those that are named first, the others by their names.

    Parameters
    ----------
    source : str
        The examples' folder, which Sphinx-Gallery passes.
    """

    first = ("topic_map.py", "report_page.py", "topic_tree.py", "segments.py", "label_map.py", "topics_over_time.py")

    def __init__(self, source: str) -> None:
        del source

    def __repr__(self) -> str:
        return "Order()"

    def __call__(self, name: str) -> tuple[int, str]:
        """Return what an example is sorted by."""
        return (self.first.index(name) if name in self.first else len(self.first)), name
