"""systemd's units: by `systemd-analyze verify`, with this environment's programs in place of the installed ones."""

import re
import subprocess

import pytest

from tests.deploy.reading import BIN, DEPLOY, tool

UNITS = sorted((DEPLOY / "systemd").iterdir())


def verify(folder, names):
    """The output of `systemd-analyze verify` for the units in a folder."""
    words = [tool("systemd-analyze"), "verify", "--man=no", *(str(folder / name) for name in names)]
    done = subprocess.run(words, capture_output=True, text=True)
    return done.stdout + done.stderr


def put(folder, change=lambda text: text):
    """Write the units where they are verified; templates get an instance."""
    names = []
    for path in UNITS:
        text = path.read_text(encoding="utf-8").replace("/opt/collapsium/bin/", f"{BIN}/")
        (folder / path.name).write_text(change(text))
        names.append(path.name.replace("@.", "@one."))
        (folder / names[-1]).write_text(change(text))
    return names


def test_units__are_verified(tmp_path):
    assert len(UNITS) == 4
    output = verify(tmp_path, put(tmp_path))
    assert not [line for line in output.splitlines() if "collapsium" in line], output


@pytest.mark.parametrize("wrong", [r"^ExecStart=\S+", r"^OnCalendar=.*", r"^KillMode=.*"])
def test_faults__are_found(tmp_path, wrong):
    output = verify(tmp_path, put(tmp_path, lambda text: re.sub(wrong, "Nonsense=/no/such", text, flags=re.MULTILINE)))
    assert "Nonsense" in output
