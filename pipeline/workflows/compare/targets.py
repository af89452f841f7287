"""Held-out data of a comparison: held-out tokens of the training documents, or unseen documents."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace

from collapsium.pipeline.corpora.ingest import split
from collapsium.pipeline.engine.leakage import require_held_out, require_new_documents, require_unseen
from collapsium.pipeline.engine.setup.request import require_tokens
from collapsium.pipeline.executors.open import open_executor
from collapsium.pipeline.models.registry import load_family
from collapsium.pipeline.workflows.compare.grid import RANDOM, Cell
from collapsium.pipeline.workflows.compare.options import CompareOptions, shown
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.corpus.label_index import MOST_VALUES, LabelTable, label_table
from collapsium.storage.corpus.lineage import lineage_of
from collapsium.storage.errors import InputError, MismatchError, OptionError, suggestion
from collapsium.storage.io.folder import Folder
from collapsium.storage.runs.comparison import PARTS


@dataclass(frozen=True)
class LabelFields:
    """Fields of labels of a training corpus, and those that are used."""

    all: tuple[str, ...]  # The corpus's fields of labels
    taken: tuple[str, ...]  # Fields that are used
    without: tuple[str, ...]  # Fields that the second variant of a fit leaves out
    target: str | None  # The field to predict
    numeric: bool  # Whether the field to predict is a number

    @staticmethod
    def of(corpus: Corpus, options: CompareOptions) -> LabelFields:
        """Look up the fields in a training corpus; the field to predict must be used, unless it is a number."""
        every = label_table(corpus).fields
        numbers = {one.name for one in label_table(corpus, options.labels, options.covariates).numbers}
        taken, target = options.labels or every, options.field
        numeric = target is not None and target not in every
        if target is not None and numeric:
            _require_classes(corpus, target, every)
        elif target is not None and target not in taken:
            raise OptionError(f"expected '{target}' among them, the field to predict (`field`)", "labels")
        unknown = next((name for name in options.without if name not in taken), None)
        if unknown is not None:
            raise OptionError(f"unknown field of labels '{unknown}'{suggestion(unknown, taken)}", "without")
        if options.without and not set(taken) - set(options.without):
            raise OptionError("no field of labels would be left", "without")
        if numeric and target in numbers:
            raise OptionError(f"'{target}' is the field to predict (`field`)", "covariates")
        return LabelFields(every, taken, options.without, target, numeric)

    def remaining(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return those of some fields that the second variant of a fit uses."""
        return tuple(name for name in names if name not in self.without)

    @property
    def variant_start(self) -> str:
        """The start of fits of the second variant, as text."""
        return f"without {', '.join(self.without)}"

    @property
    def variant_suffix(self) -> str:
        """The end of the names of the second variant's cells."""
        return "-without-" + "-".join("".join(c if c.isalnum() else "_" for c in name) for name in self.without)

    def variants(self, cells: Sequence[Cell]) -> list[Cell]:
        """Set the fields of cells whose families use labels, and add the second variant after each."""
        every = []
        for cell in cells:
            family = load_family(cell.family)
            if not (family.shard_model.uses_labels and "labels" in family.Options.model_fields):
                every.append(cell)
                continue
            own = _names(cell.options.get("labels", ()))
            taken = own or self.taken
            every.append(cell if own or taken == self.all else _with_labels(cell, taken))
            remaining = self.remaining(taken)
            if remaining and remaining != taken:
                start = self.variant_start if cell.start == RANDOM else f"{cell.start}, {self.variant_start}"
                every.append(replace(_with_labels(cell, remaining), name=cell.name + self.variant_suffix, start=start))
        return every

    def can_predict(self, cell: Cell) -> bool:
        """Return whether a cell's family is fitted with the field to predict."""
        if self.target is None or not load_family(cell.family).shard_model.uses_labels:
            return False
        if self.numeric:
            return self.target in _names(cell.options.get("covariates", ()))
        return self.target in (_names(cell.options.get("labels", ())) or self.all)


def _require_classes(corpus: Corpus, field: str, labels: Sequence[str]) -> None:
    """Refuse a field that is neither of labels nor a number of few values."""
    numbers = [name for name, kind in corpus.manifest.fields.items() if kind == "double"]
    if field not in numbers:
        raise OptionError(f"{corpus.url} has no field '{field}'{suggestion(field, [*labels, *numbers])}", "field")
    (column,) = label_table(corpus, (), (field,)).numbers
    if not column.values:
        raise OptionError(f"'{field}', a number of more than {MOST_VALUES} values, or of none, has no classes", "field")


def _with_labels(cell: Cell, labels: tuple[str, ...]) -> Cell:
    return replace(cell, options={**cell.options, "labels": list(labels)})


def _names(value: str | Sequence[str]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)


def side_table(corpus: Corpus, labels: Sequence[str], covariates: Sequence[str]) -> LabelTable:
    """Return the table of the labels and covariates that a classifier uses in addition to the words."""
    table = label_table(corpus, tuple(labels), tuple(covariates))
    return table if labels else replace(table, names=(), documents=())


