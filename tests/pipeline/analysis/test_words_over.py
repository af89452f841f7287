"""Words over time: the chain against a loop over words, words that rise and fall, plots and commands."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure
from scipy.special import digamma

from collapsium.pipeline import Model, fit, ingest, plot, report, words_over
from collapsium.pipeline.analysis.words_over import FIRST, PASSES, STRENGTHS, chain, chosen_strength, tables
from collapsium.pipeline.cli.main import main
from collapsium.pipeline.reporting.options import nouns_of, renamed
from collapsium.pipeline.reporting.plots.effects import spread_evenly, words_figure, words_over_figure
from collapsium.storage.errors import OptionError


def tables_of(tokens, prior):
    """Return the expected tables, one word at a time."""
    found = []
    for m, g in zip(tokens, prior, strict=True):
        some = 1 - math.exp(-m)
        positive = max(m / some, 1.0) if some > 0 else 1.0
        found.append(min(m, some * g * (digamma(g + positive) - digamma(g))))
    return np.array(found)


def chain_of(counts, strength):
    """Return the chain, directly from its equations."""
    last = len(counts) - 1
    total = counts.sum(axis=0) + FIRST
    rho = [total / total.sum() for _ in counts]
    for _ in range(PASSES):
        r = [np.zeros(counts.shape[1]) for _ in range(last + 2)]
        for t in range(last, 0, -1):
            r[t] = tables_of(counts[t] + r[t + 1], strength * rho[t - 1])
        for t in range(last + 1):
            y = (FIRST if t == 0 else strength * rho[t - 1]) + counts[t] + r[t + 1]
            rho[t] = y / y.sum()
    return np.array(rho)


@given(st.integers(0, 1000), st.integers(2, 5), st.sampled_from([30.0, 1e3, 1e6]))
def test_chain__equals_a_loop_over_words(seed, periods, strength):
    counts = np.random.default_rng(seed).gamma(0.3, 20.0, (periods, 6)).round(2)
    rho, evidence = chain(counts, strength)
    np.testing.assert_allclose(rho, chain_of(counts, strength), rtol=1e-9)
    assert (evidence >= counts.sum(axis=1) - 1e-9).all()


@given(st.lists(st.floats(0.0, 1e5), min_size=1, max_size=8), st.floats(1e-6, 1e6))
def test_tables__are_at_most_the_tokens(tokens, prior):
    found = tables(np.array(tokens), np.full(len(tokens), prior))
    assert (found >= 0.0).all()
    assert (found <= np.array(tokens)).all()


def test_strength__decreases_with_the_rate_of_change_of_words():
    generator, base = np.random.default_rng(0), np.full(50, 1 / 50)
    steady = generator.multinomial(4000, base, 8).astype(float)
    drift = np.cumsum(generator.normal(0.0, 0.5, (8, 50)), axis=0)
    moving = np.array([generator.multinomial(4000, np.exp(row) / np.exp(row).sum()) for row in drift], dtype=float)
    assert chosen_strength(moving)[0] <= STRENGTHS[1]
    assert chosen_strength(moving)[1] > 0.05
    assert chosen_strength(steady)[0] >= 1e5
    rho, _ = chain(steady, math.inf)
    np.testing.assert_allclose(rho, np.tile(rho[0], (8, 1)))


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=12), st.floats(0.01, 0.2))
def test_labels_at_the_ends_of_lines__do_not_overlap(heights, least):
    moved = spread_evenly(np.sort(heights), least)
    assert (np.diff(moved) >= least - 1e-9).all()
    assert moved.mean() == pytest.approx(np.mean(heights), abs=1e-9)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run on texts of twenty years about letters and machines, in which phones replace telegraphs. Some have no
    year."""
    folder, generator = tmp_path_factory.mktemp("over"), np.random.default_rng(0)
    with (folder / "texts.jsonl").open("w") as file:
        for number in range(300):
            year = 1900 + number % 20
            machine = "phone" if generator.random() < (year - 1900) / 20 else "telegraph"
            words = generator.choice(["wire", "message", machine] if number % 3 else ["apple", "pear", "plum"], 12)
            record = {"id": f"d{number}", "text": " ".join(words), "year": year, "score": float(year % 4)}
            file.write(json.dumps({**record, **({} if number < 290 else {"year": None})}) + "\n")
    ingest(
        folder / "texts.jsonl", folder / "corpus", date="year", covariates=["score"], shard_tokens=800, min_documents=1
    )
    fit(folder / "corpus", folder / "run", family="lda", topics=2, iterations=30, scheduler="serial", seed=1)
    return folder


