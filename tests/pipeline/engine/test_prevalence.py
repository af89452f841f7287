"""Fits whose documents have priors that depend on their fields (`prevalence`)."""

import json
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from collapsium.pipeline import Corpus, Model, effects, evaluate, fit, infer, ingest, split, verify
from collapsium.pipeline.cli.main import main
from collapsium.pipeline.engine.setup.inputs import missing_inputs
from collapsium.pipeline.models.registry import make_options
from collapsium.storage.corpus.labels import DocumentRows
from collapsium.storage.errors import AbsentError, DamagedError, OptionError
from collapsium.workers.design import unpacked_design
from collapsium.workers.families.cvb import prevalence, schedule
from collapsium.workers.families.cvb.collapsed import NO_ROWS
from tests.conftest import mark_rest_long
from tests.fits import bits, resumed, scores_of

TOPICS, WORDS, TOKENS = 4, 60, 25
FORMULA = "~ party * year + bs(date, df=4)"
SHORT = 15  # coefficients change in iterations 5, 9 and 13


def write_documents(path, documents, seed, parties=("a", "a", "b", "c")):
    """Write documents whose topics depend on their party and year; return their topic shares."""
    noise = np.random.default_rng(seed)
    phi = np.random.default_rng(0).dirichlet(np.full(WORDS, 0.05), TOPICS)
    party, year = noise.choice(parties, documents), noise.normal(2000.0, 10.0, documents)
    size = np.full((documents, TOPICS), 0.2)
    size[:, 0] *= np.exp((party == "b") * 2.0)
    size[:, 1] *= np.exp((year - 2000.0) / 10.0)
    theta = np.array([noise.dirichlet(row) for row in size])
    with path.open("w", encoding="utf-8") as file:
        for number, (party_of_document, shares) in enumerate(zip(party, theta, strict=True)):
            words = noise.choice(WORDS, TOKENS if number % 50 else 0, p=shares @ phi)
            row = {
                "id": str(number),
                "text": " ".join(f"w{word}" for word in words),
                "date": f"{1990 + number % 20}-05-01",
            }
            row["year"] = None if number % 17 == 3 else round(float(year[number]), 1)
            row |= {} if number % 19 == 3 else {"party": str(party_of_document)}
            file.write(json.dumps(row) + "\n")
    return theta


@pytest.fixture(scope="module")
def corpora(tmp_path_factory):
    """A corpus with held-out tokens, and a corpus of unseen documents; some documents lack text, party or year."""
    place = tmp_path_factory.mktemp("prevalence")
    write_documents(place / "seen.jsonl", 600, 1)
    write_documents(place / "unseen.jsonl", 80, 2)
    fields = {"labels": ["party"], "covariates": ["year"], "date": "date", "scheduler": "serial"}
    ingest(place / "seen.jsonl", place / "all", text="text", shard_tokens=6000, **fields)
    ingest(place / "unseen.jsonl", place / "unseen", like=place / "all", scheduler="serial")
    split(place / "all", place / "train", place / "heldout", fraction=0.1)
    return place


def run_of(model):
    """Return the folder of a model's run."""
    return Path(model.folder.url).parent


def fitted(corpora, out, **options):
    settings = {"family": "lda", "topics": TOPICS, "prevalence": FORMULA, "iterations": 30, "seed": 3}
    return fit(corpora / "train", out, **{**settings, "heldout": corpora / "heldout", **options})


@pytest.fixture(scope="module")
def reference(corpora):
    """A run with enough iterations for the coefficients to be learned."""
    fitted(corpora, corpora / "run", scheduler="serial", inverse_temperature=1.0, iterations=60)
    return corpora / "run"


@pytest.fixture(scope="module")
def short_fit(corpora):
    """A function that fits a model serially in a few iterations, once for each set of options."""
    models = {}

    def fit_once(**options):
        name = "-".join(f"{key}={value}" for key, value in options.items())
        if name not in models:
            models[name] = fitted(corpora, corpora / f"short-{name}", scheduler="serial", iterations=SHORT, **options)
        return models[name]

    return fit_once


def test_coefficients__recover_the_effects_of_fields(reference):
    model = Model(reference)
    frame = model.prevalence()
    assert frame.shape == (len(frame), TOPICS)
    assert {"Intercept", "year", "year[missing]"} <= set(frame.index)
    steep = frame.loc["year"].idxmax()
    assert frame.loc["year", steep] > 0.4
    early, late = model.shares_at(year=1985), model.shares_at(year=2015)
    assert late[steep] > early[steep] + 0.1
    assert late.sum() == pytest.approx(1.0)
    party = next(name for name in frame.index if "party" in name and "b" in name and "year" not in name)
    assert frame.loc[party].max() > 0.8
    with pytest.raises(OptionError, match="no document has the value 'z'"):
        model.shares_at(party="z")
    with pytest.raises(OptionError, match="'state' is not a field"):
        model.shares_at(state="z")


