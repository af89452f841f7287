"""Errors name options as the user set them: as parameters, as flags, or as keys of a file."""

import contextlib
import pickle
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collapsium.pipeline.cli.main import main
from collapsium.pipeline.engine.setup.limits import Keys
from collapsium.storage.errors import InputError, OptionError, SettingError, flag_of, near

names = st.lists(st.text(string.ascii_lowercase, min_size=1, max_size=5), min_size=1, max_size=3).map("_".join)


@given(names, names)
def test_options_in_messages__are_spelled_for_each_interface(subject, mentioned):
    for error in (
        OptionError(f"3 requires `{mentioned}`", subject),
        OptionError(f"{flag_of(subject)}: 3 requires {flag_of(mentioned)}"),
    ):
        assert error.subject == subject
        assert error.spelled(flag_of) == f"{flag_of(subject)}: 3 requires {flag_of(mentioned)}"
        assert error.spelled(repr) == f"{subject!r}: 3 requires {mentioned!r}"
        assert str(pickle.loads(pickle.dumps(error))) == str(error)
        assert pickle.loads(pickle.dumps(error)).parameter == error.parameter


@pytest.mark.parametrize("command", [["fit", ".", "run"], ["estimate", "."]])
def test_an_option_with_the_name_of_a_command__is_reported_as_a_flag(command, capsys):
    with contextlib.suppress(SystemExit):
        main([*command, "--family", "lda", "--topics", "5", "--inverse-temperature", "7"])
    assert "collapsium: error: --inverse-temperature: expected a value" in capsys.readouterr().err


def test_keys_of_a_file__are_quoted_as_they_are_written():
    keys = Keys("f.toml", {"sample_every": ("[fit]", "sample-every"), "samples": ("[fit]", "samples")})
    found = keys.explain(OptionError("2 requires `samples`, not `seed`", "sample_every"))
    assert str(found) == "f.toml: [fit]: 'sample-every': 2 requires 'samples', not --seed"
    assert isinstance(found, InputError)
    assert isinstance(pickle.loads(pickle.dumps(found)), SettingError)
    other = OptionError("above 0", "seed")
    assert keys.explain(other) is other


@pytest.mark.parametrize(
    ("name", "nearest"), [("LDA", "lda"), ("igest", "ingest"), ("Ingest", "ingest"), ("zzz", None)]
)
def test_the_nearest_name__is_found_in_any_case(name, nearest):
    assert near(name, ["hdp", "lda", "ingest"]) == ("" if nearest is None else f" (did you mean {nearest!r}?)")


FIT = """family = "lda"
topics = 3
"""
WRONG = {
    "score-every = 0": "'score-every': expected a whole number of 1 or more, found 0",
    "score_every = 0": "'score_every': expected a whole number of 1 or more, found 0",
    'stop-on = "Score"': "'stop-on': expected counts, objective, score, found 'Score' (did you mean 'score'?)",
    "most-active = 0": "'most-active': expected a whole number of 1 or more, found 0",
    "local-sweeps = 1.5": "'local-sweeps': expected a whole number or a string, found 1.5",
    "sample-every = 3": "'sample-every': 3 requires --samples",
    "checkpoint-every = 0": "'checkpoint-every': expected a whole number of 1 or more, found 0",
    "cluster_timeout = -1": "'cluster_timeout': expected seconds above 0, found -1",
}


@pytest.mark.parametrize("line", WRONG)
def test_fit__names_the_keys_of_its_file(small, tmp_path, capsys, line):
    (tmp_path / "f.toml").write_text(FIT + line)
    assert main(["fit", str(small[0]), str(tmp_path / "run"), "--config", str(tmp_path / "f.toml"), "--quiet"]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"collapsium: error: {tmp_path / 'f.toml'}: ")
    assert WRONG[line] in error
    assert not (tmp_path / "run").exists()


def test_fit__names_the_flag_that_overrides_the_file(small, tmp_path, capsys):
    (tmp_path / "f.toml").write_text(FIT + "score-every = 3")
    words = ["fit", str(small[0]), str(tmp_path / "run"), "--config", str(tmp_path / "f.toml"), "--score-every", "0"]
    assert main(words) == 2
    assert (
        capsys.readouterr().err == "collapsium: error: --score-every: expected a whole number of 1 or more, found 0\n"
    )


@pytest.mark.parametrize(
    ("table", "line", "message"),
    [
        ("fit", "score-every = 0", "[fit]: 'score-every': expected a whole number of 1 or more, found 0"),
        ("fit", "alpha = -1", "[fit]: 'alpha': expected a value greater than 0, found -1"),
        ("ingest", 'stop-words = "klingon"', "[ingest]: 'stop-words' klingon: no such language"),
        ("ingest", 'stop-words = "french"', "or codes of ISO 639-1 such as de, or files"),
        ("ingest", "min-characters = 0", "[ingest]: 'min-characters': expected a whole number of 1 or more, found 0"),
        ("ingest", "min-characters = 'x'", "[ingest]: 'min-characters': expected a whole number, found 'x'"),
        ("ingest", "min-charcters = 3", "[ingest]: unknown key 'min-charcters' (did you mean 'min_characters'?)"),
        ("ingest", 'text = "bodi"', "no field 'bodi' ('text') (did you mean 'body'?); there are id, body"),
    ],
)
def test_batch__names_the_keys_of_its_file(tmp_path, capsys, table, line, message):
    (tmp_path / "t.jsonl").write_text('{"id": "a", "body": "trees"}\n')
    tables = {"batch": 'folder = "job"', "ingest": 'sources = ["t.jsonl"]', "fit": FIT}
    tables[table] += f"\n{line}"
    job = tmp_path / "j.toml"
    job.write_text("".join(f"[{name}]\n{text}\n" for name, text in tables.items()))
    code = main(["batch", str(job), "--quiet"])
    error = capsys.readouterr().err
    assert message in error
    assert code == (1 if "no field" in message else 2)


def test_a_json_array__is_refused_with_a_command_that_converts_it_to_lines(tmp_path, capsys):
    for text in ('[{"id": 1, "text": "a tree"}]', '[\n  {"id": 1,\n "text": "a tree"}\n]\n', " [\n"):
        (tmp_path / "x.json").write_text(text)
        assert main(["ingest", str(tmp_path / "x.json"), str(tmp_path / "c")]) == 1
        error = capsys.readouterr().err
        assert "expected JSON lines, an object a line, found an array; make them with `jq -c '.[]' x.json" in error
    (tmp_path / "x.json").write_text('{"id": 1, "text": "a tree"}\n')
    assert main(["ingest", str(tmp_path / "x.json"), str(tmp_path / "c")]) == 0
