"""The conformance suite that every family of models must pass.

To test a family, subclass `Conformance` and set `family` and the `matrix` of options. `pytest_generate_tests` in
conftest.py repeats each test with the options of the matrix, and runs the tests of executors with the first of these
options on every executor.

The corpus has empty documents, a word that never occurs, and more shards than workers.
"""

import math
from dataclasses import replace
from itertools import pairwise
from types import MappingProxyType
from typing import Literal, get_args, get_origin

import numpy as np
import pytest

from collapsium.pipeline import Corpus, estimate, evaluate, fit, infer, topics, verify
from collapsium.pipeline.engine.checkpoints import Checkpointer, RunCheckpointer
from collapsium.pipeline.engine.loop import Fit
from collapsium.pipeline.engine.setup.limits import Limits
from collapsium.pipeline.models.model import Model
from collapsium.pipeline.models.registry import load_family
from collapsium.storage.corpus.shard import Shard
from collapsium.storage.errors import CollapsiumError, OptionError
from collapsium.storage.runs.run import Run
from collapsium.storage.runs.summary import read_summary
from collapsium.workers import tasks
from collapsium.workers.arrays.delta import Delta
from collapsium.workers.arrays.random_streams import Stream
from tests.conftest import cut_into_segments, simulated, simulated_labels, write_corpus
from tests.counting import (
    background_counts,
    document_counts,
    pair_weights,
    recount,
    topic_tokens,
    weighs_words,
    word_counts,
)
from tests.fits import (
    TIMES,
    LosingExecutor,
    PicklingExecutor,
    arrays_of,
    bits,
    problem_of,
    resumed,
    scores_of,
    state_bits,
    states,
)
from tests.strategies import documents_of

EFFECT_ITERATIONS = 22  # Two more than `even_sweeps` of vb-lda
# Alternatives for options whose type does not list them. `labels` has none, because the test corpora have one field of
# labels only, which is the default.
ALTERNATIVE_VALUES = {"labels": (), "weights": ("idf",), "learn": ((), ("alpha",), ("beta",), ("gamma",))}


def alternative_values(name, field, value):
    """Return valid values of an option that differ from the given value."""
    if name in ALTERNATIVE_VALUES:
        return [candidate for candidate in ALTERNATIVE_VALUES[name] if candidate != value]
    kind = field.annotation
    choices = [choice for part in (kind, *get_args(kind)) if get_origin(part) is Literal for choice in get_args(part)]
    if choices or bool in (kind, *get_args(kind)):
        return [candidate for candidate in choices or (False, True) if candidate != value]
    if isinstance(value, tuple) or tuple in map(get_origin, (kind, *get_args(kind))):
        return [(0.37,), (0.05,)]
    if int in (kind, *get_args(kind)):
        return [candidate for candidate in (1, 2, 3, 7) if candidate != value]
    return [candidate for candidate in (0.37, 0.71, 2.9, 31.0) if candidate != value]


