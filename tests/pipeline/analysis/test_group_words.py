"""Words by group: log-odds and variances against a loop over documents, and recovery of simulated differences."""

import json

import numpy as np
import pytest

from collapsium.pipeline import Corpus, Model, fit, ingest, words_by
from collapsium.pipeline.analysis.group_words import _compared
from collapsium.pipeline.cli.main import main
from collapsium.pipeline.reporting.plots.effects import words_figure
from collapsium.storage.errors import OptionError


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run on texts of two topics, in which one party prefers the word torture and the other prosecute."""
    folder, generator = tmp_path_factory.mktemp("words"), np.random.default_rng(0)
    with (folder / "texts.jsonl").open("w") as file:
        for number in range(240):
            party = "LR"[number % 2]
            preferred = "torture" if party == "L" else "prosecute"
            law = ["court", "trial", "prison", "judge", preferred, preferred]
            words = generator.choice(law if number % 3 else ["apple", "pear", "plum", "fig"], 15)
            record = {"id": f"d{number}", "text": " ".join(words), "party": party if number < 235 else None}
            file.write(json.dumps({name: value for name, value in record.items() if value is not None}) + "\n")
    ingest(folder / "texts.jsonl", folder / "corpus", labels=["party"], shard_tokens=800, min_documents=1)
    fit(folder / "corpus", folder / "run", family="lda", topics=2, iterations=30, scheduler="serial", seed=1)
    return folder


def law_of(run):
    model = Model(run / "run")
    return next(int(row) for row in range(2) if "judge" in model.topics().loc[row, "words"])


@pytest.mark.parametrize("weights", [None, "idf", "entropy"])
def test_groups_without_differences__differ_in_few_words(tmp_path, weights):
    generator, words = np.random.default_rng(3), [f"w{number:02d}x" for number in range(40)]
    frequency = 1 / np.arange(1, 41)
    texts = [" ".join(generator.choice(words, 15, p=frequency / frequency.sum())) for _ in range(600)]
    sizes = ["small" if number % 60 == 0 else "large" for number in range(600)]
    documents = enumerate(zip(texts, sizes, strict=True))
    records = [json.dumps({"id": f"d{number}", "text": text, "size": size}) for number, (text, size) in documents]
    (tmp_path / "texts.jsonl").write_text("\n".join(records))
    how = {"labels": ["size"], "min_documents": 1, "max_document_share": 1.0}
    ingest(tmp_path / "texts.jsonl", tmp_path / "corpus", **how)
    options = {"family": "lda", "topics": 1, "weights": weights, "iterations": 2, "scheduler": "serial"}
    fit(tmp_path / "corpus", tmp_path / "run", **options)
    compared = words_by(tmp_path / "run", 0, "size", contrast=["small", "large"], scheduler="serial")
    assert (np.abs(compared.z) > 2).mean() < 0.1


def test_words_by__equals_a_loop_over_documents(run):
    topic = law_of(run)
    compared = words_by(run / "run", topic, "party", contrast=["L", "R"], scheduler="serial")
    corpus, model = Corpus(run / "corpus"), Model(run / "run")
    theta, phi = np.asarray(model.document_topic), np.asarray(model.topic_word)
    counts = np.zeros((240, phi.shape[1]))
    first = 0
    for reference in corpus.references:
        shard = reference.load()
        rows = first + np.repeat(np.arange(shard.documents), np.diff(shard.offsets))
        counts[rows, shard.words[shard.position]] = shard.counts
        first += shard.documents
    tokens = np.zeros(counts.shape)
    for document, word in np.argwhere(counts > 0):
        share = theta[document] * phi[:, word]
        tokens[document, word] = counts[document, word] * share[topic] / share.sum()
    party = np.array(["LR"[number % 2] if number < 235 else "" for number in range(240)])
    log_odds, variance = [], []
    for group in "LR":
        group_tokens = tokens[party == group]
        n, y = group_tokens.sum(axis=0), group_tokens.sum(axis=0) + 500 * phi[topic]
        spread = sum((row - row.sum() * n / n.sum()) ** 2 for row in group_tokens)
        log_odds.append(np.log(y / (y.sum() - y)))
        variance.append(np.maximum(500 * phi[topic] / y**2, (1 / y + 1 / (y.sum() - y)) ** 2 * spread))
    np.testing.assert_allclose(compared.log_odds[0], log_odds[0] - log_odds[1], atol=1e-4)
    np.testing.assert_allclose(compared.se[0], np.sqrt(variance[0] + variance[1]), rtol=1e-3)
    assert compared.documents == {"L": 118, "R": 117, "(missing)": 5}


def test_words_by__recovers_the_words_of_groups(run, tmp_path, capsys):
    topic = law_of(run)
    rows = words_by(run / "run", topic, "party", contrast=["L", "R"]).records(1)
    assert [row["word"] for row in rows] == ["torture", "prosecute"]
    assert rows[0]["z"] > 4
    assert rows[1]["z"] < -4
    compared = words_by(run / "run", topic, "party")
    assert sorted(compared.groups) == ["(missing)", "L", "R"]
    assert compared.words[compared.foremost(compared.groups.index("R"))[0]] == "prosecute"
    assert len(words_figure(compared).axes) == 3
    command = ["effects", str(run / "run"), "--formula", "~ party", "--words", str(topic)]
    picture = tmp_path / "words.svg"
    assert main([*command, "--contrast", "party=L,R", "--picture", str(picture)]) == 0
    printed = capsys.readouterr().out
    table = printed.partition("L - R")[2]
    assert table.index("torture") < table.index("prosecute")
    assert "torture" in picture.read_text()
    assert main([*command, "--json"]) == 0
    assert {*json.loads(capsys.readouterr().out)["rows"][0]} == {"group", "word", "log_odds", "se", "z", "tokens"}
    with pytest.raises(SystemExit):
        main([*command, "--link", "logit"])
    assert "--link does not apply to --words" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--words", "9", "--formula", "~ party"], "--words: 9: there is no such topic"),
        (["--words", "9", "--over", "party"], "--words: 9: there is no such topic"),
        (["--words", "0", "--over", "yaer"], "--over: no field 'yaer'; the documents have: party; periods are "),
        (["--words", "0", "--formula", "~ prty"], "--formula: no field 'prty' (did you mean 'party'?)"),
        (
            ["--words", "0", "--formula", "~ party", "--contrast", "other=L,R"],
            "--contrast: no document has the value 'other=L'",
        ),
    ],
)
def test_errors_of_the_command__name_its_flags(run, capsys, arguments, message):
    assert main(["effects", str(run / "run"), *arguments]) == 2
    assert capsys.readouterr().err.startswith(f"collapsium: error: {message}")


@pytest.mark.parametrize("contrast", ["party=L, left,R", "R,L, left"])
def test_names_of_groups__may_contain_commas(contrast):
    groups = ["R", "L, left", "X"]
    [(name, sides)] = _compared(groups, contrast.rpartition("=")[2].split(","))
    assert (name, sides) in [("L, left - R", ([1], [0])), ("R - L, left", ([0], [1]))]


@pytest.mark.parametrize(
    ("topic", "field", "options", "message"),
    [
        (9, "party", {}, "9: there is no such topic"),
        (True, "party", {}, "True: there is no such topic"),
        (0.0, "party", {}, "0.0: there is no such topic"),
        ([0], "party", {}, "there is no such topic"),
        (0, "prty", {}, "did you mean 'party'"),
        (0, "party", {"contrast": ["L"]}, "expected two groups, such as R,D"),
        (0, "party", {"contrast": ["L", "X"]}, "no document has the value 'X'"),
    ],
)
def test_invalid_input__is_refused_in_one_line(run, topic, field, options, message):
    with pytest.raises(OptionError, match=message):
        words_by(run / "run", topic, field, scheduler="serial", **options)