def wires_of(found):
    return next(row for row, name in enumerate(found.names) if "wire" in name)


def test_words_over__rise_and_fall(run):
    found = words_over(run / "run", None, "5 years", scheduler="serial")
    row = wires_of(found)
    assert found.periods == ["1900-1904", "1905-1909", "1910-1914", "1915-1919"]
    assert found.documents.sum() == 290
    np.testing.assert_allclose(found.probability.sum(axis=2), 1.0)
    np.testing.assert_allclose(found.tokens.sum(), 290 * 12, rtol=1e-6)
    assert [found.words[word] for word in found.rising(row, 1)] == ["phone"]
    assert [found.words[word] for word in found.falling(row, 1)] == ["telegraph"]
    frame = found.changes_frame()
    phone = frame[(frame.topic == found.topics[row]) & (frame.word == "phone")].iloc[0]
    assert phone["last"] > 2 * phone["first"]
    assert phone.peak == "1915-1919"
    assert len(found.frame(2)) == 2 * 4 * 2
    again = words_over(run / "run", int(found.topics[row]), "5 years", workers=3)
    assert again.probability.tobytes() == found.probability[[row]].tobytes()


def test_words_over__follow_the_numbers_of_a_field(run):
    found = words_over(run / "run", 0, "score", strength=100.0, scheduler="serial")
    assert found.periods == ["0", "1", "2", "3"]
    assert found.strength.tolist() == [100.0]


def test_commands__print_the_words_and_draw_them(run, tmp_path, capsys):
    words = ["effects", str(run / "run"), "--words", "0", "--over", "5 years"]
    assert main([*words, "--picture", str(tmp_path / "words.pdf")]) == 0
    assert "1915-1919" in capsys.readouterr().out
    assert (tmp_path / "words.pdf").read_bytes().startswith(b"%PDF")
    assert main([*words, "--json"]) == 0
    assert {"rows", "changes", "strength"} <= set(json.loads(capsys.readouterr().out))
    figure = words_over_figure(words_over(run / "run", None, "5 years", scheduler="serial"), names={0: "fruit"})
    assert any("0: fruit" in axes.get_title() for axes in figure.axes)


@pytest.mark.parametrize(
    ("topics", "period", "message"),
    [
        (9, "year", "topics: 9: there is no such topic"),
        (0, "yaer", "no field 'yaer'"),
        (0, "2 decades", "1 periods"),
        (0, "day", "0 periods"),
    ],
)
def test_invalid_input__is_refused_in_one_line(run, topics, period, message):
    with pytest.raises(OptionError, match=message) as raised:
        words_over(run / "run", topics, period, scheduler="serial")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--over", "year"], "--over requires a RUN and --words"),
        (["--words", "0"], "--formula is required"),
        (["--words", "0", "--strength", "5"], "--strength requires --over"),
        (["--words", "0", "--over", "year", "--formula", "~ score"], "--formula does not apply to --over"),
    ],
)
def test_wrong_usage__is_refused_in_one_line(run, flags, message, capsys):
    with pytest.raises(SystemExit):
        main(["effects", str(run / "run"), *flags])
    assert message in capsys.readouterr().err