class Conformance:
    """The conformance suite, with the settings that a family's subclass overrides.

    `family` is the family's name, and `matrix` lists the options that each test is repeated with. `ascends` lists those
    under which the objective is a bound that never decreases in theory. With `labelled`, the corpora also have labels,
    which `ground_truth_labels` returns for documents with known proportions; with `segmented`, they have labels and
    segments. With `separate_processes`, `make test` also runs the family in worker processes; one family does so for
    each group of similar families.
    """

    family: str
    matrix: tuple[dict, ...]
    ascends: tuple[dict, ...] = ()
    labelled = segmented = separate_processes = False
    # the option that gives each of the 30 words a prior count of 0.1
    word_prior: dict = MappingProxyType({"beta": 3.0})
    ground_truth_iterations = 80
    # every third wait for results fails in the fit with checkpoints, every fourth in the fit without
    lost_every = (3, 4)

    @pytest.fixture
    def small(self, small, request):
        """Training and held-out corpora of 60 documents."""
        if self.segmented:
            return request.getfixturevalue("segmented_small")
        return request.getfixturevalue("labelled_small") if self.labelled else small

    def ground_truth_labels(self, theta):
        """Return a list of labels (field, value) for each document, given the documents' topic proportions."""
        return simulated_labels(theta)

    def corpus(self, path, rows, vocabulary, shard_tokens=None, theta=None):
        """Write a corpus with the labels and segments that the family needs.

        Labels follow from the proportions `theta`; without them, all documents are assumed to have the same topic.
        """
        theta = np.ones((len(rows), 1)) if theta is None else theta
        labels = self.ground_truth_labels(theta) if self.labelled else None
        rows = cut_into_segments(rows, 1) if self.segmented else rows
        return write_corpus(path, rows, vocabulary, shard_tokens, labels=labels, segmented=self.segmented)

    def sized(self, topics):
        """Return the option that sets the number of topics, or of initial topics, to `topics`."""
        return {"topics": topics}

    def topic_tokens(self, global_state):
        """Return the number of tokens of each topic according to the global state."""
        return topic_tokens(global_state)

    def require_summary(self, model, topic_list, table):
        """Require that each topic's examples in the summary are the non-empty documents with its largest proportions."""
        summary = read_summary(model.folder, model.record)
        assert {topic.id for topic in topic_list} <= {topic.id for topic in summary.topics}
        assert summary.documents == 60 - 4  # four documents of the small corpus are empty
        empty = {str(number + 1) for number in range(60) if number % 17 == 5}
        columns = (table.column(name).to_pylist() for name in ("id", "topics", "proportions"))
        rows = {key: dict(zip(ids, shares, strict=True)) for key, ids, shares in zip(*columns, strict=True)}
        for topic in summary.topics:
            shares = sorted((row.get(topic.id, 0.0) for key, row in rows.items() if key not in empty), reverse=True)
            examples = [(summary.examples[example.document].id, example.share) for example in topic.examples]
            expected = [share for share in shares[:3] if share >= 0.01 + 1e-6]
            assert np.allclose([share for _, share in examples][: len(expected)], expected, atol=1e-6)
            assert all(math.isclose(rows[key][topic.id], share, abs_tol=1e-6) for key, share in examples)

    def require_order(self, topic_list, model):
        """Require that topics are listed by decreasing share, and nodes of a tree depth-first."""
        if topic_list[0].level is None:
            assert [topic.share for topic in topic_list] == sorted((topic.share for topic in topic_list), reverse=True)
        for before, node in pairwise(topic_list if topic_list[0].level is not None else []):
            assert node.level <= before.level + 1
            assert node.level <= before.level or node.parent == before.id

    def test_counts__equal_a_recount_from_the_local_state(self, small, options, references):
        problem, history = references.states(self.family, options, small)
        tokens = Corpus(small[0]).manifest.tokens
        for state, _ in history[::3]:
            rows = state.blocks[0].value.rows
            word_topic, background = word_counts(rows), background_counts(rows)
            total, rest = np.zeros(word_topic.shape), np.zeros(len(word_topic))
            for shard, swept in zip((shard.value for shard in problem.shards), state.swept, strict=True):
                local = swept.value.local
                by_word, outside, documents = recount(shard, local, pair_weights(problem.config, rows, shard))
                total[np.ix_(shard.words, np.arange(by_word.shape[1]))] += by_word
                rest[shard.words] += outside
                counted = document_counts(local, word_topic.shape[1])[:, : documents.shape[1]]
                np.testing.assert_allclose(counted, documents, rtol=1e-5, atol=1e-5)
            # Token counts are exact in single precision, whereas sums of token weights are rounded.
            rounding = 1e-4 if weighs_words(rows) else 1e-9
            np.testing.assert_allclose(word_topic, total, rtol=1e-5, atol=rounding)
            counted = self.topic_tokens(state.global_state)
            if background is None:
                np.testing.assert_allclose(rest, 0.0, atol=1e-4)
                np.testing.assert_allclose(counted[: total.shape[1]], total.sum(axis=0), rtol=1e-5)
                np.testing.assert_array_equal(counted[total.shape[1] :], 0.0)  # columns reserved for new topics
            else:
                np.testing.assert_allclose(background, rest, rtol=1e-6, atol=rounding)
            assert math.isclose(counted.sum(), tokens, rel_tol=1e-6)
            assert math.isclose(total.sum() + rest.sum(), tokens, rel_tol=1e-6)

    @pytest.mark.xdist_group("clusters")
    def test_bits__do_not_depend_on_the_executor(self, small, options, where, tmp_path, references, clusters):
        self.check_bits(small, options, where, tmp_path, references, clusters)

    def check_bits(self, small, options, where, tmp_path, references, clusters):
        kind, workers = where
        expected = references.run(self.family, options, small)
        run_options = references.fit_options(self.family, options, small)
        if kind == "processes":
            run_options["scheduler"] = clusters(workers)
        else:
            run_options |= {"scheduler": kind, "workers": workers}
        model = fit(small[0], tmp_path / "run", **run_options)
        assert bits(model) == bits(Model(expected))
        scores = scores_of(tmp_path / "run")
        assert scores == scores_of(expected)
        assert len(scores) == (2 if "schedule" in options else 4)  # after each pass, or after each iteration

    def test_bits__are_the_same_when_tasks_and_their_results_are_pickled(self, small, options, references):
        """Tasks and results are pickled on their way to worker processes and back, which must not change the results."""
        problem = problem_of(small[0], self.family, options, executor=PicklingExecutor())
        *_, (state, _) = Fit(problem, Limits(iterations=4))
        assert state_bits(state) == state_bits(references.states(self.family, options, small)[1][4][0])

    def test_bits__do_not_depend_on_where_local_states_are_stored(self, small, options, tmp_path, monkeypatch):
        """A fit gives the same bits with no, some or all local states in scratch files, which are read in small chunks."""
        monkeypatch.setattr("collapsium.workers.families.cvb.active_topics.CHUNK_RESPONSIBILITIES", 500)
        final_bits = []
        for spilled in (0, 1, 2):
            scratch = str(tmp_path / "scratch") if spilled else None
            problem = problem_of(small[0], self.family, options, scratch=scratch, spilled=(spilled, 2))
            states_ = [state for state, _ in Fit(problem, Limits(iterations=9))]
            assert (spilled > 0) == any((tmp_path / "scratch").glob("*"))
            final_bits.append(state_bits(states_[-1]))
            del problem, states_
        assert final_bits[0] == final_bits[1] == final_bits[2]

    def test_local_sweeps__conserve_counts(self, small, options):
        problem = problem_of(small[0], self.family, options)
        limits = Limits(iterations=4)
        for state, progress in Fit(replace(problem, local_sweeps=3), limits):
            total = self.topic_tokens(state.global_state).sum()
            assert math.isclose(total, Corpus(small[0]).manifest.tokens, rel_tol=1e-6)
            assert progress.iteration == state.iteration

    def test_returning_to_any_checkpoint__gives_the_same_bits(self, small, options, tmp_path, references):
        """A fit that returns to its last checkpoint after losing work ends with the bits of an uninterrupted fit."""
        problem = problem_of(small[0], self.family, options)
        limits = Limits(iterations=5)
        uninterrupted, _ = references.states(self.family, options, small)[1][5]
        for last in (1, 3):
            checkpointer = RunCheckpointer(Run(tmp_path / str(last)), problem, every=1)
            first = list(Fit(problem, Limits(iterations=last), checkpointer))
            assert checkpointer.restore().state.iteration == last
            then = list(Fit(problem, limits, checkpointer))
            assert [state.iteration for state, _ in [*first, *then]] == [0, *range(1, last + 1), *range(last, 6)]
            assert state_bits(then[-1][0]) == state_bits(uninterrupted)

    def test_lost_work__is_repeated_with_the_same_bits(self, small, options, tmp_path, references):
        problem = problem_of(small[0], self.family, options)
        uninterrupted, _ = references.states(self.family, options, small)[1][6]
        checkpointer = RunCheckpointer(Run(tmp_path / "c"), problem, every=1)
        for every, used in zip(self.lost_every, (checkpointer, Checkpointer()), strict=True):
            history = list(
                Fit(replace(problem, executor=LosingExecutor(problem.executor, every)), Limits(iterations=6), used)
            )
            assert state_bits(history[-1][0]) == state_bits(uninterrupted)
            assert any(progress.lost for _, progress in history)

    def test_a_stopped_run__is_resumed_to_the_same_bits_and_events(self, small, options, tmp_path, references):
        self.check_resumed(small, options, tmp_path, references)

    def check_resumed(self, small, options, tmp_path, references):
        """A run that was stopped by Ctrl-C is resumed by another executor."""

        def sink(event):
            if event["event"] == "iteration" and event["iteration"] == 3:
                raise KeyboardInterrupt

        uninterrupted = references.run(self.family, options, small)
        fit_options = references.fit_options(self.family, options, small)
        with pytest.raises(KeyboardInterrupt):
            fit(small[0], tmp_path / "run", sinks=[sink], checkpoint_every=2, **fit_options)
        model = resumed(tmp_path / "run", scheduler="threads", workers=2)
        assert bits(model) == bits(Model(uninterrupted))
        events = [
            [{name: value for name, value in event.items() if name not in TIMES} for event in Run(run).events()]
            for run in (tmp_path / "run", uninterrupted)
        ]
        assert events[0] == events[1]
        assert verify(tmp_path / "run").broken == []

    def test_dividing_the_vocabulary_into_blocks__changes_nothing_but_rounding(self, small, options, references):
        problem, undivided = references.states(self.family, options, small)
        model = problem.family
        _, cut = states(small[0], self.family, options, 4, cuts=(0, 7, 8, 30))
        sides = []
        for state, _ in (cut[4], undivided[4]):
            finished = [arrays_of(model.finished_rows(block.value.rows, state.global_state)) for block in state.blocks]
            sides.append(np.concatenate([rows["word_topic"] for rows in finished]))
        # Active responsibilities are multiples of 2^-15, and rounding may shift one by a single step.
        active = background_counts(undivided[4][0].blocks[0].value.rows) is not None
        np.testing.assert_allclose(*sides, rtol=1e-5, atol=5e-3 if active else 1e-7)

    def test_objective__is_finite_and_never_falls_if_it_is_a_bound(self, small, options, references):
        _, history = references.states(self.family, options, small)
        values = [progress.metrics["objective"] for _, progress in history if "objective" in progress.metrics]
        assert all(math.isfinite(value) for value in values)
        assert all(math.isfinite(value) for _, progress in history for value in progress.metrics.values())
        if options in self.ascends:
            assert all(after >= before - 1e-7 * abs(before) for before, after in zip(values, values[1:], strict=False))

    def test_probabilities__sum_to_one(self, small, options, references):
        """Predictive probabilities of training documents and of unseen ones sum to one over the vocabulary."""
        model = Model(references.run(self.family, options, small))
        documents = Corpus(small[0]).manifest.shards[0].documents
        every = Shard.of(0, documents_of([dict.fromkeys(range(30), 1)] * documents))
        block = tasks.Block(0, 30, model.rows(0), Delta())
        half = model.family
        unseen = tasks.fold_in(half, every, [block], model.global_state, Stream(0))
        for local in (model.local_state(0), unseen):
            table = half.predict(every, local, tasks.gather([block], every.words), model.global_state)
            sums = np.add.reduceat(table["probability"], every.offsets[:-1])
            np.testing.assert_allclose(sums, 1.0, rtol=1e-6)

    def test_warm_start__accepts_the_model_of_an_earlier_fit(self, small, options, tmp_path, references):
        """Word probabilities of the model sum to one, and it can initialise fits to the same and to another corpus."""
        run = references.run(self.family, options, small)
        model = Model(run)
        phi = model.family.probabilities(model.rows(0), model.global_state)["word_topic"]
        assert phi.dtype == np.float64
        assert phi.shape[0] == 30
        assert (phi >= 0.0).all()
        np.testing.assert_allclose(phi.sum(axis=0), 1.0, rtol=1e-5)
        fit_options = {
            "family": self.family,
            "scheduler": "serial",
            "iterations": 2,
            "warm": run,
            **options,
        }
        for name, corpus in (("same", small[0]), ("other", small[1])):
            fit(corpus, tmp_path / name, **fit_options)
            assert verify(tmp_path / name).broken == []

    def test_fit__accepts_one_word_one_document_and_one_topic(self, tmp_path, options):
        corpus = self.corpus(tmp_path / "one", [{0: 1}], 1)
        fit_options = {**options, **self.sized(1)}
        model = fit(corpus, tmp_path / "run", family=self.family, scheduler="serial", iterations=3, **fit_options)
        (counts,) = arrays_of(model.rows(0))["word_topic"]
        np.testing.assert_allclose(counts[counts > 0.0], [1.0], rtol=1e-5)

    def test_fit__accepts_more_topics_than_tokens(self, tmp_path, options):
        corpus = self.corpus(tmp_path / "few", [{0: 1}, {}, {1: 2}], 4)
        fit_options = {**options, **self.sized(20)}
        fit(corpus, tmp_path / "run", family=self.family, scheduler="serial", iterations=5, **fit_options)
        unseen = self.corpus(tmp_path / "unseen", [{0: 2}, {0: 1, 1: 2}], 4)
        evaluation = evaluate(tmp_path / "run", unseen=unseen, scheduler="serial")
        assert math.isfinite(evaluation.score)

    def test_commands__read_the_model(self, small, options, tmp_path, references):
        self.check_commands(small, references.run(self.family, options, small), tmp_path)

    def check_commands(self, small, run, tmp_path):
        import pyarrow.parquet as pq

        again = evaluate(run, heldout=small[1], scheduler="serial")
        assert math.isclose(again.score, scores_of(run)[-1], rel_tol=1e-9)
        assert math.isclose(again.perplexity, math.exp(-again.score))
        topic_list = topics(run, words=3)
        assert math.isclose(sum(topic.share for topic in topic_list), 1.0, rel_tol=1e-6)
        self.require_order(topic_list, Model(run))
        for name, corpus in (("seen", small[0]), ("unseen", small[1])):
            assert infer(run, corpus, tmp_path / name, scheduler="serial", threshold=0.0).rows == 60
            table = pq.read_table(tmp_path / name)
            sums = np.array([sum(row) for row in table.column("proportions").to_pylist()])
            assert table.column("id").to_pylist() == [str(n + 1) for n in range(60)]
            if name == "seen":
                self.require_summary(Model(run), topic_list, table)
            assert (sums <= 1 + 1e-5).all()
            assert (sums > 0.3).all()

    def test_ground_truth_topics__are_recovered(self, tmp_path, options):
        self.check_ground_truth(tmp_path, 200, {**options, "iterations": self.ground_truth_iterations})

    def check_ground_truth(self, tmp_path, documents, options):
        rows, theta = simulated(5, documents=documents, words=30, topics=3, tokens=60)
        corpus = self.corpus(tmp_path / "simulated", rows, 30, shard_tokens=6000, theta=theta)
        fit_options = {**options, **self.sized(3), **self.word_prior}
        model = fit(corpus, tmp_path / "run", family=self.family, scheduler="serial", **fit_options)
        rows = arrays_of(model.rows(0))
        phi = self.largest_topics(rows["word_topic"]) / rows.get("word_mean", np.ones(30))[:, np.newaxis] + 3.0 / 30
        phi = phi / phi.sum(axis=0)
        true = np.random.default_rng(5).dirichlet(np.full(30, 0.1), size=3)
        distance = 0.5 * np.abs(phi.T[:, np.newaxis] - true).sum(axis=2)
        assert sorted(distance.argmin(axis=1)) == [0, 1, 2]
        assert distance.min(axis=1).mean() < 0.1

    def largest_topics(self, word_topic):
        """Return the counts of the three largest topics, which should match the simulated ones; here there are no others."""
        assert word_topic.shape[1] == 3
        return word_topic

    def test_schedules_that_the_family_lacks__are_refused(self, small, tmp_path):
        for schedule in ("batch", "stochastic"):
            if schedule in load_family(self.family).schedules:
                continue
            options = self.matrix[0]
            with pytest.raises(
                OptionError, match=f"schedule: expected .* with family '{self.family}', found '{schedule}'"
            ):
                fit(small[0], tmp_path / "run", family=self.family, schedule=schedule, **options)
            with pytest.raises(OptionError, match=f"schedule: expected .*, found '{schedule}'"):
                estimate(small[0], family=self.family, schedule=schedule, **options)
            assert not (tmp_path / "run").exists()