def test_scores__increase_with_fields_and_states_are_valid(reference, corpora, tmp_path):
    scores = {}
    for name, formula in (("own", "~ party + year"), ("same", None)):
        out = tmp_path / name
        fitted(corpora, out, scheduler="serial", inverse_temperature=1.0, iterations=60, prevalence=formula)
        scores[name] = scores_of(out)[-1], evaluate(out, unseen=corpora / "unseen", scheduler="serial").score
    assert scores["own"][0] > scores["same"][0]
    assert scores["own"][1] > scores["same"][1]
    assert verify(reference).broken == []
    with pytest.raises(AbsentError, match="without `prevalence`"):
        Model(tmp_path / "same").prevalence()


def test_unseen_documents_without_words__have_the_shares_that_their_fields_imply(reference, corpora, tmp_path):
    infer(reference, corpora / "unseen", tmp_path / "theta.npy", scheduler="serial")
    theta = np.load(tmp_path / "theta.npy")
    first = json.loads((corpora / "unseen.jsonl").read_text(encoding="utf-8").splitlines()[50])
    expected = Model(reference).shares_at(party=first["party"], year=first["year"], date=first["date"])
    np.testing.assert_allclose(theta[50], expected, atol=1e-5)


@pytest.mark.parametrize("year", [-1e300, 1900.0, 1e5, 1e9, 1e300])
def test_numbers_far_from_the_training_documents__have_finite_shares(reference, year):
    model = Model(reference)
    fields = {"party": "b", "year": year, "date": "2001-05-01"}
    expected = model.shares_at(**fields)
    assert expected.sum() == pytest.approx(1.0)
    found = model.transform(pd.DataFrame([{"text": "", **fields}]))
    np.testing.assert_allclose(np.asarray(found)[0], expected, atol=1e-5)


@pytest.mark.xdist_group("clusters")
@pytest.mark.parametrize(
    ("options", "kind"),
    mark_rest_long(
        [
            ({}, "processes"),
            ({"inverse_temperature": 1.0, "local_sweeps": 2}, "threads"),
            ({"family": "hdp"}, "threads"),
            ({}, "threads"),
            ({"inverse_temperature": 1.0, "local_sweeps": 2}, "processes"),
            ({"family": "hdp"}, "processes"),
        ],
        retained=range(3),
    ),
)
def test_bits__do_not_depend_on_the_executor(corpora, short_fit, options, kind, tmp_path, clusters):
    serial = short_fit(**options)
    assert len(serial.record.shards) > 2
    assert np.abs(serial.prevalence().drop("Intercept").to_numpy()).max() > 0.0
    scheduler = clusters(2) if kind == "processes" else kind
    model = fitted(corpora, tmp_path / "run", scheduler=scheduler, iterations=SHORT, **options)
    assert bits(model) == bits(serial)
    assert scores_of(tmp_path / "run") == scores_of(run_of(serial))


@pytest.mark.parametrize(
    ("family", "stop"), mark_rest_long([("lda", 3), ("hdp", 10), ("lda", 10), ("hdp", 3)], retained=(0, 1))
)
def test_a_stopped_run__is_resumed_to_the_same_bits(corpora, short_fit, family, stop, tmp_path):
    options = {"family": family, "inverse_temperature": 1.0}
    whole = short_fit(**options)

    def sink(event):
        if event["event"] == "iteration" and event["iteration"] == stop:
            raise KeyboardInterrupt

    run = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        fitted(corpora, run, scheduler="serial", iterations=SHORT, **options, sinks=[sink])
    assert verify(run).broken == []
    resumed(run, scheduler="threads")
    assert bits(Model(run)) == bits(whole)


@pytest.mark.parametrize("family", ["lda", "hdp"])
def test_bits__do_not_depend_on_where_local_states_are_stored(corpora, family, tmp_path, monkeypatch):
    monkeypatch.setattr("collapsium.workers.families.cvb.active_topics.CHUNK_RESPONSIBILITIES", 500)
    options = {"family": family, "iterations": SHORT, "inverse_temperature": 1.0}
    models = [
        fitted(corpora, tmp_path / name, scheduler="serial", scratch=scratch, **options)
        for name, scratch in (("memory", None), ("disk", tmp_path / "scratch"))
    ]
    assert bits(models[0]) == bits(models[1])


