"""Corpora of a comparison, and the fits of its cells to them, run or resumed."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from collapsium.pipeline.corpora.split import split
from collapsium.pipeline.engine.fit import fit, resume
from collapsium.pipeline.engine.leakage import require_held_out, require_new_documents, require_unseen
from collapsium.pipeline.engine.setup.request import require_tokens
from collapsium.pipeline.executors.open import open_executor
from collapsium.pipeline.models.registry import load_family, require_corpus
from collapsium.pipeline.monitoring.events import Event, Sink, emit
from collapsium.pipeline.options import names_of
from collapsium.pipeline.workflows.compare.options import SAMPLE_TOKENS, Cell, CompareOptions
from collapsium.storage.building.split import sample_documents
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.corpus.label_index import MOST_VALUES, label_table
from collapsium.storage.corpus.lineage import lineage_of
from collapsium.storage.corpus.manifest import DOCUMENTS
from collapsium.storage.data_types import JsonObject
from collapsium.storage.errors import DamagedError, InputError, MismatchError, OptionError, suggestion
from collapsium.storage.io.folder import Folder
from collapsium.storage.runs.comparison import PARTS, RUNS, SAMPLE
from collapsium.storage.runs.event_records import parse_event
from collapsium.storage.runs.members import member_seed
from collapsium.storage.runs.run import EVENTS, JOURNAL, Run

SAMPLE_SHARD_TOKENS = SAMPLE_TOKENS // 8  # Tokens of a shard of sampled documents, so that threads share them
WORK = ("kernel", "reduce", "update")  # Activities of an iteration whose time counts as work


def require_comparable(corpus: Corpus, options: CompareOptions) -> None:
    """Refuse a corpus that a family cannot fit, and one of vectors, which has no tokens to score."""
    for name in options.fitted_families:
        require_corpus(name, corpus)
    if corpus.holds != DOCUMENTS:
        raise MismatchError(
            f"{corpus.url}: a corpus of vectors; families are compared by held-out tokens, which vectors do not have: "
            "fit each, and score it with `collapsium evaluate RUN --unseen CORPUS`"
        )


class Corpora:
    """A training corpus with held-out tokens of its documents or, with `unseen`, with other documents."""

    def __init__(self, corpus: Corpus, options: CompareOptions) -> None:
        self.corpus, self.options = corpus, options
        self.train = self.scored = corpus
        if options.unseen is not None or options.heldout is not None:
            self.scored = Corpus(options.unseen or options.heldout or "")

    @property
    def heldout(self) -> str | None:
        """The folder of held-out tokens that are scored during fits; None with unseen documents."""
        return self.scored.url if self.options.unseen is None else None

    @property
    def share(self) -> float:
        """The share of the documents that are drawn to compare on."""
        manifest, documents = self.corpus.manifest, self.options.sample_documents
        if documents is not None:
            return documents / manifest.documents
        over_topics = self.options.over == "topics" and self.options.fraction is not None
        return SAMPLE_TOKENS / max(manifest.tokens, 1) if over_topics else 1.0

    def require(self, cells: Sequence[Cell]) -> None:
        """Refuse corpora that do not belong together, and unknown fields of labels, before anything is written."""
        corpus, scored, name = self.corpus, self.scored, f"the training corpus {self.corpus.url}"
        if self.options.fraction is not None:
            return
        if self.options.sample_documents is not None:
            raise OptionError(
                "draws documents before tokens are split off, so it goes without corpora of them", "sample_documents"
            )
        if self.options.unseen is None:
            require_tokens(scored)
        scored.require_vocabulary_of(corpus.manifest.vocabulary.words_sha256, corpus.url)
        if self.options.unseen is None:
            require_held_out(lineage_of(corpus), scored, name)
            if scored.manifest.documents != corpus.manifest.documents:
                raise MismatchError(
                    f"{scored.url}: expected the {corpus.manifest.documents} documents of {corpus.url}, "
                    f"found {scored.manifest.documents}"
                )
            return
        require_unseen(lineage_of(corpus), scored, name)
        for part in (corpus, scored):
            if not part.manifest.tokens:
                raise InputError(part.url, "has no tokens to fit or score")
        self._require_fields(cells)
        with contextlib.closing(open_executor("serial", None)) as executor:
            # Labels are compared too, as families use them.
            require_new_documents(corpus, scored, name, executor, labelled=True)

    def _require_fields(self, cells: Sequence[Cell]) -> None:
        """Refuse unknown fields of labels, and a field to predict without classes."""
        fields, field = label_table(self.corpus).fields, self.options.field
        for cell in cells:
            for name in names_of(cell.options.get("labels", ())):
                if name not in fields:
                    hint = suggestion(name, fields)
                    raise OptionError(f"{cell.name}: unknown field of labels '{name}'{hint}", "labels")
        if field is None or field in fields:
            return
        numbers = [name for name, kind in self.corpus.manifest.fields.items() if kind == "double"]
        if field not in numbers:
            hint = suggestion(field, [*fields, *numbers])
            raise OptionError(f"{self.corpus.url} has no field '{field}'{hint}", "field")
        (column,) = label_table(self.corpus, (), (field,)).numbers
        if not column.values:
            reason = f"'{field}', a number of more than {MOST_VALUES} values, or of none, has no classes"
            raise OptionError(reason, "field")

    def can_predict(self, cell: Cell) -> bool:
        """Return whether a cell's family is fitted with the field to predict, as a label or a covariate."""
        if self.options.field is None or not load_family(cell.family).uses_labels:
            return False
        labels = names_of(cell.options.get("labels", ())) or label_table(self.corpus).fields
        return self.options.field in (*labels, *names_of(cell.options.get("covariates", ())))

    def prepare(self, folder: Folder) -> None:
        """Sample documents and split off held-out tokens into the comparison's folder, unless there are some."""
        share = self.share
        if share < 1.0:
            part = folder / SAMPLE
            if not part.exists():
                sample_documents(self.corpus, part.url, share, shard_tokens=SAMPLE_SHARD_TOKENS, seed=self.options.seed)
            self.corpus = Corpus(part.url)
        if self.options.fraction is not None:
            parts = [folder / part for part in PARTS]
            if not all(part.exists() for part in parts):
                for part in parts:
                    # A process that died may have left one of them.
                    part.remove()
                train, heldout = (part.url for part in parts)
                split(self.corpus.url, train, heldout, fraction=self.options.fraction, seed=self.options.seed)
            self.train, self.scored = (Corpus(part.url) for part in parts)
        for corpus in (self.train, self.scored):
            if not corpus.manifest.tokens:
                raise InputError(corpus.url, "has no tokens to score; hold out another --fraction")


