"""Check folders on disk: digests of all files, and invariants of their contents."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from collapsium.pipeline.engine.setup.request import fingerprint
from collapsium.pipeline.engine.state import recorded_sample, tokens_of_sample
from collapsium.pipeline.models.model import Model
from collapsium.pipeline.models.registry import load_family
from collapsium.pipeline.options import keywords
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.corpus.lineage import read_steps
from collapsium.storage.corpus.list_columns import segment_bounds
from collapsium.storage.corpus.manifest import MANIFEST, VECTORS
from collapsium.storage.corpus.shard import Documents, Shard, merge_segments
from collapsium.storage.corpus.vectors import AnyShard
from collapsium.storage.corpus.vocabulary import words_digest
from collapsium.storage.data_types import AnyArray, JsonObject
from collapsium.storage.errors import AbsentError, CollapsiumError, MismatchError
from collapsium.storage.io.arrays import check_arrays
from collapsium.storage.io.folder import Folder, recorded_url
from collapsium.storage.io.parquet import BoundedFile
from collapsium.storage.printable import ShortRepr
from collapsium.storage.runs import summary, topic_names
from collapsium.storage.runs.checkpoint import RECORD as CHECKPOINT_RECORD
from collapsium.storage.runs.checkpoint import Checkpoint
from collapsium.storage.runs.comparison import (
    PARTS,
    REWRITE_HINT,
    SERIES_FILE,
    TABLE,
    cells_done,
    record_of,
    row_of,
    runs_there,
)
from collapsium.storage.runs.comparison import RECORD as COMPARISON_RECORD
from collapsium.storage.runs.members import mean_folder, member_seed, restarts_in, samples_in
from collapsium.storage.runs.model import RECORD as MODEL_RECORD
from collapsium.storage.runs.run import CHECKPOINTS, DONE, EVENTS, MEMBERS, Run
from collapsium.storage.runs.run import RECORD as RUN_RECORD
from collapsium.storage.units import Counting, silent
from collapsium.workers import tasks
from collapsium.workers.arrays.delta import Delta
from collapsium.workers.families.family import Stochastic
from collapsium.workers.shard_loading import DocumentSample, document_parts

Counts = npt.NDArray[np.int64]


def corpus_faults(folder: Folder) -> Iterator[str]:
    """Yield the faults of a corpus."""
    try:
        corpus = Corpus(folder.url)
        read_steps(folder)
    except CollapsiumError as error:
        yield str(error)
        return
    if corpus.holds == VECTORS:
        yield from _vectors(corpus)
        return
    words = corpus.manifest.vocabulary.words
    documents, tokens = np.zeros(words, dtype=np.int64), np.zeros(words, dtype=np.int64)
    complete = True
    for reference in corpus.references:
        try:
            part = reference.documents()
        except CollapsiumError as error:
            complete = False
            yield str(error)
            continue
        merged = merge_segments(part)
        documents += np.bincount(merged.words, minlength=words)
        np.add.at(tokens, merged.words, merged.counts)
        yield _shard_fault(f"{folder.url}/{reference.record.file}", part, merged, reference.record.ids_sha256)
    yield from _vocabulary(corpus, documents if complete else None, tokens)


def _vocabulary(corpus: Corpus, documents: Counts | None, tokens: Counts) -> Iterator[str]:
    """Yield the faults of the vocabulary, from the counts of words in the shards."""
    path = f"{corpus.folder.url}/{corpus.manifest.vocabulary.file}"
    try:
        vocabulary = corpus.vocabulary
    except CollapsiumError as error:
        yield str(error)
        return
    same = words_digest(vocabulary.words) == corpus.manifest.vocabulary.words_sha256
    yield "" if same else f"{path}: the words do not have the digest of the manifest"
    if documents is None:
        return
    if not (np.array_equal(vocabulary.documents, documents) and np.array_equal(vocabulary.tokens, tokens)):
        yield f"{path}: the words' numbers of documents and tokens differ from the shards'"


def _vectors(corpus: Corpus) -> Iterator[str]:
    """Yield the faults of a corpus of vectors."""
    manifest, dense = corpus.manifest, corpus.manifest.vectors
    words = manifest.vocabulary.words
    smallest, largest, complete = np.full(words, np.inf), np.full(words, -np.inf), True
    for reference in corpus.references:
        try:
            part = reference.vectors()
        except CollapsiumError as error:
            complete = False
            yield str(error)
            continue
        smallest, largest = np.minimum(smallest, part.values.min(axis=0)), np.maximum(largest, part.values.max(axis=0))
        same = part.ids_sha256() == reference.record.ids_sha256
        path = f"{corpus.folder.url}/{reference.record.file}"
        yield "" if same else f"{path}: the vectors' ids do not have the digest of the manifest"
    if complete and dense is not None and tuple(np.flatnonzero(smallest == largest)) != dense.constant:
        yield f"{corpus.folder.url}/{MANIFEST}: the constant columns differ from the vectors'"
    every = np.full(words, manifest.documents, dtype=np.int64)
    yield from _vocabulary(corpus, every, every)


def _shard_fault(path: str, part: Documents, merged: Documents, ids: str) -> str:
    if part.ids_sha256() != ids:
        return f"{path}: the documents' ids do not have the digest of the manifest"
    starts = np.zeros(merged.words.size + 1, dtype=bool)
    starts[merged.offsets] = True
    if merged.words.size and not (np.diff(merged.words) > 0)[~starts[1:-1]].all():
        return f"{path}: expected each word once in a document or segment, in ascending order"
    if "segments" in part.extras:
        starts = np.zeros(part.words.size + 1, dtype=bool)
        starts[segment_bounds(part.extras["segments"])] = True
        if part.words.size and not (np.diff(part.words) > 0)[~starts[1:-1]].all():
            return f"{path}: expected each word once in a segment, in ascending order"
    return ""


# Relative error of counts, and absolute error of probabilities, that sums in single precision may have
TOLERANCE = 1e-3
# Documents of each shard whose word probabilities are summed, and the maximum number of these probabilities
SAMPLE, MAX_CELLS = 5, 2_000_000


@dataclass(repr=False)
class Findings(ShortRepr):
    """Result of a check.

    Attributes
    ----------
    kind : str
        ``corpus``, ``run``, ``comparison``, ``checkpoint`` or ``model``.
    broken : list of str
        A line for each fault, beginning with the file; empty if there is none.
    parts : int
        Number of shards, groups of arrays and records that were read.
    notes : list of str
        Lines on what could not be checked, and why.
    """

    kind: str
    broken: list[str] = field(default_factory=list)
    parts: int = 0
    notes: list[str] = field(default_factory=list)


@keywords()
def verify(path: str | os.PathLike[str], *, progress: Counting = silent) -> Findings:
    """Check a corpus, a run, a comparison, a checkpoint or a model against its digests and invariants.

    Every file must match its digest. In a corpus, documents, pairs, tokens and the vocabulary's counts must add up, and
    vectors must be finite. In a model and in each checkpoint, the expected counts of each document and of each word
    must add up to its tokens, and probabilities must sum to one. A run is checked with its record and its events, and a
    comparison with all its runs, the records of its cells, and the corpora that it has split off.

    Parameters
    ----------
    path : str or path-like
        The folder.
    progress : callable, optional
        Called with the number of parts read so far.

    Returns
    -------
    Findings
        The faults, and notes on what could not be checked.

    Raises
    ------
    AbsentError
        The folder does not exist, or is of another kind.
    """
    folder = Folder(path)
    if not folder.exists():
        raise AbsentError(f"{folder.url}: no such folder")
    for name, kind, check in (
        (MANIFEST, "corpus", _corpus),
        (RUN_RECORD, "run", _run),
        (COMPARISON_RECORD, "comparison", _comparison),
        (CHECKPOINT_RECORD, "checkpoint", _model),
        (MODEL_RECORD, "model", _model),
    ):
        if folder.exists(name):
            findings = Findings(kind)
            for fault in check(folder, findings):
                if fault:
                    findings.broken.append(fault)
                findings.parts += 1
                progress(findings.parts)
            return findings
    raise AbsentError(
        f"{folder.url}: expected a corpus, run, comparison or model; it has no {MANIFEST}, {RUN_RECORD}, "
        f"{COMPARISON_RECORD} or {MODEL_RECORD}"
    )


def _corpus(folder: Folder, findings: Findings) -> Iterator[str]:
    """Yield a line for each faulty part of a corpus, and an empty text for each other part."""
    yield from corpus_faults(folder)
    if folder.exists(f"truth/{MODEL_RECORD}"):
        yield from _model(folder / "truth", findings)


def _run(folder: Folder, findings: Findings) -> Iterator[str]:
    run = Run(folder.url)
    try:
        record = run.record()
        expected = fingerprint(record)
    except (CollapsiumError, KeyError, TypeError) as error:
        yield str(error) if isinstance(error, CollapsiumError) else f"{folder.url}/{RUN_RECORD}: expected {error}"
        return
    yield from _events(run)
    iterations, broken = run.checkpoints.candidates()
    yield from broken
    # A driver that died may have been about to remove it.
    findings.notes += [
        f"{text}: the file is missing; a later checkpoint stands" for text in run.checkpoints.unfinished()
    ]
    for iteration in iterations:
        place = run.checkpoints.at(iteration)
        try:
            checkpoint = place.record()
        except CollapsiumError as error:
            yield str(error)
            continue
        if checkpoint.run != expected:
            yield f"{place.folder.url}: it is not of the model that run.json describes"
            continue
        for folder_of_events in (run.folder, place.folder):
            yield _events_fault(folder_of_events, *checkpoint.events)
        yield from _model(place.folder, findings)
    if run.model.exists(MODEL_RECORD):
        yield from _model(run.model, findings)
    elif run.model.exists():
        yield f"{run.model.url}/{MODEL_RECORD}: the file is missing"
    yield from _members(run, record, findings)


def _comparison(folder: Folder, findings: Findings) -> Iterator[str]:
    """Yield the faults of a comparison; runs of unfinished experiments need not have a model."""
    try:
        record_of(folder)
    except CollapsiumError as error:
        yield str(error)
    for name in cells_done(folder):
        try:
            row_of(folder, name)
        except CollapsiumError as error:
            yield str(error)
    for name in filter(folder.exists, (TABLE, SERIES_FILE)):
        try:
            BoundedFile(io.BytesIO(folder.read(name))).table(["cell"])
        except (CollapsiumError, pa.ArrowException, OSError, ValueError, KeyError) as error:
            yield f"{folder.url}/{name}: {str(error).splitlines()[0]}{REWRITE_HINT}"
    for part in filter(folder.exists, PARTS):
        yield from _corpus(folder / part, findings)
    for run in runs_there(folder):
        yield from _run(run.folder, findings)


def _members(run: Run, record: JsonObject, findings: Findings) -> Iterator[str]:
    """Yield the faults of a run's members: restarts, which are runs, or saved samples, which are models."""
    ended = any(event.get("event") == "end" and event.get("reason") in DONE for event in run.events()[-1:])
    for number, member in restarts_in(run):
        if member.exists():
            yield from _run(member.folder, findings)
            with contextlib.suppress(CollapsiumError):  # said already
                same = member.record().get("seed") == member_seed(record["seed"], number)
                yield "" if same else f"{member.folder.url}/{RUN_RECORD}: it is not member {number} of the ensemble"
        if ended and not member.model.exists(MODEL_RECORD):
            yield f"{member.model.url}/{MODEL_RECORD}: the file is missing"
    for place in samples_in(run):
        if place.exists(MODEL_RECORD):
            yield from _model(place, findings)
        elif ended or place.exists():
            yield f"{place.url}/{MODEL_RECORD}: the file is missing"
    if mean_folder(run).exists(MODEL_RECORD):
        yield from _model(mean_folder(run), findings)


