"""Example documents of topics as a frame, with passages if the texts are available."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from collapsium.pipeline.analysis.options import ExampleOptions
from collapsium.pipeline.analysis.snippets import example_snippets, source_files
from collapsium.pipeline.engine.summary import EXAMPLES, summary_of
from collapsium.pipeline.executors.open import open_executor
from collapsium.pipeline.fitted_model import table_of_texts
from collapsium.pipeline.models.model import Model
from collapsium.pipeline.models.topics import topics
from collapsium.pipeline.models.training_corpus import require_training_corpus
from collapsium.pipeline.monitoring.progress import shows
from collapsium.pipeline.options import keywords
from collapsium.storage.errors import MAX_NAMES, AbsentError, OptionError
from collapsium.storage.runs.summary import SummaryRecord, read_summary
from collapsium.storage.units import Counting, silent

if TYPE_CHECKING:
    import pandas as pd

WORDS = 10  # First words of a topic, which are looked for besides those that explain it in a document
COLUMNS = ("topic", "id", "title", "proportion", "passage")


@shows("looking for passages")
@keywords(options=ExampleOptions)
def examples(
    run: str | os.PathLike[str],
    topic: int | None = None,
    n: int = EXAMPLES,
    *,
    options: ExampleOptions,
    progress: Counting = silent,
) -> pd.DataFrame:
    """Return the training documents with the largest proportions of a topic, or of each topic.

    Parameters
    ----------
    run : str or path-like
        Folder of a run or model.
    topic : int, optional
        Permanent id of the topic.
    n : int, optional
        Number of documents of each topic. The model keeps 3; for more, all documents are read again.
    options : ExampleOptions
        Texts of the documents.
    progress : callable, optional
        Called with the number of documents read so far.

    Returns
    -------
    pandas.DataFrame
        A row for each document, by topic and falling proportion: topic, id, title, proportion, and the passage in which
        most of the topic's words are, which is missing without texts.

    Raises
    ------
    OptionError
        There is no such topic, or the texts are not the model's.
    AbsentError
        There is no model with proportions, or more than 3 documents are asked for and the training corpus is gone.
    """
    if not isinstance(n, int) or n < 1:
        raise OptionError(f"expected a whole number of 1 or more, found {n!r}", "n")
    model = Model(run)
    summary = _summary(model, n)
    known = {saved.id: saved for saved in summary.topics}
    if topic is not None:
        if topic not in known:
            ids = ", ".join(map(str, sorted(known)[:MAX_NAMES]))
            raise OptionError(f"there is no topic {topic!r} with tokens; topics: {ids}", "topic")
        summary = summary.model_copy(update={"topics": (known[topic],)})
    order = {described.id: place for place, described in enumerate(topics(model, 1))}
    chosen = sorted(summary.topics, key=lambda saved: order.get(saved.id, len(order)))
    used = sorted({example.document for saved in chosen for example in saved.examples[:n]})
    place = {number: new for new, number in enumerate(used)}
    chosen = [
        saved.model_copy(
            update={
                "examples": tuple(
                    example.model_copy(update={"document": place[example.document]}) for example in saved.examples[:n]
                )
            }
        )
        for saved in chosen
    ]
    summary = summary.model_copy(
        update={"topics": tuple(chosen), "examples": tuple(summary.examples[number] for number in used)}
    )
    passages: dict[tuple[int, int], list[str]] = {}
    with source_files(model.folder.url, options.texts) as sources:
        if sources is not None and summary.examples:
            words = {described.id: described.names for described in topics(model, WORDS)}
            names = model.vocabulary.words
            passages, _ = example_snippets(model.folder.url, summary, words, names, sources, progress)
    rows: list[dict[str, Any]] = []
    for saved in chosen:
        for example in saved.examples:
            document = summary.examples[example.document]
            parts = passages.get((saved.id, example.document))
            passage = None if parts is None else "".join(parts)
            rows.append(
                dict(zip(COLUMNS, (saved.id, document.id, document.title, example.share, passage), strict=True))
            )
    return table_of_texts(rows, columns=list(COLUMNS))


def _summary(model: Model, n: int) -> SummaryRecord:
    """Return a summary with `n` example documents of each topic."""
    if not model.fitted:
        raise AbsentError(f"{model.folder.url}: the run has not ended; it has no document proportions yet")
    saved = read_summary(model.folder, model.record) if n <= EXAMPLES else None
    if saved is not None:
        return saved
    executor = open_executor("threads", None)
    try:
        return summary_of(model, require_training_corpus(model), executor, examples=max(n, EXAMPLES))
    finally:
        executor.close()
