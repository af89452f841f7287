"""Split tokens, documents or labels: of a corpus into two corpora, or the rows of a frame into two frames."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from collapsium.pipeline.corpora.new_texts import DocumentSource, corpus_of, options_of_reading, reading_of
from collapsium.pipeline.corpora.options import SplitOptions, TextsInMemory
from collapsium.pipeline.corpora.texts_in_memory import in_memory, paths_or_texts
from collapsium.pipeline.monitoring.progress import shows
from collapsium.pipeline.options import keywords, option_names
from collapsium.pipeline.outputs import overwrites, place_for
from collapsium.storage.building.split import Held, document_draws, split_corpus, split_corpus_documents, split_labels
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.errors import OptionError, suggestion
from collapsium.storage.units import Counting, silent


@shows("splitting")
@overwrites("train", "heldout")
@keywords(options=SplitOptions)
def split(
    corpus: DocumentSource,
    train: str | os.PathLike[str] | None = None,
    heldout: str | os.PathLike[str] | None = None,
    *,
    options: SplitOptions,
    progress: Counting = silent,
    **reading: Any,
) -> tuple[Any, Any]:
    """Split the tokens, documents or labels of a corpus into a training and a held-out part.

    Splits of tokens and of labels keep all documents in both parts. Vectors are split as complete documents.

    Parameters
    ----------
    corpus : Corpus, path, sequence of paths or str, column or frame
        A corpus, or texts as `fit` takes them.
    train, heldout : str or path-like, optional
        Folders to make. By default the corpora are temporary, and are removed when they are collected.
    options : SplitOptions
        Held-out tokens, documents or labels.
    **reading
        Options of `ingest` for texts, as for `fit`.

    Returns
    -------
    tuple of two
        The parts, as corpora. Texts in memory whose documents are split, without folders to make, are split as they
        are: rows of the frame, with its index, or items of the list.

    Raises
    ------
    CollapsiumError
        The corpus is damaged, an option is out of range, or a folder exists. No folder is left.
    """
    if (train is None) != (heldout is None):
        raise OptionError("name both folders, or none", "heldout" if heldout is None else "train")
    held = _held(options)
    documents = paths_or_texts(corpus)
    if held is not None and train is None and isinstance(documents, TextsInMemory):
        texts = in_memory(documents.texts)
        texts = list(texts) if not hasattr(texts, "__len__") else texts
        mask = held.among(document_draws(0, len(texts), options.seed))
        return _rows(texts, ~mask), _rows(texts, mask)
    known, named = options_of_reading(corpus), reading_of(reading, corpus, ())
    unknown = next(iter(reading), None)
    if unknown is not None:
        raise OptionError(f"split: unknown option {unknown!r}{suggestion(unknown, (*option_names(split), *known))}")
    with (
        corpus_of(corpus, named) as opened,
        place_for(train, "train") as first,
        place_for(heldout, "heldout") as second,
    ):
        parts = first.path, second.path
        how: dict[str, Any] = {"seed": options.seed, "progress": progress}
        if options.drop_labels is not None:
            opened.require_documents()
            split_labels(opened, *parts, share=options.drop_labels, field=options.field, **how)
        elif held is None:
            opened.require_tokens()
            split_corpus(opened, *parts, fraction=_share(options), **how)
        else:
            opened.require_tokens()
            split_corpus_documents(opened, *parts, held, **how)
        return first.with_temporary(Corpus(first.path)), second.with_temporary(Corpus(second.path))


def _held(options: SplitOptions) -> Held | None:
    """Return the held-out documents; None if tokens or labels are held out."""
    if options.drop_labels is not None:
        conflicting = {
            "documents": options.documents,
            "fraction": options.fraction is not None,
            "folds": options.folds is not None,
        }
        conflict = next((name for name, value in conflicting.items() if value), None)
        if conflict is not None:
            raise OptionError("not allowed with `drop_labels`, which splits labels only", conflict)
        return None
    if options.field is not None:
        raise OptionError(f"{options.field} requires `drop_labels`, a probability in (0, 1)", "field")
    if (options.folds is None) != (options.fold is None):
        raise OptionError("`folds` and `fold` are needed together: the number of folds, and the one to hold out")
    if options.folds is not None and options.fraction is not None:
        raise OptionError(f"{options.fraction} is not allowed with `folds`, which hold out one of K parts", "fraction")
    if options.folds is not None and options.fold is not None:
        return Held.fold(options.folds, options.fold)
    return Held.share(_share(options)) if options.documents else None


def _share(options: SplitOptions) -> float:
    return 0.1 if options.fraction is None else options.fraction


def _rows(texts: DocumentSource, mask: npt.NDArray[np.bool_]) -> Any:
    """Return the rows of a frame or column, or the items of a list, as the caller has them."""
    if isinstance(texts, (list, tuple)):
        return [text for text, chosen in zip(texts, mask.tolist(), strict=True) if chosen]
    if hasattr(texts, "filter") and type(texts).__module__.partition(".")[0] in ("polars", "pyarrow"):
        return texts.filter(pa.array(mask) if type(texts).__module__.startswith("pyarrow") else mask.tolist())
    return texts[mask]
