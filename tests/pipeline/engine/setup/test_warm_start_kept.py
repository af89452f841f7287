"""Fits that continue from the local states of another run, for all shards that still exist unchanged."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

from collapsium.pipeline import Corpus, Model, fit, verify
from collapsium.pipeline.engine.loop import Fit
from collapsium.pipeline.engine.setup.limits import Limits
from collapsium.pipeline.engine.setup.warm_start import WarmSource, warm_start
from collapsium.pipeline.models.registry import load_family
from collapsium.storage.corpus.writer import CorpusWriter
from collapsium.storage.errors import AbsentError, MismatchError
from collapsium.storage.io.folder import Folder, created
from collapsium.storage.runs.checkpoint import Checkpoints
from collapsium.storage.runs.run import Run
from tests.conftest import simulated_rows
from tests.counting import recount, word_counts
from tests.fits import arrays_of, bits, problem_of, resumed, scores_of
from tests.strategies import documents_of

WORDS, MORE = 30, 4
ITERATIONS = 40
FAMILIES = {
    "lda": {"topics": 4, "beta": 3.0, "learn": ("asymmetric-alpha",)},
    "lda-dense": {"topics": 4, "beta": 3.0, "responsibilities": "dense"},
    "lda-words": {"topics": 4, "beta": 3.0, "learn": ("asymmetric-beta",)},
    "hdp": {"topics": 6, "beta": 3.0, "learn": ("alpha", "gamma", "pi")},
    "gibbs-lda": {"topics": 4, "beta": 3.0, "learn": ("alpha",)},
    "gibbs-hdp": {"init_topics": 4, "beta": 3.0},
}
ALSO = {"vb-lda": {"topics": 4, "beta": 3.0, "learn": ("alpha",)}}
PAIR = {"token": "token_topic", "active": "pair_shares", "dense": "pair_topic"}


def write_shards(path, shards, words):
    """Write a corpus with the given documents in each shard."""
    with created(Folder(str(path))) as folder:
        writer, first = CorpusWriter(folder, words), 0
        for rows in shards:
            writer.add_shard(documents_of(rows, [f"d{first + n}" for n in range(len(rows))]))
            first += len(rows)
        writer.finish([f"w{n}" for n in range(words)])
    return str(path)


def halves(rows, part):
    """Return about half of each document's tokens."""
    found = [{word: (count + part) // 2 for word, count in row.items()} for row in rows]
    return [{word: count for word, count in row.items() if count} for row in found]


@pytest.fixture(scope="module")
def days(tmp_path_factory):
    """Training and held-out corpora of two days; the second has one shard more, and in `grown` also new words."""
    place = tmp_path_factory.mktemp("days")
    rows = simulated_rows(5, documents=200, words=WORDS, topics=3, tokens=60)
    cut = [rows[:50], rows[50:100], rows[100:150], rows[150:]]
    grown = [*cut[:3], [{**row, WORDS + n % MORE: 2} for n, row in enumerate(cut[3])]]
    found = {}
    for name, shards, words in (("one", cut[:3], WORDS), ("two", cut, WORDS), ("grown", grown, WORDS + MORE)):
        found[name] = [
            write_shards(place / f"{name}{part}", [halves(shard, part) for shard in shards], words) for part in (1, 0)
        ]
    return found


@pytest.fixture(scope="module")
def first_runs(days, tmp_path_factory):
    """A run on the first day's corpus for each family."""
    place = tmp_path_factory.mktemp("firsts")
    for name, options in {**FAMILIES, **ALSO}.items():
        family = name if name in ALSO or name.startswith("gibbs") else name.split("-")[0]
        fit(days["one"][0], place / name, family=family, heldout=days["one"][1], iterations=ITERATIONS, **options)
    return place


def family_of(name):
    return name if name.startswith(("gibbs", "vb")) else name.split("-")[0]


def warm_started(corpus, source, name, options=None):
    """Return the problem, the state before the first sweep, and the references to the source of a warm start."""
    family = family_of(name)
    options = {**FAMILIES, **ALSO}[name] if options is None else options
    problem = problem_of(corpus, family, options)
    warm = warm_start(WarmSource.of(source), Corpus(corpus), options.get("topics"))
    global_state, known = warm.begin(family, problem.family, problem.global_state)
    problem = replace(problem, global_state=global_state, warm=known)
    return problem, next(iter(Fit(problem, Limits(iterations=1))))[0], known


def kept_array(local):
    arrays = arrays_of(local)
    return next(arrays[name] for name in PAIR.values() if name in arrays)


@pytest.mark.parametrize(("name", "day"), list(zip(FAMILIES, ["two", "grown"] * 3, strict=True)))
def test_unchanged_shards__keep_their_local_states(days, first_runs, name, day):
    problem, state, known = warm_started(days[day][0], first_runs / name, name)
    checkpoint = Run(first_runs / name).checkpoints.at(ITERATIONS)
    parts = checkpoint.record().parts
    assert [reference.saved is not None for reference in known] == [True, True, True, False]
    for number in range(3):
        before = checkpoint.read(f"local_states/{number:05d}", parts[f"local_states/{number:05d}"])
        local = arrays_of(state.swept[number].value.local)
        np.testing.assert_array_equal(kept_array(local), kept_array(before))
    held = word_counts(state.blocks[0].value.rows)
    total = np.zeros(held.shape)
    for shard, swept in zip(problem.shards, state.swept, strict=True):
        by_word, _, _ = recount(shard.value, swept.value.local)
        total[np.ix_(shard.value.words, np.arange(by_word.shape[1]))] += by_word
    np.testing.assert_allclose(held, total, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "day"),
    [("lda", "grown"), ("hdp", "two"), ("vb-lda", "grown"), ("gibbs-lda", "two"), ("gibbs-hdp", "grown")],
)
def test_the_second_day__needs_fewer_than_half_of_the_iterations(days, first_runs, tmp_path, name, day):
    train, heldout = days[day]
    options, sampler = {**FAMILIES, **ALSO}[name], name.startswith("gibbs")
    settings = {"family": family_of(name), "heldout": heldout, "iterations": ITERATIONS, **options}
    fit(train, tmp_path / "cold", **settings)
    cold = scores_of(tmp_path / "cold")
    fit(train, tmp_path / "warm", warm=first_runs / name, **{**settings, "iterations": 12})
    warm = scores_of(tmp_path / "warm")
    assert warm[-1] > cold[-1] - (0.15 if sampler else 0.05)
    assert warm[-1] > cold[0]
    assert verify(tmp_path / "warm").broken == []


@pytest.mark.parametrize("name", ["lda", "hdp", "gibbs-lda", "vb-lda"])
def test_learned_hyperparameters__continue_from_their_values(days, first_runs, name):
    known = arrays_of(Model(first_runs / name).global_state)["alpha"]
    _, state, _ = warm_started(days["two"][0], first_runs / name, name)
    np.testing.assert_array_equal(arrays_of(state.global_state)["alpha"], known)
    fixed = {**{**FAMILIES, **ALSO}[name], "learn": ()}
    _, state, _ = warm_started(days["two"][0], first_runs / name, name, fixed)
    assert not np.array_equal(arrays_of(state.global_state)["alpha"], known)


def test_sources_with_other_options_or_families__only_give_proportions(days, first_runs):
    for name, source, options in (
        ("lda", "lda", {"topics": 5}),
        ("lda", "lda-dense", {"topics": 4}),
        ("hdp", "lda", {"topics": 4}),
        ("gibbs-lda", "gibbs-lda", {"topics": 3}),
        ("vb-lda", "vb-lda", {"topics": 7}),
        ("hdp", "hdp", {"topics": 6, "split_merge_moves": True, "beta": 3.0}),
    ):
        problem, state, known = warm_started(days["two"][0], first_runs / source, name, options)
        assert all(reference.saved is None and reference.columns == 0 for reference in known)
        assert len(state.swept) == len(problem.shards) == 4


def test_a_source_whose_checkpoints_are_missing__gives_its_model(days, first_runs, tmp_path):
    source = shutil.copytree(first_runs / "lda", tmp_path / "source")
    named = WarmSource.of(source)
    assert named.local_states == WarmSource.of(first_runs / "lda").local_states
    Checkpoints(Folder(str(source / "checkpoints"))).at(ITERATIONS).folder.remove()
    assert WarmSource.of(source).local_states == ""
    _, _, known = warm_started(days["two"][0], source, "lda")
    assert all(reference.saved is None and reference.columns == 4 for reference in known)
    with pytest.raises(AbsentError, match="the local states that the run begins from are gone"):
        warm_start(named, Corpus(days["two"][0]), 4)


def test_a_vocabulary__may_only_grow_at_its_end(days, first_runs, tmp_path):
    corpus = Corpus(days["grown"][0])
    assert corpus.begins_with(Corpus(days["one"][0]).manifest.vocabulary)
    assert not Corpus(days["one"][0]).begins_with(corpus.manifest.vocabulary)
    with pytest.raises(MismatchError, match="its vocabulary"):
        warm_start(WarmSource.of(first_runs / "lda"), Corpus(write_shards(tmp_path / "few", [[{0: 3}]], WORDS - 1)), 4)


def test_a_stopped_fit__continues_to_the_same_bits(days, first_runs, tmp_path):
    options = {"family": "hdp", "iterations": 4, "warm": first_runs / "hdp", **FAMILIES["hdp"]}
    whole = fit(days["two"][0], tmp_path / "whole", **options)
    record = json.loads((tmp_path / "whole/run.json").read_text())
    assert record["warm"]["local_states"] == WarmSource.of(first_runs / "hdp").local_states

    def sink(event):
        if event["event"] == "iteration" and event["iteration"] == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(days["two"][0], tmp_path / "run", sinks=[sink], **options)
    assert bits(resumed(tmp_path / "run"), 4) == bits(whole, 4)


def test_families_that_continue_from_local_states__have_a_function_carry():
    for family in ("lda", "hdp", "vb-lda", "gibbs-lda", "gibbs-hdp"):
        assert callable(load_family(family).carry)
    for family in ("ncrp", "gibbs-ncrp", "hca"):
        assert not hasattr(load_family(family), "carry")
