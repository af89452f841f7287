"""Estimates of a fit's resources: printed sizes, vocabulary blocks, and plans that fit or do not fit a machine."""

import json
import math
import tempfile
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from collapsium.pipeline import fit
from collapsium.pipeline.engine import estimate as planning
from collapsium.pipeline.engine.estimate import FitSizes, HeldOut, Models, estimate, plan
from collapsium.pipeline.engine.loop import Fit
from collapsium.pipeline.engine.plan import Place, Plan, Scratch, cluster_place, free_memory, local_place
from collapsium.pipeline.engine.run import ActiveRun
from collapsium.pipeline.engine.setup.limits import Limits
from collapsium.pipeline.engine.state import Progress
from collapsium.pipeline.executors.base import SerialExecutor
from collapsium.pipeline.models.registry import make_family, make_options
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.corpus.manifest import Manifest, ShardRecord, VocabularyRecord
from collapsium.storage.errors import CapacityError, CollapsiumError, MismatchError, OptionError
from collapsium.storage.runs.run import Run
from collapsium.storage.units import parse_rate, rate, size
from collapsium.workers import tasks
from collapsium.workers.arrays.buffer_pool import PoolSettings
from collapsium.workers.families.family import Summary
from tests.fits import arrays_of, problem_of

PLENTY = 1e18  # bytes that no plan of these tests exceeds
DIGEST = "0" * 64


# Plans ---------------------------------------------------------------------------------------------------------------


