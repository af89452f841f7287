"""Trees of topics: their shape, printed form and files, with a family whose tree is fixed."""

import json
import re
import sys
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Annotated

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq
import pytest

from collapsium.pipeline import infer, topics
from collapsium.pipeline.analysis.infer import SCHEMA
from collapsium.pipeline.cli.main import main
from collapsium.pipeline.models import registry
from collapsium.pipeline.models.model import Model
from collapsium.pipeline.models.topics import Topic, describe
from collapsium.pipeline.reporting.plots.tree import write_files
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.errors import MissingError, OccupiedError, OptionError
from collapsium.storage.io.folder import Folder
from collapsium.storage.runs.model import ModelRecord, ModelWriter, ShardDocuments
from collapsium.workers.arrays.annotations import non_negative, numbers
from collapsium.workers.arrays.state import GlobalState, LocalState, Rows
from collapsium.workers.families.family import Description, Family, FamilyOptions
from tests.conftest import write_corpus

NODES = {7: -1, 2: 7, 5: 2, 0: 2, 9: 7, 4: 9, 8: 7, 3: 8, 6: 8}  # each id's parent, depth-first
SHARE = {7: 0.3, 2: 0.0, 5: 0.25, 0: 0.15, 9: 0.1, 4: 0.0, 8: 0.0, 3: 0.0, 6: 0.0}
SHOWN = [7, 2, 5, 0, 9]  # node 2 has no tokens but has descendants with tokens; the subtree of 8 has no tokens
WORDS, CUTS = 12, (0, 5, 12)


def loadings(words):
    """Return each node's value of each word: integers of both signs, with distinct magnitudes within a node."""
    generator = np.random.default_rng(3)
    return np.array([generator.permutation(words) + 1.0 for _ in NODES]) * generator.choice(
        [-1, 1], (len(NODES), words)
    )


def _describe(block, global_state, count):
    ids, signed = np.array(list(NODES)), global_state.signed
    values = block.word_topic.T[ids]
    weight = np.abs(values) if signed else values
    top = np.argsort(-weight, axis=1, kind="stable")[:, :count]
    share = np.array([SHARE[int(topic)] for topic in ids])
    parent = np.array(list(NODES.values()))
    return Description(ids, share, top, np.take_along_axis(values, top, axis=1), parent, signed)


@dataclass(frozen=True)
class ToyTreeGlobalState(GlobalState):
    """Whether weights are signed, and whether documents have further arrays besides proportions."""

    signed: bool
    vocabulary: Annotated[float, numbers(low=0)]
    extra: Annotated[int | None, numbers("", 0, 1)] = None


@dataclass(frozen=True)
class ToyTreeRows(Rows):
    """The weights of nodes."""

    word_topic: Annotated[npt.NDArray[np.float64], numbers("word 10")]


@dataclass(frozen=True)
class ToyTreeDocuments(LocalState):
    """The proportions and paths of documents."""

    document_topic: Annotated[npt.NDArray[np.float64], non_negative("document 10")]
    document_path: Annotated[npt.NDArray[np.int64], non_negative("document 3")]


class ToyTree(Family):
    """A tree of fixed nodes, which is never fitted."""

    Options = FamilyOptions
    global_state_type, rows_type, local_type, documents_type = (
        ToyTreeGlobalState,
        ToyTreeRows,
        ToyTreeDocuments,
        ToyTreeDocuments,
    )

    def kernels(self, global_state):
        return []

    def infer(self, local, global_state):
        inferred = {"document_topic": local.document_topic}
        if global_state.extra is not None:
            inferred["document_path"] = local.document_path
            inferred["document_factors"] = local.document_path / 2
        return inferred

    def probabilities(self, rows, global_state):
        return {"word_topic": rows.word_topic / (WORDS * (WORDS + 1) / 2)}

    def fold_in(self, shard, rows, global_state, stream):
        return ToyTreeDocuments(**local_of(shard.documents))

    def _not_needed(self, *args):
        raise AssertionError("a method that these tests do not need")

    initialise = footprint = update = _not_needed
    initial_rows = start = sweep = advance = fold = predict = document_lengths = _not_needed

    def describe(self, block, global_state, count):
        return _describe(block, global_state, count)


