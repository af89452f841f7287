"""Callbacks are found by name, receive all events, and never end a run; MLflow is replaced by a stub."""

import sys
import types
from typing import ClassVar

import pytest

from collapsium.pipeline import Model, fit
from collapsium.pipeline.cli.main import main
from collapsium.pipeline.monitoring.events import Guarded, load_function
from collapsium.pipeline.monitoring.mlflow_callback import MLflow
from collapsium.storage.errors import OptionError

CODE = """
events = []

def listen(event):
    events.append(event)

class Failing:
    def __call__(self, event):
        event.clear()
        raise ValueError("no such\\nthing")

number = 3
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working folder with a module of callbacks."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    (tmp_path / "my_callbacks.py").write_text(CODE)
    yield tmp_path
    sys.modules.pop("my_callbacks", None)


def test_a_failing_callback__does_not_end_a_fit(folder, small, capsys):
    words = ["fit", small[0], "run", "--family", "lda", "--topics", "3", "--iterations", "3", "--scheduler", "serial"]
    names = ["--callback", "my_callbacks:Failing", "--callback", "my_callbacks:listen"]
    assert main([*words, *names]) == 0
    events = sys.modules["my_callbacks"].events
    assert events[0] == {"event": "run", "iteration": 0, "elapsed": 0.0, "run": "run"}
    assert [event["iteration"] for event in events if event["event"] == "iteration"] == [1, 2, 3]
    assert events[-1]["event"] == "end"
    assert all(event for event in events)  # each callback gets separate events
    err = capsys.readouterr().err
    assert err.count("callback my_callbacks:Failing: ValueError: no such; it is not called again") == 1
    assert Model("run").record.iterations == 3


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("my_callbacks", "expected module:function"),
        (":listen", "expected module:function"),
        ("my_callbacks:nothing", "AttributeError"),
        ("my_callbacks:number", "expected a callable, found int"),
        ("no_such_module:listen", "ModuleNotFoundError"),
    ],
)
def test_unknown_names__are_refused_before_anything_runs(folder, small, capsys, name, message):
    with pytest.raises(OptionError, match=message):
        load_function(name, "callback")
    words = ["fit", small[0], "run", "--family", "lda", "--topics", "3", "--callback", name]
    assert main(words) == 2
    assert message in capsys.readouterr().err
    assert not (folder / "run").exists()
    assert str(folder) not in sys.path


def test_keyboard_interrupts__pass_through_callbacks():
    def interrupted(event):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Guarded(interrupted, "one", print)({"event": "start"})


class Client:
    """The part of MLflow's client that is used, which records its calls."""

    made: ClassVar = []

    def __init__(self):
        self.runs, self.metrics, self.artifacts = {}, [], []
        Client.made.append(self)

    def get_experiment_by_name(self, name):
        return None

    def create_experiment(self, name):
        return f"of {name}"

    def create_run(self, experiment, tags, run_name):
        name = f"id-{len(self.runs)}"
        self.runs[name] = {"experiment": experiment, "tags": dict(tags), "name": run_name, "parameters": {}}
        return types.SimpleNamespace(info=types.SimpleNamespace(run_id=name))

    def log_param(self, run, key, value):
        assert key not in self.runs[run]["parameters"]
        self.runs[run]["parameters"][key] = value

    def log_batch(self, run, metrics):
        self.metrics += [(run, *metric) for metric in metrics]

    def set_tag(self, run, key, value):
        self.runs[run]["tags"][key] = value

    def log_artifacts(self, run, place, name):
        self.artifacts.append((run, name))

    def log_artifact(self, run, place):
        self.artifacts.append((run, place.rpartition("/")[2]))

    def set_terminated(self, run, status):
        self.runs[run]["status"] = status


@pytest.fixture
def mlflow(monkeypatch):
    """A stub of MLflow."""
    Client.made.clear()
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "topics")
    entities = types.SimpleNamespace(Metric=lambda key, value, timestamp, step: (key, value, step))
    modules = {"mlflow": types.ModuleType("mlflow"), "mlflow.entities": entities}
    modules["mlflow.tracking"] = types.SimpleNamespace(MlflowClient=Client)
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr("collapsium.pipeline.monitoring.mlflow_callback.EVERY", 0.0)


@pytest.mark.parametrize("restarts", [0, 2])
def test_mlflow__gets_parameters_metrics_and_the_model(folder, small, mlflow, restarts):
    words = ["fit", small[0], "run", "--family", "lda", "--topics", "3", "--iterations", "3", "--heldout", small[1]]
    words += ["--scheduler", "serial", "--callback", "collapsium.pipeline.monitoring.mlflow_callback:MLflow", "--quiet"]
    assert main([*words, *(["--restarts", "2"] if restarts else [])]) == 0
    (client,) = Client.made
    assert [run["name"] for run in client.runs.values()] == ["run", "run/000", "run/001"][: restarts + 1]
    assert all(run["status"] == "FINISHED" for run in client.runs.values())
    assert all(run["parameters"]["family"] == "lda" for run in client.runs.values())
    assert client.runs["id-0"]["experiment"] == "of topics"
    assert client.runs["id-0"]["parameters"]["topics"] == "3"
    assert client.runs["id-0"]["parameters"]["seed"] == "0"
    of_member = "id-1" if restarts else "id-0"
    scores = [(step, value) for run, key, value, step in client.metrics if (run, key) == (of_member, "score")]
    assert [step for step, _ in scores] == [1, 2, 3]
    assert (of_member, "model") in client.artifacts
    assert (of_member, "run.json") in client.artifacts
    if restarts:
        assert client.runs["id-1"]["tags"]["mlflow.parentRunId"] == "id-0"


def test_a_missing_mlflow__is_reported_with_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "mlflow.tracking", None)
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(OptionError, match=r"pip install 'collapsium\[mlflow\]'"):
        MLflow()


@pytest.mark.parametrize(
    ("sinks", "found"), [([3], "int in it"), (print, "builtin_function_or_method"), (None, "NoneType")]
)
def test_sinks_that_are_no_list_of_functions__are_refused_before_anything_runs(small, tmp_path, sinks, found):
    with pytest.raises(OptionError, match=f"sinks: expected a list of functions, found {found}"):
        fit(small[0], tmp_path / "run", family="lda", topics=3, sinks=sinks)
    assert not (tmp_path / "run").exists()


def test_a_sink_that_changes_events__changes_them_for_itself_alone(small):
    events = []
    fit(small[0], family="lda", topics=3, iterations=2, sinks=iter([dict.clear, events.append]))
    assert [event["event"] for event in events][-3:] == ["iteration", "iteration", "end"]
