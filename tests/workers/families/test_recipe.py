"""The documented recipe for a new family, followed literally: the module and the registry line come from the page."""

import re
import sys
import types
from pathlib import Path

import numpy as np
import pytest

from collapsium.pipeline import evaluate, fit, infer, topics, verify
from collapsium.pipeline.models import registry
from collapsium.pipeline.models.model import Model
from collapsium.storage.errors import DamagedError
from tests.chaos.hostile_models import rewrite
from tests.conftest import write_corpus
from tests.fits import resumed

ROOT = Path(__file__).parents[3]
NAME = "collapsium.workers.families.unigrams"


def recipe():
    """Return the code blocks of the page: a module and a registry line."""
    text = (ROOT / "docs/project/adding_a_family.md").read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def install(monkeypatch, source, line, name=NAME):
    """Register a family until the test ends."""
    module = types.ModuleType(name)
    monkeypatch.setitem(sys.modules, name, module)
    exec(compile(source, name, "exec"), module.__dict__)
    for family, address in eval("{" + line + "}").items():
        monkeypatch.setitem(registry.FAMILIES, family, address)
    return family


@pytest.fixture
def unigrams(monkeypatch):
    """The family of the recipe."""
    return install(monkeypatch, *recipe())


@pytest.fixture
def corpus(tmp_path):
    """Return documents of one of three topics each, the topic of each, and unseen documents of the same topics."""
    generator = np.random.default_rng(3)
    phi = generator.dirichlet(np.full(30, 0.2), size=3)
    true = generator.integers(0, 3, size=200)
    counts = [generator.multinomial(40, phi[topic]) for topic in true]
    rows = [{int(word): int(row[word]) for word in np.flatnonzero(row)} for row in counts]
    unseen = write_corpus(tmp_path / "unseen", rows[150:], 30)
    return write_corpus(tmp_path / "corpus", rows[:150], 30, shard_tokens=1500), true[:150], unseen


def test_the_recipes_family__finds_topics_and_works_with_all_commands(unigrams, corpus, tmp_path):
    place, true, unseen = corpus
    run, where = tmp_path / "run", {"scheduler": "threads", "workers": 2}
    model = fit(place, run, family=unigrams, topics=3, beta=3.0, iterations=20, seed=1, **where)
    assert np.allclose(model.document_topic.sum(axis=1), 1.0)
    matches = set(zip(true.tolist(), model.document_topic.argmax(axis=1).tolist(), strict=True))
    assert len(matches) == 3  # maps each fitted topic to the simulated one
    assert np.allclose(model.topic_word.sum(axis=1), 1.0)
    assert [len(topic.words) for topic in topics(run, words=4)] == [4, 4, 4]
    assert infer(run, place, tmp_path / "proportions.parquet", scheduler="serial").rows == 150
    assert evaluate(run, unseen=unseen, scheduler="serial").score > -np.log(30)
    assert verify(run).broken == []


def test_the_recipes_family__is_resumed_to_the_same_bits(unigrams, corpus, tmp_path):
    def stop(event):
        if event["event"] == "iteration" and event["iteration"] == 4:
            raise KeyboardInterrupt

    options = {"family": unigrams, "topics": 3, "scheduler": "serial", "iterations": 8}
    whole = fit(corpus[0], tmp_path / "whole", **options)
    with pytest.raises(KeyboardInterrupt):
        fit(corpus[0], tmp_path / "run", sinks=[stop], checkpoint_every=2, **options)
    again = resumed(tmp_path / "run", scheduler="serial")
    assert again.document_topic.tobytes() == whole.document_topic.tobytes()
    assert again.topic_word.tobytes() == whole.topic_word.tobytes()


def with_array(source):
    """Return the recipe with another array of the global state: the largest posterior of each topic."""
    tokens = '    topic_tokens: Annotated[Floats, non_negative("topic")]\n'
    changes = {
        tokens: tokens + '    topic_peak: Annotated[Floats, numbers("topic", low=0, high=1)]\n',
        "np.zeros(self.options.topics))": "np.zeros(self.options.topics), np.zeros(self.options.topics))",
        "np.maximum(tokens, 0.0))": "np.maximum(tokens, 0.0), np.ones(self.options.topics))",
    }
    for before, after in changes.items():
        assert source.count(before) == 1
        source = source.replace(before, after)
    return source


@pytest.mark.parametrize(
    ("peak", "text"),
    [
        (np.ones(2), r"topic_peak: expected the shape \(3\), found \(2,\)"),
        (np.full(3, 2.0), "topic_peak: expected numbers from 0 to 1, found 2"),
        (np.ones(3, dtype=np.float32), "topic_peak: expected numbers of type float64, found float32"),
        (None, "topic_peak: the array is missing"),
    ],
)
def test_an_array_added_to_a_state__is_checked_when_it_is_read_from_disk(monkeypatch, corpus, tmp_path, peak, text):
    source, line = recipe()
    # Families are loaded once per name, and other tests load the recipe's.
    family = install(monkeypatch, with_array(source), line.replace("unigrams", "peaked"), f"{NAME[:-8]}peaked")
    fit(corpus[0], tmp_path / "run", family=family, topics=3, iterations=2, scheduler="serial")
    assert Model(tmp_path / "run/model").global_state.topic_peak.tolist() == [1.0, 1.0, 1.0]

    def change(arrays):
        remaining = {name: values for name, values in arrays.items() if name != "topic_peak"}
        return remaining if peak is None else {**remaining, "topic_peak": peak}

    rewrite(tmp_path / "run/model", "model.json", "global_state", change)
    with pytest.raises(DamagedError, match=text):
        Model(tmp_path / "run/model").global_state  # noqa: B018