def _events_fault(folder: Folder, size: int, digest: str) -> str:
    """Return the fault of the events that a checkpoint refers to, in the folder of the run or of the checkpoint."""
    if not folder.exists(EVENTS):
        return f"{folder.url}/{EVENTS}: the file is missing" if size else ""
    matches = hashlib.sha256(folder.read(EVENTS)[:size]).hexdigest() == digest
    return "" if matches else f"{folder.url}/{EVENTS}: the bytes do not have their digest; the file is damaged"


def _events(run: Run) -> Iterator[str]:
    fault = run.events_fault()
    if fault is not None:
        yield fault
        return
    recorded = [event.get("iteration") for event in run.events() if event["event"] == "iteration"]
    numbers = [number for number in recorded if isinstance(number, int)]
    steps = numbers == recorded and all(later == earlier + 1 for earlier, later in pairwise(numbers))
    yield "" if steps else f"{run.folder.url}/{EVENTS}: expected iterations one after another"


def _model(folder: Folder, findings: Findings) -> Iterator[str]:
    """Yield the faults of a model or a checkpoint."""
    try:
        model = Model(folder.url)
        complete = not model.record.members  # the parts of a mean belong to other models
        if not complete:
            model.fitted  # noqa: B018 - opens the members, of which one may have been fitted further
    except CollapsiumError as error:
        # The corpus of a checkpoint may have moved or changed; its files are checked at least.
        if not folder.exists(CHECKPOINT_RECORD) or not isinstance(error, (AbsentError, MismatchError)):
            yield str(error)
            return
        findings.notes.append(f"{error}; only digests were checked")
        yield from _parts_of_checkpoint(folder)
        return
    if not folder.exists(CHECKPOINT_RECORD):
        try:
            yield "" if len(model.vocabulary) == model.record.vocabulary.words else f"{folder.url}: too few words"
        except CollapsiumError as error:
            yield str(error)
    for part, digest in sorted(model.record.parts.items()):
        place = part if not folder.exists(CHECKPOINT_RECORD) else part.replace("documents/", "local_states/")
        faults = check_arrays(folder / place, digest)
        complete = complete and not faults
        yield from faults or [""]
    try:
        topic_names.read_names(model.folder, model.record)
        if summary.read_summary(model.folder, model.record) is None and model.record.summarised:
            yield f"{model.folder.url}/{summary.RECORD}: the file is missing"
        yield ""
    except CollapsiumError as error:
        yield str(error)
    if complete:
        try:
            yield from _invariants(model, findings)
        except CollapsiumError as error:
            yield str(error)
        except (KeyError, ValueError, IndexError) as error:  # arrays of other names or shapes than the family's
            yield f"{folder.url}: expected the arrays of family '{model.record.family}' ({error!r})"