@dataclass(frozen=True)
class Fits:
    """The fits of a cell, which need not be complete."""

    cell: Cell  # The cell
    folder: Folder  # Folder of its runs: members of an ensemble or, for warm starts, separate runs

    @property
    def runs(self) -> list[Run]:
        """The runs of the restarts."""
        if self.cell.warm:
            return [Run((self.folder / f"{number:03d}").url) for number in range(self.cell.restarts)]
        return [Run(self.folder.url).in_member(number) for number in range(self.cell.restarts)]

    @property
    def urls(self) -> list[str]:
        """The folders of the runs."""
        return [run.folder.url for run in self.runs]

    def iterations(self) -> list[list[JsonObject]]:
        """Return the events of each run's iterations."""
        by_run = [[event for event in run.events() if event["event"] == "iteration"] for run in self.runs]
        for run, events in zip(self.runs, by_run, strict=True):
            if not events:
                raise DamagedError(f"{run.folder.url}/{EVENTS}", "expected iterations of a fit, found none")
        return by_run

    def elapsed_seconds(self) -> float:
        """Return the elapsed seconds; an ensemble's journal has an end for each time that it was started."""
        if self.cell.warm:
            return sum(float(run.events()[-1]["elapsed"]) for run in self.runs)
        elapsed = 0.0
        for line in self.folder.read(JOURNAL).splitlines():
            # A process that died may have left a line unfinished.
            with contextlib.suppress(DamagedError):
                event = parse_event(line, f"{self.folder.url}/{JOURNAL}", "a line")
                elapsed += float(event["elapsed"]) if event["event"] == "end" and "members" in event else 0.0
        return elapsed

    def series(self) -> list[JsonObject]:
        """Return a row for each iteration; ``steps`` are numbers of topics, summed over the iterations."""
        cell, rows = self.cell, []
        for restart, events in enumerate(self.iterations()):
            topics = [cell.topics if cell.topics is not None else event.get("topics", math.nan) for event in events]
            steps = itertools.accumulate(float(number) for number in topics)
            seconds = itertools.accumulate(map(work_seconds, events))
            for event, step, second in zip(events, steps, seconds, strict=True):
                rows.append(
                    {
                        "cell": cell.name,
                        "family": cell.family,
                        "start": cell.start,
                        "topics": cell.topics,
                        "restart": restart,
                        "iteration": event["iteration"],
                        "steps": None if math.isnan(step) else step,
                        "seconds": second,
                        **{name: event.get(name) for name in ("score", "objective", "topics_99")},
                    }
                )
        return rows


