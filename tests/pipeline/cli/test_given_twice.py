"""Options that are given twice are refused, whichever way they are given."""

import pytest

from collapsium.pipeline import simulate
from collapsium.pipeline.estimators import CollapsedLDA
from collapsium.pipeline.models.registry import make_options
from collapsium.storage.errors import OptionError
from collapsium.storage.runs.run import Run
from tests.pipeline.cli.commands import command, one_line

FIT = ["--family", "lda", "--iterations", 1, "--scheduler", "serial", "--quiet"]
TWICE = {
    "--topics 3 --set topics=4": "--topics: expected one value, found --set topics=4 and --topics 3",
    "--set topics=3 --set topics=4": "--topics: expected one value, found --set topics=3 and --set topics=4",
    "--topics 3 --set stop-sampling=1 --set stop_sampling=2": "--stop-sampling: expected one value",
    "--topics 3 --topics 4 --set topics=5": "--topics: expected one value, found --set topics=5 and --topics 4",
}


@pytest.mark.parametrize(("words", "text"), TWICE.items())
def test_an_option_that_is_given_twice__is_refused(small, tmp_path, capsys, words, text):
    code, out, err = command(capsys, "fit", small[0], tmp_path / "run", *FIT, *words.split())
    assert (code, out) == (2, "")
    assert text in one_line(err)
    assert not (tmp_path / "run").exists()


def test_set_and_flags_without_values__may_be_repeated(small, tmp_path, capsys):
    words = ["--topics", 3, "--set", "alpha=0.2", "--set", "beta=0.1", "--quiet", "--json"]
    assert command(capsys, "fit", small[0], tmp_path / "run", *FIT, *words)[0] == 0
    options = Run(tmp_path / "run").record()["options"]
    assert (options["topics"], options["alpha"], options["beta"]) == (3, 0.2, 0.1)


def test_a_repeated_flag__has_its_last_value(small, tmp_path, capsys):
    """Scripts that pass on further options can so be overridden, as is usual in shells."""
    words = ["--topics", 9, "--topics", 3, "--seed", 1, "--seed=2"]
    assert command(capsys, "fit", small[0], tmp_path / "run", *FIT, *words)[0] == 0
    record = Run(tmp_path / "run").record()
    assert (record["options"]["topics"], record["seed"]) == (3, 2)


def test_flags__override_a_file(small, tmp_path, capsys):
    (tmp_path / "fit.toml").write_text('family = "lda"\ntopics = 9\nalpha = 0.5\n')
    words = ["--config", tmp_path / "fit.toml", "--iterations", 1, "--topics", 3, "--set", "alpha=0.2"]
    assert command(capsys, "fit", small[0], tmp_path / "run", *words)[0] == 0
    options = Run(tmp_path / "run").record()["options"]
    assert (options["topics"], options["alpha"]) == (3, 0.2)


def test_two_spellings_in_a_file__are_refused(small, tmp_path, capsys):
    (tmp_path / "fit.toml").write_text('family = "lda"\ntopics = 3\nscore-every = 2\nscore_every = 3\n')
    code, _, err = command(capsys, "fit", small[0], tmp_path / "run", "--config", tmp_path / "fit.toml")
    assert code == 2
    assert "expected 'score-every' or 'score_every', which are one option, found both" in one_line(err)
    (tmp_path / "job.toml").write_text(
        '[batch]\nfolder = "j"\n[ingest]\nsources = ["x.jsonl"]\nmin_documents = 2\nmin-documents = 3\n'
        '[fit]\nfamily = "lda"\ntopics = 3\n'
    )
    code, _, err = command(capsys, "batch", tmp_path / "job.toml")
    assert code == 2
    assert "[ingest]: expected 'min_documents' or 'min-documents', which are one option" in one_line(err)


def test_a_comparison__refuses_a_setting_that_is_given_twice(small, tmp_path, capsys):
    words = ["--families", "lda", "--topics", 3, "--set", "lda.alpha=0.1", "--set", "lda.alpha=0.2"]
    code, _, err = command(capsys, "compare", small[0], tmp_path / "out", *words)
    assert code == 2
    assert "--set lda.alpha: is given twice" in one_line(err)


def test_a_former_name_together_with_the_present_one__is_refused():
    with pytest.raises(OptionError, match="initial_topics: was also given by its former name, `start`"):
        make_options("hdsp", {"topics": 3, "initial_topics": 2, "start": 3})


@pytest.mark.parametrize(
    ("options", "parameters", "text"),
    [
        ({"topics": 4}, {}, "options: expected no 'topics', which is the parameter n_components"),
        ({"iterations": 4}, {"max_iter": 7}, "options: expected no 'iterations', which is the parameter max_iter"),
        ({"alpha": 0.2}, {"alpha": 0.1}, "options: expected no 'alpha', which is the parameter alpha"),
    ],
)
def test_an_estimator__refuses_an_option_that_is_also_a_parameter(tmp_path, options, parameters, text):
    simulate(tmp_path / "c", family="lda", topics=2, documents=20, words=10, tokens=10)
    with pytest.raises(OptionError, match=text):
        CollapsedLDA(n_components=3, options=options, **parameters).fit(tmp_path / "c")