def _parts_of_checkpoint(folder: Folder) -> Iterator[str]:
    place = Checkpoint(folder)
    try:
        parts = place.record().parts
    except CollapsiumError as error:
        yield str(error)
        return
    for part, digest in sorted(parts.items()):
        yield from place.check(part, digest) or [""]


def _invariants(model: Model, findings: Findings) -> Iterator[str]:
    """Yield violated invariants of a model: conservation of counts, and probabilities that sum to one."""
    url = model.folder.url
    blocks = [tasks.Block(low, high, model.rows(number), Delta()) for number, (low, high) in enumerate(model.blocks)]
    for number, block in enumerate(blocks):
        sound = all(np.isfinite(values).all() for values in block.rows.to_arrays().values() if values.dtype.kind == "f")
        rows = next(iter(block.rows.to_arrays().values())).shape[:1] == (block.high - block.low,)
        yield "" if sound and rows else f"{url}/rows/{number:05d}: expected a finite number for each word and topic"
    corpus, sample = _corpus_of(model, findings)
    family = model.family
    stochastic = isinstance(family, Stochastic) and family.is_stochastic(model.global_state)
    # The mean weight of a word's tokens is known of all documents, not of a sample.
    known = sample is None or not model.record.options.get("weights")
    if corpus is not None and known and not stochastic and corpus.holds != VECTORS:
        total, counted, tokens = 0.0, 0, tokens_of_sample(corpus, sample)
        for number, block in enumerate(blocks):
            if (expected := model.family.word_tokens(block.rows)) is None:
                continue
            true = tokens[block.low : block.high]
            total, counted = total + float(expected.sum()), counted + int(true.sum())
            wrong = _off(expected, true, model)
            word = int(np.argmax(wrong))
            fault = f"word {block.low + word} has {true[word]} tokens, over its topics {expected[word]:.3f}"
            yield f"{url}/rows/{number:05d}: expected counts are not conserved: {fault}" if wrong.any() else ""
        if counted and abs(total - (counted - _waiting(model))) > TOLERANCE * counted:
            fault = f"{counted - _waiting(model):.0f} tokens count, over the topics {total:.3f}"
            yield f"{url}: expected counts are not conserved: {fault}"
    if not model.fitted:
        return
    for number in range(len(model.record.shards)):
        shard = None
        if corpus is not None:
            design = model.family.design(model.global_state)
            loaded = corpus.references[number].load(**document_parts(model.family, design))
            local = model.local_arrays(number)
            if local is not None:
                model.check_local(local, loaded, f"{url}/local_states/{number:05d}")
            shard = loaded if sample is None else sample.of(loaded)
        yield _document_fault(model, blocks, number, shard)


