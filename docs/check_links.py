"""Check the links of the built site.

`python docs/check_links.py build/docs` checks every link within the site, anchors too.
`python docs/check_links.py --external OUTPUT.json` reads what Sphinx's linkcheck reports of links to other sites. Pages
that are gone are errors. What this machine does not reach is reported as not checked.
"""

from __future__ import annotations

import json
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

GONE = ("404", "410")


class Page(HTMLParser):
    """The links and the anchors of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect what the tag names."""
        for name, value in attrs:
            if name == "id" or (name == "name" and tag == "a"):
                self.anchors.add(value or "")
            elif name in ("href", "src") and value and tag != "base":
                self.links.append(value)


def broken_links(site: Path) -> list[str]:
    """Return a line for each link within the site that leads nowhere."""
    site = site.resolve()
    pages = {path: Page(path) for path in sorted(site.rglob("*.html")) if "_static" not in path.relative_to(site).parts}
    broken = []
    for path, page in pages.items():
        for link in dict.fromkeys(page.links):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if target.is_dir():
                target /= "index.html"
            anchor = unquote(parts.fragment)
            if not target.exists():
                broken.append(f"{path.relative_to(site)}: {link}: no such file")
            elif anchor and target in pages and anchor not in pages[target].anchors:
                broken.append(f"{path.relative_to(site)}: {link}: no such anchor")
    return broken


def external_links(output: Path) -> tuple[list[str], list[str], int]:
    """Return the links to other sites that are gone, those that were not reached, and the number that were."""
    gone, missed, reached = [], [], 0
    for line in output.read_text().splitlines():
        entry = json.loads(line)
        text = f"{entry['filename']}:{entry['lineno']}: {entry['uri']}: {entry['info']}"
        if entry["status"] in ("working", "redirected"):
            reached += 1
        elif entry["status"] in ("broken", "timeout", "rate-limited"):
            is_gone = any(code in entry["info"].split(" ", 1)[0] for code in GONE)
            (gone if is_gone else missed).append(text)
    return gone, missed, reached


def main(arguments: list[str]) -> int:
    """Print what is broken; return the exit code."""
    if arguments[0] == "--external":
        broken, missed, reached = external_links(Path(arguments[1]))
        for line in missed:
            print(f"not checked: {line}")
        print(f"{reached} links to other sites work, {len(missed)} were not reached, {len(broken)} are gone")
    else:
        broken = broken_links(Path(arguments[0]))
    for line in broken:
        print(line, file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
