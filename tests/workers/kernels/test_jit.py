"""The door to the compiler: what a kernel computes does not depend on which process compiled it."""

import os
import re
import subprocess
import sys

import numpy as np
import pytest
from llvmlite import binding

from collapsium.workers.kernels import jit as module
from collapsium.workers.kernels import special
from collapsium.workers.kernels.cvb import active, active_selection, background, stochastic, words
from collapsium.workers.kernels.cvb import dense as assign
from collapsium.workers.kernels.networks import stirling
from collapsium.workers.kernels.target import V3, target
from tests.conftest import rest_long

MODULES = (active, assign, background, active_selection, words, special, stirling, stochastic)


def helpers():
    """All helpers of the kernels, by their names."""
    found = {}
    for source in MODULES:
        for name, value in vars(source).items():
            if isinstance(value, module.Helper):
                found[f"{source.__name__.rpartition('.')[2]}.{name}"] = value
    return found


def test_helpers__are_always_inlined():
    assert len(helpers()) > 20
    assert [name for name, helper in helpers().items() if not helper.options.get("forceinline")] == []


@pytest.mark.parametrize(
    "kernel",
    rest_long(
        [
            active.sweep_active,
            background.fold_rows,
            active_selection.select,
            active_selection.carry,
            words.active_tables,
            stirling.fill_ratios,
            words.topic_totals,
        ],
        retained=(1, 5, 6),
    ),
    ids=lambda kernel: kernel.__name__,
)
def test_kernels__leave_nothing_to_be_called_that_stands_elsewhere_too(kernel, monkeypatch):
    """A function that stands both beside a kernel and by itself is another one where machine code is loaded."""
    monkeypatch.setattr(module, "_registered", [])
    monkeypatch.setattr(module, "cache_folder", lambda: None)  # machine code that was loaded cannot be looked at
    compiled = module.Kernel(kernel.python).compile()
    written = compiled.inspect_asm(compiled.signatures[0])
    assert "zmm" not in written  # a register of AVX-512, which not all processors have
    functions = re.findall(r"^\s*\.type\s+\"?([^\s,\"]+)\"?,@function", written, re.MULTILINE)
    defined = [name for name in functions if name.startswith("_ZN10collapsium")]
    assert len(defined) == 1
    assert f"{len(kernel.__name__)}{kernel.__name__}" in defined[0]


class Features(dict):
    """The instruction sets of a processor, as llvmlite has them."""

    def flatten(self):
        return ",".join(f"{'+' if has else '-'}{name}" for name, has in self.items())


@pytest.fixture
def target_of(monkeypatch):
    """A function that returns the target on a processor with some instruction sets."""

    def found(name, features):
        monkeypatch.setattr(binding, "get_process_triple", lambda: "x86_64-unknown-linux-gnu")
        monkeypatch.setattr(binding, "get_host_cpu_name", lambda: name)
        monkeypatch.setattr(binding, "get_host_cpu_features", lambda: Features(features))
        return target.__wrapped__()

    monkeypatch.delenv("NUMBA_CPU_NAME", raising=False)
    return found


def test_target__is_the_same_for_all_processors_that_have_its_instruction_sets(target_of):
    plain = dict.fromkeys(V3, True)
    found = {target_of("haswell", plain), target_of("znver5", {**plain, "avx512f": True, "sse4a": True})}
    assert [target.processor for target in found] == ["x86-64-v3"]


def test_target__is_the_processor_itself_where_it_lacks_one_of_them(target_of):
    found = target_of("nehalem", {**dict.fromkeys(V3, True), "fma": False})
    assert found.processor == "nehalem"
    assert "-fma" in found.features


def test_target__is_the_one_that_the_environment_names(target_of, monkeypatch):
    monkeypatch.setenv("NUMBA_CPU_NAME", "generic")
    assert target_of("haswell", dict.fromkeys(V3, True)).processor == "generic"


OTHERS = """
import numba, numpy as np
numba.njit("f8(f8)")(lambda x: x + 1.0)  # sets the compiler to this machine's processor
from collapsium.workers.kernels.networks import stirling
table = np.empty(435)
stirling.fill_ratios(0.3, 1, 30, table)
print(stirling.fill_ratios._compiled.stats.cache_hits.total(), float(table.sum()).hex())
"""


def test_kernels__have_the_same_machine_code_where_other_code_was_compiled_before(tmp_path):
    env = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "NUMBA_DISABLE_JIT": "0"}
    done = subprocess.run([sys.executable, "-c", OTHERS], env=env, capture_output=True, text=True, check=True)
    table = np.empty(435)
    stirling.fill_ratios(0.3, 1, 30, table)
    assert done.stdout.split() == ["1", float(table.sum()).hex()]  # 1: as a process of its own made it


@pytest.mark.skipif(module.INTERPRETED, reason="the compiler is off")
def test_kernels__are_loaded_without_linear_algebra_which_other_code_still_finds():
    script = """
import sys
from collapsium.workers.kernels.prediction import pair_probability
pair_probability.compile()
print("scipy.linalg" in sys.modules)
import numba, numpy as np
product = numba.njit(lambda a, b: a @ b + np.linalg.inv(a))
print(product(np.eye(2), np.ones((2, 2))).sum(), np.array(numba.njit(lambda a: np.cov(a))(np.eye(2))).sum())
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["False", "6.0", "0.0"]
