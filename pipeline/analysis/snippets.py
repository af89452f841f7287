"""Example documents of topics, and their passages in the texts that were ingested, with the topics' words marked."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from collapsium.pipeline.analysis.options import ExampleOptions
from collapsium.pipeline.corpora.options import TextsInMemory
from collapsium.pipeline.corpora.recorded_reading import history_for, recorded_reading
from collapsium.pipeline.corpora.texts_in_memory import ID, TEXT, in_memory, named_texts, table_of, write_texts
from collapsium.pipeline.engine.summary import EXAMPLES, summary_of
from collapsium.pipeline.executors.open import open_executor
from collapsium.pipeline.fitted_model import table_of_texts
from collapsium.pipeline.formatting import plain
from collapsium.pipeline.models.model import Model, require_training_corpus
from collapsium.pipeline.models.topics import topics
from collapsium.pipeline.monitoring.progress import shows
from collapsium.pipeline.options import keywords
from collapsium.storage.building.ingest_record import History
from collapsium.storage.corpus.manifest import DOCUMENTS
from collapsium.storage.corpus.word_rule import (
    FIRST_RULE,
    RULE,
    composed,
    lower_case,
    with_plain_apostrophes,
    word_pattern,
)
from collapsium.storage.errors import MAX_NAMES, AbsentError, InputError, OptionError
from collapsium.storage.readers.base import distinct
from collapsium.storage.readers.open import TEXTS, ReadOptions, guess_format, kind_of_name
from collapsium.storage.readers.texts.blocks import FIXED, are_numbered, cut_blocks, fields_of, find_files, read_batches
from collapsium.storage.readers.texts.gathering import Batch
from collapsium.storage.readers.texts.segment import HEADINGS
from collapsium.storage.runs.summary import SummaryRecord, read_summary
from collapsium.storage.units import Counting, silent
from collapsium.workers.ingest.normal_forms import form_of
from collapsium.workers.ingest.phrases import JOIN

if TYPE_CHECKING:
    import pandas as pd


LENGTH = 280  # Maximum length of a passage, in characters
BEFORE = 60  # Maximum number of characters before the first marked word
MAX_LETTERS = 1 << 20  # Characters of a document that are searched, to bound time

_SPACE = re.compile(r"\s+")

Snippet = list[str]
Form = Callable[[str], str]


def example_snippets(
    run: str | os.PathLike[str],
    summary: SummaryRecord,
    words: Mapping[int, Sequence[str]],
    names: Sequence[str],
    sources: Sequence[str],
    progress: Counting = silent,
) -> tuple[dict[tuple[int, int], Snippet], list[str]]:
    """Find a passage of each example document of each topic.

    Returns snippets: Parts of each passage, by topic and index of the example; every second part is a word to mark;
    notes: A sentence on examples without a text
    """
    place = {example.id: number for number, example in enumerate(summary.examples)}
    options, texts = texts_of(run, sources, place, progress)
    form = None if options.normalise is None else form_of(options.normalise)
    snippets: dict[tuple[int, int], Snippet] = {}
    strange: set[str] = set()
    for topic in summary.topics:
        for example in topic.examples:
            document = summary.examples[example.document]
            if document.id not in texts:
                continue
            example_words = [names[word] for word in example.words]
            weights = {**dict.fromkeys(words.get(topic.id, ()), 1.0), **dict.fromkeys(example_words, 2.0)}
            text = texts[document.id] if options.word_rule == FIRST_RULE else composed(texts[document.id])
            # A text without half of the example's words is another document with the same id.
            weighed = dict.fromkeys(example_words, 1.0)
            present = {word for _, _, word in _hits(text, weighed, form, options.word_rule)}
            if options.tokenizer is None and 2 * len(present) < len(weighed):
                strange.add(document.id)
            else:
                snippets[topic.id, example.document] = passage(text, weights, form, options.word_rule)
    missing = sorted(
        {example.id for example in summary.examples} - {summary.examples[number].id for _, number in snippets}
    )
    if not snippets and summary.examples:
        raise InputError(
            sources[0],
            f"expected the texts that were ingested; it has none of the example documents (such as {missing[0]!r})",
        )
    notes = []
    if missing:
        mismatch = f"; the texts of {len(strange):,} do not contain their words" if strange else ""
        notes.append(f"No text was found for {len(missing):,} example documents, such as {missing[0]!r}{mismatch}.")
    return snippets, notes


@contextmanager
def source_files(
    run: str | os.PathLike[str], texts: tuple[str, ...] | TextsInMemory | None
) -> Iterator[list[str] | None]:
    """Provide files of texts: those that are named, or a temporary one of texts in memory."""
    if not isinstance(texts, TextsInMemory):
        yield None if texts is None else list(texts)
        return
    history = recorded_reading(run).history
    options = ReadOptions() if history is None else history.options
    table = table_of(in_memory(texts.texts), {options.text or TEXT: "texts"}, [options.id or ID])
    with tempfile.TemporaryDirectory(prefix="collapsium-", ignore_cleanup_errors=True) as place:
        path = write_texts(table, place)
        with named_texts(path):
            yield [path]


def texts_of(
    run: str | os.PathLike[str], sources: Sequence[str], requested: Mapping[str, int], progress: Counting = silent
) -> tuple[ReadOptions, dict[str, str]]:
    """Read the texts of some documents, with the recorded options of reading."""
    recorded = recorded_reading(run)
    if recorded.holds != DOCUMENTS:
        raise OptionError(f"`texts` {sources[0]}: {os.fspath(run)} is on vectors, which have no texts")
    kinds = _kinds(sources, recorded.history)
    for number, kind in enumerate(kinds, start=1):
        try:
            options, texts = _texts_as(kind, recorded.history, sources, requested, progress)
        except InputError:
            if number == len(kinds):
                raise
            continue
        if texts or number == len(kinds):
            break
    return options, texts


def _kinds(sources: Sequence[str], history: History | None) -> list[str]:
    """Return formats that texts may have: the one their name implies, and the one in which the documents were read."""
    recorded = [history.kind] if history is not None and history.kind in TEXTS else []
    try:
        kind = guess_format(sources)
    except OptionError:
        if not recorded:
            raise
        return recorded
    if kind in TEXTS:
        return list(dict.fromkeys([kind, *recorded]))
    if not recorded:
        raise OptionError(f"`texts` {sources[0]}: expected texts ({', '.join(TEXTS)}), found the format {kind}")
    return recorded


def _texts_as(
    kind: str, history: History | None, sources: Sequence[str], requested: Mapping[str, int], progress: Counting
) -> tuple[ReadOptions, dict[str, str]]:
    """Read the texts of some documents from files of a format."""
    options = history_for(history, kind).options if history is not None and history.kind in TEXTS else ReadOptions()
    # Only ids and texts are read, and a regular expression of a record, which may be untrusted, is not run.
    rule = options.segments if options.segments is not None and not options.segments.startswith(HEADINGS) else None
    bare = ReadOptions(
        id=options.id, text=options.text, segments=rule, bad_bytes="replace", labels=FIXED.get(kind, ()),
        max_decompressed=options.max_decompressed, encoding=options.encoding, separator=options.separator,
        word_rule=options.word_rule,
    )  # fmt: skip
    texts: dict[str, str] = {}
    read = 0
    for ids, batch in _batches(list(sources), kind, fields_of(bare, kind), requested):
        bases: dict[str, list[str]] = {}
        for name in requested:
            if name not in texts:
                bases.setdefault(name, []).append(name)
                document, mark, last = name.rpartition("#")
                if mark and last.isdecimal() and len(last) < 10 and batch.segments is not None:
                    bases.setdefault(document, []).append(name)
        rows = pc.indices_nonzero(pc.is_in(ids, value_set=pa.array(list(bases), pa.string()))).to_pylist()
        starts = range(len(batch) + 1) if batch.segments is None else [0, *batch.segments.cumsum().tolist()]
        for row in rows:
            parts = batch.texts.slice(starts[row], starts[row + 1] - starts[row])
            base = ids[row].as_py()
            for name in bases[base]:
                number = 0 if name == base else int(name.rpartition("#")[2])
                if name == base:
                    texts[name] = " ".join(part[:MAX_LETTERS] for part in parts.to_pylist())[:MAX_LETTERS]
                elif 0 < number <= len(parts):
                    texts[name] = parts[number - 1].as_py()[:MAX_LETTERS]
        read += len(batch)
        progress(read)
        if len(texts) == len(requested):
            break
    return replace(options, segments=rule), texts


def _batches(
    sources: list[str], kind: str, options: ReadOptions, requested: Mapping[str, int]
) -> Iterator[tuple[pa.Array, Batch]]:
    """Read batches of documents, with ids as `ingest` and `append` give them."""
    files = find_files(sources, kind, kind_of_name)
    numbered = are_numbered(files, kind, options)
    paths = list(dict.fromkeys(file.path for file in files))
    heads = {path: f"{stem}/" for path, stem in zip(paths, distinct(paths), strict=True)}
    if len(paths) == 1 and not any(name.startswith(heads[paths[0]]) for name in requested):
        # Documents of a single source that was not appended have plain numbers.
        heads = {paths[0]: ""}
    so_far = dict.fromkeys(paths, 0)
    for block in cut_blocks(files, kind, options):
        for batch in read_batches(block, kind, options, numbered):
            if batch.ids is not None:
                yield batch.ids, batch
                continue
            names = []
            for path, count in batch.origins:
                names += [f"{heads[path]}{so_far[path] + n}" for n in range(1, count + 1)]
                so_far[path] += count
            yield pa.array(names, pa.string()), batch


def passage(text: str, weights: Mapping[str, float], form: Form | None = None, rule: int = RULE) -> Snippet:
    """Return the passage of a text with the largest total weight of some words."""
    text = plain(_SPACE.sub(" ", text[:MAX_LETTERS]).strip())
    hits = _hits(text, weights, form, rule)
    best, start, score, low = 0.0, 0, 0.0, 0
    counts: dict[str, int] = {}
    for number, (_, end, word) in enumerate(hits):
        score += weights[word] if not counts.get(word) else 0.05
        counts[word] = counts.get(word, 0) + 1
        while end - hits[low][0] > LENGTH - BEFORE and low < number:
            behind = hits[low][2]
            counts[behind] -= 1
            score -= weights[behind] if not counts[behind] else 0.05
            low += 1
        if score > best + 1e-9:
            best, start = score, hits[low][0]
    # A passage begins with a sentence or else a word, and ends after a word.
    begin, end = 0, len(text)
    if start > BEFORE:
        before = text[start - BEFORE : start]
        sentence, space = max(before.rfind(mark) for mark in (". ", "? ", "! ")), before.find(" ")
        after_space = start if space < 0 else start - BEFORE + space + 1
        begin = after_space if sentence < 0 else start - BEFORE + sentence + 2
    if end > begin + LENGTH:
        space = text.rfind(" ", begin + LENGTH // 2, begin + LENGTH)
        end = begin + LENGTH if space < 0 else space
    parts, at = ["… " if begin else ""], begin
    for first, last, _ in hits:
        if first >= at and last <= end:
            parts[-1] += text[at:first]
            parts += [text[first:last], ""]
            at = last
    parts[-1] += text[at:end].rstrip() + (" …" if end < len(text) else "")
    return parts


def _hits(text: str, weights: Mapping[str, float], form: Form | None, rule: int) -> list[tuple[int, int, str]]:
    """Return start, end and name of each occurrence of the words; the words of a phrase are separate occurrences."""
    hits: list[tuple[int, int, str]] = []
    firsts = {word.partition(JOIN)[0] for word in weights if JOIN in word}
    known = {*weights, *(part for word in weights for part in word.split(JOIN))}
    previous: tuple[int, int, str] | None = None
    searched = text if rule == FIRST_RULE else with_plain_apostrophes(text)
    for match in word_pattern(rule).finditer(searched):
        word = lower_case(match[1], rule)
        word = word if form is None or word in known else form(word)
        span = match.span(1)
        joined = "" if previous is None or previous[2] not in firsts else f"{previous[2]}{JOIN}{word}"
        if joined in weights and previous is not None:
            if not hits or hits[-1][:2] != previous[:2]:
                hits.append((previous[0], previous[1], joined))
            hits.append((*span, joined))
        elif word in weights:
            hits.append((*span, word))
        previous = (*span, word)
    return hits


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
        Number of documents per topic. The model stores 3; for more, all documents are read again.
    options : ExampleOptions
        Texts of the documents.

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
        There is no model with proportions, or `n` exceeds 3 and the training corpus no longer exists.
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
    with contextlib.closing(open_executor("threads", None)) as executor:
        return summary_of(model, require_training_corpus(model), executor, examples=max(n, EXAMPLES))