def corpus_of(pairs, documents=1000, words=500, of_shard=400):
    """Return a corpus for plans: shards with these numbers of pairs, the first of which has `of_shard` of the words."""
    shard_documents = -(-documents // len(pairs))
    rows = [
        ShardRecord(
            file=f"{n}", documents=shard_documents, pairs=count, tokens=2 * count, sha256=DIGEST, ids_sha256=DIGEST
        )
        for n, count in enumerate(pairs)
    ]
    manifest = Manifest(
        documents=shard_documents * len(pairs),
        pairs=sum(pairs),
        tokens=2 * sum(pairs),
        vocabulary=VocabularyRecord(file="v", words=words, sha256=DIGEST, words_sha256=DIGEST),
        shards=tuple(rows),
    )
    lengths = np.diff(np.linspace(0, pairs[0], shard_documents + 1).astype(np.int64))
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    shard = SimpleNamespace(words=np.arange(min(of_shard, words)), offsets=offsets)
    return SimpleNamespace(
        manifest=manifest,
        references=[SimpleNamespace(record=row, load=lambda: shard) for row in rows],
        vocabulary=SimpleNamespace(tokens=np.full(words, 100)),
    )


def place(scheduler="threads", processes=1, threads=2, memory=PLENTY):
    return Place(scheduler, processes, threads, memory, tempfile.gettempdir())


def plan_of(corpus, family, config, where, *, start="", heldout=None):
    """Return the plan of a single fit."""
    request = {"corpus": corpus, "family": family, "config": config, "heldout": heldout, "start_kind": start}
    alone = {"stochastic": False, "restarts": 0, "limits": Limits(), "has_consensus": False}
    return plan(SimpleNamespace(**request, **alone), where)


def planned(corpus, topics, where=None, family="lda", **options):
    return plan_of(corpus, family, make_options(family, {"topics": topics, **options}), where or place())


PLACES = st.builds(
    lambda scheduler, processes, threads: place(
        scheduler, processes if "://" in scheduler else 1, threads if scheduler != "serial" else 1
    ),
    st.sampled_from(["threads", "serial", "local", "tcp://there:8786"]),
    st.integers(1, 9),
    st.integers(1, 4),
)
SHARDS = st.lists(st.integers(1, 10**7), min_size=1, max_size=20)  # pairs of each shard
OPTIONS = st.sampled_from([{}, {"responsibilities": "dense"}, {"order": 2}, {"momentum": 0.0}, {"most_active": 9}])


# Steps that count only the memory beyond that which sweeps have freed: their totals include what sweeps take
REUSING = ("reading a shard", "scoring held-out tokens", "saving the model", "the start")
SWEEPS = ("counts by words and topics", "changes waiting to be added", "sweeping")


def sizes(found):
    return {"needed": found.needed, "driver": found.driver, "run": found.run, "moved": found.moved, **found.memory}


@given(SHARDS, PLACES, OPTIONS, st.integers(1, 5000), st.integers(1, 5000), st.sampled_from(["lda", "hdp"]))
def test_plan__grows_with_topics(pairs, where, options, first, second, family):
    """Up to 128 topics, of which documents may list all, and above, where they list fewer."""
    low, high = sorted((first, second))
    assume((low <= 128) == (high <= 128))
    corpus = corpus_of(pairs)
    less, more = (planned(corpus, topics, where, family, **options) for topics in (low, high))
    fewer, further = sizes(less), sizes(more)
    for name, value in fewer.items():
        with_sweeps = SWEEPS if name in REUSING else ()
        taken = sum(further[other] for other in with_sweeps) + further[name]
        assert value + sum(fewer[other] for other in with_sweeps) <= taken * (1 + 1e-12), name
    assert low == high or less.needed < more.needed


@given(st.sampled_from(["clusters", "documents", "tree", "file"]), PLACES, st.integers(1, 2000), st.integers(1, 50_000))
def test_plan__counts_an_initialisation_that_needs_more_than_the_sweeps(start, where, topics, documents):
    corpus = corpus_of([10 * documents], documents=documents, words=5000)
    options = make_options("lda", {"topics": topics})
    plain, begun = (plan_of(corpus, "lda", options, where, start=kind) for kind in ("", start))
    assert plain.memory["the start"] == 0.0
    assert begun.memory["the start"] >= 0.0
    assert begun.needed >= plain.needed
    # co-occurrences of 5000 words, and their mutual information
    if start == "clusters":
        names = ("the start", "sweeping", "changes waiting to be added", "local states")
        later = sum(begun.memory[name] for name in names)
        assert later * max(where.processes, 1) >= 12 * 5000**2


def test_plan__counts_large_arrays_of_later_steps_beyond_the_freed_memory_only():
    """The system's allocator returns arrays of 32 MB at once, and retains smaller ones."""
    where = replace(local_place("threads", 2), memory=PLENTY)
    documents, steps = 20_000, ("scoring held-out tokens", "saving the model")
    corpus = corpus_of([10 * documents], documents=documents, words=20_000, of_shard=20_000)
    small, large = (
        plan_of(corpus, "lda", make_options("lda", {"topics": topics}), where, heldout=corpus) for topics in (150, 600)
    )
    assert all(small.memory[name] > 1e6 for name in steps)
    # all held-out words in single precision, twice, and two copies of a shard's proportions
    full = 2 * 600 * 4 * 20_000, 2 * 600 * 8 * 20_000
    freed = large.memory["changes waiting to be added"] + large.memory["sweeping"]
    assert freed > 1e8
    assert [large.memory[name] for name in steps] == [max(amount - freed, 0.0) for amount in full]


@pytest.mark.parametrize(("kind", "clusters"), [("clusters", 64), ("quick-clusters", 12)])
def test_plan__counts_the_proportions_of_an_initialisation_once(kind, clusters):
    """Proportions stay in the worker processes, with 8 bytes per cluster of a short document."""
    documents = 50_000
    kept = 8 * clusters * documents
    corpus, options = corpus_of([10 * documents], documents=documents), make_options("lda", {"topics": 200})
    for scheduler in ("threads", "local", "tcp://there:8786"):
        where = replace(local_place(scheduler, 2), memory=PLENTY)
        plain, begun = (plan_of(corpus, "lda", options, where, start=start) for start in ("", kind))
        assert begun.driver == plain.driver
        freed = sum(begun.memory[name] for name in ("local states", "sweeping"))
        assert begun.memory["the start"] >= kept / where.processes - freed


@pytest.mark.parametrize("scheduler", ["local", "tcp://there:8786"])
def test_plan__counts_an_initialisation_in_addition_to_the_memory_reserved_for_local_states(scheduler):
    """Memory for two local states is reserved when shards are loaded, before the initialisation."""
    corpus, options = corpus_of([400_000] * 8, documents=50_000, words=50_000), make_options("lda", {"topics": 100})
    where = place(scheduler, 1, 1)
    plain, begun = (plan_of(corpus, "lda", options, where, start=start) for start in ("", "quick-clusters"))
    footprint = SimpleNamespace(proportions=800.0)
    sizes = FitSizes(corpus.manifest, footprint, where, 400, 0.0, HeldOut(), Models(), "quick-clusters", 1)
    spread = sizes.started(tasks=1).computed
    swept = sum(begun.memory[name] for name in ("sweeping", "changes waiting to be added"))
    assert spread > 2 * swept
    assert begun.needed - plain.needed == pytest.approx(spread - swept)


@pytest.mark.parametrize(("pairs", "retained"), [(50_000, True), (2_000_000, False)])
def test_plan__counts_first_local_states_unless_their_memory_is_reused(pairs, retained):
    """The allocator retains arrays below a megabyte, while the pool reuses the memory of larger ones."""
    found = planned(corpus_of([pairs] * 4, documents=40), 40, most_active=16).memory["local states"]
    # two bytes per pair and topic: 16 topics, and 8 in the first sweep
    local, first = 2 * 16 * 4 * pairs + (10 * 16 + 24) * 40, 2 * 8 * 4 * pairs
    assert found == pytest.approx(2 * local + retained * first)


def test_plan__uses_nine_tenths_of_a_limit():
    corpus = corpus_of([400_000] * 4, documents=20_000)
    for scheduler in ("threads", "local", "tcp://there:8786"):
        needed = planned(corpus, 100, place(scheduler, 1, 1)).needed
        enough, short = (place(scheduler, 1, 1, needed / 0.9 * factor) for factor in (1.001, 0.999))
        assert not planned(corpus, 100, enough).on_disk
        assert planned(corpus, 100, short).on_disk
    table = planned(corpus, 100, place("local", 1, 1, 2e9)).table()
    assert "in all, of 1.8 GB (90% of 2.0 GB)" in table
    assert "(90% of" in planned(corpus, 100, place("local", 1, 1, 1e8)).problem()


def test_a_memory_option_above_the_limit_of_the_workers__has_no_effect():
    executor = SimpleNamespace(memory=2e9, workers=2, processes=2)
    assert [cluster_place("tcp://there:8786", executor, memory, None).memory for memory in (None, "1GB", "4GB")] == [
        2e9, 1e9, 2e9,
    ]  # fmt: skip


@given(SHARDS, PLACES, OPTIONS, st.integers(1, 2000), st.data())
def test_plan__grows_with_pairs(pairs, where, options, topics, data):
    which = data.draw(st.integers(0, len(pairs) - 1))
    longer = [count + (10**6 if n == which else 0) for n, count in enumerate(pairs)]
    # The largest shard has the same words and active topics in both plans: the words would otherwise be guessed from the other
    # shards, and longer documents have fewer active topics by default.
    options = options if options.keys() & {"responsibilities", "order"} else {"most_active": 64} | options
    less, more = (planned(corpus_of(tokens, of_shard=500), topics, where, **options) for tokens in (pairs, longer))
    for name, value in sizes(less).items():
        assert value <= sizes(more)[name] * (1 + 1e-12), name
    assert less.needed < more.needed
    assert less.run < more.run


@given(SHARDS, PLACES, OPTIONS, st.integers(1, 2000))
def test_plan__has_a_size_for_each_purpose(pairs, where, options, topics):
    found = planned(corpus_of(pairs), topics, where, **options)
    assert found.place == where
    assert all(math.isfinite(value) and value >= 0 for value in sizes(found).values())
    assert found.needed == sum(found.memory.values())
    assert (found.scratch, found.on_disk, found.problem()) == (0, False, "")
    found.require()
    assert (found.moved > 0) == (where.processes > 1)  # data that stays in a process does not count as traffic
    assert (found.driver > 0) == (where.scheduler not in ("threads", "serial"))
    assert (found.free is None) == (where.scheduler == "tcp://there:8786")
    table = found.table()
    for name, value in found.memory.items():
        assert any(
            line.startswith(f"  {name}  ") and line.endswith(f" {size(value)}") for line in table.splitlines()
        ), name
    for value in (found.needed, found.run, found.moved, where.memory, found.needed * where.processes + found.driver):
        assert size(value) in table
    assert f"{where.scheduler}: {where.processes} worker process(es) of {where.threads} thread(s)" in table
    record = json.loads(json.dumps(found.record()))
    assert (record["needed"], record["fits"], record["problem"]) == (found.needed, True, "")
    assert record["place"]["memory"] == where.memory


@given(SHARDS, PLACES, st.integers(1, 2000), st.floats(1e8, 1e10), st.floats(1.0, 10.0))
def test_plan__puts_local_states_on_disk_only_if_memory_is_short(pairs, where, topics, memory, more):
    corpus = corpus_of(pairs)
    whole = planned(corpus, topics, where)
    small, large = replace(where, memory=memory), replace(where, memory=memory * more)
    short, roomy = planned(corpus, topics, small), planned(corpus, topics, large)
    assert short.on_disk == (whole.needed > small.usable)
    if not short.on_disk:
        assert short.memory == whole.memory
    if short.needed <= small.usable:
        assert roomy.needed <= large.usable  # what fits into less memory fits into more
    else:
        assert "of memory" in short.problem()
    assert (short.run, short.moved, short.driver) == (whole.run, whole.moved, whole.driver)


@given(st.integers(2, 40), st.floats(0.05, 1.2), st.sampled_from(["threads", "serial"]))
def test_plan__keeps_as_many_shards_in_memory_as_fit(shards, share, scheduler):
    corpus, where = corpus_of([10**6] * shards, documents=10**5), place(scheduler, threads=1)
    whole = planned(corpus, 100, where)
    found = planned(corpus, 100, replace(where, memory=share * whole.needed / 0.9))
    assert (found.shards, found.on_disk) == (shards, share < 1.0)
    if 1 < found.spilled < shards:
        shard_bytes = (whole.memory["local states"] + whole.memory["documents"]) / shards
        assert (found.needed + shard_bytes) * (1 + 1e-12) > found.place.usable
    assert found.scratch == pytest.approx(
        found.spilled / shards * planned(corpus, 100, replace(where, memory=0.0)).scratch
    )


@given(st.integers(1, 60), st.data())
def test_scratch__spreads_the_shards_on_disk_evenly(shards, data):
    spilled = data.draw(st.integers(0, shards))
    scratch = Scratch("/there", spilled, shards)
    on_disk = [scratch.of(number) is not None for number in range(shards)]
    assert sum(on_disk) == spilled
    for first in range(shards):
        for last in range(first, shards):
            assert abs(sum(on_disk[first:last]) - (last - first) * spilled / shards) < 1.0
    assert not any(Scratch(None, spilled, shards).of(number) for number in range(shards))


@pytest.mark.parametrize(("scheduler", "copies"), [("threads", 1 + 2 / 20), ("serial", 2), ("local", 2)])
def test_plan__needs_less_memory_with_local_states_on_disk(scheduler, copies):
    corpus = corpus_of([10**7] * 20, documents=10**6)
    whole = planned(corpus, 100, place(scheduler))
    short = planned(corpus, 100, place(scheduler, memory=0.0))
    assert short.spilled == short.shards
    assert short.needed < whole.needed / 2
    # 100 active topics with 2 bytes per pair, before and after a sweep; in threads only twice while the shard is swept
    states = copies * 2 * 100 * 2 * 10**8
    assert states < short.scratch < states + 20 * (2 * 10**8 + 10**6)


@given(st.integers(1, 40), st.integers(1, 8), st.sampled_from(["threads", "serial", "local"]), st.booleans())
def test_plan__counts_large_local_states_once_if_sweeps_replace_them(shards, threads, scheduler, large):
    pairs = 3 * 10**6 if large else 10**3
    corpus = corpus_of([pairs] * shards, documents=10**5)
    found = planned(corpus, 100, place(scheduler, threads=threads))
    held = planned(corpus, 100, place("serial")).memory["local states"]
    assert found.replaced == (large and scheduler == "threads")
    copies = 1 + min(threads / shards, 1) if found.replaced else 2
    assert found.memory["local states"] == pytest.approx(copies / 2 * held, rel=1e-9)


def test_require__refuses_with_a_table_of_the_sizes_and_the_limit():
    found = planned(corpus_of([10**6] * 4), 1000, place(memory=100e6))
    with pytest.raises(CapacityError) as raised:
        found.require()
    assert isinstance(raised.value, CollapsiumError)
    assert isinstance(raised.value, MemoryError)
    first, _, table = str(raised.value).partition("\n")
    assert table == found.table()
    assert first == f"not enough memory or disk for this fit: {found.problem()}"
    assert f"needs {size(found.needed)} of memory and may use 90.0 MB (90% of 100 MB)" in first
    assert "`memory`" in first
    assert "in all, of 90.0 MB (90% of 100 MB)" in table
    for name in found.memory:
        assert f"  {name} " in table
    assert found.record()["fits"] is False
    assert found.record()["problem"] == found.problem()


def test_require__refuses_scratch_files_that_exceed_the_free_disk(monkeypatch, tmp_path):
    monkeypatch.setattr("shutil.disk_usage", lambda folder: SimpleNamespace(free=10**6))
    corpus = corpus_of([10**7] * 20, documents=10**6)
    where = replace(place(memory=planned(corpus, 100).needed / 2), scratch=str(tmp_path / "not" / "there"))
    found = planned(corpus, 100, where)
    assert found.needed <= where.memory
    with pytest.raises(
        CapacityError, match=r"local states need .* of disk, and 1.0 MB are free in .*not/there.*`scratch`"
    ):
        found.require()
    assert not (tmp_path / "not").exists()  # checking a folder does not create it
    # The driver does not know the disks of another machine.
    planned(corpus, 100, replace(where, scheduler="tcp://there:8786")).require()


def test_require__refuses_a_run_that_exceeds_the_free_disk(monkeypatch, tmp_path):
    run_place, free = tmp_path / "full" / "run", {"full": 10**6}
    (tmp_path / "full").mkdir()
    monkeypatch.setattr("shutil.disk_usage", lambda folder: SimpleNamespace(free=free.get(folder.name, 10**15)))
    corpus = corpus_of([10**6] * 4)
    found = planned(corpus, 100, replace(place(), run=str(run_place)))
    assert found.run_free == 10**6
    with pytest.raises(
        CapacityError, match=r"the run needs .* of disk .* 1.0 MB are free in .*full/run; write it elsewhere"
    ):
        found.require()
    free.clear()
    planned(corpus, 100, replace(place(), run=str(run_place))).require()
    assert not run_place.exists()


def test_an_empty_plan__fits_everywhere():
    Plan(place(memory=0.0)).require()
    assert Plan(place()).needed == 0


# Footprints of families ----------------------------------------------------------------------------------------------


HELD = [
    (family, {"topics": topics, **options})
    for family in ("lda", "hdp")
    for topics in (3, 40)
    for options in ({}, {"responsibilities": "dense"}, {"order": 2}, {"momentum": 0.0}, {"learn": ["beta"]})
] + [("vb-lda", {"topics": topics}) for topics in (3, 40)]


class Recording(SerialExecutor):
    """Records the deltas of sweeps."""

    def __init__(self):
        self.deltas = []

    def submit(self, function, *args, process=None):
        future = super().submit(function, *args)
        if function in (tasks.start, tasks.sweep):
            self.deltas.append(future.value.delta)
        return future


@pytest.mark.parametrize(("family", "options"), HELD, ids=lambda value: str(value))
def test_footprint__is_what_a_fit_allocates(small, family, options):
    """Plans are made of the footprint: bytes of rows and deltas per word, and of local states per pair and document."""
    corpus = Corpus(small[0])
    manifest = corpus.manifest
    summary = Summary(manifest.documents, manifest.vocabulary.words, manifest.tokens, manifest.pairs)
    footprint = make_family(family, make_options(family, options)).footprint(summary)
    problem = problem_of(small[0], family, options, executor=Recording())
    overhead = 16  # bytes per word or shard that do not depend on topics, and may be missing from the footprint
    for state, _ in Fit(problem, Limits(iterations=8)):
        rows = arrays_of(state.blocks[0].value.rows)
        kept = sum(values.nbytes for values in rows.values())
        shown = sum(values.nbytes for name, values in rows.items() if not name.startswith("block_"))
        assert 0 <= kept - footprint.rows * summary.words <= overhead * summary.words
        assert 0 <= shown - footprint.shown * summary.words <= overhead * summary.words
        local = sum(values.nbytes for swept in state.swept for values in arrays_of(swept.value.local).values())
        bound = footprint.pair * summary.pairs + footprint.document * summary.documents
        assert local <= bound + overhead * len(state.swept)
    assert len(problem.executor.deltas) == 9 * len(problem.shards)
    for delta in problem.executor.deltas:
        by_word = sum(part.values.nbytes for part in delta.with_dim("word").parts.values())
        assert 0 <= by_word - footprint.delta * delta.ids["word"].size <= overhead * delta.ids["word"].size
    if "pair_topic" in arrays_of(state.swept[0].value.local):
        assert local == bound


# Place of the fit ----------------------------------------------------------------------------------------------------


def test_place_of__describes_this_machine():
    threads = local_place("threads", 3)
    assert (threads.processes, threads.threads) == (1, 3)
    serial = local_place("serial", 3)
    assert (serial.processes, serial.threads) == (1, 1)
    local = local_place("local", 3)
    assert (local.processes, local.threads) == (1, 3)
    remote = local_place("tcp://there:8786", 3)
    assert (remote.processes, remote.threads) == (3, 1)
    assert free_memory() > 0
    assert local.memory == pytest.approx(threads.memory, rel=0.2)
    assert threads.scratch == tempfile.gettempdir()
    for scheduler in ("threads", "serial", "local", "tcp://there:8786"):
        found = local_place(scheduler, 2, "1.5GB", "/elsewhere")
        assert (found.scheduler, found.memory, found.scratch) == (scheduler, 1.5e9, "/elsewhere")
    with pytest.raises(OptionError, match="memory"):
        local_place("threads", 2, "lots")


def test_estimate__plans_for_a_corpus_on_disk(small):
    found = estimate(small[0], family="hdp", topics=7, scheduler="tcp://there:8786", workers=3, memory="2GB")
    assert (found.place.processes, found.place.memory) == (3, 2e9)
    assert found.needed > found.memory["interpreter, libraries and kernels"] > 0
    assert found.moved > 0
    with pytest.raises(OptionError, match="`topics` is required"):
        estimate(small[0], family="lda")
    with pytest.raises(OptionError, match="topisc"):
        estimate(small[0], family="lda", topics=3, topisc=3)


@pytest.mark.parametrize("scheduler", ["threads", "serial", "local"])
def test_fit__refuses_before_anything_runs(small, tmp_path, scheduler):
    events = []
    with pytest.raises(CapacityError) as raised:
        fit(small[0], tmp_path / "run", family="lda", topics=3, memory=10_000_000, scheduler=scheduler,
            scratch=str(tmp_path / "scratch"), workers=2, sinks=[events.append])  # fmt: skip
    table = estimate(small[0], family="lda", topics=3, memory=10_000_000, scheduler=scheduler, workers=2).table()
    assert str(raised.value).partition("\n")[2] == table
    assert events == []  # no cluster was started
    assert list(tmp_path.iterdir()) == []


def test_a_fit_with_little_memory__keeps_local_states_on_disk_and_removes_them(small, tmp_path, monkeypatch):
    """The bits are the same; without the changed constants, a small corpus would need more memory that way."""
    monkeypatch.setattr(planning, "PROCESS_BYTES", dict.fromkeys(planning.PROCESS_BYTES, 0.0))
    monkeypatch.setattr("collapsium.workers.arrays.buffer_pool.pool.settings", PoolSettings(idle_bytes=0))
    monkeypatch.setattr("collapsium.workers.families.cvb.active_topics.CHUNK_RESPONSIBILITIES", 500)
    options = {"family": "lda", "topics": 5, "iterations": 3}
    monkeypatch.setattr("collapsium.workers.families.cvb.collapsed.CHUNK_RESPONSIBILITIES", 1)
    whole = estimate(small[0], family="lda", topics=5)
    short = estimate(small[0], family="lda", topics=5, memory=int(whole.needed) - 1)
    assert short.on_disk
    assert short.needed < whole.needed
    models, seen = [], []
    # left by a driver that was killed
    (tmp_path / "scratch of little" / ".collapsium-scratch.0123abcd.part").mkdir(parents=True)
    for name, memory in (("plenty", "1GB"), ("little", int(whole.needed) - 1)):
        scratch = tmp_path / f"scratch of {name}"

        def look(event, scratch=scratch):
            seen.append((event["event"], scratch.name, any(scratch.glob("*/spill-*"))))

        models.append(
            fit(small[0], tmp_path / name, memory=memory, scratch=str(scratch), sinks=[look], workers=2, **options)
        )
    assert ("iteration", "scratch of little", True) in seen
    assert not any(exists for _, name, exists in seen if name == "scratch of plenty")
    assert [*(tmp_path / "scratch of little").iterdir()] == []
    np.testing.assert_array_equal(*(model.rows(0).word_topic for model in models))


# The exchange between machines ---------------------------------------------------------------------------------------


def exchange_of(corpus, machines, link=1e9, costs=None, local_sweeps=1, **options):
    where = place("tcp://there:8786", machines, 1)
    request = {"corpus": corpus, "family": "lda", "config": make_options("lda", {"topics": 100, **options})}
    alone = {"stochastic": False, "restarts": 0, "limits": Limits(), "has_consensus": False}
    sizes = planning._sizes(SimpleNamespace(**request, **alone, heldout=None, start_kind=""), where)
    return planning._exchange(sizes, link, costs, local_sweeps)


def test_exchange__has_bounded_traffic_per_machine():
    """Each machine sends M (H - 1) / H of changes and as much of sums, if every machine has all words."""
    corpus = corpus_of([10_000] * 64, words=30_000, of_shard=30_000)
    whole = 30_000 * (4 * 100 + 8)
    for machines in (1, 2, 4, 8, 64):
        found = exchange_of(corpus, machines)
        assert found.sent == pytest.approx((0.11 + 0.21) * whole * (machines - 1) / machines)
        assert found.seconds == pytest.approx(8 * found.sent / 1e9 + (0.0 if machines == 1 else 4.9e-9 * whole))
    # measured with eight hosts: 3.35 MB each in iterations 4 to 12
    assert exchange_of(corpus, 8).sent == pytest.approx(3.35e6, rel=0.03)


def test_exchange_of_floats__sends_the_rows_of_a_block_to_all_others():
    corpus = corpus_of([10_000] * 8, words=500, of_shard=500)
    changes = 500 * (4 * 100 + 8)
    rows = changes + 500 * 8  # including the words' weights
    for machines in (1, 2, 8):
        found = exchange_of(corpus, machines, weights="idf")
        assert found.sent == (machines - 1) * rows + (changes if machines > 1 else 0)
        assert found.coding == 0.0


def test_plan__counts_all_rows_on_each_machine_of_an_exchange():
    corpus = corpus_of([10_000] * 8, words=30_000, of_shard=30_000)
    alone, several = (planned(corpus, 100, place("tcp://there:8786", machines, 1)) for machines in (1, 8))
    name = "counts by words and topics"
    assert several.memory[name] == alone.memory[name]
    assert several.moved == pytest.approx(8 * exchange_of(corpus, 8).sent)
    assert several.moved_scoring == 0.0


def test_exchange__recommends_local_sweeps_only_if_it_takes_longer_than_a_sweep():
    corpus = corpus_of([10_000] * 8, words=30_000, of_shard=30_000)
    costs = planning.MeasuredCosts(sweeping=1e-6, scoring=2e-7)
    fast, slow, slower = (exchange_of(corpus, 8, link, costs) for link in (1e12, 1e9, 1e6))
    assert fast.sweeping == pytest.approx(20_000 * 1e-6)
    assert fast.scoring is None  # there are no held-out tokens
    slow_sweep = replace(slow, sweeping=slow.seconds / 2.5)
    assert (slow_sweep.balancing_sweeps, replace(slow, sweeping=1.0).balancing_sweeps) == (3, 1)
    assert "`local_sweeps` 3 would balance them" in slow_sweep.table()[-1]
    assert slow_sweep.iteration == pytest.approx(1.4 * slow.seconds)
    assert replace(slow_sweep, sweeps=3).iteration == pytest.approx(2.2 * slow.seconds)
    assert "exchange takes" not in "".join(replace(slow_sweep, sweeps=3).table())
    assert "one of the 8 worker processes alone would take less" in slower.table()[-1]
    assert exchange_of(corpus, 8).iteration is None


def test_estimate__uses_measured_costs_of_a_run_of_the_same_family_and_topics(small, tmp_path):
    options = {"family": "lda", "topics": 3}
    fit(small[0], tmp_path / "run", iterations=4, heldout=small[1], scheduler="serial", **options)
    cluster = {"scheduler": "tcp://there:8786", "workers": 4, "link": "100Mbit", "heldout": small[1]}
    found = estimate(small[0], measured=tmp_path / "run", **cluster, **options)
    events = [event for event in Run(tmp_path / "run").events() if event["event"] == "iteration"][2:]
    sweeps = sum(event["sweeps"]["total"] for event in events) / sum(event["tokens"] for event in events)
    shards, tokens = len(Corpus(small[0]).manifest.shards), Corpus(small[0]).manifest.tokens
    assert found.exchange.sweeping == pytest.approx(sweeps * tokens * -(-shards // 4) / shards)
    assert found.exchange.scoring > 0
    assert found.exchange.link == 1e8
    assert json.loads(json.dumps(found.record()))["exchange"]["iteration"] == found.exchange.iteration
    assert "exchange, at 100 Mbit/s" in found.table()
    with pytest.raises(MismatchError, match="a run of lda with 4 topics.*found lda with 3 topics"):
        estimate(small[0], measured=tmp_path / "run", **cluster, family="lda", topics=4)
    with pytest.raises(OptionError, match="measured: requires `link`"):
        estimate(small[0], measured=tmp_path / "run", **options)
    for scheduler in ("threads", "local"):
        with pytest.raises(OptionError, match=f"link: applies to workers on several machines.*{scheduler}"):
            estimate(small[0], link="1Gbit", scheduler=scheduler, **options)


@pytest.mark.parametrize(
    ("text", "bits"), [("1Gbit", 1e9), ("100 Mbit/s", 1e8), ("2.5gbit", 2.5e9), ("5e8", 5e8), (1000, 1000.0)]
)
def test_rates__are_bits_per_second(text, bits):
    assert parse_rate(text) == bits
    assert parse_rate(rate(bits)) == bits


@pytest.mark.parametrize("text", ["1GB", "fast", "", "0", "-1Gbit", "nan", "inf"])
def test_invalid_rates__are_refused(text):
    with pytest.raises(OptionError, match="link: expected bits per second"):
        parse_rate(text)


def test_fit__suggests_local_sweeps_once_if_workers_wait_for_the_exchange():
    notices = []
    log = SimpleNamespace(target=None, notice=notices.append)
    session = SimpleNamespace(request=SimpleNamespace(own_samples=()), log=log, processors=None)
    executor = SimpleNamespace(workers=4, processes=4)
    for wait, message in (
        (0.01, []),
        (2.5, ["`local_sweeps` 3 would balance them"]),
        (99.0, ["4 worker processes alone"]),
    ):
        run = ActiveRun(session, resumed=False)
        for iteration in range(1, 20):
            # the first iteration takes longer
            seconds = {"reduce": 0.0, "wait": wait if iteration > 1 else 100.0}
            run._suggest_local_sweeps(
                Progress(iteration, 0.0, None, None, {}, seconds, sweeps={"total": 4.0}), executor
            )
        assert len(notices) == len(message)
        assert all(text in notice for text, notice in zip(message, notices, strict=True))
        notices.clear()
