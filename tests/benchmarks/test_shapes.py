"""The benchmark of shapes: its grid, its simulated corpora, its records and its report."""

import math

import numpy as np
import pytest

from tests.benchmarks.comparison.libraries import score
from tests.benchmarks.peers import Data, steps
from tests.benchmarks.shapes import __main__ as bench
from tests.benchmarks.shapes import corpora, fits, records, report
from tests.benchmarks.shapes.grid import DEFAULT, Choice, Grid, cells_of, with_settings, with_varied
from tests.benchmarks.shapes.summaries import summaries


def record_of(contestant, number=1, points=(), **fields):
    """Return a record of the benchmark as `run` appends it."""
    points = [{"iteration": at, "seconds": seconds, "score": value} for at, seconds, value in points]
    last = points[-1] if points else {}
    ours = contestant.startswith(("lda", "hdp"))
    return {
        "key": [contestant, number],
        "corpus": "kos",
        "topics": 4,
        "contestant": contestant,
        "ours": ours,
        "family": contestant.partition(" ")[0] if ours else "",
        "ensemble_of": "",
        "round": number,
        "options": {},
        "points": points,
        "iterations": last.get("iteration"),
        "seconds": last.get("seconds"),
        "score": last.get("score"),
        "averaged": None,
        "tokens_a_second": 2e6,
        "megabytes": 100.0,
        "estimated_megabytes": 90.0 if ours else None,
        "error": "",
        "workers": 2,
        "scheduler": "threads",
        "machine": {"cpu": "a processor", "cores": 2, "gigabytes": 8.0, "versions": {"python": "3"}},
        "sizes": {"documents": 5, "words": 7, "train": {"tokens": 100}, "test": {"tokens": 10}},
        **fields,
    }


@pytest.fixture
def found():
    ensemble = {"members": 2, "ensemble_of": "lda", "averaged": -5.5}
    return [
        record_of("lda", 1, [(1, 1.0, -8.0), (2, 2.0, -7.0), (3, 3.0, -6.0)]),
        record_of("tomotopy", 1, [(10, 4.0, -7.5), (20, 8.0, -7.0)], averaged=-6.5),
        record_of("topica", 1, error="it | broke"),
        record_of("tomotopy", 2, [(10, 6.0, -7.5), (20, 12.0, -7.0)], averaged=-6.5),
        record_of("lda", 2, [(1, 2.0, -8.0), (2, 4.0, -7.0), (3, 6.0, -6.0)]),
        record_of("lda alpha=0.3", 1, [(1, 1.0, -7.9), (2, 2.0, -6.5)], options={"alpha": 0.3}),
        record_of("lda ensemble", 1, [(2, 7.0, -5.5)], **ensemble),
    ]


def rows_of(text, first):
    """Return the rows of a Markdown table that begin with a cell."""
    rows = [[cell.strip() for cell in row.strip("|").split("|")] for row in text.splitlines() if row.startswith("|")]
    return [row for row in rows if row[0] == first]


def test_default_grid__begins_with_the_most_important_cells():
    cells = cells_of(Grid.read(DEFAULT), ["kos", "simulated"], Choice())
    assert [cell.name for cell in cells[:5]] == ["tomotopy tuned", "lda", "hdp", "lda ensemble", "hdp ensemble"]
    assert {cell.topics for cell in cells} == {100, 200, 1000}
    assert cells[0].topics == 200
    assert {cell.contestant.peer for cell in cells if not cell.ours} == {"tomotopy", "topica", "gensim", "scikit-learn"}
    assert {cell.contestant.options.get("sampler") for cell in cells if cell.contestant.peer == "topica"} == {
        "cvb0",
        "sparse",
        "warp",
    }


def test_grid__varies_options_over_all_combinations():
    grid = with_varied(Grid.read(DEFAULT), "lda", {"alpha": [0.1, 0.3], "learn": [["alpha", "beta"], []]})
    cells = cells_of(grid, ["kos"], Choice(topics=(200,)))
    names = [
        "lda alpha=0.1 learn=alpha+beta",
        "lda alpha=0.1 learn=",
        "lda alpha=0.3 learn=alpha+beta",
        "lda alpha=0.3 learn=",
    ]
    assert [cell.name for cell in cells] == names
    assert cells[0].contestant.options == {"alpha": 0.1, "learn": ["alpha", "beta"]}


def test_grid__alternates_rounds_and_has_ensembles_last():
    grid = with_settings(Grid.read(DEFAULT), 2, None, None)
    cells = cells_of(grid, ["kos"], Choice(topics=(200,), contestants=("tomotopy tuned", "lda", "lda ensemble")))
    assert [(cell.name, cell.number) for cell in cells] == [
        ("tomotopy tuned", 0), ("lda", 0), ("lda ensemble", 0), ("lda", 1), ("tomotopy tuned", 1), ("lda ensemble", 1),
    ]  # fmt: skip


