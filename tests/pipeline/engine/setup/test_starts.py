"""Fits that begin from proportions of their documents."""

import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from collapsium.pipeline import Corpus, Model, fit, resume, verify
from collapsium.pipeline.families.base import FILE_START
from collapsium.pipeline.families.registry import FAMILIES, load_family
from collapsium.storage.errors import AbsentError, InputError, MismatchError, OptionError
from collapsium.storage.runs.run import Run
from tests.conftest import planted_rows, write_corpus, write_halves
from tests.fits import bits, scores_of
from tests.pipeline.engine.model_io.test_checkpoints import events_of, stop_at

TOPICS, SHARDS = 3, 3
FIT = {"family": "lda", "topics": TOPICS, "iterations": 4, "scheduler": "serial"}
BEGINNING = [
    ("lda", {}),
    ("lda", {"responsibilities": "dense"}),
    ("lda", {"topics": 140, "alpha": 0.01}),
    ("hdp", {}),
    ("gibbs-lda", {}),
    ("gibbs-hdp", {}),
    ("vb-lda", {}),
]


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """A corpus in shards, held-out tokens of its documents, and the topic with most of the words of each document."""
    rows = planted_rows(5, documents=120, words=30, topics=TOPICS, tokens=60)
    folders = write_halves(tmp_path_factory.mktemp("planted"), rows, 30)
    model = fit(folders[0], tmp_path_factory.mktemp("known") / "run", **{**FIT, "iterations": 60})
    theta = np.concatenate([part["document_topic"] for part in map(model_proportions, [model] * SHARDS, range(SHARDS))])
    return *folders, theta


def model_proportions(model, number):
    return model.shard_model.infer(model.documents(number), model.global_state)


def ids_of(corpus):
    return [name for reference in Corpus(corpus).references for name in reference.ids().to_pylist()]


def written(path, theta, ids=None):
    columns = {} if ids is None else {"id": ids}
    columns |= {f"topic_{k}": values for k, values in enumerate(np.asarray(theta, dtype=np.float64).T)}
    pq.write_table(pa.table(columns), path)
    return str(path)


@pytest.mark.parametrize(("family", "options"), BEGINNING, ids=lambda value: str(value))
def test_a_fit__begins_where_the_proportions_say(planted, tmp_path, family, options):
    given = {**FIT, "family": family, "heldout": planted[1], **options}
    given.pop("topics") if family == "gibbs-hdp" else None
    file = written(tmp_path / "theta.parquet", planted[2], ids_of(planted[0]))
    fit(planted[0], tmp_path / "started", start=file, **given)
    fit(planted[0], tmp_path / "random", **{**given, "iterations": 1})
    assert scores_of(tmp_path / "started")[0] > scores_of(tmp_path / "random")[0] + 0.1
    assert verify(tmp_path / "started").broken == []
    record = Run(tmp_path / "started").record()["start"]
    assert (record["kind"], Path(record["url"]).name) == (FILE_START, "theta.parquet")


def test_rows__are_matched_by_id_or_by_order(planted, tmp_path):
    ids, theta = ids_of(planted[0]), planted[2]
    order = np.random.default_rng(1).permutation(len(ids))
    files = [
        written(tmp_path / "ids.parquet", theta, ids),
        written(tmp_path / "order.parquet", theta),
        written(tmp_path / "mixed.parquet", theta[order], [ids[i] for i in order]),
    ]
    models = [fit(planted[0], tmp_path / str(number), start=file, **FIT) for number, file in enumerate(files)]
    assert len({str(bits(model, SHARDS)) for model in models}) == 1


def test_documents_without_proportions__begin_at_random_by_the_seed(planted, tmp_path):
    file = written(tmp_path / "some.parquet", planted[2][:70], ids_of(planted[0])[:70])
    events = []
    models = [
        fit(planted[0], tmp_path / str(number), start=file, seed=seed, sinks=[events.append], **FIT)
        for number, seed in enumerate((1, 1, 2))
    ]
    found = [str(bits(model, SHARDS)) for model in models]
    assert found[0] == found[1] != found[2]
    notices = [event["text"] for event in events if event["event"] == "notice"]
    assert any("50 of 120 documents have no proportions" in text for text in notices)


