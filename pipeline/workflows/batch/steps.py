"""The steps in which a batch job reads its sources and makes a version; each is atomic or can be resumed.

Sources are ingested first, and new ones are appended later.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from typing import cast

from collapsium.pipeline.analysis.evaluate import Reconstruction, evaluate
from collapsium.pipeline.analysis.infer import VersionColumns, infer_version
from collapsium.pipeline.analysis.scoring import complete
from collapsium.pipeline.corpora.append import Addition, append_with_report
from collapsium.pipeline.corpora.ingest import ingest
from collapsium.pipeline.corpora.new_texts import UnknownWords, additions_of
from collapsium.pipeline.corpora.recorded_reading import format_of
from collapsium.pipeline.corpora.split import split
from collapsium.pipeline.engine.edit import renumber
from collapsium.pipeline.engine.fit import fit, resume
from collapsium.pipeline.engine.save import Succession, inherit_names, succession_of
from collapsium.pipeline.formatting import counted
from collapsium.pipeline.models.model import Model
from collapsium.pipeline.models.registry import load_family
from collapsium.pipeline.models.topics import lasting_ids, topics
from collapsium.pipeline.reporting.page import report as page_report
from collapsium.pipeline.workflows.batch.journal import (
    CYCLES,
    JobContext,
    ScoreRecord,
    Source,
    Sources,
    find_sources,
)
from collapsium.storage.building.ingest_record import read_history
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.corpus.manifest import DOCUMENTS, MANIFEST, VECTORS
from collapsium.storage.data_types import Json
from collapsium.storage.errors import AbsentError, InputError, MismatchError, OptionError
from collapsium.storage.io.folder import Folder, created, remove_parts
from collapsium.storage.io.records import digest_of, dump
from collapsium.storage.readers.open import TEXTS, kind_of_name
from collapsium.storage.readers.texts.blocks import BELOW
from collapsium.storage.readers.texts.segment import HEADINGS
from collapsium.storage.runs.members import leaves, restarts_of
from collapsium.storage.runs.model import RECORD as MODEL
from collapsium.storage.runs.published import (
    PROPORTIONS,
    RECORD,
    REPORT,
    VersionRecord,
    copy_file,
    copy_run,
    read_parts,
    write_parts,
)
from collapsium.storage.runs.run import Run
from collapsium.workers.families.family import Editable


def read_new_sources(context: JobContext) -> None:
    """Ingest all files into a new corpus, or append the new ones."""
    journal, corpus = context.journal, context.corpus
    history = None if corpus is None else read_history(corpus.folder)
    kind = context.job.reading.get("format") or (None if history is None else history.kind)
    left_out: list[str] = []
    files = find_sources(context.job.ingest.sources, journal.sources, kind, left_out)
    if not files:
        raise AbsentError(f"{', '.join(context.job.ingest.sources)}: there is no file yet")
    if corpus is None:
        journal.sources = {}
    _track_moved(context, files)
    fresh = {path: record for path, record in files.items() if path not in journal.sources and record["size"]}
    if corpus is None and not fresh:
        raise InputError(next(iter(files)), "expected documents, the file is empty")
    _report_changes(context, files)
    if not fresh:
        context.write()
        return
    if left_out:
        context.note(f"{counted(len(left_out), 'file')} left out, by name of another format (such as {left_out[0]})")
    # Files that are one text each are never copies of others.
    originals, copies = dict[str, str](), dict[str, Source]()
    for path, record in fresh.items():
        original = originals.setdefault(record["sha256"], path)
        if original != path and not _is_text(context, path):
            copies[path] = _copied(context, path, original, record)
    fresh = {path: record for path, record in fresh.items() if path not in copies}
    journal.pending = {"sources": {**fresh, **copies}, "before": None if corpus is None else corpus.manifest.digest}
    if corpus is None:
        journal.reading = _plain(context.job.reading)
    context.write()
    step = "ingest" if corpus is None else "append"
    context.emit_step(step, done=False)
    paths = list(fresh)
    if _is_text(context, paths[0]):
        # Files that are one text each are named by their paths below the source.
        paths = [f"{path.removesuffix(record['below'])[:-1]}{BELOW}{record['below']}" for path, record in fresh.items()]
    if corpus is None:
        # An object store cannot rename folders, so an unfinished corpus may be there.
        if not context.corpus_folder.local:
            context.corpus_folder.remove()
        remove_parts(context.folder)
        options = {**context.execution, **context.job.reading}
        if format_of(paths, context.job.reading.get("format"))[0] in TEXTS:
            options.setdefault("unknown_share", True)
        ingest(paths, context.corpus_folder.url, progress=context.progress("ingest"), **options)
        history = read_history(context.corpus_folder)
        # Later files are read by the readers' guesses from the first ones.
        for line in () if history is None else history.report.remarks:
            context.note(line)
    else:
        added = _append(context, paths)
        for path, record in fresh.items():
            if path not in added:
                record["copy"] = True
                context.note(f"{path}: added nothing, all its documents are in the corpus already")
    context.emit_step(step, done=True)
    journal.sources.update(fresh | copies)
    journal.pending = None
    context.write()


def _track_moved(context: JobContext, files: Sources) -> None:
    """Rename files in the journal that were moved or copied since they were read.

    If another file has taken the old name, for example when files are rotated, that file is new.
    """
    sources = context.journal.sources
    known = {record["sha256"]: path for path, record in sources.items()}
    for path, record in files.items():
        before = known.get(record["sha256"])
        if before is None or path in sources:
            continue
        if before in files and files[before]["sha256"] == record["sha256"]:
            sources[path] = _copied(context, path, before, record)
        else:
            sources[path] = _like(record, sources.pop(before))
            known[record["sha256"]] = path


def _copied(context: JobContext, path: str, original: str, source: Source) -> Source:
    """Report that a file is a copy of another, and return its entry of the journal."""
    context.note(f"{path}: is a copy of {original} and adds nothing")
    return {**source, "copy": True}


def _like(source: Source, before: Source) -> Source:
    """Return a file's entry of the journal, marked as a copy if its earlier entry is."""
    return {**source, "copy": True} if "copy" in before else {**source}


