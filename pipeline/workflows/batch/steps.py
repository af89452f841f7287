"""The steps by which a batch job makes a version; each makes something whole or not at all, or can be resumed."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from collapsium.pipeline.analysis.evaluate import Reconstruction, evaluate
from collapsium.pipeline.analysis.infer import infer
from collapsium.pipeline.analysis.scoring.completion import complete
from collapsium.pipeline.corpora.ingest import split
from collapsium.pipeline.corpora.unknown_words import UnknownWords, additions_of
from collapsium.pipeline.engine.fit import fit, resume
from collapsium.pipeline.families.model import Model
from collapsium.pipeline.families.registry import load_family
from collapsium.pipeline.workflows.batch.context import CYCLES, Bench, clean_hidden
from collapsium.storage.building.ingest_record import read_history
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.corpus.manifest import DOCUMENTS, MANIFEST, VECTORS
from collapsium.storage.errors import AbsentError, MismatchError
from collapsium.storage.io.file import File
from collapsium.storage.io.folder import Folder
from collapsium.storage.io.records import dump
from collapsium.storage.runs.members import leaves, restarts_of
from collapsium.storage.runs.published import RECORD, VersionRecord, copy_file, copy_run
from collapsium.storage.runs.run import Run
from collapsium.storage.units import Counting

STEPS = ("split", "fit", "evaluate", "infer", "publish", "report", "clean")
PROPORTIONS, REPORT = "proportions.parquet", "report.html"


def _write_report(run: str, out: str, progress: Counting) -> None:
    """Write the report of a published version."""
    from collapsium.pipeline.reporting.page.report import report

    report(run, out, progress=progress)


class Cycle:
    """A version that is being made.

    Parameters
    ----------
    bench : Bench
        The job, whose journal says which version it is.
    """

    def __init__(self, bench: Bench) -> None:
        self._bench, self._journal, self._versions = bench, bench.journal, bench.versions

    @property
    def folder(self) -> Folder:
        """Where what it needs lies."""
        return self._bench.folder / f"{CYCLES}/{self._journal.number:04d}"

    @property
    def run_folder(self) -> Folder:
        """Its run."""
        return self.folder / "run"

    def unknown(self) -> UnknownWords:
        """Return the share of unknown words in the documents that were appended since the version before."""
        base = self._journal.base
        since = self._versions.record(base).additions if base in self._versions.numbers() and base is not None else 0
        return UnknownWords.of(additions_of(Corpus(self._bench.place.url))[since:])

    def warn_of_unknown(self) -> None:
        """Warn where too many of the words that were appended are unknown."""
        history = read_history(self._bench.place)
        if history is not None:
            grow = self._bench.job.ingest.grow
            text = self.unknown().warning(history, grow=grow, option="grow = true in [ingest]")
            if text is not None:
                self._bench.warn(text)

    def make(self, step: str) -> None:
        """Make one of `STEPS`, or what is left of it."""
        getattr(self, f"_{step}")()

    def _split(self) -> None:
        """Hold out tokens of all documents, or whole vectors.

        Whether a token or a vector is held out never changes, as that follows from the numbers of document and word.
        """
        places = [self.folder / name for name in ("train", "heldout")]
        if all(place.exists(MANIFEST) for place in places):
            return
        for place in places:
            place.remove()
        clean_hidden(self.folder)
        how, progress = self._bench.job.heldout, self._bench.documents("split")
        names = [place.url for place in places]
        whole = self._bench.job.holds == VECTORS
        split(self._bench.place.url, *names, fraction=how.fraction, seed=how.seed, documents=whole, progress=progress)

    def _fit(self) -> None:
        """Fit, or go on with the fit that was begun."""
        run, table = Run(self.run_folder.url), self._bench.job.fit
        names, cluster_timeout = ("memory", "scratch", "checkpoint_every"), self._bench.job.cluster.cluster_timeout
        more: dict[str, Any] = {name: getattr(table, name) for name in names}
        more.update({} if cluster_timeout is None else {"cluster_timeout": cluster_timeout})
        more["strict_bits"] = self._bench.job.cluster.strict_bits
        if run.exists():
            resume(run.folder.url, sinks=self._bench.sinks, **self._bench.where, **more)
            return
        run.folder.remove()
        warm = self._source(self._journal.base) if self._journal.warm else None
        fit(
            (self.folder / "train").url,
            run.folder.url,
            family=table.family,
            heldout=(self.folder / "heldout").url if self._bench.job.holds == DOCUMENTS else None,
            seed=table.seed,
            warm=warm,
            **self._bench.job.restarts,
            sinks=self._bench.sinks,
            **self._bench.where,
            **more,
            **self._bench.job.limits_when(warm is not None),
            **self._bench.job.options,
        )

    def begins_warm(self, base: int | None) -> bool:
        """Return whether the fit begins from a version.

        Members of an ensemble begin each from the member of the same number. Where that has other members, samplers
        begin all from the first one; of other families they would all be the same, and begin anew.

        Parameters
        ----------
        base : int or None
            The version.

        Returns
        -------
        bool
            False where there is no version, or the job has fits begin anew.
        """
        if base is None or not self._bench.job.begins_warm:
            return False
        wanted, there = self._bench.job.fit.restarts, len(restarts_of(self._source(base)))
        if wanted <= 1 or wanted == there or load_family(self._bench.job.fit.family).is_sampler:
            return True
        self._bench.note(
            f"version {base} has {max(there, 1)} of {wanted} members to begin from, so that all begin anew"
        )
        return False

    def _source(self, base: int | None) -> str:
        """Return the run that the fit begins from: that of a version or, where it is gone, the version."""
        if base is None:
            raise AbsentError(f"{self._versions.folder.url}: nothing is published yet")
        run = self._bench.folder / f"{CYCLES}/{base:04d}/run"
        return run.url if Run(run.url).exists() else self._versions.at(base).url

    def _evaluate(self) -> None:
        """Score the new model and the current version on the same held-out tokens or vectors."""
        base = self._journal.base
        before = None if base is None else self._versions.at(base).url
        scores = {} if before is None else {"previous": self._score(before, None)}
        words = None if before is None else Model(before).record.vocabulary.words
        self._journal.scores = {**scores, "new": self._score(self.run_folder.url, words)}

    def _score(self, run: str, words: int | None) -> dict[str, Any]:
        """Score a run or a version: its score, what that is a mean over, its definition, and each member's score."""
        train, heldout = ((self.folder / name).url for name in ("train", "heldout"))
        if self._bench.job.holds == DOCUMENTS:
            return asdict(complete(run, train, heldout, words=words, **self._bench.where))
        found = evaluate(run, unseen=heldout, **self._bench.where)
        if not isinstance(found, Reconstruction):
            raise MismatchError(f"{heldout}: expected a corpus of vectors")
        members = [{"member": one.member, "score": one.reconstruction_error} for one in found.members]
        score = {"score": found.reconstruction_error, "tokens": found.documents, "definition": found.definition}
        return {**score, "members": members}

    def worse(self) -> bool:
        """Return whether the new model is worse than the current version by more than the job lets it."""
        scores = self._journal.scores
        if "previous" not in scores:
            return False
        new, previous = scores["new"]["score"], scores["previous"]["score"]
        slack = self._bench.job.alarm.worse_by + scores["new"]["tokens"] ** -0.5
        return bool(new > previous * (1.0 + slack) if self._bench.job.holds == VECTORS else new < previous - slack)

    @property
    def iterations(self) -> int:
        """Iterations of the fit, or of the longest of its members; 0 before it is made."""
        if "fit" not in self._journal.done:
            return 0
        return max(Model(url).record.iterations for _, url in leaves(self.run_folder.url))

    def _infer(self) -> None:
        """Write the documents' proportions."""
        out = f"{self.folder.url}/{PROPORTIONS}"
        if not File(out).exists():
            threshold, progress = self._bench.job.infer.threshold, self._bench.documents("infer")
            train = (self.folder / "train").url
            infer(self.run_folder.url, train, out, threshold=threshold, progress=progress, **self._bench.where)

    def _publish(self) -> None:
        """Put the model into a folder of its own, and let the pointer name it."""
        number = self._journal.number
        if not self._versions.at(number).exists(RECORD):
            run = Run(self.run_folder.url)
            with self._versions.made(number) as place:
                copy_run(run, place)
                copy_file(self.folder, place, PROPORTIONS)
                place.write(RECORD, dump(self._record().model_dump(mode="json")))
        self._versions.point(number)

    def _record(self) -> VersionRecord:
        journal, model = self._journal, Model(self.run_folder.url).record
        manifest = Corpus(self._bench.place.url).manifest
        previous, unknown = journal.scores.get("previous"), self.unknown()
        return VersionRecord(
            number=journal.number,
            job=self._bench.job.name,
            plan=journal.plan,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            family=model.family,
            corpus=manifest.digest,
            documents=manifest.documents,
            tokens=manifest.tokens,
            words=manifest.vocabulary.words,
            iterations=self.iterations,
            score=journal.scores["new"]["score"],
            scored=journal.scores["new"]["tokens"],
            definition=journal.scores["new"]["definition"],
            previous=None if previous is None else {"version": journal.base, "score": previous["score"]},
            warm=journal.base if journal.warm else None,
            additions=len(additions_of(Corpus(self._bench.place.url))),
            unknown_tokens=unknown.unknown,
            unknown_share=unknown.share,
            holds=manifest.holds,
            members=tuple(journal.scores["new"].get("members", ())),
        )

    def _report(self) -> None:
        """Write the report into the version's folder, and where the job wants a copy."""
        if not self._bench.job.report.enabled:
            return
        place = self._versions.at(self._journal.number)
        if not place.exists(REPORT):
            _write_report(place.url, f"{place.url}/{REPORT}", self._bench.documents("report"))
        if self._bench.job.report.out is not None:
            parent, _, name = self._bench.job.report.out.rpartition("/")
            Folder(parent).write(name, place.read(REPORT))

    def _clean(self) -> None:
        """Remove what no later version needs: runs but the newest, and versions beyond those to keep."""
        for name in (self._bench.folder / CYCLES).names():
            if name in {f"{number:04d}" for number in range(self._journal.number)}:
                (self._bench.folder / f"{CYCLES}/{name}").remove()
        self._versions.keep(self._bench.job.batch.keep)
