"""Files of batch jobs: their settings, and what is refused."""

import pytest

from collapsium.pipeline.cli.main import main
from tests.pipeline.workflows.conftest import JOB


@pytest.mark.parametrize(
    ("text", "where"),
    [
        (JOB.replace("folder =", "foldr ="), r"\[batch\]: unknown key 'foldr' \(did you mean 'folder'\?\)"),
        (JOB.replace("[ingest]", "[ingst]"), r"unknown table 'ingst' \(did you mean 'ingest'\?\)"),
        (
            JOB.replace("shard_tokens", "shard_token"),
            r"\[ingest\]: unknown key 'shard_token' \(did you mean 'shard_tokens",
        ),
        (JOB.replace("topics", "topcs"), r"\[fit\]: unknown key 'topcs' of family 'lda' \(did you mean 'topics'\?\)"),
        (JOB.replace("topics = 3\n", ""), "\\[fit\\]: 'topics' is required"),
        (JOB.replace('"lda"', '"hca"'), "unknown key 'topics' of family 'hca'"),
        (JOB.replace('"lda"', '"ldaa"'), r"unknown family 'ldaa' \(did you mean"),
        (JOB.replace('"job"', '"$NO_SUCH_VARIABLE/job"'), "the environment has no variable NO_SUCH_VARIABLE"),
        (JOB.replace("[batch]", "[batch"), "expected TOML"),
        (JOB.replace('"job"', "3"), r"\[batch\]: 'folder': expected a string, found 3"),
        (JOB + "tls_ca = 'x'\n", "'tls_cert' is required"),
        (
            JOB.replace("topics = 3\n", "topics = 3\nrefit_growth = -1\n"),
            "'refit_growth': expected a value greater than or equal to 0",
        ),
    ],
)
def test_an_invalid_job__is_refused_before_anything_runs(job, capsys, text, where):
    job.write_text(text)
    assert main(["batch", str(job)]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    import re

    assert re.search(where, error)
    assert not (job.parent / "job").exists()


def test_a_job__expands_environment_variables(job, monkeypatch):
    monkeypatch.setenv("PLACE", "elsewhere")
    job.write_text(JOB.replace('"job"', '"${PLACE}/job"'))
    from collapsium.pipeline.workflows.batch.job_file import read_job

    asked = read_job(job)
    assert asked.batch.folder == str(job.parent / "elsewhere/job")
    assert asked.limits_when(True)["iterations"] == 12
    assert asked.limits_when(False) == {"tolerance": 0.01, "iterations": 30}


def test_sizes__are_written_as_on_the_command_line(job):
    job.write_text(JOB.replace("shard_tokens = 600", 'max_decompressed = "1.5GB"'))
    from collapsium.pipeline.workflows.batch.job_file import read_job

    assert read_job(job).reading == {"max_decompressed": 1_500_000_000}


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ('min_documents = "3"', "'min_documents': expected a whole number, found '3'"),
        ("stop_words = 3", "'stop_words': expected a list of strings, found 3"),
        ("labels = 3", "'labels': expected a list of strings, found 3"),
        ("label = 'a'", "unknown key 'label' (did you mean 'labels'?)"),
        ("title_field = 'a'", "unknown key 'title_field' (did you mean 'title'?)"),
        ("tls = 1", "unknown key 'tls'"),
        ('max_decompressed = "20 apples"', "'max_decompressed'"),
    ],
)
def test_a_key_of_ingest_with_a_wrong_type__is_refused_before_anything_is_written(job, capsys, setting, message):
    job.write_text(JOB.replace("shard_tokens = 600", setting))
    assert main(["batch", str(job)]) == 2
    assert message in capsys.readouterr().err
    assert not (job.parent / "job").exists()
