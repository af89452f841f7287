"""Hostile runs: changed arrays of models and checkpoints, with correct digests, given to every command that reads
them.

``python -m tests.chaos.hostile_models RUNS [FAMILY...]`` fits a small run of each family, changes arrays at random
(the seed is ``FUZZ_SEED``), and gives the run to ``evaluate``, ``infer``, ``predict``, ``report``, ``topics``,
``verify``, ``fit --resume`` and ``fit --warm``, with kernels that check bounds. With ``all`` in place of RUNS, it
changes each array of the global state, of the first block and of the first shard once in each way. Each command must
end in time with a result or a one-line error, never with a signal or another exception.
"""

import contextlib
import io
import json
import multiprocessing
import os
import shutil
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa

from collapsium.pipeline import fit, split
from collapsium.pipeline.cli.main import main
from collapsium.pipeline.models.model import Model
from collapsium.pipeline.models.registry import family_names, load_family
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.corpus.vectors import Vectors
from collapsium.storage.corpus.writer import VectorWriter
from collapsium.storage.errors import CollapsiumError, DamagedError
from collapsium.storage.io.arrays import DIGESTS, read_arrays, write_arrays
from collapsium.storage.io.folder import Folder, created
from collapsium.storage.io.records import dump
from collapsium.storage.runs.run import Run
from collapsium.workers.families.model_checks import ModelChecks
from collapsium.workers.shard_loading import load_shard, open_shard
from tests.chaos.hostile_paths import CHECKING
from tests.conftest import cut_into_segments, simulated, simulated_labels, write_corpus
from tests.networks import LABELS

SECONDS = 60  # time limit of an attack
SHARE_OF_REFUSED = 0.02  # share of the changes refused by the checks that are given to all commands nevertheless
OPTIONS = {
    "lda": (
        {"topics": 3},
        {"topics": 3, "order": 2},
        {"topics": 3, "responsibilities": "dense"},
        {"topics": 3, "seeds": {"first": ["w0", "w1"]}},
        {"topics": 3, "weights": "log-tf-idf"},
        {"topics": 3, "weights": {"w0": 0.25, "w1": 3.0}, "seeds": {"first": ["w0", "w1"]}},
        {"topics": 3, "init": "documents", "init_strength": 5.0},
        {"topics": 3, "restarts": 2, "combine": "consensus"},
    ),
    "hdp": (
        {"topics": 3},
        {"topics": 3, "order": 2},
        {"topics": 3, "weights": "idf", "init": "clusters", "init_strength": 2.0},
        {"topics": 3, "restarts": 2, "combine": "consensus", "init": "tree", "init_strength": 2.0},
    ),
    "keyword-lda": (
        {"topics": 3, "seeds": {"first": ["w0", "w1"]}},
        {"topics": 3, "seeds": {"first": ["w0", "w1"]}, "weights": "entropy"},
    ),
    "vb-lda": ({"topics": 3}, {"topics": 3, "weights": "idf"}),
    "gibbs-lda": ({"topics": 3}, {"topics": 3, "samples": 2, "sample_every": 1, "combine": "consensus"}),
    "ncrp": ({}, {"form": "factorised", "depth": 2}),
    "hca": ({}, {"form": "factorised"}),
    "hdsp": ({"topics": 3}, {"topics": 3, "scaling": "linear"}),
    "partially-labeled-lda": ({"topics_per_label": 2},),
    "segmented-lda": ({"topics": 3}, {"topics": 3, "inference": "variational"}),
    "sequential-lda": ({"topics": 3}, {"topics": 3, "inference": "variational"}),
    "dirichlet-network": ({"topics": 3, "network": LABELS}, {"topics": 3, "network": LABELS, "inference": "variational"}),
}  # fmt: skip


