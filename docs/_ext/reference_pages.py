"""The reference of commands and families, written from the declarations of their options."""

from __future__ import annotations

from pathlib import Path

from sphinx.application import Sphinx

from collapsium.pipeline.cli.reference import CommandEntry, OptionEntry, commands, families


def write(path: Path, text: str) -> None:
    """Write a page, unless it has this text already: Sphinx reads pages that have changed."""
    if not path.exists() or path.read_text() != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def command_page(entry: CommandEntry) -> str:
    """Return the page of a command."""
    lines = [f"# collapsium {entry.name}", "", entry.description, ""]
    if entry.arguments:
        lines += ["## Arguments", ""]
        for name, description in entry.arguments.items():
            lines += [f"`{name}`", f": {description}", ""]
    if entry.options:
        lines += ["## Options", "", *option_lines(entry.options)]
    return "\n".join(lines) + "\n"


def option_lines(options: tuple[OptionEntry, ...]) -> list[str]:
    """Return a definition for each option."""
    lines = []
    for option in options:
        lines += [f"`{option.flag}`", f": {option.description}", ""]
    return lines


def generate(app: Sphinx) -> None:
    """Write the pages of all commands and of all families' options."""
    folder = Path(app.srcdir) / "reference"
    pages = {folder / "commands" / f"{entry.name}.md": command_page(entry) for entry in commands()}
    for name, options in families().items():
        title = [f"# Options of {name}", "", f"`collapsium fit --family {name}` takes these options.", ""]
        pages[folder / "families" / f"{name}.md"] = "\n".join([*title, *option_lines(options)])
    for path, text in pages.items():
        write(path, text)
    for section in ("commands", "families"):
        for path in (folder / section).glob("*.md"):
            if path not in pages:
                path.unlink()


def setup(app: Sphinx) -> dict[str, bool]:
    """Write the pages before Sphinx reads any."""
    app.connect("builder-inited", generate)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
