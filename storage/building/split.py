"""Make corpora of a corpus: a training and a held-out part, by tokens, documents or labels, or one of its segments.

A token is held out by a hash of (seed, document, word, copy), a document by a hash of (seed, document), a label by a
hash of (seed, document, field, value), so that a split does not depend on the shards.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from collapsium.storage.building.ingest_record import inherit_history
from collapsium.storage.building.splitmix import GOLDEN, mixed
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.corpus.labels import SEGMENT_COLUMN, running
from collapsium.storage.corpus.lineage import Step, read_steps, write_part, write_parts
from collapsium.storage.corpus.list_columns import label_lists, rows_of, segment_bounds, segment_counts
from collapsium.storage.corpus.manifest import DOCUMENTS, Manifest, read_manifest
from collapsium.storage.corpus.shard import EXTRAS, Documents
from collapsium.storage.corpus.writer import CorpusWriter, VectorWriter
from collapsium.storage.data_types import JsonObject
from collapsium.storage.errors import CollapsiumError, InputError, MismatchError, OptionError, suggestion
from collapsium.storage.io.atomic import abandoned
from collapsium.storage.io.folder import Folder, created, ensure_free, unfinished
from collapsium.storage.units import Counting, silent


def finish_interrupted(train: Folder, heldout: Folder) -> bool:
    """Rename the second part of a split if a process died after it had renamed the first."""
    if not (train.local and heldout.local) or train.exists() == heldout.exists():
        return False
    present, missing = (train, heldout) if train.exists() else (heldout, train)
    with abandoned(Path(missing.path)) as places:
        for place in places:
            hidden = Folder(str(place))
            try:
                words = [read_manifest(part).vocabulary.words_sha256 for part in (present, hidden)]
                first, second = read_steps(present), read_steps(hidden)
            except CollapsiumError:  # it is incomplete
                continue
            if not first or not second or words[0] != words[1]:
                continue
            flipped = second[-1].model_copy(update={"heldout": not second[-1].heldout})
            if first == (*second[:-1], flipped):
                hidden.rename(missing)
                return True
    return False


_DOCUMENTS = np.uint64(0xD1B54A32D192ED03)  # Separates the random streams of documents and of their tokens
MAX_DRAWS = 1 << 20  # Tokens that are drawn at a time, to bound memory


class PartWriter(Protocol):
    """A `CorpusWriter` or `VectorWriter`, for documents or vectors of the same corpus."""

    def add(self, part: Any, /) -> None:
        """Add documents or vectors."""

    def finish(self, words: list[str], /) -> Manifest:
        """Write the vocabulary and the manifest."""


def held_out_counts(documents: Documents, first: int, fraction: float, seed: int) -> npt.NDArray[np.int32]:
    """Return how many tokens of each pair are held out."""
    owner = np.repeat(np.arange(first, first + len(documents), dtype=np.uint64), np.diff(documents.offsets))
    with np.errstate(over="ignore"):
        pair = mixed(np.uint64(seed % 2**64) + GOLDEN * (owner + np.uint64(1)))
        pair = mixed(pair + GOLDEN * (documents.words.astype(np.uint64) + np.uint64(1)))
        # A word that occurs in several segments of a document is several pairs; the position keeps them apart.
        if "segments" in documents.extras:
            start = np.repeat(documents.offsets[:-1], np.diff(documents.offsets))
            position = np.arange(documents.words.size) - start
            pair = mixed(pair + GOLDEN * (position.astype(np.uint64) + np.uint64(1)))
        counts = documents.counts.astype(np.int64)
        ends = np.cumsum(counts)
        starts, tokens = ends - counts, int(ends[-1]) if ends.size else 0
        held: npt.NDArray[np.int32] = np.zeros(counts.size, dtype=np.int32)
        # A document may have up to 2^31 - 1 tokens, so their draws are made a part at a time.
        for low in range(0, tokens, MAX_DRAWS):
            high = min(low + MAX_DRAWS, tokens)
            first_pair, last_pair = np.searchsorted(ends, [low, high - 1], side="right")
            pairs = slice(first_pair, last_pair + 1)
            drawn_of_pair = np.minimum(ends[pairs], high) - np.maximum(starts[pairs], low)
            copy = np.arange(low, high) - np.repeat(starts[pairs], drawn_of_pair)
            drawn = mixed(np.repeat(pair[pairs], drawn_of_pair) + GOLDEN * (copy.astype(np.uint64) + np.uint64(1)))
            chosen = (drawn >> np.uint64(11)).astype(np.float64) * 2.0**-53 < fraction
            place = np.repeat(np.arange(drawn_of_pair.size), drawn_of_pair)
            held[pairs] += np.bincount(place, weights=chosen, minlength=drawn_of_pair.size).astype(np.int32)
    return held


def document_draws(first: int, documents: int, seed: int) -> npt.NDArray[np.float64]:
    """Draw a uniform number for each document."""
    owner = np.arange(first, first + documents, dtype=np.uint64)
    with np.errstate(over="ignore"):
        drawn = mixed(mixed(np.uint64(seed % 2**64) + GOLDEN * (owner + np.uint64(1))) + _DOCUMENTS)
    draws: npt.NDArray[np.float64] = (drawn >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return draws


def split_documents(documents: Documents, first: int, fraction: float, seed: int) -> tuple[Documents, Documents]:
    """Split documents into training and held-out tokens, with the same ids."""
    held = held_out_counts(documents, first, fraction, seed)
    return documents.with_counts(documents.counts - held), documents.with_counts(held)


def split_corpus(
    corpus: Corpus,
    train: str | os.PathLike[str],
    heldout: str | os.PathLike[str],
    *,
    fraction: float = 0.1,
    seed: int = 0,
    progress: Counting = silent,
) -> None:
    """Split every document's tokens into a training and a held-out corpus.

    Both have all documents, the vocabulary and the shards of the corpus, so that their ids agree.
    """
    if corpus.holds != DOCUMENTS:
        raise OptionError(f"{corpus.url}: vectors have no tokens to split; hold out whole vectors (`documents`)")
    _require_share(fraction)
    words, written = corpus.vocabulary.words, 0
    with two_parts(corpus, train, heldout) as folders:
        writers = [CorpusWriter(folder, len(words)) for folder in folders]
        for reference in corpus.references:
            documents = reference.documents()
            for writer, part in zip(writers, split_documents(documents, written, fraction, seed), strict=True):
                writer.add_shard(part)
            written += len(documents)
            progress(written)
        write_parts(folders, corpus, Step(corpus=corpus.manifest.digest, kind="tokens", seed=seed, high=fraction))
        finish_parts(writers, (train, heldout), words)


def _require_share(fraction: float) -> None:
    if not 0 < fraction < 1:
        raise OptionError(f"expected a share between 0 and 1, found {fraction}", "fraction")


@contextmanager
def two_parts(
    corpus: Corpus, train: str | os.PathLike[str], heldout: str | os.PathLike[str]
) -> Iterator[tuple[Folder, Folder]]:
    """Provide two new folders: both are kept if no error is raised, otherwise neither.

    Both get the ingest record of the corpus. If an earlier process died between the renames of the two, the second is
    renamed first; then nothing changes if the split is the same.
    """
    targets = (Folder(train), Folder(heldout))
    for outer, inner in (targets, targets[::-1]):
        if f"{inner.address}/".startswith(f"{outer.address}/"):
            raise OptionError(f"{inner.url}: the training and the held-out part need two folders, side by side")
    finished = finish_interrupted(*targets)
    if not finished:
        for target in targets:
            ensure_free(target)
    with unfinished(targets[0]) as train_folder, unfinished(targets[1]) as held_folder:
        places = (train_folder, held_folder)
        yield places
        for place in places:
            inherit_history(corpus.folder, place, documents=read_manifest(place).documents)
        same = finished and all(
            read_manifest(place).digest == read_manifest(target).digest and read_steps(place) == read_steps(target)
            for place, target in zip(places, targets, strict=True)
        )
        if not same:
            _put_in_place(places, targets)


def _put_in_place(places: tuple[Folder, Folder], targets: tuple[Folder, Folder]) -> None:
    """Rename both parts to their names, or neither."""
    for place, target in zip(places, targets, strict=True):
        if place is not target:
            ensure_free(target)
    try:
        for place, target in zip(places, targets, strict=True):
            if place is not target:
                place.rename(target)
    except BaseException:
        for place, target in zip(places, targets, strict=True):
            if place is not target and not place.exists():
                try:
                    target.rename(place)
                except CollapsiumError:
                    target.remove()
        raise


def finish_parts(writers: Sequence[PartWriter], names: tuple[str | os.PathLike[str], ...], words: list[str]) -> None:
    """Finish the corpora of two writers; `InputError` names the folder of an empty one."""
    for writer, name in zip(writers, names, strict=True):
        try:
            writer.finish(words)
        except InputError as error:
            raise InputError(os.fspath(name), error.expected) from None


@dataclass(frozen=True)
class Held:
    """The held-out documents, as an interval of the uniform numbers drawn for each."""

    # Documents with numbers in [`low`, `high`) are held out
    low: float
    high: float

    @staticmethod
    def share(fraction: float) -> Held:
        """Hold out a share of the documents; `OptionError` if it is not in (0, 1)."""
        _require_share(fraction)
        return Held(0.0, fraction)

    @staticmethod
    def fold(folds: int, fold: int) -> Held:
        """Hold out one of several folds, counted from 0; `OptionError` if there is no such fold."""
        if folds < 2:
            raise OptionError(f"expected 2 or more, found {folds}", "folds")
        if not 0 <= fold < folds:
            raise OptionError(f"expected a number from 0 to {folds - 1}, found {fold}", "fold")
        return Held(fold / folds, (fold + 1) / folds)

    def among(self, draws: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
        """Return the mask of held-out documents, given their draws."""
        held: npt.NDArray[np.bool_] = (draws >= self.low) & (draws < self.high)
        return held


def split_corpus_documents(
    corpus: Corpus,
    train: str | os.PathLike[str],
    heldout: str | os.PathLike[str],
    held: Held,
    *,
    seed: int = 0,
    progress: Counting = silent,
) -> None:
    """Split the documents, or the vectors, of a corpus into a training and a held-out corpus.

    Both have the vocabulary, or the columns, of the corpus; their shards are about as large as its shards.
    """
    words, read = corpus.vocabulary.words, 0
    shard_tokens = max(row.tokens for row in corpus.manifest.shards)
    kind = CorpusWriter if corpus.holds == DOCUMENTS else VectorWriter
    with two_parts(corpus, train, heldout) as folders:
        writers: list[PartWriter] = [kind(folder, len(words), shard_tokens) for folder in folders]
        for reference in corpus.references:
            part = reference.documents() if corpus.holds == DOCUMENTS else reference.vectors()
            out = held.among(document_draws(read, len(part), seed))
            for writer, chosen in zip(writers, (~out, out), strict=True):
                writer.add(part.take(chosen))
            read += len(part)
            progress(read)
        step = Step(corpus=corpus.manifest.digest, kind="documents", seed=seed, low=held.low, high=held.high)
        write_parts(folders, corpus, step)
        finish_parts(writers, (train, heldout), words)


def sample_documents(
    corpus: Corpus, out: str | os.PathLike[str], share: float, *, shard_tokens: int | None = None, seed: int = 0
) -> None:
    """Write a random sample of the documents of a corpus, those that a split would hold out, as a corpus."""
    held, words, read = Held.share(share), corpus.vocabulary.words, 0
    with created(Folder(out)) as folder:
        writer = CorpusWriter(folder, len(words), shard_tokens)
        for reference in corpus.references:
            documents = reference.documents()
            writer.add(documents.take(held.among(document_draws(read, len(documents), seed))))
            read += len(documents)
        step = Step(corpus=corpus.manifest.digest, kind="documents", seed=seed, low=held.low, high=held.high)
        write_part(folder, corpus, step.model_copy(update={"heldout": True}))
        writer.finish(words)
        inherit_history(corpus.folder, folder, documents=read_manifest(folder).documents)


_LABELS = np.uint64(0x8CB92BA72F3D8DD7)  # Separates the random streams of labels, documents and tokens

NUMBER = "double"


def covariates_of(fields: Mapping[str, str]) -> list[str]:
    """Return the names of a corpus's covariates, sorted."""
    return sorted(name for name, kind in fields.items() if kind == NUMBER and name not in EXTRAS)


