"""The interface to the compiler: results of a kernel do not depend on the process that compiled it."""

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
from tests.conftest import mark_rest_long

MODULES = (active, assign, background, active_selection, words, special, stirling, stochastic)


def helpers():
    """Return all helpers of the kernels, by name."""
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
    mark_rest_long(
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
def test_machine_code_of_kernels__calls_no_separately_compiled_functions(kernel, monkeypatch):
    """A function that is compiled both into a kernel and separately may differ between new and cached machine code."""
    compiled = machine_code(kernel.python, monkeypatch)
    written = compiled.inspect_asm(compiled.signatures[0])
    assert "zmm" not in written  # an AVX-512 register, which not all processors have
    functions = re.findall(r"^\s*\.type\s+\"?([^\s,\"]+)\"?,@function", written, re.MULTILINE)
    defined = [name for name in functions if name.startswith("_ZN10collapsium")]
    assert len(defined) == 1
    assert f"{len(kernel.__name__)}{kernel.__name__}" in defined[0]


def loops_with_two_orders_of_sums(code):
    """Return the vector loops with sums that are only run after a check that arrays do not overlap.

    If the arrays overlap, or may, other code runs, which sums in another order.
    """
    found = []
    for body in re.findall(r"^define [^\n]*\{\n(.*?)^\}", code, re.MULTILINE | re.DOTALL):
        blocks, label = {"": []}, ""
        for line in filter(str.strip, body.splitlines()):
            begins = re.match(r'"?([\w.$-]+)"?:', line)
            if begins:
                label = begins[1]
                blocks[label] = []
            else:
                blocks[label].append(line)
        values = dict(re.findall(r'^\s*%"?([\w.$-]+)"? = (?:or|and|select|xor|freeze) (.*)', body, re.MULTILINE))

        def checks_overlap(value, values=values):
            inner = names_in(values.get(value, ""))
            return re.match(r"diff\.check|found\.conflict|conflict\.rdx", value) or any(map(checks_overlap, inner))

        for label, lines in blocks.items():
            chosen = re.search(r'br i1 %"?([\w.$-]+)"?,', lines[-1]) if lines else None
            if chosen and (label.startswith("vector.memcheck") or checks_overlap(chosen[1])):
                found += [name for name in vector_loop(label, blocks) if sums_numbers(blocks[name])]
    return found


def names_in(text):
    """Return the names of values or blocks in a line of code."""
    return re.findall(r'%"?([\w.$-]+)"?', text)


def vector_loop(label, blocks):
    """Return the vectorised blocks after a block, up to the end of their loop."""
    reached, waiting = [], [label]
    while waiting:
        for name in names_in(blocks[waiting.pop()][-1]):
            if re.match(r"vector\.|vec\.epilog", name) and "middle" not in name and name not in [*reached, label]:
                reached.append(name)
                waiting.append(name)
    return reached


def sums_numbers(lines):
    """Return whether a loop adds to a vector of floating-point numbers that it carries."""
    carried = [re.match(r'\s*%"?([\w.$-]+)"? = phi <\d+ x (?:float|double)>', line) for line in lines]
    return any(
        re.search(rf'= f(?:add|sub)\b.*%"?{re.escape(match[1])}"?(?![\w.$-])', line)
        for match in filter(None, carried)
        for line in lines
    )


def machine_code(function, monkeypatch):
    """Compile a function as a kernel, because machine code that was loaded from the cache cannot be inspected."""
    monkeypatch.setattr(module, "_registered", [])
    monkeypatch.setattr(module, "cache_folder", lambda: None)
    return module.Kernel(function).compile()


def stores_and_sums(a: module.Float64Vector, b: module.OutFloat64Vector, total: module.OutFloat64Vector) -> None:
    """Store and sum in one loop, which kernels may not do."""
    s = 0.0
    for k in range(b.size):
        b[k] = a[k] * 2.0
        s += b[k]
    total[0] = s


def sums_into_an_array(a: module.Float64Vector, b: module.Float64Vector, total: module.OutFloat64Vector) -> None:
    """Sum into an element of an array, which kernels may not do."""
    for k in range(b.size):
        total[0] += a[k] * b[k]


@pytest.mark.parametrize("function", [stores_and_sums, sums_into_an_array])
def test_sums_whose_order_depends_on_the_addresses_of_arrays__are_detected(function, monkeypatch):
    compiled = machine_code(function, monkeypatch)
    assert loops_with_two_orders_of_sums(compiled.inspect_llvm(compiled.signatures[0]))


# These kernels keep a distance between their arrays (`dense.DISTANCE`).
APART = ("sweep_zeroth", "sweep_second")


@pytest.mark.parametrize(
    "kernel",
    mark_rest_long(
        sorted(
            (found for found in module.all_kernels() if found.python.__name__ not in APART), key=lambda k: k.address
        ),
        retained=(),
    ),
    ids=lambda kernel: kernel.address.rpartition(".")[2],
)
def test_the_order_of_sums__does_not_depend_on_the_addresses_of_arrays(kernel, monkeypatch):
    compiled = machine_code(kernel.python, monkeypatch)
    assert loops_with_two_orders_of_sums(compiled.inspect_llvm(compiled.signatures[0])) == []


class Features(dict):
    """The instruction sets of a processor, as llvmlite represents them."""

    def flatten(self):
        return ",".join(f"{'+' if has else '-'}{name}" for name, has in self.items())


@pytest.fixture
def target_of(monkeypatch):
    """Return a function that returns the compiler's target on a processor with some instruction sets."""

    def found(name, features):
        monkeypatch.setattr(binding, "get_process_triple", lambda: "x86_64-unknown-linux-gnu")
        monkeypatch.setattr(binding, "get_host_cpu_name", lambda: name)
        monkeypatch.setattr(binding, "get_host_cpu_features", lambda: Features(features))
        return target.__wrapped__()

    monkeypatch.delenv("NUMBA_CPU_NAME", raising=False)
    return found


def test_target__is_common_to_all_processors_with_its_instruction_sets(target_of):
    plain = dict.fromkeys(V3, True)
    found = {target_of("haswell", plain), target_of("znver5", {**plain, "avx512f": True, "sse4a": True})}
    assert [target.processor for target in found] == ["x86-64-v3"]


def test_target__is_the_processor_itself_if_it_lacks_one_of_them(target_of):
    found = target_of("nehalem", {**dict.fromkeys(V3, True), "fma": False})
    assert found.processor == "nehalem"
    assert "-fma" in found.features


def test_target__can_be_set_by_the_environment(target_of, monkeypatch):
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


def test_kernels__have_the_same_machine_code_after_other_code_was_compiled(tmp_path):
    env = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "NUMBA_DISABLE_JIT": "0"}
    done = subprocess.run([sys.executable, "-c", OTHERS], env=env, capture_output=True, text=True, check=True)
    table = np.empty(435)
    stirling.fill_ratios(0.3, 1, 30, table)
    # one cache hit, because a child process compiled the kernel
    assert done.stdout.split() == ["1", float(table.sum()).hex()]


@pytest.mark.skipif(module.INTERPRETED, reason="the compiler is off")
@pytest.mark.parametrize(
    ("product", "total"),
    mark_rest_long([("a @ b", 4.0), ("a @ b + np.linalg.inv(a)", 6.0), ("a @ b + np.cov(a)", 4.0)]),
)
def test_kernels__load_without_scipy_linalg_which_other_code_can_still_use(product, total):
    script = f"""
import sys
from collapsium.workers.kernels.prediction import pair_probability
pair_probability.compile()
print("scipy.linalg" in sys.modules)
import numba, numpy as np
print(numba.njit(lambda a, b: {product})(np.eye(2), np.ones((2, 2))).sum())
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["False", str(total)]
