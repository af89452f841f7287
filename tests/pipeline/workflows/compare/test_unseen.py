"""Comparisons on unseen documents: perplexity given labels, what varies, and the prediction of a field."""

import json
import math
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from collapsium.pipeline import compare, evaluate, verify
from collapsium.pipeline.cli.main import main
from collapsium.storage.errors import MismatchError, OptionError
from tests.conftest import write_corpus
from tests.pipeline.analysis.test_given_labels import WORDS, labelled_corpus

ASKED = {
    "families": ("hdsp", "labeled-lda", "lda"),
    "topics": (4,),
    "restarts": 2,
    "iterations": 5,
    "samples": 2,
    "sample_every": 1,
    "vary": {"*": {"eta": [0.1, 0.5], "labels": [["kind", "place"], ["kind"]]}},
    "field": "kind",
    "seed": 4,
}
SAME_BY_HAND = """--families hdsp,labeled-lda,lda --topics 4 --restarts 2 --iterations 5 --samples 2 --sample-every 1
 --vary eta=0.1,0.5 --vary labels=["kind","place"],["kind"] --field kind --seed 4"""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Corpora of labelled documents, and others."""
    place = tmp_path_factory.mktemp("unseen")
    labelled_corpus(place / "train", 1, 90)
    labelled_corpus(place / "unseen", 2, 44)
    write_corpus(place / "bare", [{0: 2, 7: 1}, {17: 3}], WORDS)
    write_corpus(place / "other", [{0: 2}], 3)
    return place


@pytest.fixture(scope="module")
def compared(place):
    """Three families, two values of an option, with and without a field."""
    return compare(place / "train", place / "out", unseen=place / "unseen", scheduler="serial", **ASKED)


# Families ---------------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_cells__have_the_scores_of_evaluate(place, compared):
    names = [f"{name}-eta-{eta}{more}" for name in ("hdsp-4", "labeled-lda") for eta in (0.1, 0.5) for more in VARIANTS]
    assert [row["cell"] for row in compared.rows] == [*names, "lda-4"]
    for row in compared.rows[:2] + compared.rows[-3:]:
        run = place / "out/runs" / row["cell"]
        fields = [] if row["family"] == "lda" else ["kind"]
        found = evaluate(run, unseen=place / "unseen", given_labels=True, field=fields, seed=4)
        assert row["ensemble_score"] == pytest.approx(found.given_labels.score, rel=1e-12)
        assert (row["labelled"], row["unknown"]) == (found.given_labels.labelled, found.given_labels.unknown)
        each = [evaluate(run / f"members/00{n}", unseen=place / "unseen", given_labels=True, seed=4) for n in (0, 1)]
        np.testing.assert_allclose(row["scores"], [score.given_labels.score for score in each], rtol=1e-12)
        assert row["perplexity"] == math.exp(-np.mean(row["scores"]))
        assert row["samples"] == (2 if row["family"] == "labeled-lda" else 0)
        if not fields:
            assert row["classified"] is row["accuracy"] is None
            continue
        (own,) = found.fields
        assert (row["accuracy"], row["macro_f1"], row["micro_f1"]) == (own.accuracy, own.macro_f1, own.micro_f1)
        assert row["classified"]["confusion"] == [list(line) for line in own.confusion]
        assert [value["f1"] for value in row["classified"]["classes"]] == [value.f1 for value in own.classes]


VARIANTS = ("-labels-kind+place", "-labels-kind")


def test_variants__are_fitted_with_what_they_say(compared):
    for row in compared.rows[:-1]:
        options = json.loads(row["options"])
        assert options["eta"] == (0.1 if "eta-0.1" in row["cell"] else 0.5)
        assert f"eta = {options['eta']}" in row["start"]
        assert row["start"].endswith(f"labels = {'+'.join(options['labels'])}")
    assert compared.left_out == ("lda-4 does not use 'kind' and cannot predict it",)


@pytest.mark.long
def test_files__hold_the_tables_and_name_the_best(place, compared):
    out = place / "out"
    kept = pq.read_table(out / "table.parquet").to_pylist()
    assert kept == [{name: row[name] for name in kept[0]} for row in compared.rows]
    text = (out / "table.md").read_text()
    best = {family: min(row["perplexity"] for row in kept if row["family"] == family) for family in ASKED["families"]}
    line = next(line for line in text.splitlines() if line.startswith("Best of each family: "))
    assert [part.rpartition(": ")[2] for part in line.rstrip(".").split("; ")] == [
        f"{value:.1f}" for value in sorted(best.values())
    ]
    for row in compared.rows[:-1]:
        assert f"| {row['accuracy']:.3f} | {row['macro_f1']:.3f} | {row['micro_f1']:.3f} |" in text
    assert compared.plots == ("score-by-topics",)
    assert not verify(out).broken


def test_the_same_again__does_nothing_anew_and_prints_json(place, compared, capsys):
    words = [str(place / name) for name in ("train", "out", "unseen")]
    words[2:2] = ["--unseen"]
    assert main(["compare", *words, *SAME_BY_HAND.split(), "--scheduler", "serial", "--json"]) == 0
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert found["cells"] == list(compared.rows)
    assert "9 cells, 9 done before" in err
    assert main(["compare", *words, "--field", "kind"]) == 2
    assert "was begun with" in capsys.readouterr().err


def test_a_number__is_predicted_too(place):
    settings = {"hdsp": {"scaling": "linear", "covariates": ["stars"], "labels": ["kind"]}}
    asked = {"families": ("hdsp",), "topics": (3,), "iterations": 2, "settings": settings, "field": "stars"}
    (row,) = compare(place / "train", place / "numbers", unseen=place / "unseen", scheduler="serial", **asked).rows
    assert [value["value"] for value in row["classified"]["classes"]] == [1.0, 2.0, 3.0]
    assert json.loads(row["options"])["labels"] == ["kind"]


# What cannot be ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"field": "kid"}, "field: .* has no field 'kid' .did you mean 'kind'"),
        ({"vary": {"*": {"labels": [["plac"]]}}}, "labels: .*unknown field of labels 'plac' .did you mean 'place'"),
        ({"classifiers": ("svm",)}, "classifiers: is no longer an option"),
        ({"families": ("gibbs-ncrp",)}, "families: 'gibbs-ncrp' cannot score documents"),
        ({"vary": {"*": {"eat": [1.0]}}}, "--vary eat: no compared family has such an option"),
    ],
)
def test_wrong_options__are_refused_before_anything_is_made(place, options, said):
    options = {"families": ("hdsp", "labeled-lda"), **options}
    with pytest.raises(OptionError, match=said):
        compare(place / "train", place / "nothing", unseen=place / "unseen", **options)
    assert not (place / "nothing").exists()


def test_wrong_documents__are_refused(place):
    with pytest.raises(MismatchError, match="is the training corpus"):
        compare(place / "train", place / "nothing", unseen=place / "train")
    with pytest.raises(MismatchError, match="vocabulary"):
        compare(place / "train", place / "nothing", unseen=place / "other")
    with pytest.raises(OptionError, match="field: .*bare has no field 'kind'"):
        compare(place / "bare", place / "nothing", unseen=place / "unseen", families=("hdsp",), field="kind")
    assert not (place / "nothing").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--field", "kind"], "--field requires --unseen"),
        (["--unseen", "U", "--init-from", "lda"], "--init-from cannot be combined with --unseen"),
        (["--unseen", "U", "--vary", "eta"], "--vary: expected OPTION=V,V"),
        (["--unseen", "U", "--topics", "many"], "--topics: expected whole numbers"),
    ],
)
def test_wrong_words__are_refused(words, said, capsys):
    assert main(["compare", "T", "O", *words]) == 2
    assert said in capsys.readouterr().err
    assert not Path("O").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--peers", "gensim"], "--peers: is no longer an option: other libraries and classifiers are compared by"),
        (["--slda-topics=3"], "--slda-topics: is no longer an option: other libraries"),
        (["--without", "kind"], "--without: is no longer an option: use --vary"),
    ],
)
def test_options_of_version_0_1__are_refused_with_what_to_use(words, said, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["compare", "T", "O", *words])
    assert said in capsys.readouterr().err
