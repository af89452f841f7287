"""Fixtures, simulated corpora and hypothesis profiles that all tests share."""

import gc
import os
import shutil
import tempfile
from dataclasses import replace

import numpy as np
import psutil
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, settings

from collapsium.pipeline import split
from collapsium.storage.corpus.parquet import LABELS
from collapsium.storage.corpus.writer import CorpusWriter
from collapsium.storage.io.folder import Folder, created
from tests.strategies import documents_of, segmented_of

EXECUTORS = [("threads", 1), ("threads", 3), ("processes", 1), ("processes", 2), ("processes", 3)]
TWO_EXECUTORS = [("threads", 3), ("processes", 2)]
LONG = pytest.mark.long
ALL_OPTIONS_LIMIT = 2  # up to this many sets of options, every conformance test runs with each of them
TESTS_WITH_ALL_OPTIONS = {  # conformance tests that any single option could break
    "test_counts__equal_a_recount_from_the_local_state",
    "test_bits__do_not_depend_on_the_executor",
    "test_a_stopped_run__is_resumed_to_the_same_bits_and_events",
    "test_objective__is_finite_and_never_falls_if_it_is_a_bound",
    "test_probabilities__sum_to_one",
    "test_each_option__has_an_effect_or_is_refused",
    "test_fit__accepts_one_word_one_document_and_one_topic",
}

# Tokens in a shard for 5 shards of the small training corpora and 3 of the held-out ones, or for 3 and 2. Most of a small
# fit's time is proportional to the shards.
FIVE_SHARDS, THREE_SHARDS = (500, 900), (800, 1300)

# Idle clusters that profile themselves many times per second would take a fifth of the tests' time.
os.environ.setdefault("DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED", "False")
os.environ.setdefault("DASK_DISTRIBUTED__ADMIN__TICK__INTERVAL", "1s")
os.environ.setdefault("DASK_DISTRIBUTED__ADMIN__SYSTEM_MONITOR__INTERVAL", "5s")

MEMORY_DISK = "/dev/shm"
"""A file system in memory."""
TEMPORARY_BYTES = 6 << 30
"""Upper bound for the temporary files of all tests together. At least twice as much memory must be available, because
the tests need the other half."""