def _report_changes(context: JobContext, files: Sources) -> None:
    """Report files that have changed or disappeared since they were read, each change once."""
    sources = context.journal.sources
    paths = {record["sha256"]: path for path, record in reversed(files.items())}
    for path, before in list(sources.items()):
        now = files.get(path)
        copy = paths.get(before["sha256"])
        if now is None and copy is not None:
            # The other file is the origin of the documents from now on.
            if "copy" not in before and copy in sources:
                sources[copy].pop("copy", None)
            del sources[path]
        elif now is None:
            if "copy" not in before and "gone" not in before:
                context.note(f"{path}: no longer exists; the corpus keeps its documents")
            before["gone"] = True
        elif now["sha256"] != before["sha256"]:
            if before.get("reported") != now["sha256"]:
                context.warn(f"{path}: has changed since it was read; the corpus keeps its earlier contents")
            before["reported"] = now["sha256"]
        else:
            sources[path] = _like(now, before)
    if sources and context.journal.reading != _plain(context.job.reading):
        context.warn("[ingest]: has changed; new files are read with the options of the first ingest")


def _is_text(context: JobContext, path: str) -> bool:
    """Return whether a file is one document."""
    return (context.job.reading.get("format") or kind_of_name(path)) == "text"


def _plain(reading: Mapping[str, object]) -> dict[str, Json]:
    """Return options as JSON stores them."""
    plain: dict[str, Json] = json.loads(json.dumps(reading, default=str))
    return plain


def _append(context: JobContext, paths: list[str]) -> frozenset[str]:
    """Append files, and return those that added documents."""
    reading = {name: value for name, value in context.job.reading.items() if name in Addition.model_fields}
    ingest_table = context.job.ingest
    segments = str(context.job.reading.get("segments") or "")
    # The expression may be used, as the job's file names it.
    if segments.startswith(HEADINGS):
        reading["headings"] = segments.removeprefix(HEADINGS)
    addition = Addition(
        **{**reading, **context.execution, "grow": ingest_table.grow, "skip_existing": ingest_table.skip_existing}
    )
    added = append_with_report(context.corpus_folder.url, paths, addition, context.progress("append"))
    unknown = UnknownWords.of([added.report])
    text = counted(added.report.documents, context.job.holds.removesuffix("s")) + " added"
    text += f": {unknown.text()}" if unknown.tokens else ""
    context.emit({"event": "added", "documents": added.report.documents, **unknown.record(), "text": text})
    return added.files