class _References:
    """Serial fits that several tests compare their results with; each is computed once."""

    def __init__(self, place):
        self._place, self._runs, self._states = place, {}, {}

    def run(self, family, options, small):
        """Return the folder of a serial run of four iterations with held-out scores."""
        key = repr((family, small[0], sorted(options.items())))
        if key not in self._runs:
            out = self._place / str(len(self._runs))
            fit(small[0], out, **self.fit_options(family, options, small))
            self._runs[key] = out
        return self._runs[key]

    def fit_options(self, family, options, small):
        """Return the options of `fit` that `run` uses."""
        return {
            "family": family, "iterations": 4, "seed": 11, "scheduler": "serial", "heldout": small[1], **options,
        }  # fmt: skip

    def states(self, family, options, small):
        """Return a problem with its initial state and the state after each of ten iterations."""
        key = repr((family, small[0], sorted(options.items())))
        if key not in self._states:
            self._states[key] = states(small[0], family, options, 10)
        return self._states[key]


@pytest.fixture(scope="module")
def references(tmp_path_factory):
    """Serial runs and states, computed once per module, as reference results."""
    return _References(tmp_path_factory.mktemp("reference"))


class OptionsConformance(Conformance):
    """The conformance suite, and a test that each of the family's options changes the result or is refused."""

    @pytest.mark.long
    def test_each_option__has_an_effect_or_is_refused(self, small, options):
        options = {
            name: value for name, value in options.items() if name in load_family(self.family).Options.model_fields
        }
        declared, ineffective = load_family(self.family).Options, []
        before = self._bits_with(small, options)
        for name, field in declared.model_fields.items():
            if name in declared.drawn:
                continue
            changed_values = alternative_values(name, field, options.get(name, field.default))
            accepted = [
                bits for changed in changed_values if (bits := self._bits_with(small, {**options, name: changed}))
            ]
            if accepted and all(bits == before for bits in accepted):
                ineffective.append(name)
        assert not ineffective, f"options without effect: {ineffective}"

    def _bits_with(self, small, options):
        """Return the bits of the state after `EFFECT_ITERATIONS` iterations, or None if the options are refused."""
        try:
            return state_bits(states(small[0], self.family, options, EFFECT_ITERATIONS)[1][-1][0])
        except CollapsiumError:
            return None