def corpora(place):
    """Write small corpora for all families: training and held-out parts, new documents, and vectors."""
    rows, theta = simulated(1, documents=20, words=12, tokens=12)
    write_corpus(place / "all", cut_into_segments(rows, 1), 12, 90, labels=simulated_labels(theta), segmented=True)
    split(place / "all", place / "train", place / "heldout", fraction=0.3, seed=1)
    rows, theta = simulated(2, documents=8, words=12, tokens=12)
    ids, labels = [f"new {number}" for number in range(8)], simulated_labels(theta)
    write_corpus(place / "new", cut_into_segments(rows, 2), 12, ids=ids, labels=labels, segmented=True)
    generator = np.random.default_rng(1)
    means = generator.normal(size=(3, 4)) * 5.0
    with created(Folder(place / "vectors")) as folder:
        writer = VectorWriter(folder, 4)
        writer.add(
            Vectors(
                pa.array([str(n) for n in range(20)]),
                means[generator.integers(3, size=20)] + generator.normal(size=(20, 4)),
            )
        )
        writer.finish(list("abcd"))


def cases(families=()):
    """Yield each family with each set of options to try."""
    for family in families or family_names():
        fields = load_family(family).Options.model_fields
        for options in OPTIONS.get(family, ({"topics": 3} if "topics" in fields else {},)):
            yield family, options


def corpora_of(family, place):
    """Return the training and the held-out corpus of a family."""
    if load_family(family).corpus_kind == "vectors":
        return place / "vectors", place / "vectors"
    return place / "train", place / "heldout"


def fit_run(family, options, place, run, iterations=3):
    """Fit a run that has checkpoints."""
    train, _ = corpora_of(family, place)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit(train, run, family=family, iterations=iterations, checkpoint_every=1, scheduler="serial", **options)
    return run


def groups(run):
    """Yield the groups of arrays of a run: the folder whose record has their digest, the record's name, and the part."""
    model = [(run / "model", "model.json")]
    checkpoints = [(folder, "checkpoint.json") for folder in sorted((run / "checkpoints").glob("0*"))]
    for folder, name in [*model, *checkpoints[-1:]]:
        for part in json.loads((folder / name).read_text())["parts"]:
            yield folder, name, part


def rewrite(folder, name, part, change):
    """Change the arrays of a group, and correct all digests."""
    arrays = {key: np.array(values) for key, values in read_arrays(Folder(folder / part)).items()}
    arrays = change(arrays)
    shutil.rmtree(folder / part)
    record = json.loads((folder / name).read_text())
    record.pop("sha256", None)
    record["parts"][part] = write_arrays(Folder(folder / part), arrays)
    (folder / name).write_bytes(dump(record))
    assert (folder / part / DIGESTS).exists()


def _extreme(values, low):
    if values.dtype.kind == "f":
        return -1e300 if low else 1e300
    info = np.iinfo(values.dtype) if values.dtype.kind in "iu" else None
    return (low is False) if info is None else info.min if low else info.max


def one_entry(values, generator, entry):
    """Return a copy with one entry changed to a value."""
    changed = np.array(values)
    if changed.size:
        with np.errstate(all="ignore"):
            changed.reshape(-1)[generator.integers(changed.size)] = np.array(entry).astype(changed.dtype)
    return changed


def _swapped(values, generator):
    changed = np.array(values)
    flat = changed.reshape(-1)
    if flat.size > 1:
        first, second = generator.integers(flat.size, size=2)
        flat[[first, second]] = flat[[second, first]]
    return changed


