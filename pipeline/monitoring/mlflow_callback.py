"""Log a fit to MLflow (extra: mlflow).

``--callback collapsium.pipeline.monitoring.mlflow_callback:MLflow`` names it.

Where to, MLflow's own settings say: ``MLFLOW_TRACKING_URI``, ``MLFLOW_EXPERIMENT_NAME``, ``MLFLOW_RUN_NAME``.
Parameters are what the run was asked for, metrics its iterations' figures, and at its end the model is an artifact,
if it lies in a local folder. An ensemble is a run, its members are runs below it.
"""

from __future__ import annotations

import importlib
import os
import threading
import time
from pathlib import Path
from typing import Any

from collapsium.storage.errors import OptionError
from collapsium.storage.io.folder import Folder
from collapsium.storage.runs.run import DONE, EVENTS, RECORD, Run

EVERY = 1.0  # seconds between two iterations that are logged, at least
PARAMETER = 500  # letters of a parameter, the most that MLflow keeps
SKIPPED = ("iteration", "member", "tokens")


class MLflow:
    """Logs the events of a fit.

    Parameters
    ----------
    run : str, optional
        The run's folder, where the command line does not tell it.
    artifacts : bool, optional
        Whether to log the model, `run.json` and `events.jsonl` as artifacts at the end.

    Raises
    ------
    OptionError
        MLflow is not installed.
    """

    def __init__(self, run: str | None = None, *, artifacts: bool = True) -> None:
        try:
            tracking = importlib.import_module("mlflow.tracking")
            self._entities: Any = importlib.import_module("mlflow.entities")
        except ImportError as error:
            raise OptionError(f"MLflow is not installed ({error}); try `pip install 'collapsium[mlflow]'`") from None
        self._client: Any = tracking.MlflowClient()
        self._artifacts = artifacts
        self._lock = threading.Lock()  # members tell side by side
        self._runs: dict[int | None, str] = {}  # MLflow's ids
        self._pending: dict[int | None, dict[str, Any]] = {}
        self._logged: dict[int | None, float] = {}
        self._folder = run

    def __call__(self, event: dict[str, Any]) -> None:
        """Log an event."""
        with self._lock:
            member = event.get("member")
            if event["event"] == "run":
                self._folder = event["run"]
            elif event["event"] in ("start", "begin"):
                self._begin(event, member)
            elif event["event"] == "iteration" and member in self._runs:
                self._pending[member] = event
                if time.monotonic() - self._logged.get(member, 0.0) >= EVERY:
                    self._log(member)
            elif event["event"] == "end" and member in self._runs:
                self._end(event, member)

    def _begin(self, event: dict[str, Any], member: int | None) -> None:
        """Make a run, with what was asked for as its parameters."""
        tags = {"collapsium.run": self._folder or ""}
        if member is not None and None in self._runs:
            tags["mlflow.parentRunId"] = self._runs[None]
        experiment = self._experiment()
        name = os.environ.get("MLFLOW_RUN_NAME") or (None if self._folder is None else Path(self._folder).name)
        name = name if member is None or name is None else f"{name}/{member:03d}"
        made = self._client.create_run(experiment, tags=tags, run_name=name)
        self._runs[member] = made.info.run_id
        for key, value in {**self._asked(), **event}.items():
            if key not in ("event", "elapsed", "planned", "iteration") and value is not None:
                self._client.log_param(made.info.run_id, key, str(value)[:PARAMETER])

    def _experiment(self) -> str:
        """Return the experiment that the environment names, made if it is not there; else MLflow's own default."""
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME")
        if name is None:
            return os.environ.get("MLFLOW_EXPERIMENT_ID", "0")
        found = self._client.get_experiment_by_name(name)
        return str(self._client.create_experiment(name) if found is None else found.experiment_id)

    def _asked(self) -> dict[str, Any]:
        """Return the options of the run, as its record has them."""
        if self._folder is None:
            return {}
        record = Run(self._folder).record()
        return {**record.get("options", {}), **record.get("limits", {}), "seed": record.get("seed")}

    def _log(self, member: int | None) -> None:
        """Log the figures of the last iteration."""
        event = self._pending.pop(member, None)
        if event is None:
            return
        stamp = int(time.time() * 1000)
        figures = {name: value for name, value in event.items() if name not in SKIPPED}
        figures.update({f"seconds_{name}": value for name, value in event.get("seconds", {}).items()})
        metrics = [
            self._entities.Metric(name, float(value), stamp, int(event["iteration"]))
            for name, value in figures.items()
            if isinstance(value, (int, float)) and not isinstance(value, bool)
        ]
        self._client.log_batch(self._runs[member], metrics=metrics)
        self._logged[member] = time.monotonic()

    def _end(self, event: dict[str, Any], member: int | None) -> None:
        """Log the last iteration and the artifacts, and end MLflow's run."""
        self._log(member)
        run, done = self._runs.pop(member), event["reason"] in DONE
        self._client.set_tag(run, "collapsium.reason", event["reason"])
        if self._artifacts and done and self._folder is not None and Folder(self._folder).local:
            place = Path(self._folder) if member is None else Path(self._folder) / "members" / f"{member:03d}"
            for name in ("model", RECORD, EVENTS):
                if (place / name).is_dir():
                    self._client.log_artifacts(run, str(place / name), name)
                elif (place / name).is_file():
                    self._client.log_artifact(run, str(place / name))
        killed = "KILLED" if event["reason"] == "interrupt" else "FAILED"
        self._client.set_terminated(run, "FINISHED" if done else killed)
