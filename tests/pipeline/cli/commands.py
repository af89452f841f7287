"""Run commands in this process, and return what they print."""

from collapsium.pipeline.cli.main import main


def command(capsys, *words):
    """Run a command in this process; return its exit code, output and errors."""
    try:
        code = main([str(word) for word in words])
    except SystemExit as stop:
        code = stop.code
    out, err = capsys.readouterr()
    return code, out, err


def one_line(err):
    assert err.count("\n") == 1, err
    assert err.startswith("collapsium: error: ")
    return err


def fitted(place, small, *more):
    words = [
        "fit",
        small[0],
        place / "run",
        "--family",
        "lda",
        "--topics",
        3,
        "--scheduler",
        "serial",
        "--quiet",
        *more,
    ]
    assert main([str(word) for word in words]) == 0
    return place / "run"