@pytest.fixture
def family(monkeypatch):
    """The family `toy-tree`, whose topics are a tree of fixed nodes."""
    monkeypatch.setitem(registry.FAMILIES, "toy-tree", f"{__name__}:ToyTree")


def local_of(documents):
    path = np.array([[7, 2, document] for document in range(documents)], dtype=np.int64).reshape(documents, 3)
    return {"document_topic": np.full((documents, 10), 0.1), "document_path": path}


def make_model(place, corpus, signed=False, extra=False, values=None):
    """Write a finished model in two blocks."""
    corpus, writer = Corpus(corpus), ModelWriter(Folder(place))
    rows = np.zeros((WORDS, 10))
    rows[:, list(NODES)] = (loadings(WORDS) if signed else np.abs(loadings(WORDS)) if values is None else values).T
    global_state = {
        "signed": np.array(signed),
        "vocabulary": np.array(float(WORDS)),
        **({"extra": np.array(1)} if extra else {}),
    }
    parts = [writer.write_global_state(global_state)]
    for number, (low, high) in enumerate(zip(CUTS, CUTS[1:], strict=False)):
        parts.append(writer.write_block(number, {"word_topic": rows[low:high]}))
    shards = corpus.manifest.shards
    parts += [writer.write_shard(number, local_of(row.documents)) for number, row in enumerate(shards)]
    record = ModelRecord(
        family="toy-tree",
        options={},
        iterations=1,
        corpus=corpus.manifest.digest,
        vocabulary=corpus.manifest.vocabulary,
        blocks=CUTS,
        shards=tuple(ShardDocuments(documents=row.documents, ids_sha256=row.ids_sha256) for row in shards),
        parts=dict(parts),
    )
    writer.finish(record, corpus.vocabulary)
    return str(place)


@pytest.fixture
def corpus(tmp_path):
    rows = [{0: 2}, {1: 2}, {0: 1, 3: 1}, {11: 5}, {}, {0: 5}, {3: 1}]
    return write_corpus(tmp_path / "c", rows, WORDS, shard_tokens=4)


@pytest.fixture
def model(tmp_path, corpus, family):
    return make_model(tmp_path / "model", corpus)


def test_topics__have_parents_and_levels_and_include_nodes_with_tokens_below(model):
    found = topics(model, words=3)
    assert [node.id for node in found] == SHOWN
    assert [node.parent for node in found] == [None, 7, 2, 2, 7]
    assert [node.level for node in found] == [0, 1, 2, 2, 1]
    assert [node.share for node in found] == [SHARE[topic] for topic in SHOWN]
    np.testing.assert_allclose([node.below for node in found], [0.8, 0.4, 0.25, 0.15, 0.1])


def test_topics__are_all_listed_if_none_has_tokens(model, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "SHARE", dict.fromkeys(NODES, 0.0))
    assert [node.id for node in topics(model)] == list(NODES)


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("words", [1, 4, 12, 20])
def test_describe__selects_the_largest_over_all_blocks(tmp_path, corpus, family, signed, words):
    model = Model(make_model(tmp_path / "model", corpus, signed))
    found, values = describe(model, words), loadings(WORDS) if signed else np.abs(loadings(WORDS))
    assert found.signed == signed
    order = np.argsort(-np.abs(values), axis=1)[:, :words]
    np.testing.assert_array_equal(found.words, order)
    np.testing.assert_array_equal(found.probability, np.take_along_axis(values, order, axis=1))
    np.testing.assert_array_equal(found.parent, list(NODES.values()))


def command(capsys, *words):
    code = main([str(word) for word in words])
    out, err = capsys.readouterr()
    return code, out, err


