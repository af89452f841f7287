"""Batch jobs: ingest or append, fit, evaluate, infer and publish, as often as there is something new.

A job's folder holds ``corpus/``; ``cycles/0002/`` with what the version being made needs (``train``, ``heldout``,
``run``, `proportions.parquet`); ``published/``; the journal `state.json`, and the lock. The journal is written after
each step, so that a job that was killed goes on where it was.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from collapsium.pipeline.families.model import Model
from collapsium.pipeline.monitoring.events import Sink
from collapsium.pipeline.options import keywords
from collapsium.pipeline.workflows.batch.context import PUBLISHED, Bench
from collapsium.pipeline.workflows.batch.job_file import named_as_in, read_job
from collapsium.storage.corpus.manifest import DOCUMENTS
from collapsium.storage.errors import AbsentError
from collapsium.storage.io.folder import Folder
from collapsium.storage.io.locks.run_lock import RunLock
from collapsium.storage.runs.published import VersionRecord, Versions, score_text

LOCK = "lock"
ALARM_SECONDS = 60.0  # that an alarm's command may take


@dataclass(frozen=True)
class Outcome:
    """What came of a batch job.

    Attributes
    ----------
    outcome : {"published", "nothing-new", "alarm"}
        Whether a model was published, there was nothing to do, or a new model was worse than the published one.
    version : int or None
        The version that counts now.
    folder : str
        Its folder.
    documents, new_documents, tokens : int
        Of the corpus; the new ones are those that the version before it had not.
    iterations : int
        Of the new model's fit.
    score, previous_score : float or None
        Of the new model and of the one published before, on the same held-out tokens, in nats a token; see `holds`.
    scored : int
        How many tokens, or vectors, that were.
    job : str
        The job's file, as it was named.
    unknown_tokens : int
        Tokens of the new documents that were dropped, as their words are not in the vocabulary.
    unknown_share : float or None
        Their share; see `collapsium.pipeline.corpora.unknown_words.UnknownWords`. None where nothing was appended.
    holds : {"documents", "vectors"}
        What the corpus holds. The score of vectors is the mean error of their reconstruction, the smaller the better.
    members : tuple of dict
        Of an ensemble, each member's name and its score by itself; else empty.
    warnings : tuple of str
        What should be looked at.
    notices : tuple of str
        What is good to know, such as that a file has gone; each is reported once.
    seconds : float
        What it took.
    """

    outcome: str
    version: int | None
    folder: str
    documents: int = 0
    new_documents: int = 0
    tokens: int = 0
    iterations: int = 0
    score: float | None = None
    previous_score: float | None = None
    scored: int = 0
    job: str = ""
    unknown_tokens: int = 0
    unknown_share: float | None = None
    holds: str = DOCUMENTS
    members: tuple[dict[str, Any], ...] = ()
    warnings: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()
    seconds: float = 0.0

    def record(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return asdict(self)

    def line(self) -> str:
        """Say it in a line."""
        scores = "" if self.score is None else score_text(self.score, self.scored, self.holds)
        if self.previous_score is not None:
            scores += f" (the version before: {self.previous_score:.5g})"
        if self.outcome == "alarm":
            stays = f"version {self.version} stays" if self.version else "nothing is published"
            return f"ALARM: the new model is worse, {scores}; it is not published, {stays}"
        if self.outcome == "nothing-new":
            return f"nothing new; version {self.version} is current"
        unknown = "" if self.unknown_share is None else f", {self.unknown_share:.1%} of their tokens unknown"
        size = f"{self.documents:,} {self.holds} ({self.new_documents:,} new{unknown}), {self.iterations} iterations"
        members = f"{len(self.members)} models, " if self.members else ""
        return f"version {self.version} published: {size}, {members}{scores}; {self.seconds:.0f} s"


@keywords()
def batch(job: str | os.PathLike[str], *, accept: bool = False, sinks: Sequence[Sink] = ()) -> Outcome:
    """Bring a job's published model up to date with its sources.

    Parameters
    ----------
    job : str or path-like
        The TOML file; see `collapsium.pipeline.workflows.batch.config.Job`.
    accept : bool, optional
        Publish the new model however it scores.
    sinks : sequence of callable, optional
        Told each event: those of the fit, ``step`` (with ``step``, its name, and ``done``) and ``documents``.

    Returns
    -------
    Outcome
        What came of it. Another call with nothing new does nothing, and says so.

    Raises
    ------
    LockedError
        Another process works on the job.
    CollapsiumError
        The file, a source or an option is wrong, or a step failed; the next call goes on with that step.
    """
    asked = read_job(job)
    folder = Folder(asked.batch.folder)
    folder.make()
    with RunLock(folder / LOCK) as lock, named_as_in(job):
        return _Batch(Bench(asked, folder.fenced(lock), sinks, lock.require), accept=accept, name=os.fspath(job)).run()


@keywords()
def versions(job: str | os.PathLike[str]) -> list[tuple[VersionRecord, bool]]:
    """List the published versions of a job, the oldest first, each with whether it is the current one."""
    place = Versions(Folder(read_job(job).batch.folder) / PUBLISHED)
    current = place.current()
    return [(place.record(number), number == current) for number in place.numbers()]


@keywords()
def rollback(job: str | os.PathLike[str], *, to: int | None = None) -> int:
    """Make an older version of a job the current one.

    Parameters
    ----------
    job : str or path-like
        The TOML file.
    to : int, optional
        The version, older or newer; by default the one before the current one.

    Returns
    -------
    int
        The version that is current now. The next batch that finds something new compares with it, and begins from it.

    Raises
    ------
    AbsentError
        There is no such version.
    LockedError
        Another process works on the job.
    """
    folder = Folder(read_job(job).batch.folder)
    place = Versions(folder / PUBLISHED)
    current = place.current()
    if current is None:
        raise AbsentError(f"{place.folder.url}: nothing is published yet")
    with RunLock(folder / LOCK) as lock:
        place = Versions(folder.fenced(lock) / PUBLISHED)
        older = [number for number in place.numbers() if number < current]
        if to is None and not older:
            raise AbsentError(f"{place.folder.url}: there is no version before {current}")
        chosen = older[-1] if to is None else to
        place.point(chosen)
    return chosen


class _Batch:
    """A job that is worked on by whoever holds its lock."""

    def __init__(self, bench: Bench, *, accept: bool, name: str) -> None:
        from collapsium.pipeline.workflows.batch.steps import Cycle

        self._bench, self._journal, self._accept, self._name = bench, bench.journal, accept, name
        self._cycle = Cycle(bench)
        self._began = time.monotonic()

    def run(self) -> Outcome:
        """Finish what was begun, take in what is new, and make a version of it."""
        from collapsium.pipeline.workflows.batch.sources import settle_pending, take_in

        bench, journal, worked = self._bench, self._journal, False
        settle_pending(bench)
        if journal.done and not journal.outcome and bench.plan() == journal.plan:
            worked = self._make()  # of the corpus that it was begun with
        take_in(bench)
        plan = bench.plan()
        if plan != journal.plan or not journal.outcome:
            self._begin(plan)
            worked = self._make()
        elif journal.outcome == "alarm" and not self._worse():  # it is accepted now
            worked = self._make()
        outcome = self._outcome(worked=worked)
        if outcome.outcome != "alarm" or not worked:
            return outcome
        self._alarm(outcome)
        return self._outcome(worked=True)

    def _begin(self, plan: str) -> None:
        """Begin a new version, in place of one that was given up."""
        bench, journal, corpus = self._bench, self._journal, self._bench.corpus
        if corpus is None:
            raise AbsentError(f"{bench.place.url}: no such corpus")
        base = bench.versions.current()
        journal.number = max(bench.versions.numbers(), default=0) + 1
        journal.plan, journal.corpus = plan, corpus.manifest.digest
        journal.done, journal.scores, journal.outcome = [], {}, ""
        if base is not None and not corpus.begins_with(Model(bench.versions.at(base).url).record.vocabulary):
            bench.warn(f"{corpus.url}: has another vocabulary than version {base}, which nothing is compared with")
            base = None
        journal.base, journal.warm = base, self._cycle.begins_warm(base)
        self._cycle.folder.remove()
        bench.write()

    def _make(self) -> bool:
        """Make the steps that are not done yet."""
        from collapsium.pipeline.workflows.batch.steps import STEPS

        bench, journal = self._bench, self._journal
        journal.outcome = ""
        self._cycle.warn_of_unknown()
        self._cycle.folder.make()
        for step in STEPS:
            if step in journal.done:
                continue
            if step == "infer" and self._worse():
                journal.outcome = "alarm"
                bench.write()
                return True
            bench.owned()
            bench.say(step, done=False)
            self._cycle.make(step)
            bench.say(step, done=True)
            journal.done.append(step)
            bench.write()
        journal.outcome = "published"
        bench.write()
        return True

    def _worse(self) -> bool:
        return not self._accept and self._cycle.worse()

    def _outcome(self, *, worked: bool) -> Outcome:
        from collapsium.pipeline.corpora.unknown_words import UnknownWords

        bench, journal, corpus = self._bench, self._journal, self._bench.corpus
        current = bench.versions.current()
        told = {name: one["score"] for name, one in journal.scores.items()}
        unknown = self._cycle.unknown() if worked and corpus is not None else UnknownWords()
        return Outcome(
            outcome=journal.outcome if worked or journal.outcome == "alarm" else "nothing-new",
            version=current,
            folder=bench.versions.at(current).url if current is not None else bench.versions.folder.url,
            documents=0 if corpus is None else corpus.manifest.documents,
            new_documents=self._new_documents() if worked else 0,
            tokens=0 if corpus is None else corpus.manifest.tokens,
            iterations=self._cycle.iterations,
            score=told.get("new"),
            previous_score=told.get("previous"),
            scored=journal.scores.get("new", {}).get("tokens", 0),
            job=self._name,
            unknown_tokens=unknown.unknown,
            unknown_share=unknown.share,
            holds=bench.job.holds,
            members=tuple(journal.scores.get("new", {}).get("members", ())),
            warnings=tuple(bench.warnings),
            notices=tuple(bench.notices),
            seconds=time.monotonic() - self._began,
        )

    def _new_documents(self) -> int:
        """Return how many documents the version has that the one before it had not."""
        bench, base = self._bench, self._journal.base
        before = bench.versions.record(base).documents if base in bench.versions.numbers() and base is not None else 0
        return (0 if bench.corpus is None else bench.corpus.manifest.documents) - before

    def _alarm(self, outcome: Outcome) -> None:
        """Run the command that the job has for this, with what there is to tell on its input."""
        command = list(self._bench.job.alarm.command)
        if not command:
            return
        data = json.dumps(outcome.record()).encode()
        try:
            # It is the job's own command, as a list: no shell sees it.
            done = subprocess.run(command, input=data, timeout=ALARM_SECONDS, check=False, capture_output=True)  # noqa: S603
            if done.returncode:
                self._bench.warn(f"[alarm]: {command[0]} ended with {done.returncode}")
        except (OSError, subprocess.TimeoutExpired) as error:
            self._bench.warn(f"[alarm]: {command[0]} could not be run ({error})")