def _corpus_of(model: Model, findings: Findings) -> tuple[Corpus | None, DocumentSample | None]:
    """Open the training corpus that the run names, to compare counts, and return the sample of it that counts."""
    deep = model.folder.address.rsplit("/", 2)[1] in (CHECKPOINTS, MEMBERS)
    run = Run(model.folder.address.rsplit("/", 2 if deep else 1)[0])
    try:
        corpus = Corpus(recorded_url(run.folder, run.record()["corpus"]["url"]))
    except CollapsiumError as error:
        findings.notes.append(f"{model.folder.url}: counts were not compared with a corpus ({error})")
        return None, None
    if corpus.manifest.digest == model.record.corpus:
        return corpus, recorded_sample(run.record(), model.record.iterations)
    findings.notes.append(f"{corpus.url}: is no longer the corpus of {run.folder.address}; counts were not compared")
    return None, None


def _waiting(model: Model) -> float:
    """Return the number of tokens that are not counted yet: none in a run that has ended."""
    return model.family.uncounted_tokens(model.global_state)


def _off(expected: npt.NDArray[np.float64], true: AnyArray, model: Model) -> npt.NDArray[np.bool_]:
    """Return where expected counts differ from the tokens or, while tokens are uncounted, exceed them."""
    apart = expected - true
    off: npt.NDArray[np.bool_] = (apart if _waiting(model) > 0 else np.abs(apart)) > TOLERANCE * np.maximum(true, 1)
    return off