def test_command__prints_an_indented_tree(capsys, model):
    code, out, _ = command(capsys, "topics", model, "--words", 2)
    head, *lines = out.splitlines()
    assert (code, head.split()) == (0, ["id", "share", "below", "words"])
    found = [re.fullmatch(r" *(\d+) +([\d.]+)% +([\d.]+)%  ( *)(w\d+ w\d+)", line) for line in lines]
    assert [int(match[1]) for match in found] == SHOWN
    assert [float(match[2]) for match in found] == [30.0, 0.0, 25.0, 15.0, 10.0]
    assert [float(match[3]) for match in found] == [80.0, 40.0, 25.0, 15.0, 10.0]
    assert [len(match[4]) for match in found] == [0, 2, 4, 4, 2]


def test_command__json_has_parents_and_levels(capsys, model):
    code, out, _ = command(capsys, "topics", model, "--words", 2, "--json")
    found = json.loads(out)
    assert code == 0
    assert [(row["id"], row["parent"], row["level"]) for row in found] == [
        (7, None, 0),
        (2, 7, 1),
        (5, 2, 2),
        (0, 2, 2),
        (9, 7, 1),
    ]
    assert all(set(row) == {"id", "parent", "level", "below", "share", "words"} for row in found)
    assert all(set(word) == {"word", "probability"} for row in found for word in row["words"])


def test_command__marks_negative_loadings(capsys, tmp_path, corpus, family):
    place = make_model(tmp_path / "model", corpus, signed=True)
    (_, first, *_), values = command(capsys, "topics", place, "--words", 12)[1].splitlines(), loadings(WORDS)[0]
    order = np.argsort(-np.abs(values))
    assert first.split()[3:] == [("-" if values[node] < 0 else "") + f"w{node}" for node in order]
    row = json.loads(command(capsys, "topics", place, "--json")[1])[0]
    assert [entry["loading"] for entry in row["words"]] == values[order][:10].tolist()


def test_command__shows_the_stability_of_samples(capsys, monkeypatch, model):
    monkeypatch.setattr("collapsium.pipeline.models.topics.samples_of", lambda run: [SimpleNamespace(url=model)] * 2)
    head, *lines = command(capsys, "topics", model)[1].splitlines()
    assert head.split() == ["id", "share", "below", "stable", "words"]
    assert [line.split()[3] for line in lines[2:]] == ["1.000"] * 3
    assert {row["stability"] for row in json.loads(command(capsys, "topics", model, "--json")[1])} == {1.0, None}


def test_command__writes_plots_and_graphml(capsys, tmp_path, model):
    files = [tmp_path / name for name in ("a.svg", "b.PNG", "c.graphml")]
    words = ["topics", model, "--picture", files[0], "--picture", files[1], "--graphml", files[2]]
    code, out, _ = command(capsys, *words)
    assert code == 0
    assert out.splitlines()[-3:] == [f"{path}: a tree of 5 nodes" for path in files]
    assert files[1].read_bytes().startswith(b"\x89PNG")
    for path in (files[0], files[2]):
        ET.fromstring(path.read_bytes())
    assert len(re.findall("<node ", files[2].read_text())) == 5
    code, out, _ = command(capsys, "topics", model, "--json", "--graphml", tmp_path / "d.graphml")
    assert len(json.loads(out)) == 5
    assert (tmp_path / "d.graphml").read_bytes() == files[2].read_bytes()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--picture", "{tmp}/x.gif"], "--picture {tmp}/x.gif: expected a name that ends in .svg, .png or .pdf"),
        (["--picture", "{tmp}/x.svg", "--picture", "{tmp}/x.svg"], "{tmp}/x.svg: named twice"),
        (["--graphml", "{tmp}/there"], "{tmp}/there: exists already; name a new file, or replace it with --overwrite"),
        (["--graphml", "{tmp}/new", "--picture", "{tmp}/there.svg"], "{tmp}/there.svg: exists already"),
    ],
)
def test_invalid_files__are_refused_before_anything_is_written(capsys, tmp_path, model, options, message):
    for name in ("there", "there.svg"):
        (tmp_path / name).write_text("kept")
    before = sorted(path.name for path in tmp_path.iterdir())
    code, _, err = command(capsys, "topics", model, *(option.format(tmp=tmp_path) for option in options))
    assert code == (1 if "exists already" in message else 2)
    assert err.startswith("collapsium: error: " + message.format(tmp=tmp_path))
    assert len(err.splitlines()) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    assert (tmp_path / "there").read_text() == "kept"