def test_plots_of_a_model__accept_names_a_title_and_a_size(run):
    model = Model(run / "run")
    figure = model.plot("time", period="5 years", topics=[0, 1], names={0: "Fruit"}, size=(6, 4), same_scale=True)
    assert figure.get_size_inches().tolist() == [6, 4]
    panels = figure.axes[:2]
    assert panels[0].get_title() == "0: Fruit"
    assert panels[0].get_ylim() == panels[1].get_ylim()
    assert panels[0].get_xticklabels()[-1].get_text() == "1915-1919"
    assert model.plot(["sizes"], title="Sizes")._suptitle.get_text() == "Sizes"
    assert words_figure_of_one_group(model).axes[0].get_title() == "0 - 1"
    with pytest.raises(OptionError, match="axes are for a single panel"):
        words_figure(model.words_by(0, "score", scheduler="serial"), ax=panels[0])


def test_panels__are_drawn_in_axes_of_the_callers_figure(run):
    model, figure = Model(run / "run"), Figure(figsize=(7, 5), layout="constrained")
    left, right = figure.subplots(1, 2)
    assert model.plot("time", period="5 years", topics=[0], names={0: "Fruit"}, ax=left) is figure
    assert left.get_title() == "0: Fruit"
    assert left.lines
    assert model.plot("map", ax=right) is figure
    assert right.patches
    assert figure.get_size_inches().tolist() == [7, 5]
    for options, message in (
        ({"what": "time"}, "ax: takes one topic over time, found 2; name it"),
        ({"what": ["sizes", "map"]}, "ax: axes are for a single panel"),
        ({"what": "map", "out": run / "map.png"}, "ax: draws into your figure"),
        ({"what": "map", "size": (3, 3)}, "size: cannot be combined with `ax`"),
    ):
        with pytest.raises(OptionError) as caught:
            model.plot(**options, ax=right)
        assert message in str(caught.value)


def test_plots_on_the_command_line__accept_names_and_a_title(run, tmp_path):
    command = ["plot", str(run / "run"), str(tmp_path / "time.svg"), "--what", "time", "--topics", "0,1"]
    assert (
        main([*command, "--period", "5 years", "--names", "0=Fruit", "--names", "1=Metal", "--title", "By time"]) == 0
    )
    text = (tmp_path / "time.svg").read_text()
    assert "0: Fruit" in text
    assert "By time" in text
    words = ["effects", str(run / "run"), "--words", "0", "--over", "5 years", "--picture", str(tmp_path / "words.svg")]
    assert main([*words, "--names", "0=Fruit", "--title", "Words of fruit"]) == 0
    assert "0: Fruit, rising" in (tmp_path / "words.svg").read_text()
    assert main(words) == 1
    assert main([*words, "--overwrite"]) == 0


def words_figure_of_one_group(model):
    """Draw the figure of one group in axes of the caller."""
    axes = Figure().subplots()
    return words_figure(model.words_by(0, "score", contrast=["0", "1"], scheduler="serial"), ax=axes)


def test_reports__use_the_callers_nouns(run, tmp_path, capsys):
    assert main(["report", str(run / "run"), str(tmp_path / "out.html"), "--noun", "documents=telegrams"]) == 0
    text = (tmp_path / "out.html").read_text()
    assert "<strong>Telegrams</strong>" in text
    assert "lowest " in text
    with pytest.raises(OptionError, match="found 'docs=x'"):
        report(run / "run", tmp_path / "other.html", noun=["docs=x"])


def test_plots__use_the_callers_nouns(run, tmp_path):
    pytest.importorskip("matplotlib")
    plot(run / "run", tmp_path / "out.svg", what=("sizes",), noun=["tokens=fragments", "topics=programmes"])
    assert "Share of the fragments of each topic" in (tmp_path / "out.svg").read_text()
    with pytest.raises(OptionError, match="found 'docs=x'"):
        plot(run / "run", tmp_path / "other.svg", noun=["docs=x"])
    nouns = nouns_of(["documents=cells", "topics=programmes"])
    assert renamed("Topics by year: number of documents", nouns) == "Programmes by year: number of cells"
