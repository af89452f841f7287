"""dask.yaml against Dask's own schema, and shell scripts against shellcheck."""

import subprocess
from pathlib import Path

import distributed
import jsonschema
import pytest

from tests.deploy.reading import DEPLOY, ROOT, document, tool


def scripts():
    """All shell scripts of the project."""
    found = [*DEPLOY.rglob("*"), *(ROOT / ".ci").iterdir()]
    return sorted(
        path for path in found if path.is_file() and path.read_bytes().startswith((b"#!/usr/bin/env bash", b"#!/bin/"))
    )


def test_settings__have_the_types_of_dask():
    schema = document(Path(distributed.__file__).parent / "distributed-schema.yaml")
    parts = schema["properties"]["distributed"]["properties"]
    settings = document(DEPLOY / "dask.yaml")["distributed"]
    validator = jsonschema.validators.validator_for(schema)
    faults = [fault.message for name, part in settings.items() for fault in validator(parts[name]).iter_errors(part)]
    assert faults == []


@pytest.mark.parametrize("path", scripts(), ids=lambda path: path.name)
def test_scripts__pass_shellcheck(path):
    done = subprocess.run([tool("shellcheck"), str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_scripts__are_found():
    assert {"collapsium.sbatch", "make-test-certificates", "run"} <= {path.name for path in scripts()}
