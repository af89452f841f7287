"""Options have one name as a flag, a Python keyword and a TOML key; a wrong keyword is an `OptionError`."""

import inspect

import pytest

from collapsium import pipeline
from collapsium.pipeline.cli.command import COMMANDS
from collapsium.pipeline.cli.main import load_command, main, models_of
from collapsium.pipeline.cli.reference import commands
from collapsium.pipeline.corpora.ingest import reading_options
from collapsium.pipeline.corpora.options import IngestOptions
from collapsium.pipeline.engine.setup.limits import LIMIT_NAMES, RUN_NAMES
from collapsium.pipeline.models.registry import family_names, load_family
from collapsium.pipeline.options import names_of, option_names
from collapsium.pipeline.workflows.batch.job_file import ClusterTable, HeldoutTable, InferTable
from collapsium.storage.errors import OptionError
from collapsium.storage.readers.open import ReadOptions

# Only commands have options for printing, configuration files, certificates by file, and callbacks by name.
OF_COMMANDS = {"quiet", "config", "settings", "callback", "log_format", "as_json", "tls_ca", "tls_cert", "tls_key"}
OF_PYTHON = {"progress", "verbose", "sinks", "notice", "tls", "settings", "options", "ax"}
FUNCTIONS = {
    "effects": ("effects", "table_effects", "words_over"),
    "evaluate": ("evaluate", "coherence", "measure"),
    "fit": ("fit", "resume"),
    "topics": ("topics", "expected_topics", "label_topics"),
}
# These flags choose another function (the first argument is theirs), the amount of output, or where the result goes.
APART = {
    "effects": {"picture", "words", "over", "topics", "period", "overwrite", "title", "names"},
    "evaluate": {"coherence", "documents", "words"},
    "fit": {"resume", "run"},
    "topics": {
        "name",
        "texts",
        "given",
        "labels",
        "covariates",
        "csv",
        "overwrite",
        "picture",
        "graphml",
        "min_share",
        "levels",
    },
}
# `fit` has the options of `resume`, and sample texts have no options
NO_KEYWORDS = {"resume", "sample_texts", "write_sample_texts"}
PUBLIC = [name for name in sorted({*pipeline.__all__} - NO_KEYWORDS) if inspect.isfunction(getattr(pipeline, name))]


def arguments_of(command):
    """Return the names of a command's positional arguments and options."""
    run, _ = load_command(command)
    arguments = {
        parameter.name
        for parameter in inspect.signature(run).parameters.values()
        if parameter.kind is parameter.POSITIONAL_ONLY
    }
    return arguments.union(*(model.model_fields for model in models_of(run).values()))


@pytest.mark.parametrize("command", [name for name in COMMANDS if hasattr(pipeline, name)])
def test_flags_are_called_as_the_keywords_of_python(command):
    flags = arguments_of(command) - OF_COMMANDS
    names = set().union(*(option_names(getattr(pipeline, name)) for name in FUNCTIONS.get(command, (command,))))
    if "family" in names:
        names |= {*LIMIT_NAMES, "topics"} & flags
    assert flags - APART.get(command, set()) == names - OF_PYTHON - APART.get(command, set())


def test_flags_are_spelled_as_their_names():
    for command in commands():
        for option in command.options:
            spelled = option.flag.removeprefix("--").replace("-", "_")
            assert spelled == option.name or option.name in ("settings", "as_json"), command


def test_toml_keys_are_called_as_the_keywords_of_python():
    assert set(RUN_NAMES) <= {*option_names(pipeline.fit), *LIMIT_NAMES}
    assert {*IngestOptions.model_fields} == {*option_names(pipeline.ingest)} - {
        "sources", "corpus", "progress", "scheduler", "workers", "tls", "overwrite", "verbose"
    }  # fmt: skip
    assert {*ClusterTable.model_fields} - {"tls_ca", "tls_cert", "tls_key"} <= {*option_names(pipeline.fit)}
    assert {*InferTable.model_fields} <= {*option_names(pipeline.infer)}
    assert {*HeldoutTable.model_fields} <= {*option_names(pipeline.split)}


@pytest.mark.parametrize("name", PUBLIC)
def test_a_wrong_keyword__is_reported_with_the_nearest_name(name, tmp_path):
    function = getattr(pipeline, name)
    near = max(option_names(function), key=len)
    options = {"family": "lda"} if "family" in option_names(function) else {}
    options |= {"documents": 1, "words": 1} if name == "simulate" else {"out": tmp_path / "b"} if name == "fit" else {}
    with pytest.raises(OptionError, match=rf"unknown option '{near}x'.*did you mean '{near}'"):
        function(tmp_path / "a", **options, **{f"{near}x": 1})


@pytest.mark.parametrize(
    ("function", "options", "message"),
    [
        ("ingest", {"label": "x"}, "ingest: unknown option 'label' (did you mean 'labels'?)"),
        ("ingest", {"text_field": "x"}, "ingest: unknown option 'text_field' (did you mean 'text'?)"),
        ("ingest", {"covariates": 2.5}, "covariates: expected a list of strings, found 2.5"),
        ("ingest", {"text": 5}, "text: expected a string, found 5"),
        ("append", {"labels": "x"}, "append: unknown option 'labels' (did you mean 'label_names'?)"),
        ("estimate", {"family": "lda", "topic": 3}, "unknown option 'topic' of family 'lda' (did you mean 'topics'?)"),
        ("estimate", {"topics": 3}, "estimate: the option 'family' is required"),
        ("simulate", {"family": "lda", "documents": 1, "words": 1, "topic": 1}, "unknown option 'topic' of family"),
        ("fit", {"family": "lda", "topics": 2, "iteration": 1}, "(did you mean 'iterations'?)"),
        ("fit", {"family": "lda", "topics": 2, "schedular": 1}, "(did you mean 'scheduler'?)"),
    ],
)
def test_wrong_options__raise_option_errors(function, options, message, tmp_path):
    places = (tmp_path / "a.jsonl",) if function in ("estimate", "simulate") else (tmp_path / "a.jsonl", tmp_path / "b")
    with pytest.raises(OptionError) as caught:
        getattr(pipeline, function)(*places, **options)
    assert message in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_several_names__are_lists_or_comma_separated_strings():
    assert names_of("a, b=c,") == names_of(["a", "b=c"]) == ("a", "b=c")
    assert names_of(["a,b"]) == ("a,b",)
    assert names_of(-1) == ("-1",)
    assert reading_options({"labels": "x,y", "max_decompressed": "1KB"}) == ReadOptions(
        labels=("x", "y"), max_decompressed=1000
    )


def test_several_names__may_be_given_by_repeated_flags(monkeypatch):
    settings = {}

    def ingest(sources, corpus, **options):
        settings.update(options)
        raise OptionError("enough")

    monkeypatch.setattr(pipeline, "ingest", ingest)
    assert main(["ingest", "s", "c", "--labels", "a,b=c", "--labels", "d", "--covariates", "e,f"]) == 2
    assert (settings["labels"], settings["covariates"]) == (("a", "b=c", "d"), ("e", "f"))


def test_the_signature_of_ingest__lists_its_options_separately():
    parameters = inspect.signature(pipeline.ingest).parameters
    assert {"text", "labels", "stop_words", "segments"} <= set(parameters)
    assert "reading" not in parameters


def test_no_option_of_a_family_has_the_name_of_an_option_of_all_fits():
    for family in family_names():
        shared = {*load_family(family).Options.model_fields} & {*option_names(pipeline.fit), *LIMIT_NAMES}
        assert not shared, family
