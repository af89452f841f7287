"""Modules that are imported when they are first used."""

import sys
import threading

import pytest

from collapsium.storage.lazy_module import LazyModule

SLOW = """
import time
time.sleep(0.2)
number = 3
"""


@pytest.fixture
def slow(tmp_path, monkeypatch):
    """A module whose import takes a while."""
    (tmp_path / "slow_to_import.py").write_text(SLOW)
    monkeypatch.syspath_prepend(tmp_path)
    yield LazyModule("slow_to_import")
    sys.modules.pop("slow_to_import", None)


def test_a_module__is_imported_when_it_is_first_used(slow):
    assert "slow_to_import" not in sys.modules
    assert repr(slow) == "LazyModule('slow_to_import')"
    assert "slow_to_import" not in sys.modules
    assert slow.number == 3
    assert slow.number == sys.modules["slow_to_import"].number


def test_threads__that_use_it_first_at_the_same_time_see_all_of_it(slow):
    numbers = []
    threads = [threading.Thread(target=lambda: numbers.append(slow.number)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert numbers == [3] * 8


def test_what_a_module_lacks__is_missed_as_in_the_module(slow):
    with pytest.raises(AttributeError, match="module 'slow_to_import' has no attribute 'word'"):
        slow.word  # noqa: B018


def test_a_module_that_is_not_installed__raises_the_error_that_names_its_extra():
    with pytest.raises(KeyError, match="the extra"):
        _ = LazyModule("not_installed.part", KeyError("the extra")).anything
    with pytest.raises(ModuleNotFoundError, match="not_installed"):
        _ = LazyModule("not_installed").anything
