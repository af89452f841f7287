"""The door to the compiler: what a kernel computes does not depend on which process compiled it."""

import re

import pytest

from collapsar.workers.kernels import (
    active,
    active_second,
    assign,
    background,
    lists,
    moments,
    special,
    stirling,
    stochastic,
    words,
)
from collapsar.workers.kernels import compile as module

MODULES = (active, active_second, assign, background, lists, moments, special, stirling, stochastic, words)


def helpers():
    """All helpers of the kernels, by their names."""
    found = {}
    for one in MODULES:
        for name, value in vars(one).items():
            if isinstance(value, module.Helper):
                found[f"{one.__name__.rpartition('.')[2]}.{name}"] = value
    return found


def test_helpers__are_always_inlined():
    assert len(helpers()) > 20
    assert [name for name, one in helpers().items() if not one.options.get("forceinline")] == []


@pytest.mark.parametrize(
    "kernel",
    [background.fold_rows, lists.choose, lists.listed_tables, stirling.ratios_at, words.topic_totals],
    ids=lambda one: one.__name__,
)
def test_kernels__leave_nothing_to_be_called_that_stands_elsewhere_too(kernel, monkeypatch):
    """A function that stands both beside a kernel and by itself is another one where machine code is loaded."""
    monkeypatch.setattr(module, "_registered", [])
    monkeypatch.setattr(module, "cache_folder", lambda: None)  # machine code that was loaded cannot be looked at
    compiled = module.Kernel(kernel.python, kernel._types).compile()
    written = compiled.inspect_asm(compiled.signatures[0])
    functions = re.findall(r"^\s*\.type\s+\"?([^\s,\"]+)\"?,@function", written, re.MULTILINE)
    ours = [name for name in functions if name.startswith("_ZN9collapsar")]
    assert len(ours) == 1
    assert f"{len(kernel.__name__)}{kernel.__name__}" in ours[0]