def test_topics_more_or_fewer_than_the_fit_has__are_cut_or_left_empty(planted, tmp_path):
    wide = np.zeros((len(planted[2]), 9))
    wide[:, [1, 4, 8]] = planted[2]
    given = {**FIT, "heldout": planted[1]}
    plain = fit(planted[0], tmp_path / "plain", start=written(tmp_path / "a.parquet", planted[2]), **given)
    unused = fit(planted[0], tmp_path / "unused", start=written(tmp_path / "b.parquet", wide), **given)
    assert bits(plain, SHARDS) == bits(unused, SHARDS)
    events = []
    few = written(tmp_path / "c.parquet", planted[2])
    fit(planted[0], tmp_path / "cut", start=few, sinks=[events.append], **{**given, "topics": 2})
    assert any("2 largest of 3 topics" in event["text"] for event in events if event["event"] == "notice")
    more = fit(planted[0], tmp_path / "more", start=few, sinks=[events.append], **{**given, "topics": 5})
    assert any("3 topics; the other 2 begin empty" in event["text"] for event in events if event["event"] == "notice")
    assert more.record.iterations == 4


@pytest.mark.parametrize("options", [{}, {"family": "hdp"}, {"workers": 2, "scheduler": "local"}], ids=str)
def test_a_stopped_run__goes_on_to_the_same_bits(planted, tmp_path, options):
    file = written(tmp_path / "theta.parquet", planted[2])
    given = {**FIT, "heldout": planted[1], "start": file, **options}
    whole = fit(planted[0], tmp_path / "whole", **{**given, "scheduler": "serial", "workers": None})
    with pytest.raises(KeyboardInterrupt):
        fit(planted[0], tmp_path / "run", sinks=[stop_at(2)], **given)
    Path(file).unlink()
    assert bits(resume(tmp_path / "run", scheduler="serial"), SHARDS) == bits(whole, SHARDS)
    assert events_of(tmp_path / "run")[1:] == events_of(tmp_path / "whole")[1:]  # after that of the cluster


def test_a_moved_file__is_named_again_and_another_one_refused(planted, tmp_path):
    file = written(tmp_path / "theta.parquet", planted[2])
    fit(planted[0], tmp_path / "run", start=file, **FIT)
    moved, other = tmp_path / "moved.parquet", written(tmp_path / "other.parquet", planted[2][::-1])
    shutil.move(file, moved)
    with pytest.raises(MismatchError, match="is not what the run begins from"):
        resume(tmp_path / "run", start=other, iterations=6)
    assert resume(tmp_path / "run", start=str(moved), iterations=6, scheduler="serial").record.iterations == 6
    assert Run(tmp_path / "run").record()["start"]["url"].endswith("moved.parquet")


def test_what_does_not_fit__is_refused_and_nothing_is_written(planted, tmp_path):
    good = written(tmp_path / "good.parquet", planted[2])
    short = written(tmp_path / "short.parquet", planted[2][:-1])
    strange = written(tmp_path / "strange.parquet", planted[2][:2], ["x", "y"])
    fit(planted[0], tmp_path / "warm", **FIT)
    for options, kind, text in (
        ({"start": "randon"}, OptionError, r"start: expected random.*, found 'randon'.*random"),
        ({"start": str(tmp_path / "no.parquet")}, AbsentError, "no.parquet"),
        ({"start": short}, InputError, "expected 120 rows, one for each document .*, found 119"),
        (
            {"start": strange},
            InputError,
            r"expected ids of the documents of .*, found none among 2 \(such as 'x', 'y'\)",
        ),
        ({"start": good, "schedule": "stochastic"}, OptionError, "start: the stochastic schedule"),
        ({"start": good, "warm": tmp_path / "warm"}, OptionError, "start: goes without `warm`"),
        ({"start": good, "restarts": 3}, OptionError, "restarts: 3 fits of 'lda' from one file"),
        ({"start": good, "family": "ncrp"}, OptionError, "start: the family 'ncrp' begins at random only"),
    ):
        with pytest.raises(kind, match=text) as raised:
            given = {name: value for name, value in FIT.items() if options.get("family") != "ncrp" or name != "topics"}
            fit(planted[0], tmp_path / "run", **{**given, **options})
        assert "\n" not in str(raised.value)
        assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("family", FAMILIES)
def test_families__name_the_starts_that_they_take(family):
    assert set(load_family(family).starts) <= {FILE_START}


def test_one_word_and_empty_documents__begin_too(tmp_path):
    corpus = write_corpus(tmp_path / "one", [{}, {0: 2}, {}], 1)
    file = written(tmp_path / "theta.parquet", [[0.5, 0.5]] * 3)
    for family in ("lda", "hdp", "gibbs-lda", "vb-lda"):
        model = fit(corpus, tmp_path / family, family=family, topics=2, iterations=2, start=file)
        assert Model(model.folder.url).record.iterations == 2