class Target(ABC):
    """The corpora of a comparison, for fitting and for scoring."""

    title: str
    fields = LabelFields((), (), (), None, numeric=False)

    def __init__(self, corpus: Corpus, options: CompareOptions) -> None:
        self.corpus, self.options = corpus, options
        self.train = self.scored = corpus

    @property
    def heldout(self) -> str | None:
        """The folder of held-out tokens that are scored during fits; None with unseen documents."""
        return None

    @abstractmethod
    def require(self) -> None:
        """Refuse corpora that do not belong together, before anything is written."""

    def prepare(self, folder: Folder) -> None:  # noqa: B027
        """Write missing corpora into the comparison's folder."""

    @abstractmethod
    def about(self) -> list[str]:
        """Return paragraphs about the comparison."""


class HeldOutTokens(Target):
    """Held-out tokens of the training documents, in a corpus of their own or split off."""

    title = "Comparison"

    @property
    def heldout(self) -> str | None:
        """The folder of the held-out tokens."""
        return self.scored.url

    def require(self) -> None:
        """Refuse a held-out corpus that does not belong to the training corpus."""
        if self.options.heldout is None:
            return
        self.scored = held = Corpus(self.options.heldout)
        require_tokens(held)
        held.require_vocabulary_of(self.corpus.manifest.vocabulary.words_sha256, self.corpus.url)
        require_held_out(lineage_of(self.corpus), held, f"the training corpus {self.corpus.url}")
        if held.manifest.documents != self.corpus.manifest.documents:
            raise MismatchError(
                f"{held.url}: expected the {self.corpus.manifest.documents} documents of {self.corpus.url}, "
                f"found {held.manifest.documents}"
            )

    def prepare(self, folder: Folder) -> None:
        """Split off held-out tokens, unless there are some."""
        if self.options.fraction is not None:
            parts = [folder / part for part in PARTS]
            if not all(part.exists() for part in parts):
                for part in parts:
                    # A process that died may have left one of them.
                    part.remove()
                train, heldout = (part.url for part in parts)
                split(self.corpus.url, train, heldout, fraction=self.options.fraction, seed=self.options.seed)
            self.train, self.scored = (Corpus(part.url) for part in parts)
        for one in (self.train, self.scored):
            if not one.manifest.tokens:
                raise InputError(one.url, "has no tokens to score; hold out another --fraction")

    def about(self) -> list[str]:
        """Return paragraphs about the corpus, its two parts and the options."""
        manifest, train, fraction = self.corpus.manifest, self.train.manifest, self.options.fraction
        origin = f"of {self.scored.url}" if fraction is None else f"({fraction:g} of all, split off)"
        corpora = (
            f"Corpus: {self.corpus.url}, {manifest.documents:,} documents, {manifest.vocabulary.words:,} words; fitted "
            f"to {train.tokens:,} tokens in {len(train.shards)} shards, scored on {self.scored.manifest.tokens:,} "
            f"tokens {origin}. Seed {self.options.seed}."
        )
        return [corpora, *options_text(self.options)]


class UnseenDocuments(Target):
    """Documents that are not in the training corpus, which are scored given their labels."""

    title = "Comparison on unseen documents"

    def require(self) -> None:
        """Refuse documents of another vocabulary, without tokens, or of the training corpus; look up the fields."""
        self.scored = unseen = Corpus(self.options.unseen or "")
        corpus, name = self.corpus, f"the training corpus {self.corpus.url}"
        unseen.require_vocabulary_of(corpus.manifest.vocabulary.words_sha256, corpus.url)
        require_unseen(lineage_of(corpus), unseen, name)
        for one in (corpus, unseen):
            if not one.manifest.tokens:
                raise InputError(one.url, "has no tokens to fit or score")
        self.fields = LabelFields.of(corpus, self.options)
        executor = open_executor("serial", None)
        try:
            # Labels are compared too, as families use them.
            require_new_documents(corpus, unseen, name, executor, labelled=True)
        finally:
            executor.close()

    def about(self) -> list[str]:
        """Return paragraphs about the two corpora, their labels and the options."""
        train, unseen = self.corpus.manifest, self.scored.manifest
        corpora = (
            f"Corpus: {self.corpus.url}, {train.documents:,} documents, {train.tokens:,} tokens, "
            f"{train.vocabulary.words:,} words, in {len(train.shards)} shards; unseen: {self.scored.url}, "
            f"{unseen.documents:,} documents, {unseen.tokens:,} tokens. "
            f"Labels: {', '.join(self.fields.taken) or 'none'}. Seed {self.options.seed}."
        )
        return [corpora, *options_text(self.options)]


def options_text(options: CompareOptions) -> list[str]:
    """Return paragraphs about the options that are set, and those that vary."""
    record = options.record()
    texts = (("Options", record["settings"], "; defaults otherwise."), ("Varied", record["vary"], "."))
    return [f"{name}: {shown(value)}{end}" for name, value, end in texts if value]


def target_of(corpus: Corpus, options: CompareOptions) -> Target:
    """Return the held-out data that the options choose."""
    return HeldOutTokens(corpus, options) if options.unseen is None else UnseenDocuments(corpus, options)
