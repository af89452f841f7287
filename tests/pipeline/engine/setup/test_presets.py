"""Presets: named sets of options, which explicit options override, in every interface."""

import json
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collapsium.pipeline import fit, ingest
from collapsium.pipeline.cli.main import main
from collapsium.pipeline.engine.setup.limits import PRESETS, PURPOSES, FitOptions, PresetName
from collapsium.pipeline.estimators import CollapsedLDA
from collapsium.pipeline.models.registry import make_options
from collapsium.pipeline.workflows.batch.job_file import read_job
from collapsium.storage.errors import OptionError

FITTED = {"family": "lda", "topics": 2, "iterations": 1, "scheduler": "serial"}
TEXTS = ["ship sail harbour", "star planet orbit", "ship harbour storm", "star orbit moon"] * 5


def recorded(run):
    """Return the options that a run records, and its initialisation."""
    record = json.loads((run / "run.json").read_text())
    return record["options"], record["start"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("presets")
    (folder / "texts.jsonl").write_text(
        "\n".join(json.dumps({"id": f"{n}", "text": text}) for n, text in enumerate(TEXTS))
    )
    ingest(folder / "texts.jsonl", folder / "corpus")
    return folder / "corpus"


def test_presets__have_a_name_a_purpose_and_options_that_lda_and_hdp_accept():
    assert get_args(PresetName) == tuple(PRESETS) == tuple(PURPOSES)
    for name in PRESETS:
        for family in ("lda", "hdp"):
            settings, options = FitOptions(preset=name).with_preset(family, {"topics": 3})
            make_options(family, options)
            assert {**options, **{name: getattr(settings, name) for name in settings.model_fields_set}}.items() >= {
                **PRESETS[name],
                "topics": 3,
            }.items()


@given(st.sampled_from(sorted(PRESETS)), st.booleans(), st.floats(0.1, 1), st.floats(0, 50))
def test_explicit_options__override_a_preset(name, weighted, temperature, strength):
    weights = "idf" if weighted else None
    settings, options = FitOptions(preset=name, init_strength=strength).with_preset(
        "lda", {"topics": 2, "weights": weights, "inverse_temperature": temperature}
    )
    assert (settings.init_strength, options["weights"]) == (strength, weights)
    assert options["inverse_temperature"] == temperature


def test_every_interface__accepts_a_preset(corpus, tmp_path, capsys):
    fit(corpus, tmp_path / "python", preset="clusters", **FITTED)
    (tmp_path / "fit.toml").write_text('family = "lda"\ntopics = 2\niterations = 1\npreset = "clusters"\n')
    main(["fit", str(corpus), str(tmp_path / "file"), "--config", str(tmp_path / "fit.toml"), "--quiet"])
    given_by_name = {name.replace("_", "-"): value for name, value in PRESETS["clusters"].items()}
    flags = [text for name, value in given_by_name.items() for text in (f"--{name}", str(value))]
    words = ["fit", str(corpus), str(tmp_path / "named"), "--family=lda", "--topics=2", "--iterations=1", "--quiet"]
    main([*words, *flags])
    assert recorded(tmp_path / "python") == recorded(tmp_path / "file") == recorded(tmp_path / "named")
    capsys.readouterr()


def test_an_estimator_with_a_preset__equals_one_with_its_options():
    counts = np.random.default_rng(0).poisson(0.5, (30, 12))
    preset = CollapsedLDA(2, max_iter=2, preset="clusters", init_strength=7.0, random_state=0).fit(counts)
    named = CollapsedLDA(2, max_iter=2, random_state=0, **{**PRESETS["clusters"], "init_strength": 7.0}).fit(counts)
    np.testing.assert_array_equal(preset.components_, named.components_)


def test_the_plan_of_a_job__has_the_options_of_its_preset(tmp_path):
    job = tmp_path / "job.toml"
    job.write_text(
        '[batch]\nfolder = "job"\n[ingest]\nsources = ["a.jsonl"]\n'
        '[fit]\nfamily = "lda"\ntopics = 2\npreset = "clusters"\ninit-strength = 7.0\n'
    )
    plan = read_job(job).plan()
    assert plan["options"]["weights"] == "log-tf-idf"
    assert (plan["start"], plan["start_strength"]) == ("clusters", 7.0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"preset": "cluster"}, "expected defaults, clusters, short-texts, found 'cluster'"),
        ({"preset": "clusters", "family": "gibbs-lda"}, "clusters sets `weights`, and family 'gibbs-lda' has none"),
    ],
)
def test_invalid_presets__are_refused(corpus, tmp_path, options, message):
    with pytest.raises(OptionError, match=message):
        fit(corpus, tmp_path / "run", **{**FITTED, **options})
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("options", "lines"), [({}, 1), ({"preset": "defaults"}, 0), ({"init": "random"}, 0)])
def test_short_documents__get_one_line_that_suggests_presets(corpus, options, lines):
    events = []
    fit(corpus, sinks=[events.append], **FITTED, **options)
    offers = [event["text"] for event in events if event["event"] == "notice" and "short-texts" in event["text"]]
    assert len(offers) == lines