def _put_temporary_files_in_memory():
    """Store temporary files in memory if there is room, because tests write and sync hundreds of thousands of small files."""
    if "TMPDIR" in os.environ or not os.access(MEMORY_DISK, os.W_OK):
        return
    free = min(shutil.disk_usage(MEMORY_DISK).free, psutil.virtual_memory().available // 2)
    # Some tests execute files that they have written, which needs a file system without `noexec`.
    if free >= TEMPORARY_BYTES and not os.statvfs(MEMORY_DISK).f_flag & os.ST_NOEXEC:
        os.environ["TMPDIR"] = tempfile.tempdir = MEMORY_DISK


_put_temporary_files_in_memory()

INTERPRETED = bool(int(os.environ.get("NUMBA_DISABLE_JIT", "0")))


def write_corpus(path, rows, vocabulary, shard_tokens=None, ids=None, labels=None, segmented=False):
    """Write a corpus of documents {word: count}, or with `segmented` of lists of segments {word: count}.

    `labels` has a list of (field, value) for each document.
    """
    with created(Folder(path)) as folder:
        writer = CorpusWriter(folder, vocabulary, shard_tokens)
        documents = segmented_of(rows, ids) if segmented else documents_of(rows, ids)
        extras = {} if labels is None else {"labels": pa.array([labels_of(pairs) for pairs in labels], LABELS)}
        writer.add(replace(documents, extras={**documents.extras, **extras}))
        writer.finish([f"w{n}" for n in range(vocabulary)])
    return path


def write_small(place, *shard_tokens):
    """Write a training and a held-out corpus of 60 documents each, with so many tokens in a shard."""
    corpora = []
    for name, seed, size in zip(("train", "heldout"), (1, 2), shard_tokens, strict=True):
        corpora.append(str(write_corpus(place / name, simulated_rows(seed), 30, shard_tokens=size)))
    return tuple(corpora)


def write_halves(place, rows, vocabulary):
    """Write half of each document's tokens as a training corpus and the other half as a held-out corpus."""
    halves = [
        {word: (count + part) // 2 for word, count in row.items() if (count + part) // 2}
        for row in rows
        for part in (0, 1)
    ]
    train = write_corpus(place / "train", halves[1::2], vocabulary, shard_tokens=1500)
    heldout = write_corpus(place / "heldout", halves[::2], vocabulary, shard_tokens=4000)
    return str(train), str(heldout)


def labels_of(pairs):
    """Convert a document's labels from (field, value) to the records that a corpus stores."""
    return [{"field": name, "value": value} for name, value in pairs]


def simulated_rows(seed, documents=60, words=30, topics=3, tokens=40):
    """Return documents {word: count} drawn from sparse topics; every 17th is empty."""
    return simulated(seed, documents, words, topics, tokens)[0]


def simulated(seed, documents=60, words=30, topics=3, tokens=40):
    """Return documents {word: count} drawn from sparse topics, every 17th empty, and their topic proportions."""
    generator = np.random.default_rng(seed)
    phi = generator.dirichlet(np.full(words, 0.1), size=topics)
    rows, proportions = [], []
    for number in range(documents):
        theta = generator.dirichlet(np.full(topics, 0.2))
        counts = generator.multinomial(0 if number % 17 == 5 else tokens, theta @ phi)
        rows.append({int(word): int(counts[word]) for word in np.flatnonzero(counts)})
        proportions.append(theta)
    return rows, np.array(proportions)


def simulated_labels(theta):
    """Return a label for each topic with more than a tenth of a document; every 11th document has no labels."""
    by_document = [[("kind", f"topic {place}") for place in np.flatnonzero(row > 0.1)] for row in theta]
    return [[] if number % 11 == 3 else labels for number, labels in enumerate(by_document)]


def cut_into_segments(rows, seed):
    """Cut documents into segments {word: count} at random; segments may lack words, and empty documents lack segments."""
    generator = np.random.default_rng(seed)
    documents = []
    for row in rows:
        segments = int(generator.integers(1, 5)) if row else int(generator.integers(0, 3))
        counts = {
            word: generator.multinomial(count, generator.dirichlet(np.full(segments, 0.5)))
            for word, count in row.items()
        }
        documents.append([{word: int(n[place]) for word, n in counts.items() if n[place]} for place in range(segments)])
    return documents


def leaves_out_long_tests(config):
    """Return whether tests that are marked `long` are left out, as by `make test`."""
    return "not long" in config.option.markexpr


def pytest_configure(config):
    """Set the number of hypothesis examples: fewer if long tests are left out, and fewest if kernels are not compiled."""
    quick = leaves_out_long_tests(config)
    settings.register_profile(
        "collapsium",
        deadline=None,
        max_examples=25 if not quick else 8 if INTERPRETED else 15,
        derandomize=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    )
    settings.load_profile("collapsium")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    from tests.scheduling import ModuleScheduling

    return ModuleScheduling(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Exempt the collected tests from garbage collection, which would otherwise scan their half a million objects again
    and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="session", autouse=True)
def unsynced():
    """Turn off `os.fsync`, and the threads for it, for speed; only tests/chaos/test_synced.py simulates power cuts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", lambda handle: None)
        patch.setattr("collapsium.storage.io.atomic.SYNC_THREADS", 1)
        yield


@pytest.fixture(scope="session")
def shard_tokens(pytestconfig):
    """Tokens in a shard of the small training and held-out corpora; fewer shards if long tests are left out."""
    return THREE_SHARDS if leaves_out_long_tests(pytestconfig) else FIVE_SHARDS


@pytest.fixture(scope="session")
def small(tmp_path_factory, shard_tokens):
    """Training and held-out corpora of 60 documents each."""
    place = tmp_path_factory.mktemp("small")
    yield write_small(place, *shard_tokens)
    shutil.rmtree(place, ignore_errors=True)


@pytest.fixture(scope="session")
def five_shards(tmp_path_factory):
    """The corpora of `small`, always with 5 and 3 shards."""
    place = tmp_path_factory.mktemp("five")
    yield write_small(place, *FIVE_SHARDS)
    shutil.rmtree(place, ignore_errors=True)


@pytest.fixture(scope="session")
def labelled_small(tmp_path_factory, shard_tokens):
    """The corpora of `small`, with labels."""
    place = tmp_path_factory.mktemp("labelled")
    corpora = []
    for name, seed, size in zip(("train", "heldout"), (1, 2), shard_tokens, strict=True):
        rows, theta = simulated(seed)
        corpora.append(str(write_corpus(place / name, rows, 30, shard_tokens=size, labels=simulated_labels(theta))))
    yield tuple(corpora)
    shutil.rmtree(place, ignore_errors=True)


@pytest.fixture(scope="session")
def segmented_small(tmp_path_factory, shard_tokens):
    """Training and held-out tokens of the same 60 documents, with labels and segments."""
    place = tmp_path_factory.mktemp("segmented")
    rows, theta = simulated(1)
    labels = simulated_labels(theta)
    documents = cut_into_segments(rows, 1)
    write_corpus(place / "all", documents, 30, shard_tokens=shard_tokens[0], labels=labels, segmented=True)
    split(place / "all", place / "train", place / "heldout", fraction=0.2, seed=1)
    yield str(place / "train"), str(place / "heldout")
    shutil.rmtree(place, ignore_errors=True)


@pytest.fixture(scope="session")
def clusters():
    """A function that returns the address of a Dask cluster with a number of worker processes, started at its first use."""
    import distributed

    started = {}

    def address(workers):
        if workers not in started:
            started[workers] = distributed.LocalCluster(
                n_workers=workers, threads_per_worker=1, processes=True, host="127.0.0.1", dashboard_address=None
            )
        return started[workers].scheduler_address

    yield address
    for cluster in started.values():
        cluster.close(timeout=20)


def pytest_generate_tests(metafunc):
    """Repeat the conformance tests of a family with the options of its `matrix`, or of `stochastic` for `steps`.

    Tests outside of `TESTS_WITH_ALL_OPTIONS` use every other set of options if there are more than `ALL_OPTIONS_LIMIT`.
    Tests with the argument `where` run with the first options on all `EXECUTORS`, and with each further set of options
    on one of `TWO_EXECUTORS`. All cases but the first are marked `long`, so that `make test` leaves them to
    `make test-all`; families with `separate_processes` retain the first two executors.
    """
    for argument, source in (("options", "matrix"), ("steps", "stochastic")):
        if argument in metafunc.fixturenames and hasattr(metafunc.cls, source):
            rows = getattr(metafunc.cls, source)
            if metafunc.function.__name__ not in TESTS_WITH_ALL_OPTIONS:
                rows = rows[:: 1 + (len(rows) > ALL_OPTIONS_LIMIT)]
            names = ["-".join(f"{key}={value}" for key, value in row.items()) for row in rows]
            if "where" not in metafunc.fixturenames:
                metafunc.parametrize(argument, mark_rest_long(rows), ids=names)
                continue
            further_cases = [(row, TWO_EXECUTORS[number % 2]) for number, row in enumerate(rows[1:])]
            executors = [*TWO_EXECUTORS, *(name for name in EXECUTORS if name not in TWO_EXECUTORS)]
            first_cases = [(row, where) for row in rows[:1] for where in executors]
            retained = range(2 if metafunc.cls.separate_processes else 1)
            ids = [f"{names[rows.index(row)]}-{where[0]}-{where[1]}" for row, where in (*first_cases, *further_cases)]
            metafunc.parametrize((argument, "where"), mark_rest_long([*first_cases, *further_cases], retained), ids=ids)


def mark_rest_long(cases, retained=(0,)):
    """Mark all cases of a parametrised test as `long` except those at the indices `retained`."""
    return [
        case if place in retained else pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=LONG)
        for place, case in enumerate(cases)
    ]