@pytest.mark.parametrize("option", ["--picture", "--graphml"])
def test_files__of_flat_topics_are_refused(capsys, tmp_path, small, option):
    from collapsium.pipeline import fit

    fit(small[0], tmp_path / "run", family="lda", topics=2, iterations=1, scheduler="serial")
    capsys.readouterr()
    code, out, err = command(capsys, "topics", tmp_path / "run", option, tmp_path / "x.svg")
    assert code == 2
    assert f"{option} {tmp_path / 'x.svg'}: this family's topics are not a tree" in err
    assert (out, len(err.splitlines())) == ("", 1)
    assert not (tmp_path / "x.svg").exists()
    assert all((topic.parent, topic.level, topic.below) == (None, None, None) for topic in topics(tmp_path / "run"))


def test_plot_without_matplotlib__is_a_clear_error(tmp_path, monkeypatch, model):
    from collapsium.pipeline.reporting.plots.tree import check_files

    monkeypatch.setattr("collapsium.pipeline.reporting.plots.style.can_draw", lambda: False)
    with pytest.raises(MissingError, match=r"pip install 'collapsium\[plots\]'"):
        check_files([str(tmp_path / "x.svg")], None)
    check_files([], str(tmp_path / "x.graphml"))
    (tmp_path / "x.graphml").write_text("")
    with pytest.raises(OccupiedError):
        check_files([], str(tmp_path / "x.graphml"))
    with pytest.raises(OptionError, match="are not a tree"):
        write_files([Topic(0, 1.0, [])], [], str(tmp_path / "y.graphml"))


@pytest.mark.parametrize("seen", [True, False])
def test_infer__writes_further_arrays_as_columns_of_lists(tmp_path, corpus, family, seen):
    model = make_model(tmp_path / "model", corpus, extra=True)
    unseen = write_corpus(tmp_path / "other", [{2: 1}, {}, {3: 4}], WORDS)
    documents = 7 if seen else 3
    assert infer(model, corpus if seen else unseen, tmp_path / "p", scheduler="serial").rows == documents
    table = pq.read_table(tmp_path / "p")
    assert table.column_names == ["id", "topics", "proportions", "path", "factors"]
    assert [str(table.schema.field(name).type.value_type) for name in ("path", "factors")] == ["int32", "float"]
    rows = table.to_pylist()
    sizes = [row.documents for row in Corpus(corpus).manifest.shards] if seen else [3]
    last = [number for size in sizes for number in range(size)]
    assert [row["path"] for row in rows] == [[7, 2, document] for document in last]
    assert [row["factors"] for row in rows] == [[3.5, 1.0, document / 2] for document in last]


def test_infer__refuses_values_above_int32(tmp_path, corpus, family, monkeypatch):
    model = make_model(tmp_path / "model", corpus, extra=True)
    infer_small = ToyTree.infer

    def infer_large(self, local, global_state):
        inferred = infer_small(self, local, global_state)
        return {**inferred, "document_path": inferred["document_path"] + 2**40}

    monkeypatch.setattr(ToyTree, "infer", infer_large)
    with pytest.raises(ValueError, match="not in range"):
        infer(model, corpus, tmp_path / "p", scheduler="serial")
    assert not (tmp_path / "p").exists()


def test_infer__without_further_arrays_has_the_usual_columns(tmp_path, corpus, model):
    infer(model, corpus, tmp_path / "p", scheduler="serial")
    assert pq.read_schema(tmp_path / "p").equals(SCHEMA)