def test_a_grid_with_fewer_iterations__has_no_more_samples_than_possible():
    contestant = with_settings(Grid.read(DEFAULT), None, None, 25).contestants["tomotopy tuned"]
    assert (contestant.samples - 1) * contestant.sample_every < contestant.iterations == 25


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[contestants.a]\nfamily='lda'\n[[blocks]]\ntopics=[2]\ncontestants=['b']", "no contestant 'b'"),
        ("blocks=[]\n[contestants.a]\n", "expected one of family and peer"),
        ("blocks=[]\n[contestants.a]\npeer='nobody'", "no peer 'nobody'"),
        ("blocks=[]\n[contestants.a]\nfamily='lda'\niterations=0", "contestants.a.iterations"),
        ("blocks=[", "grid.toml"),
    ],
)
def test_errors_of_a_grid__are_one_line(tmp_path, text, message):
    (tmp_path / "grid.toml").write_text(text)
    with pytest.raises(SystemExit, match=message) as error:
        Grid.read(tmp_path / "grid.toml")
    assert "\n" not in str(error.value)


def test_draw__returns_a_corpus_of_the_requested_sizes_with_unequal_word_frequencies():
    drawn = corpora.Drawn(documents=300, tokens=50, words=400, topics=8, beta=50.0)
    counts, expected = corpora.draw(drawn)
    assert counts.shape == (300, 400)
    assert (counts.sum(axis=1) == 50).all()
    sizes = np.sort(np.asarray(counts.sum(axis=0)).ravel())[::-1]
    assert sizes[:40].sum() > 0.25 * sizes.sum()
    assert -math.log(400) < expected < 0
    again, score_again = corpora.draw(drawn)
    assert (counts != again).nnz == 0
    assert expected == score_again


def test_columns_of__returns_the_first_column_whose_cumulative_sum_exceeds_a_number():
    shares = np.array([[0.5, 0.5, 1.0], [0.2, 0.9, 1.0]])
    uniform = np.array([[0.0, 0.5, 0.99], [0.1, 0.2, 0.95]])
    assert corpora.columns_of(shares, uniform).tolist() == [[0, 2, 2], [0, 1, 2]]


def test_records__can_be_appended_after_an_incomplete_line(tmp_path):
    path = tmp_path / "results.jsonl"
    assert records.read(path) == []
    records.append(path, {"key": 1})
    with path.open("ab") as lines:
        lines.write(b'{"key": 2, "cut')
    records.append(path, {"key": 3})
    assert [record["key"] for record in records.read(path)] == [1, 3]


def test_ensemble__gets_members_with_enough_iterations():
    plan = fits.EnsemblePlan(most_members=8, least_iterations=40, share=1.0)
    even = [(1, 1.0), (100, 100.0), (200, 200.0)]
    assert plan.plan(100.0, even) == (2, 50)
    assert plan.plan(200.0, even) == (5, 40)
    assert plan.plan(10.0, even) == (2, 5)
    assert plan.plan(1e4, even) == (8, 200)
    assert plan.plan(200.0, even, 9.0) == (4, 41)
    # The first ten iterations take half of the time of fifty.
    assert plan.plan(200.0, [(1, 10.0), (10, 50.0), (50, 100.0)]) == (2, 50)


def test_scores_of_samples__are_left_out():
    sampled = {"event": "iteration", "iteration": 1, "score": -6.0, "documents_share": 0.25}
    whole = {"event": "iteration", "iteration": 2, "score": -7.0}
    unscored = {"event": "iteration", "iteration": 3}
    assert fits.scored_events([{"event": "begin"}, sampled, whole, unscored]) == [whole]


def test_seconds_of_points__exclude_scoring_as_for_other_libraries():
    scored = [{"event": "iteration", "elapsed": at, "seconds": {"wait": 1.0, "score": 0.5}} for at in (1.5, 3.0)]
    events = [{"event": "begin", "elapsed": 0.0}, *scored]
    assert [event["elapsed"] for event in fits._without_scoring(events)] == [0.0, 1.0, 2.0]


def test_summaries__are_medians_over_rounds(found):
    ours, tomotopy, topica, *_ = summaries(found)
    assert ours.curve() == [(1.5, -8.0), (3.0, -7.0), (4.5, -6.0)]
    assert tomotopy.median("seconds") == 10.0
    assert (topica.runs, topica.error, topica.iterations) == ([], "it | broke", None)


def test_seconds_to__is_the_first_time_at_which_a_score_is_exceeded(found):
    ours = summaries(found)[0]
    ours.runs.append(record_of("lda", 3, [(1, 3.0, -8.0), (2, 6.0, -7.0)]))
    assert ours.seconds_to(-7.0) == 4.0
    assert ours.seconds_to(-6.0) == 6.0
    assert math.isinf(ours.seconds_to(-5.0))


