"""Held-out data of a comparison: held-out tokens of the training documents, or unseen documents."""

from __future__ import annotations

from abc import ABC, abstractmethod

from collapsium.pipeline.corpora.ingest import split
from collapsium.pipeline.engine.leakage.documents import require_new_documents
from collapsium.pipeline.engine.leakage.lineage import require_held_out, require_unseen
from collapsium.pipeline.engine.setup.heldout import require_tokens
from collapsium.pipeline.executors.open import open_executor
from collapsium.pipeline.workflows.compare.label_fields import LabelFields
from collapsium.pipeline.workflows.compare.option_values import shown
from collapsium.pipeline.workflows.compare.options import CompareOptions
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.corpus.lineage import lineage_of
from collapsium.storage.errors import InputError, MismatchError
from collapsium.storage.io.folder import Folder
from collapsium.storage.runs.comparison import PARTS


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
