"""Callback that logs a fit to MLflow (needs the extra 'mlflow').

Use it with ``--callback collapsium.pipeline.monitoring.mlflow_callback:MLflow``. MLflow's environment variables
apply: ``MLFLOW_TRACKING_URI``, ``MLFLOW_EXPERIMENT_NAME``, ``MLFLOW_RUN_NAME``. The run's options are logged as
parameters, the metrics of its iterations as metrics, and at the end the model as an artifact, if the run's folder is
local. The members of an ensemble are child runs of the ensemble's run.
"""

from __future__ import annotations

import importlib
import os
import threading
import time
from pathlib import Path
from typing import Any

from collapsium.pipeline.monitoring.events import Event
from collapsium.storage.errors import OptionError
from collapsium.storage.io.folder import Folder
from collapsium.storage.runs.run import DONE, EVENTS, RECORD, Run

EVERY = 1.0  # Least number of seconds between two logged iterations
MAX_PARAMETER = 500  # Characters of a parameter that MLflow stores
SKIPPED = ("iteration", "member", "tokens")  # Keys of iterations that are not logged as metrics


class MLflow:
    """Logs the events of a fit.

    Parameters
    ----------
    run : str, optional
        The run's folder; on the command line an event has it.
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
        # Members are fitted in parallel.
        self._lock = threading.Lock()
        # Ids of MLflow's runs, by member.
        self._runs: dict[int | None, str] = {}
        self._pending: dict[int | None, Event] = {}
        self._logged: dict[int | None, float] = {}
        self._folder = run

    def __call__(self, event: Event) -> None:
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
                self._log(member)
                ended, done = self._runs.pop(member), event["reason"] in DONE
                self._client.set_tag(ended, "collapsium.reason", event["reason"])
                if self._artifacts and done and self._folder is not None and Folder(self._folder).local:
                    folder = Path(self._folder) if member is None else Path(self._folder) / "members" / f"{member:03d}"
                    for part in ("model", RECORD, EVENTS):
                        if (folder / part).is_dir():
                            self._client.log_artifacts(ended, str(folder / part), part)
                        elif (folder / part).is_file():
                            self._client.log_artifact(ended, str(folder / part))
                killed = "KILLED" if event["reason"] == "interrupt" else "FAILED"
                self._client.set_terminated(ended, "FINISHED" if done else killed)

    def _begin(self, event: Event, member: int | None) -> None:
        """Create a run with the options as its parameters."""
        tags = {"collapsium.run": self._folder or ""}
        if member is not None and None in self._runs:
            tags["mlflow.parentRunId"] = self._runs[None]
        experiment = os.environ.get("MLFLOW_EXPERIMENT_ID", "0")
        experiment_name = os.environ.get("MLFLOW_EXPERIMENT_NAME")
        if experiment_name is not None:
            known = self._client.get_experiment_by_name(experiment_name)
            experiment = str(self._client.create_experiment(experiment_name) if known is None else known.experiment_id)
        name = os.environ.get("MLFLOW_RUN_NAME") or (None if self._folder is None else Path(self._folder).name)
        name = name if member is None or name is None else f"{name}/{member:03d}"
        run = self._client.create_run(experiment, tags=tags, run_name=name)
        self._runs[member] = run.info.run_id
        record = {} if self._folder is None else Run(self._folder).record()
        options = {**record.get("options", {}), **record.get("limits", {}), "seed": record.get("seed")}
        for key, value in {**options, **event}.items():
            if key not in ("event", "elapsed", "planned", "iteration") and value is not None:
                self._client.log_param(run.info.run_id, key, str(value)[:MAX_PARAMETER])

    def _log(self, member: int | None) -> None:
        """Log the metrics of the last iteration."""
        event = self._pending.pop(member, None)
        if event is None:
            return
        stamp = int(time.time() * 1000)
        values = {name: value for name, value in event.items() if name not in SKIPPED}
        values.update({f"seconds_{name}": value for name, value in event.get("seconds", {}).items()})
        metrics = [
            self._entities.Metric(name, float(value), stamp, int(event["iteration"]))
            for name, value in values.items()
            if isinstance(value, (int, float)) and not isinstance(value, bool)
        ]
        self._client.log_batch(self._runs[member], metrics=metrics)
        self._logged[member] = time.monotonic()