def test_score_at__uses_the_last_iteration_until_then(found):
    ours = summaries(found)[0]
    assert ours.score_at(0.5) is None
    assert ours.score_at(2.5) == -7.5
    assert ours.score_at(100.0) == -6.0
    assert ours.score_after(2) == -7.0


def test_text__has_all_tables(found):
    text = report.text(found)
    rows = rows_of(text, "kos")
    assert ["kos", "4", "lda", "3", "4.50", "-6.0000", "-", "2.00", "100", "90", "0.90"] in rows
    passing = ["kos", "4", "tomotopy", "lda", "-7.0000", "10.0", "4.00", "2.5", "-6.0000", "-6.5000", "-5.5000", "7.00"]
    assert passing in rows
    assert ["kos", "4", "lda", "1", "2", "-7.0000", "lda alpha=0.3", "-6.5000", "+0.5000", "no"] in rows
    assert "topica failed: it | broke" in text


def test_text__is_complete_if_all_fits_failed():
    failed = [record_of("lda", error="no"), record_of("topica", error="no")]
    assert "lda failed: no" in report.text(failed)


def test_write__draws_plots_for_light_and_dark_pages(found, tmp_path):
    pytest.importorskip("matplotlib")
    report.write(found, tmp_path)
    names = {
        f"{name}{shade}.{kind}"
        for name in ("score-over-time-4", "memory")
        for shade in ("", "-dark")
        for kind in ("png", "svg")
    }
    assert names | {"table.md"} == {path.name for path in tmp_path.iterdir()}


@pytest.mark.long
def test_run__appends_and_continues_where_it_stopped(small, tmp_path, capsys):
    folder = tmp_path / "corpora"
    folder.mkdir()
    for part, path in zip(("train", "test"), small, strict=True):
        (folder / f"tiny-{part}").symlink_to(path)
    flags = "--topics 3 --iterations 3 --workers 1"
    words = ["run", str(folder), str(tmp_path / "results.jsonl"), *flags.split()]
    bench.main([*words, "--contestants", "lda"])
    (first,) = records.read(tmp_path / "results.jsonl")
    assert first["error"] == ""
    assert [point["iteration"] for point in first["points"]] == [1, 2, 3]
    assert first["megabytes"] > 50
    assert first["estimated_megabytes"] > 50
    assert first["tokens_a_second"] > 0
    bench.main([*words, "--contestants", "lda,lda ensemble"])
    assert len(records.read(tmp_path / "results.jsonl")) == 1
    assert "left out: needs the record of 'tomotopy tuned'" in capsys.readouterr().out
    bench.main(["report", str(tmp_path / "results.jsonl"), str(tmp_path / "report")])
    assert rows_of((tmp_path / "report/table.md").read_text(), "tiny")


def test_run__reports_missing_corpora(tmp_path):
    with pytest.raises(SystemExit, match="no kos-train"):
        bench.main(["run", str(tmp_path), str(tmp_path / "results.jsonl"), "--corpora", "kos"])
    with pytest.raises(SystemExit, match="no corpus 'nobody'"):
        bench.main(["prepare", str(tmp_path), "--corpora", "nobody"])
    with pytest.raises(SystemExit, match="no results"):
        bench.main(["report", str(tmp_path / "results.jsonl"), str(tmp_path)])


def test_prepare__skips_corpora_without_a_source(tmp_path):
    assert corpora.prepare(None, tmp_path, ["kos"]) == ["kos"]


def test_a_simulated_corpus__is_split_by_tokens(tmp_path):
    drawn = corpora.Drawn(documents=60, tokens=40, words=100, topics=4, beta=50.0)
    target = {name: tmp_path / name for name in ("whole", "train", "test")}
    corpora.write_drawn(drawn, target)
    train, test = (int(Data.read(target[part]).counts.sum()) for part in ("train", "test"))
    assert train + test == 60 * 40
    assert 0.05 < test / (train + test) < 0.15


def test_score__is_the_mean_over_held_out_tokens():
    held = Data(np.array([0, 2, 2]), np.array([0, 2]), np.array([1, 3]), 3)
    theta, phi = np.array([[0.5, 0.5], [1.0, 0.0]]), np.array([[0.2, 0.4, 0.4], [0.6, 0.2, 0.2]])
    assert score(held, theta, phi) == pytest.approx((math.log(0.4) + 3 * math.log(0.3)) / 4)


@pytest.mark.parametrize("iterations", [1, 7, 20, 1000])
def test_steps__sum_to_the_iterations(iterations):
    assert sum(steps(iterations)) == iterations
    assert min(steps(iterations)) >= 1