MUTATIONS = {
    "missing": None,
    "empty": lambda values, generator: values[:0] if values.ndim else np.zeros(0, values.dtype),
    "halved": lambda values, generator: values[: len(values) // 2] if values.ndim else values,
    "doubled": lambda values, generator: np.concatenate([values, values]) if values.ndim else np.stack([values, values]),
    "narrow": lambda values, generator: values[..., : values.shape[-1] // 2] if values.ndim > 1 else values,
    "flat": lambda values, generator: values.reshape(-1) if values.ndim != 1 else values[np.newaxis],
    "one too large": lambda values, generator: one_entry(values, generator, _extreme(values, False)),
    "one too small": lambda values, generator: one_entry(values, generator, _extreme(values, True)),
    "one more": lambda values, generator: one_entry(values, generator, float(values.max(initial=0)) + 1),
    "one less": lambda values, generator: one_entry(values, generator, float(values.min(initial=0)) - 1),
    "one zero": lambda values, generator: one_entry(values, generator, 0),
    "one other": lambda values, generator: one_entry(values, generator, generator.choice(values.reshape(-1)) if values.size else 0),
    "negative": lambda values, generator: -values if values.dtype.kind in "if" else values,
    "not a number": lambda values, generator: one_entry(values, generator, np.nan if values.dtype.kind == "f" else 0),
    # Other float types are allowed: checkpoints of release 0.1 have 32-bit counts where later ones have 64-bit counts.
    "other type": lambda values, generator: values.astype("i4" if values.dtype.kind == "f" else "f4"),
    "wide type": lambda values, generator: values.astype("f8" if values.dtype != np.float64 else "i8"),
    "zeros": lambda values, generator: np.zeros_like(values),
    "ones": lambda values, generator: np.ones_like(values),
    "large": lambda values, generator: np.full_like(values, min(_extreme(values, False), 10**9)),
    "shuffled": lambda values, generator: generator.permutation(values) if values.ndim else values,
    "swapped": _swapped,
    "reversed": lambda values, generator: values[::-1].copy() if values.ndim else values,
}  # fmt: skip


def mutate(arrays, name, kind, generator):
    """Return the arrays, with one of them changed or missing."""
    change = MUTATIONS[kind]
    if change is None:
        return {key: values for key, values in arrays.items() if key != name}
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {**arrays, name: np.array(change(arrays[name], generator))}


def commands(family, place, run, out):
    """Return the command lines that read a hostile run, by name."""
    train, heldout = (str(corpus) for corpus in corpora_of(family, place))
    run, vectors = str(run), load_family(family).corpus_kind == "vectors"
    new = train if vectors else str(place / "new")
    found = {
        "verify": ["verify", run],
        "topics": ["topics", run],
        "unseen": ["evaluate", run, "--unseen", new],
        "seen": ["infer", run, train, str(out / "seen.parquet")],
        "fold in": ["infer", run, new, str(out / "unseen.parquet")],
        "report": ["report", run, str(out / "report.html")],
        "resume": ["fit", "--resume", run, "--iterations", "5", "--quiet", "--scheduler", "serial"],
    }
    if not vectors:
        warm = ["fit", train, str(out / "warm"), "--warm", run, "--family", family, "--iterations", "2", "--quiet"]
        more = [f"--set={name}={json.dumps(value)}" for name, value in Run(run).record()["options"].items() if value]
        found["evaluate"] = ["evaluate", run, "--heldout", heldout]
        found["predict"] = ["predict", run, new, str(out / "labels.parquet"), "--field", "kind"]
        found["warm"] = [*warm, "--scheduler", "serial", *more]
    return found


def fault_of(words):
    """Run a command in this process; return the traceback or the fault of its end, or an empty text if it ended well."""
    with (
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        try:
            main(["--debug", *words])
        except CollapsiumError as error:
            return "" if str(error) and "\n" not in str(error) else f"no single line: {error!r}"
        except SystemExit as end:
            return f"ended with {end.code}"
        except BaseException:
            return traceback.format_exc()
    return ""


def check(folder, name, part, arrays, shards):
    """Check arrays as the readers of a model or a checkpoint do."""
    model = Model(str(folder))
    global_state = arrays if part == "global_state" else read_arrays(Folder(folder / "global_state"))
    record, number = model.record, int(part.partition("/")[2] or 0)
    checks = ModelChecks.of(model.family, record.blocks[-1], global_state, "global_state")
    finished = name == "model.json"
    if part.startswith("rows"):
        low, high = model.blocks[number]
        checks.rows(arrays, high - low, part, finished=finished)
    elif part.startswith("documents"):
        checks.documents(arrays, record.shards[number].documents, part)
    elif part.startswith("local_states"):
        checks.local(arrays, shards[number], part)


def is_refused(folder, name, part, arrays, shards):
    """Return whether the checks refuse a group of arrays."""
    try:
        check(folder, name, part, arrays, shards)
    except DamagedError:
        return True
    return False


def shards_of(family, place):
    """Load the training shards like the tasks of a fit."""
    return [
        open_shard(load_shard(reference, model=load_family(family)))
        for reference in Corpus(corpora_of(family, place)[0]).references
    ]


def _in_child(task, sender):
    try:
        sender.send(task())
    except BaseException:
        sender.send(traceback.format_exc())


def call_in_child(task):
    """Call a function in a separate process; return its result, or a text that says how the process ended."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_in_child, args=(task, sender))
    child.start()
    sender.close()
    try:
        return receiver.recv() if receiver.poll(SECONDS) else f"no end within {SECONDS} s"
    except EOFError:
        child.join()
        return f"the process ended with {child.exitcode}"
    finally:
        child.kill()
        child.join()


def some_changes(base, generator, runs):
    """Yield random groups of a run's arrays, each with one of its arrays and a kind of change."""
    present = list(groups(base))
    for _ in range(runs):
        group = present[generator.integers(len(present))]
        names = sorted(read_arrays(Folder(group[0] / group[2])))
        yield *group, names[generator.integers(len(names))], list(MUTATIONS)[generator.integers(len(MUTATIONS))]


def all_changes(base):
    """Yield each array of the global state, of the first block and of the first shard, with each kind of change."""
    for folder, name, part in list(groups(base)):
        if part.rpartition("/")[2] in ("global_state", "00000"):
            for array in sorted(read_arrays(Folder(folder / part))):
                for kind in MUTATIONS:
                    yield folder, name, part, array, kind


def attack(base, place, family, generator, tally, shards, change):
    """Change one array in a copy of a run, and run the commands on it if the checks accept the change; return the
    faults."""
    folder, name, part, array, kind = change
    arrays = read_arrays(Folder(folder / part))
    changed = mutate(arrays, array, kind, generator)
    if (
        array in changed
        and changed[array].dtype == arrays[array].dtype
        and np.array_equal(changed[array], arrays[array])
    ):
        return []
    no = is_refused(folder, name, part, changed, shards)
    tally["refused" if no else "accepted"] += 1
    if no and generator.random() > SHARE_OF_REFUSED:
        return []
    faults = []
    with tempfile.TemporaryDirectory() as scratch:
        run = Path(scratch) / "run"
        shutil.copytree(base, run)
        rewrite(run / folder.relative_to(base), name, part, lambda _: changed)
        if name == "checkpoint.json":
            shutil.rmtree(run / "model")
        for command, words in commands(family, place, run, Path(scratch)).items():
            fault = call_in_child(lambda words=words: fault_of(words))
            tally["commands"] += 1
            if fault:
                faults.append(f"== {family} {name} {part}/{array} {kind}: {command}\n{fault}")
    return faults


def run_all(runs, families=(), seed=1):
    """Attack each family a number of times, or in all ways; return the faults."""
    generator, tally, faults = np.random.default_rng(seed), Counter(), []
    with tempfile.TemporaryDirectory() as place:
        place = Path(place)
        corpora(place)
        for number, (family, options) in enumerate(cases(families)):
            base = fit_run(family, options, place, place / f"run{number}")
            for words in commands(family, place, base, place).values():
                if "--resume" not in words:
                    fault = fault_of(words)
                    assert not fault, f"{words}: {fault}"
            shutil.rmtree(place / "warm", ignore_errors=True)
            before, shards = len(faults), shards_of(family, place)
            for change in all_changes(base) if runs == "all" else some_changes(base, generator, int(runs)):
                faults += attack(base, place, family, generator, tally, shards, change)
            print(f"{family} {options}: {len(faults) - before} faults; {dict(tally)} so far", flush=True)
            for text in faults[before:]:
                print(text, flush=True)
    return faults


if __name__ == "__main__":
    if os.environ.get("NUMBA_BOUNDSCHECK") != "1" and os.environ.get("NUMBA_DISABLE_JIT") != "1":
        words = [sys.executable, "-m", "tests.chaos.hostile_models", *sys.argv[1:]]
        os.execve(sys.executable, words, {**os.environ, **CHECKING})
    sys.exit(bool(run_all(sys.argv[1], sys.argv[2:], int(os.environ.get("FUZZ_SEED", "1")))))