def test_coefficients_at_their_prior__give_the_scores_of_lda(corpora, tmp_path, monkeypatch):
    monkeypatch.setattr(prevalence, "stepped", lambda state, *_: state.prevalence_coefficients)
    for name, formula in (("own", "~ party"), ("same", None)):
        options = {"prevalence": formula, "inverse_temperature": 1.0, "iterations": SHORT}
        fitted(corpora, tmp_path / name, scheduler="serial", **options)
    informed, same = scores_of(tmp_path / "own"), scores_of(tmp_path / "same")
    np.testing.assert_allclose(informed, same, atol=1e-5)


def test_shares_at_their_prior__give_the_bits_of_the_hdp(corpora, tmp_path, monkeypatch):
    monkeypatch.setattr(prevalence, "_share_steps", lambda state, *_: np.zeros_like(state.prevalence_coefficients))
    for name, formula in (("own", "~ party"), ("same", None)):
        options = {"prevalence": formula, "inverse_temperature": 1.0, "iterations": SHORT}
        fitted(corpora, tmp_path / name, family="hdp", scheduler="serial", **options)
    informed, same = scores_of(tmp_path / "own"), scores_of(tmp_path / "same")
    np.testing.assert_allclose(informed, same, atol=1e-5)


def test_the_hdp__recovers_effects_and_the_shares_of_the_corpus(corpora, tmp_path):
    model = fitted(corpora, tmp_path / "run", family="hdp", topics=8, scheduler="serial", prevalence="~ party + year")
    frame = Model(tmp_path / "run").prevalence()
    steep = frame.loc["year"].idxmax()
    assert frame.loc["year", steep] > 0.3
    assert Model(tmp_path / "run").shares_at(year=2015)[steep] > Model(tmp_path / "run").shares_at(year=1985)[steep]
    assert model.document_topic.sum(axis=1) == pytest.approx(1.0, abs=0.05)
    assert verify(tmp_path / "run").broken == []
    # with 100 iterations or more, topics are merged and split first
    moved = fitted(corpora, tmp_path / "moved", family="hdp", topics=8, scheduler="serial", prevalence="~ party + year",
                   iterations=100)  # fmt: skip
    assert moved.prevalence().loc["year"].max() > 0.3


def test_a_warm_start__continues_with_the_coefficients(corpora, reference, short_fit, tmp_path):
    for family, known in (("lda", reference), ("hdp", run_of(short_fit(family="hdp", inverse_temperature=1.0)))):
        options = {"family": family, "scheduler": "serial", "inverse_temperature": 1.0, "warm": known}
        after = fitted(corpora, tmp_path / f"{family}-more", iterations=3, **options)
        before = Model(known).global_state.prevalence.prevalence_coefficients
        begun = after.global_state.prevalence.prevalence_coefficients
        np.testing.assert_allclose(begun[1:], before[1:], atol=0.3)
        assert np.corrcoef(begun[1:].ravel(), before[1:].ravel())[0, 1] > 0.95
        # with another formula, or none, only the topics are used
        fitted(corpora, tmp_path / f"{family}-other", iterations=3, **{**options, "prevalence": "~ party"})
        fitted(corpora, tmp_path / f"{family}-none", iterations=3, **{**options, "prevalence": None})


@pytest.mark.parametrize(
    "options",
    [
        {"weights": "idf", "seeds": {"first": ["w1", "w32"]}},
        pytest.param({"restarts": 2}, marks=pytest.mark.long),
        pytest.param({"samples": 2, "sample_every": 2}, marks=pytest.mark.long),
        pytest.param({"grow": "always", "iterations": 60}, marks=pytest.mark.long),
    ],
)
def test_other_options__can_be_combined_with_prevalence(corpora, options, tmp_path):
    options = {"iterations": 24, "prevalence": "~ party + year", **options}
    model = fitted(corpora, tmp_path / "run", scheduler="serial", **options)
    assert verify(tmp_path / "run").broken == []
    opened = Model(tmp_path / "run")
    assert opened.prevalence().loc["year"].max() > 0.2
    assert np.isfinite(evaluate(tmp_path / "run", unseen=corpora / "unseen", scheduler="serial").score)
    again = fitted(corpora, tmp_path / "again", scheduler="threads", **options)
    np.testing.assert_array_equal(opened.prevalence(), again.prevalence())
    assert model.document_topic.sum(axis=1) == pytest.approx(1.0)


