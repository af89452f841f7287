"""The container's requirements: everything that it needs, in the versions that are tested, with hashes and no addresses."""

import re
import tomllib

import pytest
from packaging.requirements import Requirement

from tests.deploy.reading import DEPLOY, ROOT


def canonical(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def pinned(text):
    """Versions by name."""
    lines = [line for line in text.splitlines() if line and line[0] not in "# "]
    found = dict(line.removesuffix(" \\").split("==") for line in lines)
    return {canonical(name): version for name, version in found.items()}


@pytest.mark.parametrize("name", ["requirements.txt", "requirements-build.txt"])
def test_requirements__are_the_tested_versions_with_hashes(name):
    text = (DEPLOY / name).read_text()
    assert pinned(text).items() <= pinned((ROOT / "constraints.txt").read_text()).items()
    assert "://" not in text
    for entry in re.split(r"\n(?=\S)", text.strip()):
        assert re.fullmatch(r"[A-Za-z0-9._-]+==\S+( \\\n    --hash=sha256:[0-9a-f]{64})+", entry), entry


def test_requirements__have_all_that_the_package_asks_for():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found = pinned((DEPLOY / "requirements.txt").read_text())
    for line in [*project["dependencies"], *project["optional-dependencies"]["s3"], "dumb-init"]:
        wanted = Requirement(line)
        assert found[canonical(wanted.name)] in wanted.specifier, line


def test_bounds__of_fsspec_and_jinja_run_no_code_of_references():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = {
        canonical(requirement.name): requirement.specifier for requirement in map(Requirement, project["dependencies"])
    }
    assert "2026.4.0" not in wanted["fsspec"]  # the last that renders templates of references without a sandbox
    assert "3.1.5" not in wanted["jinja2"]  # the last whose sandbox can be left