STEPS = ("split", "fit", "evaluate", "infer", "publish", "report", "clean")
RENUMBERED = "renumbered"
TITLE_WORDS = 5  # Words of a topic without a name, in its place


class JobSteps:
    """The steps of the version that is being made."""

    def __init__(self, context: JobContext) -> None:
        self._context, self._journal, self._versions = context, context.journal, context.versions

    @property
    def folder(self) -> Folder:
        """The folder of the version's intermediate files."""
        return self._context.folder / f"{CYCLES}/{self._journal.number:04d}"

    @property
    def run_folder(self) -> Folder:
        """The folder of its run."""
        return self.folder / "run"

    @property
    def _renumbered(self) -> Folder:
        """The folder of the model whose topics have lasting ids; it is made only where the run has others."""
        return self.folder / RENUMBERED

    @property
    def _model(self) -> str:
        """The model to publish."""
        return self._renumbered.url if self._renumbered.exists(MODEL) else self.run_folder.url

    def unknown(self) -> UnknownWords:
        """Return the share of unknown words in the documents appended since the last version."""
        base = self._journal.base
        since = self._versions.record(base).additions if base in self._versions.numbers() and base is not None else 0
        return UnknownWords.of(additions_of(Corpus(self._context.corpus_folder.url))[since:])

    def warn_of_unknown(self) -> None:
        """Warn if too many of the appended words are unknown."""
        history = read_history(self._context.corpus_folder)
        if history is not None:
            grow = self._context.job.ingest.grow
            text = self.unknown().warning(history, grow=grow, option="grow = true in [ingest]")
            if text is not None:
                self._context.warn(text)

    def run(self, step: str) -> None:
        """Run one of `STEPS`, or the rest of it."""
        getattr(self, f"_{step}")()

    def _split(self) -> None:
        """Hold out tokens of all documents, or complete vectors.

        Held-out tokens and vectors stay the same over the versions, because they are drawn by the numbers of document
        and word.
        """
        parts = [self.folder / name for name in ("train", "heldout")]
        if all(part.exists(MANIFEST) for part in parts):
            return
        for part in parts:
            part.remove()
        remove_parts(self.folder)
        split(
            self._context.corpus_folder.url,
            *(part.url for part in parts),
            fraction=self._context.job.heldout.fraction,
            seed=self._context.job.heldout.seed,
            documents=self._context.job.holds == VECTORS,
            progress=self._context.progress("split"),
        )

    def _fit(self) -> None:
        """Fit, or resume the fit."""
        run, table = Run(self.run_folder.url), self._context.job.fit
        if self._folds_in():
            return
        names, cluster_timeout = ("memory", "scratch", "checkpoint_every"), self._context.job.cluster.cluster_timeout
        options: dict[str, object] = {name: getattr(table, name) for name in names}
        options.update({} if cluster_timeout is None else {"cluster_timeout": cluster_timeout})
        options["strict_bits"] = self._context.job.cluster.strict_bits
        options.update(self._context.execution)
        if run.exists():
            resume(run.folder.url, sinks=self._context.sinks, **options)
            return
        run.folder.remove()
        warm = self._source(self._journal.base) if self._journal.warm else None
        fit(
            (self.folder / "train").url,
            run.folder.url,
            family=table.family,
            heldout=(self.folder / "heldout").url if self._context.job.holds == DOCUMENTS else None,
            seed=table.seed,
            warm=warm,
            **self._context.job.ensemble,
            **(self._context.job.init if warm is None else {}),
            sinks=self._context.sinks,
            **options,
            **self._context.job.limits_when(warm is not None),
            **self._context.job.options,
        )

    def _folds_in(self) -> bool:
        """Take over the current version's model if few documents are new since its fit, and all else is the same."""
        base, job = self._journal.base, self._context.job
        if not job.fit.refit_growth or base is None:
            return False
        record, model = self._versions.record(base), Model(self._versions.at(base).url).record
        corpus, fitted = Corpus(self._context.corpus_folder.url).manifest, sum(part.documents for part in model.shards)
        same_options = digest_of({**job.plan(), "corpus": record.corpus}) == record.plan
        same_words = corpus.vocabulary.words_sha256 == model.vocabulary.words_sha256
        growth = corpus.documents / max(fitted, 1) - 1.0
        if not (same_options and same_words) or growth >= job.fit.refit_growth:
            return False
        self.run_folder.remove()
        with created(self.run_folder) as folder:
            copy_run(Run(self._versions.at(base).url), folder)
        self._context.note(
            f"{corpus.documents - fitted:,} documents since the last fit ({growth:.1%}) are folded in, as "
            f"`refit_growth` is {job.fit.refit_growth:g}"
        )
        return True

    def begins_warm(self, base: int | None) -> bool:
        """Return whether the fit starts from a version.

        Each member of an ensemble starts from the member of the same number. If the version has another number of
        members, samplers all start from the first one. Members of other families would then be identical, so they start
        afresh.
        """
        if base is None or not self._context.job.begins_warm:
            return False
        restarts, available = self._context.job.fit.restarts, len(restarts_of(self._source(base)))
        if restarts <= 1 or restarts == available or load_family(self._context.job.fit.family).is_sampler:
            return True
        self._context.note(
            f"version {base} has {max(available, 1)} members, but {restarts} restarts are fitted: all start afresh"
        )
        return False

    def _source(self, base: int | None) -> str:
        """Return the run that the fit starts from: a version's or, if it was removed, the version."""
        if base is None:
            raise AbsentError(f"{self._versions.folder.url}: no version has been published yet")
        cycle = self._context.folder / f"{CYCLES}/{base:04d}"
        # The run's topics have other ids than the version's where these were renumbered.
        if Run((cycle / "run").url).exists() and not (cycle / RENUMBERED).exists(MODEL):
            return (cycle / "run").url
        return self._versions.at(base).url

    def _evaluate(self) -> None:
        """Score the new model and the current version on the same held-out tokens or vectors."""
        base = self._journal.base
        before = None if base is None else self._versions.at(base).url
        scores = {} if before is None else {"previous": self._score(before, None)}
        words = None if before is None else Model(before).record.vocabulary.words
        self._journal.scores = {**scores, "new": self._score(self.run_folder.url, words)}

    def _score(self, run: str, words: int | None) -> ScoreRecord:
        """Return the score of a run or a version."""
        train, heldout = ((self.folder / name).url for name in ("train", "heldout"))
        if self._context.job.holds == DOCUMENTS:
            return cast("ScoreRecord", asdict(complete(run, train, heldout, words=words, **self._context.execution)))
        evaluation = evaluate(run, unseen=heldout, **self._context.execution)
        if not isinstance(evaluation, Reconstruction):
            raise MismatchError(f"{heldout}: expected a corpus of vectors")
        return {
            "score": evaluation.reconstruction_error,
            "tokens": evaluation.documents,
            "definition": evaluation.definition,
            "members": [
                {"member": member.member, "score": member.reconstruction_error} for member in evaluation.members
            ],
        }

    def worse(self) -> bool:
        """Return whether the new model scores worse than the current version, beyond the job's tolerance."""
        scores = self._journal.scores
        if "previous" not in scores:
            return False
        new, previous = scores["new"]["score"], scores["previous"]["score"]
        margin = self._context.job.alarm.worse_by + scores["new"]["tokens"] ** -0.5
        return bool(new > previous * (1.0 + margin) if self._context.job.holds == VECTORS else new < previous - margin)

    @property
    def iterations(self) -> int:
        """Iterations of the fit, or of its longest member; 0 before the fit."""
        if "fit" not in self._journal.done:
            return 0
        number = self._journal.number
        if not self.run_folder.exists() and number in self._versions.numbers():
            # Its files were removed after it was published.
            return self._versions.record(number).iterations
        return max(Model(url).record.iterations for _, url in leaves(self.run_folder.url))

    def _renumber(self) -> None:
        """Give topics the ids that they had in the current version, and new topics unused ids."""
        base, model = self._journal.base, Model(self.run_folder.url)
        if base is None or self._context.job.holds != DOCUMENTS or self._renumbered.exists(MODEL):
            return
        single = len(leaves(self.run_folder.url)) == 1 and not restarts_of(self.run_folder.url)
        if not single or not issubclass(load_family(model.record.family), Editable):
            return
        ids = lasting_ids(model, Model(self._versions.at(base).url))
        if all(topic == new for topic, new in ids.items()):
            return
        with suppress(OptionError):
            # Models that cannot be edited keep the ids of their fit.
            renumber(model, ids, self._renumbered, Corpus((self.folder / "train").url))

    def _infer(self) -> None:
        """Write the topic proportions of the documents that are new, or that the model describes anew."""
        self._renumber()
        base, model = self._journal.base, Model(self._model)
        if base is not None and self._context.job.holds == DOCUMENTS:
            inherit_names(model, Model(self._versions.at(base).url))
        titles = {topic.id: topic.title or ", ".join(topic.names) for topic in topics(self._model, TITLE_WORDS)}
        parts = infer_version(
            model,
            Corpus((self.folder / "train").url),
            self.folder / PROPORTIONS,
            () if base is None else read_parts(self._versions.at(base)),
            threshold=self._context.job.infer.threshold,
            columns=VersionColumns(self._journal.number, titles),
            progress=self._context.progress("infer"),
            **self._context.execution,
        )
        write_parts(self.folder, parts)

    def _publish(self) -> None:
        """Copy the model to its version's folder, and make that version the current one."""
        number = self._journal.number
        if not self._versions.at(number).exists(RECORD):
            # The current version's topics hand down their names.
            run, base, succession = Run(self.run_folder.url), self._journal.base, Succession()
            if base is not None and self._context.job.holds == DOCUMENTS:
                succession = succession_of(Model(self._model), Model(self._versions.at(base).url))
            if succession.born or succession.gone:
                self._context.note(f"topics since version {base}: {succession.text()}")
            with self._versions.made(number) as version:
                copy_run(run, version)
                if self._renumbered.exists(MODEL):
                    (version / "model").remove()
                    for name in self._renumbered.files():
                        copy_file(self._renumbered, version / "model", name)
                parts = read_parts(self.folder)
                new_files = frozenset((self.folder / PROPORTIONS).names()) if parts else frozenset()
                # Files that the version shares with the one before are not copied.
                for part in parts:
                    source = self.folder if part.file in new_files or base is None else self._versions.at(base)
                    copy_file(source / PROPORTIONS, version / PROPORTIONS, part.file, shared=True)
                if parts:
                    write_parts(version, parts)
                else:
                    # Release 0.1 wrote one file.
                    copy_file(self.folder, version, PROPORTIONS)
                record = self._record().model_copy(update={"born": succession.born, "gone": succession.gone})
                version.write(RECORD, dump(record.model_dump(mode="json")))
        self._versions.point(number)

    def _record(self) -> VersionRecord:
        journal, model = self._journal, Model(self.run_folder.url).record
        manifest = Corpus(self._context.corpus_folder.url).manifest
        previous, unknown = journal.scores.get("previous"), self.unknown()
        return VersionRecord(
            number=journal.number,
            job=self._context.job.name,
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
            additions=len(additions_of(Corpus(self._context.corpus_folder.url))),
            unknown_tokens=unknown.unknown,
            unknown_share=unknown.share,
            holds=manifest.holds,
            members=tuple(journal.scores["new"].get("members", ())),
        )

    def _report(self) -> None:
        """Write the report into the version's folder, and a copy to the path in the job's file."""
        if not self._context.job.report.enabled:
            return
        version = self._versions.at(self._journal.number)
        if not version.exists(REPORT):
            page_report.report(version.url, f"{version.url}/{REPORT}", progress=self._context.progress("report"))
        if self._context.job.report.out is not None:
            parent, _, name = self._context.job.report.out.rpartition("/")
            Folder(parent).write(name, version.read(REPORT))

    def _clean(self) -> None:
        """Remove older runs, and versions beyond the number to keep."""
        for name in (self._context.folder / CYCLES).names():
            if name in {f"{number:04d}" for number in range(self._journal.number)}:
                (self._context.folder / f"{CYCLES}/{name}").remove()
        self._versions.keep(self._context.job.batch.keep)
