"""Fixtures and profiles of all tests."""

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
FEW = 2
THOROUGH = {  # tests of what each option could break by itself
    "test_counts__equal_a_recount_from_the_local_state",
    "test_bits__do_not_depend_on_the_executor",
    "test_a_stopped_run__is_resumed_to_the_same_bits_and_events",
    "test_objective__is_finite_and_never_falls_if_it_is_a_bound",
    "test_probabilities__sum_to_one",
    "test_each_option__has_an_effect_or_is_refused",
    "test_fit__accepts_one_word_one_document_and_one_topic",
}

# Clusters that wait for the next test, and look many times a second at what they do, would take a fifth of the time.
os.environ.setdefault("DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED", "False")
os.environ.setdefault("DASK_DISTRIBUTED__ADMIN__TICK__INTERVAL", "1s")
os.environ.setdefault("DASK_DISTRIBUTED__ADMIN__SYSTEM_MONITOR__INTERVAL", "5s")

MEMORY_DISK = "/dev/shm"
"""A file system in memory."""
TEMPORARY_BYTES = 6 << 30
"""Largest size of the temporary files of all tests; as much memory must remain for the tests themselves."""


def _put_temporary_files_in_memory():
    """Put temporary files in memory where there is room: tests write and sync hundreds of thousands of small ones."""
    if "TMPDIR" in os.environ or not os.access(MEMORY_DISK, os.W_OK):
        return
    free = min(shutil.disk_usage(MEMORY_DISK).free, psutil.virtual_memory().available // 2)
    # Some tests run what they have written.
    if free >= TEMPORARY_BYTES and not os.statvfs(MEMORY_DISK).f_flag & os.ST_NOEXEC:
        os.environ["TMPDIR"] = tempfile.tempdir = MEMORY_DISK


_put_temporary_files_in_memory()

INTERPRETED = bool(int(os.environ.get("NUMBA_DISABLE_JIT", "0")))


def write_corpus(path, rows, vocabulary, shard_tokens=None, ids=None, labels=None, segmented=False):
    """Write a corpus from one {word: count} per document, or one per segment; labels are lists of (field, value)."""
    with created(Folder(path)) as folder:
        writer = CorpusWriter(folder, vocabulary, shard_tokens)
        documents = segmented_of(rows, ids) if segmented else documents_of(rows, ids)
        extras = {} if labels is None else {"labels": pa.array([labels_of(pairs) for pairs in labels], LABELS)}
        writer.add(replace(documents, extras={**documents.extras, **extras}))
        writer.finish([f"w{n}" for n in range(vocabulary)])
    return path


def write_halves(place, rows, vocabulary):
    """Write half of each document's tokens as a training corpus, in small shards, and the other half as a held-out
    corpus."""
    halves = [
        {word: (count + part) // 2 for word, count in row.items() if (count + part) // 2}
        for row in rows
        for part in (0, 1)
    ]
    train = write_corpus(place / "train", halves[1::2], vocabulary, shard_tokens=1500)
    heldout = write_corpus(place / "heldout", halves[::2], vocabulary, shard_tokens=4000)
    return str(train), str(heldout)


def labels_of(pairs):
    """A document's labels in the form of a corpus, from (field, value)."""
    return [{"field": name, "value": value} for name, value in pairs]


def planted_rows(seed, documents=60, words=30, topics=3, tokens=40):
    """Documents drawn from sparse topics; some are empty."""
    return planted(seed, documents, words, topics, tokens)[0]


def planted(seed, documents=60, words=30, topics=3, tokens=40):
    """Documents drawn from sparse topics, and their proportions."""
    generator = np.random.default_rng(seed)
    phi = generator.dirichlet(np.full(words, 0.1), size=topics)
    rows, proportions = [], []
    for number in range(documents):
        theta = generator.dirichlet(np.full(topics, 0.2))
        counts = generator.multinomial(0 if number % 17 == 5 else tokens, theta @ phi)
        rows.append({int(word): int(counts[word]) for word in np.flatnonzero(counts)})
        proportions.append(theta)
    return rows, np.array(proportions)


def planted_labels(theta):
    """Labels of documents, one for each topic that has a tenth of it; some documents have none."""
    by_document = [[("kind", f"topic {place}") for place in np.flatnonzero(row > 0.1)] for row in theta]
    return [[] if number % 11 == 3 else labels for number, labels in enumerate(by_document)]


def dealt(rows, seed):
    """Documents cut into segments, some of which have no words; an empty document may have no segment."""
    generator = np.random.default_rng(seed)
    found = []
    for row in rows:
        segments = int(generator.integers(1, 5)) if row else int(generator.integers(0, 3))
        held = {
            word: generator.multinomial(count, generator.dirichlet(np.full(segments, 0.5)))
            for word, count in row.items()
        }
        found.append([{word: int(n[place]) for word, n in held.items() if n[place]} for place in range(segments)])
    return found


def pytest_configure(config):
    """Try fewer examples of each property in the run that leaves out long tests, and fewest without the compiler."""
    quick = "not long" in config.option.markexpr
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
    """Exclude the tests themselves from garbage collection, which would search half a million objects again and
    again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="session", autouse=True)
def unsynced():
    """Do not sync files, which therefore need no threads: the effects of a power cut are not tested."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", lambda handle: None)
        patch.setattr("collapsium.storage.io.atomic.SYNC_THREADS", 1)
        yield


@pytest.fixture(scope="session")
def small(tmp_path_factory):
    """Training and held-out corpora of 60 documents in 5 shards."""
    place = tmp_path_factory.mktemp("small")
    train = write_corpus(place / "train", planted_rows(1), 30, shard_tokens=500)
    heldout = write_corpus(place / "heldout", planted_rows(2), 30, shard_tokens=900)
    yield str(train), str(heldout)
    shutil.rmtree(place, ignore_errors=True)


@pytest.fixture(scope="session")
def labelled_small(tmp_path_factory):
    """Training and held-out corpora with labels."""
    place = tmp_path_factory.mktemp("labelled")
    corpora = []
    for name, seed, size in (("train", 1, 500), ("heldout", 2, 900)):
        rows, theta = planted(seed)
        corpora.append(str(write_corpus(place / name, rows, 30, shard_tokens=size, labels=planted_labels(theta))))
    yield tuple(corpora)
    shutil.rmtree(place, ignore_errors=True)


@pytest.fixture(scope="session")
def segmented_small(tmp_path_factory):
    """Training and held-out parts of the same 60 documents, in 5 shards, with labels and segments."""
    place = tmp_path_factory.mktemp("segmented")
    rows, theta = planted(1)
    labels = planted_labels(theta)
    write_corpus(place / "all", dealt(rows, 1), 30, shard_tokens=500, labels=labels, segmented=True)
    split(place / "all", place / "train", place / "heldout", fraction=0.2, seed=1)
    yield str(place / "train"), str(place / "heldout")
    shutil.rmtree(place, ignore_errors=True)


@pytest.fixture(scope="session")
def clusters():
    """Addresses of Dask clusters by their number of worker processes; each cluster is started once."""
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
    """Repeat a family's conformance tests with all options of its matrix, or with all options that sweeps support.

    Tests of executors run on all of them with the first options, and on one of two, in turn, with the others. Tests that
    hardly depend on a family's options use every other set of them if there are more than `FEW`. `make test` runs only the
    first options, serially, in three threads and, for families with `separate_processes`, in two processes; the rest is
    left to `make test-all`.
    """
    for argument, source in (("options", "matrix"), ("steps", "stochastic")):
        if argument in metafunc.fixturenames and hasattr(metafunc.cls, source):
            rows = getattr(metafunc.cls, source)
            if metafunc.function.__name__ not in THOROUGH:
                rows = rows[:: 1 + (len(rows) > FEW)]
            names = ["-".join(f"{key}={value}" for key, value in row.items()) for row in rows]
            if "where" not in metafunc.fixturenames:
                metafunc.parametrize(argument, rest_long(rows), ids=names)
                continue
            further = [(row, TWO_EXECUTORS[number % 2]) for number, row in enumerate(rows[1:])]
            places = [*TWO_EXECUTORS, *(name for name in EXECUTORS if name not in TWO_EXECUTORS)]
            first = [(row, where) for row in rows[:1] for where in places]
            retained = range(2 if metafunc.cls.separate_processes else 1)
            ids = [f"{names[rows.index(row)]}-{where[0]}-{where[1]}" for row, where in (*first, *further)]
            metafunc.parametrize((argument, "where"), rest_long([*first, *further], retained), ids=ids)


def rest_long(cases, retained=(0,)):
    """Return the cases of a matrix; all but the cases at some places are marked `long`."""
    return [
        case if place in retained else pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=LONG)
        for place, case in enumerate(cases)
    ]
