"""Batch jobs: ingest or append, fit, evaluate, infer and publish whenever there are new documents.

A job's folder holds ``corpus/``, ``cycles/0002/`` with the files of the version being made (``train``, ``heldout``,
``run``, `proportions.parquet`), ``published/``, the journal `state.json` and the lock. The journal is written after
each step, so a job that was killed continues with the interrupted step.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from collapsium.pipeline.models.model import Model
from collapsium.pipeline.monitoring.events import Sink, sinks_of
from collapsium.pipeline.options import keywords
from collapsium.pipeline.workflows.batch.job_file import named_as_in, read_job
from collapsium.pipeline.workflows.batch.journal import PUBLISHED, JobContext
from collapsium.storage.corpus.manifest import DOCUMENTS
from collapsium.storage.data_types import Json
from collapsium.storage.errors import AbsentError
from collapsium.storage.io.folder import Folder
from collapsium.storage.io.run_lock import RunLock
from collapsium.storage.runs.published import CURRENT, VersionRecord, Versions, score_text

LOCK = "lock"
ALARM_SECONDS = 60.0  # Timeout of an alarm's command


@dataclass(frozen=True)
class Outcome:
    """The outcome of a batch job.

    Attributes
    ----------
    outcome : {"published", "nothing-new", "alarm"}
        Whether a model was published, there was nothing to do, or a new model was worse than the published one.
    version : int or None
        The current version.
    folder : str
        Its folder.
    documents, new_documents, tokens : int
        Sizes of the corpus; new documents are those that the last version did not have.
    iterations : int
        Iterations of the new model's fit.
    score, previous_score : float or None
        Scores of the new model and of the published one on the same held-out tokens, in nats per token; see `holds`.
    scored : int
        Number of these tokens, or vectors.
    job : str
        The job's file.
    unknown_tokens : int
        Tokens of the new documents that were dropped, as their words are not in the vocabulary.
    unknown_share : float or None
        Their share; see `collapsium.pipeline.corpora.new_texts.UnknownWords`. None if nothing was appended.
    holds : {"documents", "vectors"}
        Contents of the corpus. The score of vectors is the mean error of their reconstruction; smaller is better.
    members : tuple of dict
        Name and score of each member of an ensemble; else empty.
    warnings : tuple of str
        Messages that need attention.
    notices : tuple of str
        Messages for information, such as a missing source; each is reported once.
    seconds : float
        Duration of the job.
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
    members: tuple[dict[str, Json], ...] = ()
    warnings: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()
    seconds: float = 0.0

    def record(self) -> dict[str, object]:
        """Return the outcome for JSON."""
        return asdict(self)

    def line(self) -> str:
        """Return the outcome as a line of text."""
        scores = "" if self.score is None else score_text(self.score, self.scored, self.holds)
        if self.previous_score is not None:
            scores += f" (published: {self.previous_score:.5g})"
        if self.outcome == "alarm":
            current = f"version {self.version} stays current" if self.version else "no version is published"
            return f"ALARM: the new model scores worse, {scores}; it is not published, {current}"
        if self.outcome == "nothing-new":
            named = "no version is current until `rollback` chooses one"
            return f"no new documents; {named if self.version is None else f'version {self.version} is current'}"
        unknown = "" if self.unknown_share is None else f", {self.unknown_share:.1%} of their tokens unknown"
        size = f"{self.documents:,} {self.holds} ({self.new_documents:,} new{unknown}), {self.iterations} iterations"
        members = f"{len(self.members)} models, " if self.members else ""
        return f"version {self.version} published: {size}, {members}{scores}; {self.seconds:.0f} s"