def test_coefficients__are_learned_with_small_active_sets_too(corpora, tmp_path):
    """With small active sets, inactive topics share a background."""
    model = fitted(corpora, tmp_path / "run", scheduler="serial", most_active=2, inverse_temperature=1.0, iterations=60)
    assert Model(tmp_path / "run").prevalence().loc["year"].max() > 0.2
    assert model.document_topic.sum(axis=1) == pytest.approx(1.0)


def test_effects__are_estimated_for_models_with_prevalence(reference):
    result = effects(reference, "~ year", scheduler="serial", corpus=reference.parent / "train")
    assert np.isfinite(result.estimate).all()


def test_a_fit_with_few_iterations__learns_coefficients_after_a_third_of_them(corpora, tmp_path):
    model = fitted(corpora, tmp_path / "run", scheduler="serial", iterations=9)
    assert schedule.PREVALENCE_FIRST > 3
    assert np.abs(model.prevalence().drop("Intercept").to_numpy()).max() > 0.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prevalence": "~ partly"}, "no field 'partly' (did you mean 'party'?)"),
        ({"prevalence": "~ open(party)"}, "the function 'open' is not allowed"),
        ({"prevalence": "~ 0 + party"}, "leaves out the intercept"),
        ({"prevalence": "~ year + I(2 * year)"}, "is a combination of"),
        ({"prevalence": "~ bs(party)"}, "expected numbers or dates"),
        ({"schedule": "stochastic", "iterations": None}, "cannot be combined with the stochastic `schedule`"),
        ({"learn": "alpha"}, "cannot be combined with alpha in `learn`"),
        ({"order": 2}, "takes active responsibilities"),
        ({"responsibilities": "dense"}, "takes active responsibilities"),
    ],
)
def test_invalid_formulas__are_refused_in_one_line(corpora, tmp_path, options, message):
    with pytest.raises(OptionError) as caught:
        fitted(corpora, tmp_path / "run", scheduler="serial", **options)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("fields", "absent"),
    [
        ({}, "party or year or date"),
        ({"party": "a", "year": 1999.0}, "date"),
        ({"party": "a", "year": 1999.0, "date": "2001-05-01"}, ""),
    ],
)
def test_fields_that_no_unseen_document_has__are_named(reference, tmp_path, fields, absent):
    source, lines = tmp_path / "new.jsonl", []
    source.write_text(json.dumps({"id": "x", "text": "w1 w2 w3", **fields}) + "\n", encoding="utf-8")
    infer(reference, source, tmp_path / "theta.npy", scheduler="serial", notice=lines.append)
    evaluate(reference, unseen=source, scheduler="serial", notice=lines.append)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        Model(reference).transform(source)
        Model(reference).transform(pd.DataFrame([{"text": "w1 w2 w3", **fields}]))
    lines += [str(warning.message) for warning in caught]
    notes = [line for line in lines if line.startswith("no document has")]
    assert len(notes) == (4 if absent else 0)
    assert all(note.startswith(f"no document has {absent}, which") for note in notes)


def test_unseen_documents_with_new_levels_or_beyond_a_spline__are_refused_in_one_line(reference, corpora, tmp_path):
    write_documents(tmp_path / "other.jsonl", 10, 5, parties=("z",))
    ingest(tmp_path / "other.jsonl", tmp_path / "other", like=corpora / "all", scheduler="serial")
    with pytest.raises(OptionError, match="party: no document has the value 'z'"):
        infer(reference, tmp_path / "other", tmp_path / "theta.npy", scheduler="serial")


def test_designs_that_do_not_belong_to_a_model__are_refused(reference):
    model = Model(reference)
    state = model.global_state.prevalence
    rows = DocumentRows(np.ones((1, 2), dtype=np.float32), np.zeros(1, dtype=np.int32))
    with pytest.raises(DamagedError, match="expected .* columns, found 2"):
        prevalence.design_priors(rows, state, model.family.update_parameters(NO_ROWS, model.global_state))
    record = json.loads(state.prevalence_design.tobytes())
    for change in ({"formula": "~ __import__('os')"}, {"used": [0, 99]}, {"counts": {}}, {"center": [0.0]}):
        data = json.dumps({**record, **change}).encode()
        with pytest.raises((DamagedError, OptionError)):
            unpacked_design(np.frombuffer(data, dtype=np.uint8))