def work_seconds(event: Event) -> float:
    """Return the seconds of work of an iteration, without scoring and waiting."""
    return sum(float(event.get("seconds", {}).get(name, 0.0)) for name in WORK)


@dataclass(frozen=True)
class Fitter:
    """Runs the fits of a comparison, or resumes them."""

    folder: Folder  # Folder of the comparison
    corpora: Corpora  # Corpora to fit to and to score
    execution: Mapping[str, Any]  # Arguments of `fit` for the executor, memory and scratch space
    sinks: Sequence[Sink]  # Receive the events of the fits
    require_lock: Callable[[], None]  # Raises an error if another process has taken over the comparison

    def fits_of(self, cell: Cell) -> Fits:
        """Return the fits of a cell, which need not exist yet."""
        return Fits(cell, self.folder / RUNS / cell.name)

    def scoring(self) -> dict[str, Any]:
        """Return the executor of scores; threads replace a local cluster, which would start for each score."""
        where = {name: self.execution[name] for name in ("scheduler", "workers", "tls")}
        return where | {"scheduler": "threads", "tls": None} if where["scheduler"] == "local" else where

    def fit(self, cell: Cell, sources: Sequence[str] = ()) -> Fits:
        """Run a cell's fits: restarts in parallel or, with a source run for each, one after another."""
        fits, seed = self.fits_of(cell), self.corpora.options.seed
        options = {"family": cell.family, **cell.options, **cell.limits, **self.corpora.options.fit_options}
        if not sources:
            self._run(fits.folder, {**options, "seed": seed, "restarts": cell.restarts}, {"cell": cell.name})
        for number, source in enumerate(sources):
            arguments = {**options, "seed": member_seed(seed, number), "warm": source}
            self._run(fits.folder / f"{number:03d}", arguments, {"cell": cell.name, "member": number})
        return fits

    def _run(self, folder: Folder, options: Mapping[str, Any], event_fields: Mapping[str, object]) -> None:
        """Run or resume a fit in a folder; its events get further fields."""
        self.require_lock()
        train, heldout = self.corpora.train.url, self.corpora.heldout
        where = {**self.execution, "sinks": [lambda event: emit(self.sinks, {**event, **event_fields})]}
        if Run(folder.url).exists():
            resume(folder.url, corpus=train, heldout=heldout, warm=options.get("warm"), **where)
            return
        if folder.exists():
            # A process died before it wrote the run's record.
            folder.remove()
        fit(train, folder.url, heldout=heldout, **options, **where)