def label_summary(corpus: Corpus) -> JsonObject:
    """Summarise the labels of a corpus by field, and its covariates."""
    if "labels" not in corpus.manifest.fields and not covariates_of(corpus.manifest.fields):
        return {}
    values: dict[str, set[str]] = {}
    counts: dict[str, npt.NDArray[np.int64]] = {}
    numbers: dict[str, list[npt.NDArray[np.float64]]] = {}
    for reference in corpus.references:
        labels = reference.labels()
        for name, column in labels.numbers.items():
            numbers.setdefault(name, []).append(column[~np.isnan(column)])
        fields = np.array([name for name, _ in labels.names], dtype=object)
        owner = np.repeat(np.arange(labels.offsets.size - 1), np.diff(labels.offsets))
        for name in dict.fromkeys(fields):
            in_field = (fields == name)[labels.position]
            values.setdefault(name, set()).update(value for field, value in labels.names if field == name)
            more = np.array([in_field.sum(), np.unique(owner[in_field]).size], dtype=np.int64)
            counts[name] = counts[name] + more if name in counts else more
    result: JsonObject = {}
    if "labels" in corpus.manifest.fields:
        result["labels"] = {
            name: {"values": len(values[name]), "labels": int(counts[name][0]), "documents": int(counts[name][1])}
            for name in sorted(values)
        }
    if numbers:
        result["covariates"] = {}
    for name, parts in sorted(numbers.items()):
        known = np.concatenate(parts)
        least, most, mean = (float(known.min()), float(known.max()), float(known.mean())) if known.size else (None,) * 3
        result["covariates"][name] = {"documents": known.size, "least": least, "most": most, "mean": mean}
    return result


