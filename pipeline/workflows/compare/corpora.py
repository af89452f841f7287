"""The corpora of a comparison: what is fitted, and the held-out tokens or unseen documents that are scored."""

from __future__ import annotations

from collections.abc import Sequence

from collapsium.pipeline.corpora.ingest import split
from collapsium.pipeline.engine.leakage import require_held_out, require_new_documents, require_unseen
from collapsium.pipeline.engine.setup.request import require_tokens
from collapsium.pipeline.executors.open import open_executor
from collapsium.pipeline.models.registry import load_family
from collapsium.pipeline.options import names_of
from collapsium.pipeline.workflows.compare.grid import Cell
from collapsium.pipeline.workflows.compare.options import CompareOptions, shown
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.corpus.label_index import MOST_VALUES, label_table
from collapsium.storage.corpus.lineage import lineage_of
from collapsium.storage.errors import InputError, MismatchError, OptionError, suggestion
from collapsium.storage.io.folder import Folder
from collapsium.storage.runs.comparison import PARTS


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

    def require(self, cells: Sequence[Cell]) -> None:
        """Refuse corpora that do not belong together, and unknown fields of labels, before anything is written."""
        corpus, scored, name = self.corpus, self.scored, f"the training corpus {self.corpus.url}"
        if self.options.unseen is None and self.options.heldout is None:
            return
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
        executor = open_executor("serial", None)
        try:
            # Labels are compared too, as families use them.
            require_new_documents(corpus, scored, name, executor, labelled=True)
        finally:
            executor.close()

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
        """Split off held-out tokens into the comparison's folder, unless there are some."""
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

    def about(self) -> list[str]:
        """Return paragraphs about the corpora and the options that are set or vary."""
        manifest, train, scored = self.corpus.manifest, self.train.manifest, self.scored.manifest
        fraction, words = self.options.fraction, f"{manifest.vocabulary.words:,} words"
        if self.options.unseen is None:
            origin = f"of {self.scored.url}" if fraction is None else f"({fraction:g} of all, split off)"
            corpora = (
                f"Corpus: {self.corpus.url}, {manifest.documents:,} documents, {words}; fitted "
                f"to {train.tokens:,} tokens in {len(train.shards)} shards, scored on {scored.tokens:,} "
                f"tokens {origin}. Seed {self.options.seed}."
            )
        else:
            corpora = (
                f"Corpus: {self.corpus.url}, {train.documents:,} documents, {train.tokens:,} tokens, {words}, in "
                f"{len(train.shards)} shards; unseen: {self.scored.url}, {scored.documents:,} documents, "
                f"{scored.tokens:,} tokens. Seed {self.options.seed}."
            )
        texts = (("Options", self.options.settings, "; defaults otherwise."), ("Varied", self.options.vary, "."))
        return [corpora, *(f"{name}: {shown(value)}{end}" for name, value, end in texts if value)]
