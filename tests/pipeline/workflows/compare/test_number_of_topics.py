"""Comparisons over numbers of topics: the recommendation, its frame and plot, texts as input, and samples."""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from collapsium.pipeline import Corpus, compare, simulate
from collapsium.pipeline.cli.main import main
from collapsium.pipeline.workflows.compare import mean_per_token, recommended
from collapsium.pipeline.workflows.compare_options import CompareOptions
from collapsium.storage.errors import OptionError

SUBJECTS = (
    "ship sail harbour wave captain storm",
    "star planet orbit moon comet light",
    "cow barn wheat plough field hay",
)
QUICK = {"topics": (2, 4), "iterations": 3, "scheduler": "serial", "settings": {"hdp": {"iterations": 3}}}


def texts(documents):
    generator = np.random.default_rng(0)
    return [" ".join(generator.choice(SUBJECTS[number % 3].split(), 20)) for number in range(documents)]


def row(topics, gain=None, found_again=1.0, **further):
    fields = {"family": "lda", "cell": f"lda-{topics}", "npmi": 0.1, "found_again": found_again}
    return {**fields, "topics": topics, "gain": gain, "gain_error": 0.001, "remark": None, **further}


@pytest.mark.parametrize(
    ("rows", "topics", "reason"),
    [
        ([row(10), row(20, 0.05), row(40, 0.01)], 20, "From 20 to 40, twice as many topics gain 0.010 ± 0.001"),
        ([row(10), row(20, -0.1)], 10, "Another seed finds 100% of the 10 topics again."),
        ([row(10), row(20, 0.05)], 20, "Twice as many topics still gain 0.050"),
        ([row(10), row(20, 0.05), row(40, 0.05, 0.3)], 20, "But another seed finds only 30% of 40 topics again"),
        ([row(10), row(20, 0.05, gain_error=0.03)], 10, "no more than two standard errors"),
    ],
)
def test_recommendation__is_the_largest_number_with_a_substantial_gain_and_stable_topics(rows, topics, reason):
    choice = recommended(rows)
    assert (choice.topics, choice.reference) == (topics, "")
    assert reason in str(choice)


def test_the_note__gives_the_number_that_hdp_finds_or_that_it_finds_none():
    hdp = {"family": "hdp", "cell": "hdp-20", "topics": 20, "topics_99": 11.0}
    assert recommended([row(10), row(20, 0.0), {**hdp, "remark": None}]).reference.endswith("finds 11.")
    assert recommended([row(10), row(20, 0.0), {**hdp, "remark": "none was found"}]).reference == "hdp: none was found."


def test_the_note__is_about_no_other_family_than_hdp():
    vb = {"family": "vb-lda", "cell": "vb-lda-20", "topics": 20, "topics_99": 18.0, "remark": None}
    assert recommended([row(10), row(20, 0.0), vb]).reference == ""


@pytest.mark.parametrize("samples", [{}, {"samples": 2, "sample_every": 1}])
def test_gains__are_the_differences_of_the_scores(samples):
    compared = compare(texts(60), over="topics", families=("gibbs-lda",), **samples, **{**QUICK, "topics": (2, 3, 8)})
    few, more, many = compared.rows[:3]
    for last, following in ((few, more), (more, many)):
        difference = following["score"] - last["score"]
        assert following["gain"] * np.log2(following["topics"] / last["topics"]) == pytest.approx(difference)


def test_errors__equal_those_of_a_mean_over_documents_of_equal_length():
    logs = np.random.default_rng(1).normal(-8, 1, 400) * 5
    score, error = mean_per_token(logs, np.full(400, 5.0))
    assert score == pytest.approx(logs.mean() / 5)
    assert error == pytest.approx((logs / 5).std() / 20)


def test_texts__give_a_recommendation_a_frame_and_a_plot_and_leave_no_files():
    compared = compare(texts(60), **QUICK)
    frame = compared.frame()
    assert list(frame.index) == [2, 4]
    assert frame["recommended"].sum() == 1
    assert frame.index[frame["recommended"]] == compared.recommendation.topics
    assert frame[["score", "document_error", "npmi", "exclusivity", "dispersion", "found_again"]].notna().all(axis=None)
    assert np.isfinite(frame["gain"].iloc[1])
    assert all(";" in words for words in frame["words"])
    assert "How many topics" in compared.plot().get_suptitle()
    assert str(compared).endswith(str(compared.recommendation))
    folder = Path(compared.folder)
    assert pq.read_schema(folder / "table.parquet").field("words").type.value_type is not None
    del compared
    assert not folder.exists()


def test_a_resumed_comparison__has_the_same_results(tmp_path):
    simulate(tmp_path / "corpus", family="lda", topics=3, documents=40, words=30, tokens=30)
    first = compare(tmp_path / "corpus", tmp_path / "out", sample_documents=20, **QUICK)
    again = compare(tmp_path / "corpus", tmp_path / "out", sample_documents=20, **QUICK)
    assert again.rows == first.rows
    assert 5 <= Corpus(tmp_path / "out" / "sample").manifest.documents <= 35
    with pytest.raises(OptionError, match="sample-documents"):
        compare(tmp_path / "corpus", tmp_path / "out", sample_documents=30, **QUICK)


def test_the_command__prints_the_recommendation_below_the_table(tmp_path, capsys):
    simulate(tmp_path / "corpus", family="lda", topics=3, documents=40, words=30, tokens=30)
    words = ["--topics", "2,4", "--iterations", "3", "--set", "hdp.iterations=3", "--scheduler", "serial", "--quiet"]
    assert main(["compare", str(tmp_path / "corpus"), str(tmp_path / "out"), *words]) == 0
    _, below = capsys.readouterr().out.rsplit("|\n", 1)
    assert below.strip().startswith("recommended: ")


def test_a_comparison_without_families__compares_numbers_of_topics():
    assert (CompareOptions(topics=(2,)).over, CompareOptions(topics=(2,)).families) == ("topics", ("lda",))
    assert CompareOptions(topics=(2,), families=("hdp",)).over == CompareOptions().over == "families"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"families": ("ncrp",), "init": "clusters"}, "starts only at random"),
        ({"topics": (2,), "preset": "cluster"}, "did you mean 'clusters'"),
        ({"topics": (2, 4), "vary": {"*": {"alpha": [0.1, 0.5]}}}, "one value of each option, found 2 of alpha"),
        ({"over": "topics", "families": ("lda", "gibbs-hdp")}, "gibbs-hdp takes no number of topics"),
    ],
)
def test_conflicting_options__are_refused(tmp_path, options, message):
    simulate(tmp_path / "corpus", family="lda", topics=2, documents=5, words=10, tokens=9)
    with pytest.raises(OptionError, match=message):
        compare(tmp_path / "corpus", tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_unknown_options__name_the_nearest(tmp_path):
    with pytest.raises(OptionError, match="did you mean 'min_documents'"):
        compare(texts(3), min_document=2)
    with pytest.raises(OptionError, match="unknown option 'min_documents'"):
        compare(tmp_path / "corpus", min_documents=2)