@keywords()
def batch(job: str | os.PathLike[str], *, accept: bool = False, sinks: Sequence[Sink] = ()) -> Outcome:
    """Update a job's published model from its sources.

    Parameters
    ----------
    job : str or path-like
        The TOML file; see `collapsium.pipeline.workflows.batch.job_file.Job`.
    accept : bool, optional
        Publish the new model even if it scores worse.
    sinks : sequence of callable, optional
        Receive each event: the fit's events, ``step`` (with ``step``, its name, and ``done``) and ``documents``.

    Returns
    -------
    Outcome
        The outcome; without new documents nothing is done.

    Raises
    ------
    LockedError
        Another process is working on the job.
    CollapsiumError
        The file, a source or an option is invalid, or a step failed; the next call continues with that step.
    """
    config, sinks = read_job(job), sinks_of(sinks)
    folder = Folder(config.batch.folder)
    folder.make()
    with RunLock(folder / LOCK) as lock, named_as_in(job):
        context = JobContext(config, folder.fenced(lock), sinks, lock.require)
        return _Batch(context, accept=accept, name=os.fspath(job)).run()


@keywords()
def versions(job: str | os.PathLike[str]) -> list[tuple[VersionRecord, bool]]:
    """Return the published versions of a job, the oldest first, each with True if it is the current one."""
    published = Versions(Folder(read_job(job).batch.folder) / PUBLISHED)
    current = published.current()
    return [(published.record(number), number == current) for number in published.numbers()]


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
        The version that is current now. The next job with new documents compares with it and starts from it.

    Raises
    ------
    AbsentError
        There is no such version.
    LockedError
        Another process is working on the job.
    """
    folder = Folder(read_job(job).batch.folder)
    if not Versions(folder / PUBLISHED).numbers():
        raise AbsentError(f"{(folder / PUBLISHED).url}: no version has been published yet")
    with RunLock(folder / LOCK) as lock:
        published = Versions(folder.fenced(lock) / PUBLISHED)
        # Its record need not be readable for `to`, which writes it anew.
        chosen = _before_current(published) if to is None else to
        published.point(chosen)
    return chosen


def _before_current(published: Versions) -> int:
    """Return the number of the version before the current one."""
    current = published.current()
    if current is None:
        raise AbsentError(f"{published.folder.url}/{CURRENT}: the file is missing; name a version (`to`)")
    older = [number for number in published.numbers() if number < current]
    if not older:
        raise AbsentError(f"{published.folder.url}: there is no version before {current}")
    return older[-1]


class _Batch:
    """Runs a job, whose lock this process holds."""

    def __init__(self, context: JobContext, *, accept: bool, name: str) -> None:
        from collapsium.pipeline.workflows.batch import steps

        self._context, self._journal, self._accept, self._name = context, context.journal, accept, name
        self._steps = steps.JobSteps(context)
        self._began = time.monotonic()

    def run(self) -> Outcome:
        """Finish an interrupted version, read new sources, and make a version of them."""
        from collapsium.pipeline.workflows.batch import steps

        context, journal, worked = self._context, self._journal, False
        if journal.pending is not None:
            # The files that were being read when the job was killed may be in the corpus.
            if context.corpus is not None and context.corpus.manifest.digest != journal.pending["before"]:
                journal.sources.update(journal.pending["sources"])
            journal.pending = None
            context.write()
        begun = bool(journal.done) and not journal.outcome
        if begun and not self._steps.folder.exists():
            # Its files were removed, so it starts again.
            journal.plan, begun = "", False
        if begun and context.plan() == journal.plan:
            # The interrupted version is finished with the corpus of its start.
            worked = self._make()
        steps.read_new_sources(context)
        plan = context.plan()
        # A job whose versions were all removed publishes one again.
        removed = journal.outcome == "published" and not context.versions.numbers()
        if plan != journal.plan or not journal.outcome or removed:
            self._begin(plan)
            worked = self._make()
        # A model that caused an alarm may be accepted by now.
        elif journal.outcome == "alarm" and not self._worse():
            worked = self._make()
        outcome, command = self._outcome(worked=worked), list(context.job.alarm.command)
        if outcome.outcome != "alarm" or not worked or not command:
            return outcome
        # The command reads the outcome as JSON from its standard input.
        data = json.dumps(outcome.record()).encode()
        try:
            # The command is the job's own, and a list, so that no shell is involved.
            process = subprocess.run(command, input=data, timeout=ALARM_SECONDS, check=False, capture_output=True)  # noqa: S603
            if process.returncode:
                context.warn(f"[alarm]: {command[0]} exited with code {process.returncode}")
        except (OSError, subprocess.TimeoutExpired) as error:
            context.warn(f"[alarm]: {command[0]} could not be run ({error})")
        return self._outcome(worked=True)

    def _begin(self, plan: str) -> None:
        """Start a new version, in place of an abandoned one."""
        context, journal, corpus = self._context, self._journal, self._context.corpus
        if corpus is None:
            raise AbsentError(f"{context.corpus_folder.url}: no such corpus")
        base = self._current()
        if base is None and context.versions.numbers():
            place = f"{context.versions.folder.url}/{CURRENT}"
            context.warn(f"{place}: the file or its version is missing, so scores are not compared with a version")
        journal.number = max(context.versions.numbers(), default=0) + 1
        journal.plan, journal.corpus = plan, corpus.manifest.digest
        journal.done, journal.scores, journal.outcome = [], {}, ""
        if base is not None and not corpus.begins_with(Model(context.versions.at(base).url).record.vocabulary):
            context.warn(f"{corpus.url}: its vocabulary differs from version {base}'s, so scores are not compared")
            base = None
        journal.base, journal.warm = base, self._steps.begins_warm(base)
        self._steps.folder.remove()
        context.write()

    def _current(self) -> int | None:
        """Return the number of the current version; None if it was removed."""
        number = self._context.versions.current()
        return number if number in self._context.versions.numbers() else None

    def _make(self) -> bool:
        """Run the steps that are not done yet."""
        from collapsium.pipeline.workflows.batch import steps

        context, journal = self._context, self._journal
        journal.outcome = ""
        self._steps.warn_of_unknown()
        self._steps.folder.make()
        for step in steps.STEPS:
            if step in journal.done:
                continue
            if step == "infer" and self._worse():
                journal.outcome = "alarm"
                context.write()
                return True
            context.owned()
            context.emit_step(step, done=False)
            self._steps.run(step)
            context.emit_step(step, done=True)
            journal.done.append(step)
            context.write()
        journal.outcome = "published"
        context.write()
        return True

    def _worse(self) -> bool:
        return not self._accept and self._steps.worse()

    def _outcome(self, *, worked: bool) -> Outcome:
        from collapsium.pipeline.corpora import new_texts

        context, journal, corpus = self._context, self._journal, self._context.corpus
        current, new = self._current(), journal.scores.get("new")
        previous = journal.scores.get("previous")
        documents = 0 if corpus is None else corpus.manifest.documents
        # Documents that the last version had
        base, versions = journal.base, context.versions
        before = versions.record(base).documents if base is not None and base in versions.numbers() else 0
        unknown = self._steps.unknown() if worked and corpus is not None else new_texts.UnknownWords()
        return Outcome(
            outcome=journal.outcome if worked or journal.outcome == "alarm" else "nothing-new",
            version=current,
            folder=context.versions.at(current).url if current is not None else context.versions.folder.url,
            documents=documents,
            new_documents=documents - before if worked else 0,
            tokens=0 if corpus is None else corpus.manifest.tokens,
            iterations=self._steps.iterations,
            score=None if new is None else new["score"],
            previous_score=None if previous is None else previous["score"],
            scored=0 if new is None else new["tokens"],
            job=self._name,
            unknown_tokens=unknown.unknown,
            unknown_share=unknown.share,
            holds=context.job.holds,
            members=() if new is None else tuple(new.get("members", ())),
            warnings=tuple(context.warnings),
            notices=tuple(context.notices),
            seconds=time.monotonic() - self._began,
        )
