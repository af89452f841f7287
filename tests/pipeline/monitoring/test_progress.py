"""One line shows the progress: it is updated in terminals and notebooks, remains at the end, and is absent elsewhere."""

import io
import sys
import time
from types import SimpleNamespace

import pytest

from collapsium import pipeline
from collapsium.pipeline import fit
from collapsium.pipeline.monitoring import progress
from collapsium.pipeline.monitoring.progress import counter_here, shown, shows, silenced
from collapsium.storage.errors import OptionError
from tests.waiting import wait_until


class Tty(io.StringIO):
    """A terminal."""

    def isatty(self):
        return True


@pytest.fixture
def terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(progress, "DELAY", 0.01)
    monkeypatch.setattr(progress, "PERIOD", 0.01)
    # pytest itself replaces standard error between the phases of a test
    stream = Tty()
    monkeypatch.setattr(progress, "sys", SimpleNamespace(stderr=stream, modules={}))
    return stream


@shows("counting", "rows")
def count(rows, shown_by=None, *, progress=lambda number: None):
    """Count until a terminal shows the rows, or without a terminal for five periods of the line."""
    progress(rows)
    if shown_by is None:
        time.sleep(0.05)
    else:
        wait_until(lambda: f"counting: {rows} rows" in shown_by.getvalue())
    return rows


@shows("outer")
def outer(terminal, *, progress=lambda number: None):
    """Call another function that shows its progress."""
    return count(7, terminal)


def test_a_line__is_overwritten_and_remains_at_the_end(terminal):
    assert count(5, terminal) == 5
    shown_lines = terminal.getvalue().split("\r\x1b[K")
    assert any("counting: 5 rows" in line for line in shown_lines[1:-1])
    assert shown_lines[-1].startswith("counting: 5 rows, ")
    assert terminal.getvalue().count("\n") == 1


@pytest.mark.parametrize("options", [{"verbose": False}, {"progress": lambda number: None}])
def test_no_line__is_shown_if_turned_off_or_if_the_caller_receives_events(terminal, options):
    count(5, **options)
    assert terminal.getvalue() == ""


def test_no_line__is_shown_within_a_command(terminal):
    with silenced():
        count(5)
    assert terminal.getvalue() == ""


def test_no_line__is_shown_in_a_pipe_unless_requested(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(progress, "sys", SimpleNamespace(stderr=stream, modules={}))
    count(5)
    assert stream.getvalue() == ""


def test_a_nested_function__updates_the_line_of_the_outer_one(terminal):
    outer(terminal)
    assert "counting: 7 rows" in terminal.getvalue()
    assert terminal.getvalue().count("\n") == 1


def test_a_short_call__shows_nothing(terminal, monkeypatch):
    monkeypatch.setattr(progress, "DELAY", 60.0)
    count(5)
    assert terminal.getvalue().strip("\r\x1b[K") == ""


def test_imports__show_a_line_in_notebooks_only(terminal, monkeypatch, tmp_path):
    (tmp_path / "slow_module.py").write_text("import time\ntime.sleep(0.1)\nthing = 3\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(pipeline._HOMES, "thing", "slow_module")
    monkeypatch.setattr(progress, "_surface", lambda verbose: progress.Terminal())
    for kernel, expected in (({}, False), ({"kernel": None}, True)):
        shell = SimpleNamespace(get_ipython=lambda kernel=kernel: SimpleNamespace(**kernel))
        monkeypatch.setitem(sys.modules, "IPython", shell)
        monkeypatch.setattr(progress, "sys", SimpleNamespace(stderr=terminal, modules={"IPython": shell}))
        sys.modules.pop("slow_module", None)
        assert pipeline.thing == 3
        assert ("loading Collapsium" in terminal.getvalue()) == expected
    sys.modules.pop("slow_module")


def test_counters__are_silent_without_a_line(terminal):
    counter_here("reading")(3)
    assert terminal.getvalue() == ""


def test_verbose__is_true_false_or_none():
    with pytest.raises(OptionError, match="expected true, false or None, found 'yes'"), shown("x", "yes"):
        pass


def test_verbose__is_in_the_signature_and_the_docstring():
    assert "verbose : bool, optional" in fit.__doc__
    assert "overwrite : bool, optional" in fit.__doc__