def test_the_command_line__accepts_a_formula(corpora, tmp_path, capsys):
    command = ["fit", corpora / "train", tmp_path / "run", "--family", "lda", "--topics", 3, "--iterations", 3]
    assert main([*map(str, command), "--prevalence", "~ party + year", "--scheduler", "serial"]) == 0
    command[2] = tmp_path / "other"
    assert main([*map(str, command), "--prevalence", "~ partly", "--scheduler", "serial"]) != 0
    assert "--prevalence: no field 'partly'" in capsys.readouterr().err


def test_one_line__lists_the_fields_of_the_model(corpora):
    corpus = Corpus(corpora / "train")
    lines = [
        missing_inputs(corpus, "lda", make_options("lda", {"topics": 2, "prevalence": formula}))
        for formula in (None, "~ party * year")
    ]
    stored = "of the documents' fields (labels, year, date), the model uses"
    assert lines == [
        [f"{corpus.url}: {stored} none; it follows those that `prevalence` names"],
        [f"{corpus.url}: {stored} party, year"],
    ]


AUTHORS = 60


@pytest.fixture(scope="module")
def authors(tmp_path_factory):
    """Documents by many authors, each of whom prefers one of two topics, and unseen documents."""
    place, noise = tmp_path_factory.mktemp("authors"), np.random.default_rng(0)
    for name, documents in (("seen", 900), ("unseen", 40)):
        with (place / f"{name}.jsonl").open("w", encoding="utf-8") as file:
            for number in range(documents):
                author = int(noise.integers(AUTHORS))
                first = noise.random() < (0.9 if author % 2 else 0.1)
                words = noise.choice(10, 6) + (0 if first else 10)
                row = {
                    "id": str(number),
                    "text": " ".join(f"w{word}" for word in words),
                    "length": float(noise.normal()),
                }
                row["author"] = f"a{author:02d}" if name == "seen" or number else "nobody"
                file.write(json.dumps(row) + "\n")
    fields = {"labels": ["author"], "covariates": ["length"], "scheduler": "serial", "min_documents": 1}
    ingest(place / "seen.jsonl", place / "corpus", shard_tokens=2500, **fields)
    ingest(place / "unseen.jsonl", place / "unseen", like=place / "corpus", scheduler="serial")
    return place


@pytest.mark.parametrize("family", ["lda", "hdp"])
def test_fields_of_many_levels__have_shrunken_effects(authors, family, tmp_path):
    options = {"family": family, "topics": 2, "prevalence": "~ length + author", "iterations": 50, "seed": 1}
    options |= {"inverse_temperature": 1.0}
    model = fit(authors / "corpus", tmp_path / "run", scheduler="serial", **options)
    frame = model.prevalence()
    effects_of = frame.filter(regex=r"^author\[", axis=0)
    assert len(effects_of) == AUTHORS
    difference = (effects_of[0] - effects_of[1]).to_numpy()
    assert abs(np.corrcoef(difference, np.arange(AUTHORS) % 2)[0, 1]) > 0.9
    shares = [model.shares_at(author=author)[0] for author in ("a00", "a01")]
    assert abs(shares[0] - shares[1]) > 0.3
    assert min(shares) < model.shares_at()[0] < max(shares)
    assert verify(tmp_path / "run").broken == []
    infer(tmp_path / "run", authors / "unseen", tmp_path / "theta.npy", scheduler="serial")
    assert np.isfinite(np.load(tmp_path / "theta.npy")).all()
    again = fit(authors / "corpus", tmp_path / "again", scheduler="threads", scratch=tmp_path / "scratch", **options)
    assert len(model.record.shards) > 1
    assert bits(model) == bits(again)


@pytest.mark.parametrize(
    ("formula", "message"),
    [
        ("~ length * author", "'author' has 60 levels; a field of more than 50 must be a separate term"),
        ("~ 0 + author + length", "intercept"),
    ],
)
def test_fields_of_many_levels__must_be_separate_terms(authors, tmp_path, formula, message):
    with pytest.raises(OptionError, match=message):
        fit(authors / "corpus", tmp_path / "run", family="lda", topics=2, prevalence=formula, scheduler="serial")


def test_numbers_too_large_to_square__are_refused_by_name(tmp_path):
    frame = pd.DataFrame({"text": ["ships sail", "oxen plough"] * 4, "sales": [1e300, -1e300] * 4})
    with pytest.raises(OptionError, match="prevalence: 'sales' has numbers too large to square; rescale it"):
        fit(frame, tmp_path / "run", family="lda", topics=2, prevalence="~ sales", covariates="sales")
