"""Making corpora: ingesting files and splitting, as functions of a short surface."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, get_type_hints

from collapsium.pipeline.corpora.ingest_like import NewSources, ingest_like
from collapsium.pipeline.corpora.recorded_reading import RecordedReading, history_like, recorded_reading, vocabulary_of
from collapsium.pipeline.corpora.side_files import look_beside
from collapsium.pipeline.corpora.text_ingest import ingest_texts, phrasing_of
from collapsium.pipeline.executors.base import TLS
from collapsium.pipeline.keywords import checked_keywords, names_of, parameters_of, paths_of, require_kind
from collapsium.storage.building.flatten import flatten_corpus
from collapsium.storage.building.ingest import ingest as ingest_source
from collapsium.storage.building.ingest import ingest_vectors
from collapsium.storage.building.ingest_record import History
from collapsium.storage.building.label_split import split_labels
from collapsium.storage.building.split import Held, split_corpus, split_whole
from collapsium.storage.building.vocabulary_cuts import Cuts
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.corpus.manifest import Manifest
from collapsium.storage.errors import OptionError, suggestion
from collapsium.storage.io.folder import Folder
from collapsium.storage.io.transactions import ensure_free
from collapsium.storage.readers.open import TEXTS, ReadOptions, guess_format, open_source, open_vectors, settled_base
from collapsium.storage.readers.side_files.columns import Wanted
from collapsium.storage.readers.texts.stopwords import parse_stop_words
from collapsium.storage.units import Counting, parse_size, silent
from collapsium.workers.ingest.normal_forms import library_of

SEVERAL, SIZE = ("labels", "covariates", "stop_words"), "max_decompressed"
READ = ("stop_list", "normalised_by", "optional")  # what comes out of other options
READING = parameters_of((one.name, one.default) for one in fields(ReadOptions) if one.name not in READ)


def reading_options(given: Mapping[str, Any]) -> ReadOptions:
    """Check options of reading.

    Parameters
    ----------
    given : mapping of str to object
        By the names of `ReadOptions`; several names may be a string with commas between, and a size one with a unit.

    Returns
    -------
    ReadOptions
        The options.

    Raises
    ------
    OptionError
        An option is unknown, or of another type.
    """
    options, kinds = dict(given), get_type_hints(ReadOptions)
    for name, value in given.items():
        if name not in kinds:
            raise OptionError(f"unknown option {name!r}{suggestion(name, kinds)}")
        if name in SEVERAL:
            options[name] = getattr(ReadOptions, name) if value is None else names_of(value, name)
        elif name == SIZE and isinstance(value, str):
            options[name] = parse_size(value, SIZE)
        elif name == "vocabulary" and isinstance(value, os.PathLike):
            options[name] = os.fspath(value)
        elif name == "vocabulary" and isinstance(value, list) and all(isinstance(one, str) for one in value):
            options[name] = tuple(value)
        else:
            require_kind(name, value, kinds[name])
    return ReadOptions(**options)


@checked_keywords(READING)
def ingest(
    sources: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    corpus: str | os.PathLike[str],
    *,
    format: str | None = None,
    like: str | os.PathLike[str] | None = None,
    min_documents: int = 0,
    max_document_share: float = 1.0,
    max_words: int | None = None,
    phrases: str | None = None,
    phrase_count: int | None = None,
    phrase_threshold: float | None = None,
    shard_tokens: int | None = None,
    scheduler: str | None = None,
    workers: int | None = None,
    tls: TLS | None = None,
    label_files: str | Sequence[str] = (),
    label_names: str | Sequence[str] = (),
    progress: Counting = silent,
    **reading: Any,
) -> Manifest:
    """Read files of a format that corpora are distributed in, and write a corpus.

    Texts are read and tokenized on workers, and the corpus is the same for any number of them.

    Parameters
    ----------
    sources : path or sequence of paths
        Files or folders, of texts also globs, local or fsspec URLs.
    corpus : str or path-like
        Folder to make.
    format : str, optional
        ``uci``, ``ldac``, ``mtx``, ``npz``, ``svmlight``, ``vectors`` or, of texts, ``text``, ``jsonl``, ``csv``,
        ``parquet`` or ``mallet``; by default told from the first name.
    like : path, optional
        A corpus, a run or a model: documents get its vocabulary, and are read as its own were: tokenizer, phrases, stop
        words, segments, fields. Sources may be of another format, and lack the recorded titles, dates, labels and
        covariates. A function or a regular expression that the record names runs only if `tokenizer` or `segments`
        names it again. The report tells how many tokens are not in the vocabulary.
    min_documents : int, optional
        Drop words that fewer documents hold.
    max_document_share : float, optional
        Drop words that a larger share of the documents hold.
    max_words : int, optional
        Keep only so many words: those in most documents, then those with most tokens, then the first by spelling.
    phrases : str, optional
        Join words that often follow one another, by a score: ``npmi`` or ``count``.
    phrase_count : int, optional
        Times that a phrase must occur, by default 5.
    phrase_threshold : float, optional
        What a phrase's score must exceed, by default 0.5 for ``npmi`` and 10 for ``count``.
    shard_tokens : int, optional
        Tokens of a shard, or values of vectors; by default an eighth of the corpus, between 100,000 and 2,000,000.
    scheduler : str, optional
        Where texts are read: ``threads``, the default, ``local``, ``serial`` or a Dask scheduler's address.
    workers : int, optional
        How many workers.
    tls : TLS, optional
        Certificates for a cluster whose messages are encrypted.
    label_files : str or sequence of str, optional
        Side files of labels and covariates, each perhaps with a name for its field, ``author=doc_authors.txt``: a line
        a document in the order in which they are read, or, where the name ends as that of CSV, JSON lines or Parquet,
        records with the documents' ids, in any order. `labels` and `covariates` say which of their fields are what,
        and `id` that of the ids.
    label_names : str or sequence of str, optional
        Files with a name a line for labels of side files that are numbers from 1, ``author=authors.txt``.
    progress : callable, optional
        Told the number of documents read so far.
    **reading
        ``vocabulary`` (a file of words, one a line or a column of Parquet; a corpus, a run or a model, whose words are
        taken; or a list of words), ``id``, ``text``, ``title``, ``date``, ``labels``, ``covariates`` (lists of fields,
        or a string with commas between), ``stop_words`` (languages and files, in a string with commas or in a list),
        ``min_letters``, ``normalise`` (``stem:LANGUAGE`` or ``lemma:LANGUAGE``), ``tokenizer``, ``bad_bytes``, and
        ``max_decompressed``, the bytes that may come out of each compressed file, such as ``20GB`` (by default
        200 times its size, and at least 256 MB); ``segments``, what texts are cut into: ``paragraphs``,
        ``sentences``, ``lines``, ``headings:REGEX``, or ``column`` where the text is a list of strings (see
        `collapsium.storage.readers.texts.segment`); of SVMlight ``index_base``, the first index, 0 or 1
        (by default 0 where a file has it, for those that are added later too); of vectors
        ``labels``, ``values`` and ``header`` (see `collapsium.storage.readers.open.ReadOptions`).

    Returns
    -------
    Manifest
        What the corpus holds; `collapsium.storage.building.ingest_record.read_history` tells what was dropped.

    Raises
    ------
    CollapsiumError
        A source is missing or damaged, the folder exists, or an option is of another format. Nothing is left behind.
    """
    paths = [os.fspath(path) for path in ([sources] if isinstance(sources, (str, os.PathLike)) else sources)]
    if not paths:
        raise OptionError("expected at least one source")
    cuts = Cuts(min_documents, max_document_share, max_words)
    options = chosen_words(reading_options(reading))
    phrasing = phrasing_of(phrases, phrase_count, phrase_threshold)
    ensure_free(Folder(corpus))
    if isinstance(options.vocabulary, str):
        options = replace(options, vocabulary=vocabulary_of(options.vocabulary))
    wanted = Wanted(paths_of(label_files), paths_of(label_names))
    if like is not None:
        if cuts.wanted or phrasing is not None:
            raise OptionError(
                "min_documents, max_document_share, max_words and phrases: with like, words and phrases are the "
                "recorded ones"
            )
        where: dict[str, Any] = {"scheduler": scheduler, "workers": workers, "tls": tls}
        how = {"shard_tokens": shard_tokens, "progress": progress, **where}
        return _ingest_as(recorded_reading(like), paths, corpus, format, options, wanted, how)
    kind = format or guess_format(paths[0])
    sides, options, beside = look_beside(wanted, paths, kind, options)
    _require_own(kind, options, cuts, phrases)
    history = History(kind, options, cuts, phrasing=phrasing, beside=beside)
    how = {"shard_tokens": shard_tokens, "sides": sides, "progress": progress}
    if kind == "vectors":
        return ingest_vectors(open_vectors(paths, options), corpus, history=history, **how)
    history = replace(history, options=settled_base(paths, kind, options))
    if kind in TEXTS:
        return ingest_texts(paths, corpus, history, scheduler=scheduler, workers=workers, tls=tls, **how)
    source, history = open_source(paths, kind, history.options), replace(history, given=True)
    return ingest_source(source, corpus, cuts=cuts, history=history, **how)


def _ingest_as(
    recorded: RecordedReading,
    paths: list[str],
    corpus: str | os.PathLike[str],
    format: str | None,
    options: ReadOptions,
    wanted: Wanted,
    how: Mapping[str, Any],
) -> Manifest:
    """Read documents as a record says, and their side files."""
    said = {one.name: getattr(options, one.name) for one in fields(options)}
    history = history_like(recorded, paths, said, format)
    sides, own, beside = look_beside(wanted, paths, history.kind, history.options)
    history = replace(history, options=own, beside=beside)
    return ingest_like(recorded, NewSources(paths, format, said), corpus, history=history, sides=sides, **how)


def chosen_words(options: ReadOptions) -> ReadOptions:
    """Check which words are left out, and read the files of stop words.

    Parameters
    ----------
    options : ReadOptions
        As the user named them.

    Returns
    -------
    ReadOptions
        With languages and words apart, and the library that puts words in a normal form.

    Raises
    ------
    CollapsiumError
        There is no such language, file or normal form, or a library is not installed.
    """
    if options.min_letters is not None and options.min_letters < 1:
        raise OptionError(f"--min-letters: expected a whole number of 1 or more, found {options.min_letters!r}")
    languages, words = parse_stop_words(options.stop_words)
    library = None if options.normalise is None else library_of(options.normalise)
    return replace(options, stop_words=languages, stop_list=(*options.stop_list, *words), normalised_by=library)


def _require_own(kind: str, options: ReadOptions, cuts: Cuts, phrases: str | None) -> None:
    """Refuse what is said of vectors where documents are read, of texts where words are counted, and so on."""
    texts: dict[str, object] = {
        "--stop-words": options.stop_words,
        "--min-letters": options.min_letters,
        "--normalise": options.normalise,
        "--text": options.text,
        "--title": options.title,
        "--date": options.date,
        "--covariates": options.covariates,
        "--tokenizer": options.tokenizer,
        "--bad-bytes": options.bad_bytes,
        "--phrases": phrases,
        "--segments": options.segments,
    }
    words: dict[str, object] = {
        "--min-documents": cuts.min_documents,
        "--max-document-share": cuts.max_document_share < 1,
        "--max-words": cuts.max_words,
    }
    vectors: dict[str, object] = {"--values": options.values, "--header": options.header}
    if options.index_base is not None and kind != "svmlight":
        raise OptionError(f"--index-base: is of svmlight alone, found the format {kind}")
    if kind == "vectors":
        wrong, of = {**texts, **words}, "documents; vectors have no words"
    elif kind in TEXTS:
        wrong, of = vectors, "vectors alone (--format vectors)"
    else:
        wrong, of = vectors | {"--labels": options.labels}, "vectors alone (--format vectors)"
        counted = {flag: given for flag, given in texts.items() if flag != "--text"}
        said = next((flag for flag, given in counted.items() if given), None)
        if said is not None:
            raise OptionError(f"{said}: is of texts; documents of the format {kind} are counted already")
    for flag, given in wrong.items():
        if given:
            raise OptionError(f"{flag}: is of {of}")


@checked_keywords()
def split(
    corpus: str | os.PathLike[str],
    train: str | os.PathLike[str],
    heldout: str | os.PathLike[str],
    *,
    fraction: float | None = None,
    seed: int = 0,
    documents: bool = False,
    folds: int | None = None,
    fold: int | None = None,
    drop_labels: float | None = None,
    field: str | None = None,
    progress: Counting = silent,
) -> None:
    """Split tokens, whole documents, or labels alone into a training and a held-out corpus.

    Of tokens and of labels, both have the same documents.

    Vectors are split whole alone.

    Parameters
    ----------
    corpus : str or path-like
        What to split.
    train, heldout : str or path-like
        Folders to make.
    fraction : float, optional
        Each token's, or each document's, probability of being held out; by default 0.1.
    seed : int, optional
        Another seed is another split.
    documents : bool, optional
        Whether whole documents are held out.
    folds, fold : int, optional
        Hold out whole documents: those of `fold`, counted from 0, of so many folds.
    drop_labels : float, optional
        Each label's probability of being dropped. `train` has all documents with the labels that are left, `heldout`
        the same documents, with all of their tokens, with the labels that were dropped.
    field : str, optional
        Drop from this field of labels alone, or this covariate, which is missing then.
    progress : callable, optional
        Told the number of documents written so far.

    Raises
    ------
    CollapsiumError
        The corpus is damaged, an option out of range, or a folder exists. Nothing is left behind.
    """
    if drop_labels is not None:
        others = {"--documents": documents, "--fraction": fraction is not None, "--folds": folds is not None}
        other = next((flag for flag, said in others.items() if said), None)
        if other is not None:
            raise OptionError(f"{other}: is of documents and tokens; --drop-labels splits labels alone")
        opened = Corpus(corpus)
        opened.require_documents()
        split_labels(opened, train, heldout, share=drop_labels, field=field, seed=seed, progress=progress)
        return
    if field is not None:
        raise OptionError(f"--field {field}: is of labels; say --drop-labels too")
    if (folds is None) != (fold is None):
        raise OptionError("--folds and --fold belong together: in how many folds, and which is held out")
    if folds is not None and fraction is not None:
        raise OptionError(f"--fraction {fraction}: with --folds {folds}, a fold is held out")
    share, opened = 0.1 if fraction is None else fraction, Corpus(corpus)
    opened.require_tokens()
    if not documents and folds is None:
        split_corpus(opened, train, heldout, fraction=share, seed=seed, progress=progress)
        return
    held = Held.share(share) if folds is None or fold is None else Held.fold(folds, fold)
    split_whole(opened, train, heldout, held, seed=seed, progress=progress)


@checked_keywords()
def flatten(corpus: str | os.PathLike[str], out: str | os.PathLike[str], *, progress: Counting = silent) -> Manifest:
    """Make a corpus whose documents are the segments of another.

    Parameters
    ----------
    corpus : str or path-like
        Documents with segments, as `ingest` makes them (`segments`).
    out : str or path-like
        Folder to make. The segments of a document, those without a word too, have its id with ``#1``, ``#2`` and so on,
        its title, date, labels and covariates; the vocabulary and the shards stay.
    progress : callable, optional
        Told the number of documents read so far.

    Returns
    -------
    Manifest
        What the new corpus holds.

    Raises
    ------
    CollapsiumError
        The corpus is damaged or has no segments, or the folder exists. Nothing is left behind.
    """
    return flatten_corpus(Corpus(corpus), out, progress=progress)