def label_draws(
    documents: npt.NDArray[np.int64], fields: list[str], values: list[str | None], seed: int
) -> npt.NDArray[np.float64]:
    """Draw a uniform number for each label."""
    known: dict[tuple[str, str | None], int] = {}
    codes = np.empty(len(fields), dtype=np.uint64)
    for place, label in enumerate(zip(fields, values, strict=True)):
        if label not in known:
            name, value = label[0].encode(), label[1]
            text = b"%d:%b" % (len(name), name) + (b"" if value is None else b"=" + value.encode())
            known[label] = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")
        codes[place] = known[label]
    with np.errstate(over="ignore"):
        drawn = mixed(np.uint64(seed % 2**64) + GOLDEN * (documents.astype(np.uint64) + np.uint64(1)))
        drawn = mixed(mixed(drawn + _LABELS) + GOLDEN * (codes + np.uint64(1)))
    draws: npt.NDArray[np.float64] = (drawn >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return draws


def part_columns(
    extras: Mapping[str, pa.Array], first: int, share: float, seed: int, field: str | None = None
) -> tuple[dict[str, pa.Array], dict[str, pa.Array], int]:
    """Divide the labels and covariates of documents into retained and dropped ones."""
    left, dropped, able = dict(extras), dict(extras), 0
    for name, column in extras.items():
        count = len(column)
        if name == "labels":
            rows = rows_of(column)
            in_field = np.array([field in (None, name) for name in rows.column("field").to_pylist()], dtype=bool)
            sides = [rows.column(side).to_pylist() for side in ("field", "value")]
            draws = label_draws(np.asarray(rows.column("document")) + first, sides[0], sides[1], seed)
            out = in_field & (draws < share)
            left[name], dropped[name] = (label_lists(rows.filter(pa.array(chosen)), count) for chosen in (~out, out))
            able += int(in_field.sum())
        elif name in covariates_of({name: str(column.type)}):
            drawn = label_draws(np.arange(first, first + count), [name] * count, [None] * count, seed) < share
            out = drawn & (name == field)
            missing = pa.scalar(None, column.type)
            left[name], dropped[name] = (pc.if_else(pa.array(chosen), column, missing) for chosen in (~out, out))
            able += (name == field) * (count - column.null_count)
    return left, dropped, able


def split_labels(
    corpus: Corpus,
    train: str | os.PathLike[str],
    heldout: str | os.PathLike[str],
    *,
    share: float,
    field: str | None = None,
    seed: int = 0,
    progress: Counting = silent,
) -> None:
    """Split the labels of documents into two corpora, which both have all documents, tokens and shards."""
    if not 0 < share <= 1:
        raise OptionError(f"expected a share above 0, and at most 1, found {share}", "drop_labels")
    words, written, able = corpus.vocabulary.words, 0, 0
    size = max(row.tokens for row in corpus.manifest.shards)
    with two_parts(corpus, train, heldout) as folders:
        kind = CorpusWriter if corpus.holds == DOCUMENTS else VectorWriter
        writers: list[PartWriter] = [kind(folder, len(words), size) for folder in folders]
        for reference in corpus.references:
            part = reference.documents() if corpus.holds == DOCUMENTS else reference.vectors()
            *sides, some = part_columns(part.extras, written, share, seed, field)
            for writer, extras in zip(writers, sides, strict=True):
                labelled = replace(part, extras=extras)
                if isinstance(writer, CorpusWriter) and isinstance(labelled, Documents):
                    writer.add_shard(labelled)
                else:
                    writer.add(labelled)
            able, written = able + some, written + len(part)
            progress(written)
        if not able:
            raise OptionError(_nothing(corpus, field))
        write_parts(folders, corpus, Step(corpus=corpus.manifest.digest, kind="labels", seed=seed, high=share))
        finish_parts(writers, (train, heldout), words)


def _nothing(corpus: Corpus, field: str | None) -> str:
    """Return the message that there is nothing to drop, with the fields of the corpus."""
    fields = label_summary(corpus)
    names = [*fields.get("labels", {}), *fields.get("covariates", {})]
    named = f"there are {', '.join(names[:12])}" if names else "`ingest` with `labels` gives some"
    if field is None:
        return f"`drop_labels`: {corpus.url} has no labels; " + (
            f"its covariates are dropped by name, `field` {names[0]}" if names else named
        )
    return f"`field` {field}: {corpus.url} has no labels or covariate of this name{suggestion(field, names)}; {named}"


def segment_summary(corpus: Corpus) -> JsonObject:
    """Count the segments of a corpus."""
    if SEGMENT_COLUMN not in corpus.manifest.fields:
        return {}
    count = empty = longest = 0
    for reference in corpus.references:
        column = reference.further()[SEGMENT_COLUMN]
        lengths = np.diff(segment_bounds(column))
        count, empty = count + lengths.size, empty + int((lengths == 0).sum())
        longest = max(longest, int(segment_counts(column).max(initial=0)))
    mean = count / max(corpus.manifest.documents, 1)
    return {"segments": {"count": count, "empty": empty, "mean": mean, "most": longest}}


def explode_corpus(corpus: Corpus, out: str | os.PathLike[str], *, progress: Counting = silent) -> Manifest:
    """Make a corpus whose documents are the segments of another.

    The shards and the vocabulary are kept, so that the two parts of a split again have the same documents. Document
    frequencies are counted anew.
    """
    corpus.require(DOCUMENTS, "explode")
    if SEGMENT_COLUMN not in corpus.manifest.fields:
        raise MismatchError(
            f"{corpus.url}: its documents have no segments; `ingest` with `segments` keeps the segments of texts"
        )
    ensure_free(Folder(out))
    words, read = corpus.vocabulary.words, 0
    with created(Folder(out)) as folder:
        writer = CorpusWriter(folder, len(words))
        for reference in corpus.references:
            documents = reference.documents()
            parts = exploded(documents)
            if len(parts):
                writer.add_shard(parts)
            read += len(documents)
            progress(read)
        write_part(folder, corpus, Step(corpus=corpus.manifest.digest, kind="segments"))
        try:
            manifest = writer.finish(words)
        except InputError as error:
            raise InputError(os.fspath(out), error.expected) from None
        inherit_history(corpus.folder, folder, documents=manifest.documents, exploded=True)
        return manifest


def exploded(documents: Documents) -> Documents:
    """Return the segments of documents as documents."""
    column = documents.extras[SEGMENT_COLUMN]
    counts, bounds = segment_counts(column), segment_bounds(column)
    owner = pa.array(np.repeat(np.arange(len(documents)), counts))
    number = np.arange(counts.sum()) - np.repeat(running(counts)[:-1], counts) + 1
    ids = pc.binary_join_element_wise(documents.ids.take(owner), pa.array(number).cast(pa.string()), "#")
    extras = {name: column.take(owner) for name, column in documents.extras.items() if name != SEGMENT_COLUMN}
    return Documents(ids, bounds, documents.words, documents.counts, extras)