def _document_fault(model: Model, blocks: list[tasks.Block], number: int, shard: AnyShard | None) -> str:
    """Return the fault of a shard's document states, or an empty text."""
    family, local = model.family, model.local_state(number)
    path, documents = f"{model.folder.url}: documents/{number:05d}", model.record.shards[number].documents
    theta = family.infer(local, model.global_state)["document_topic"]
    if theta.shape[0] != documents:
        return f"{path}: expected {documents} documents, found {theta.shape[0]}"
    if not (np.isfinite(theta).all() and (theta >= 0).all() and (theta.sum(axis=1) < 1 + TOLERANCE).all()):
        return f"{path}: expected proportions that sum to one at most"
    if load_family(model.record.family).corpus_kind == VECTORS:
        if shard is None:
            return ""
        rows = tasks.gather(blocks, shard.words, complete=True)
        error = model.family.predict(shard, local, rows, model.global_state)["error"]
        if error.shape == (shard.documents,) and np.isfinite(error).all() and (error >= 0).all():
            return ""
        return f"{path}: expected an error of 0 or more of each vector's reconstruction"
    if isinstance(shard, Shard):
        tokens = family.document_lengths(local)
        lengths = family.weighed(shard, tasks.gather(blocks, shard.words, complete=True)).weighted_lengths
        wrong = _off(tokens, lengths, model)
        if wrong.any():
            at = int(np.argmax(wrong))
            fault = f"document {at} has {lengths[at]:.10g} tokens, over its topics {tokens[at]:.3f}"
            return f"{path}: expected counts are not conserved: {fault}"
    words = blocks[-1].high
    some = min(SAMPLE, documents, max(MAX_CELLS // words, 1))
    offsets = np.minimum(np.arange(documents + 1, dtype=np.int64), some) * words
    every = np.arange(words, dtype=np.int32)
    probe = Shard(0, offsets, every, np.tile(every, some), np.ones(some * words, dtype=np.int32))
    if not probe.pairs:
        return ""
    rows = tasks.gather(blocks, every, complete=True)
    table: dict[str, AnyArray] = dict(model.family.predict(probe, local, rows, model.global_state))
    sums = table["probability"].reshape(some, words).sum(axis=1)
    furthest = sums[np.argmax(np.abs(sums - 1.0))]
    if abs(furthest - 1.0) < TOLERANCE:
        return ""
    return f"{path}: expected the words' probabilities to sum to one, found {furthest:.6f}"
