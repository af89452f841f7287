"""Find the files and blocks of texts, number documents without ids, and report on the reading."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow.compute as pc

from collapsium.pipeline.corpora.passes import Counted
from collapsium.pipeline.executors.schedulers import Scheduler, is_elsewhere
from collapsium.storage.building.ingest_record import History, Report
from collapsium.storage.errors import InputError, near
from collapsium.storage.readers.base import distinct
from collapsium.storage.readers.open import kind_of_name
from collapsium.storage.readers.read_options import Guess, ReadOptions, distinct_guesses
from collapsium.storage.readers.side_files import Sides
from collapsium.storage.readers.texts.batches import are_numbered
from collapsium.storage.readers.texts.blocks import Block, absolute, chosen_files, cut_blocks
from collapsium.storage.readers.texts.fields import DAY_FIRST, DateTally, Fields
from collapsium.storage.readers.texts.lines import first_fields
from collapsium.storage.readers.texts.segment import LeftOut, Span
from collapsium.workers.ingest.tasks import ChunkRecord

# In texts that a segmenter has cut, few words have more than 4 characters in Chinese and Japanese, or 8 in scripts that
# write vowels as marks.
_UNSPACED_SCRIPT = r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]"
_SEVERAL_WORDS = r"[\p{Han}\p{Hiragana}\p{Katakana}]{5}|[\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]{9}"
MIN_UNSPACED_SHARE = 0.01  # Share of all tokens from which long ones are mentioned
MIN_LONG_SHARE = 0.25  # Share of long tokens among those of such scripts from which texts count as not cut into words


@dataclass(frozen=True)
class Sources:
    """Sources of texts before they are read."""

    paths: list[str]  # The user's paths
    files: list[Span]  # Their files
    name: str  # Their name in errors
    numbered: bool  # True if their documents have no ids
    left_out: tuple[LeftOut, ...] = ()  # Files of folders that are not read

    @property
    def bytes(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)

    def blocks(self, kind: str, options: ReadOptions) -> Iterator[Block]:
        """Cut the files into blocks."""
        return cut_blocks(self.files, kind, options)


def find_sources(paths: list[str], history: History, scheduler: Scheduler) -> Sources:
    """Find the files of sources."""
    files, left_out = chosen_files(paths, history.kind, kind_of_name)
    if is_elsewhere(scheduler):
        files = absolute(files)
    name = paths[0] if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more"
    return Sources(paths, files, name, are_numbered(files, history.kind, history.options), left_out)


def numberings_of(
    sources: Sources, notes: Sequence[ChunkRecord], tagged: bool
) -> list[tuple[tuple[str, int, int], ...]]:
    """Return numbers for documents without ids, which restart in each file and follow its name if there are several."""
    if not sources.numbered:
        return [()] * len(notes)
    paths = list(dict.fromkeys(file.path for file in sources.files))
    alone = len(paths) == 1 and not tagged
    heads = {path: "" if alone else f"{stem}/" for path, stem in zip(paths, distinct(paths), strict=True)}
    so_far = dict.fromkeys(paths, 1)
    numberings = []
    for note in notes:
        parts = []
        for path, count in note.origins:
            parts.append((heads[path], so_far[path], count))
            so_far[path] += count
        numberings.append(tuple(parts))
    return numberings


def report_of(
    sources: Sources, counted: Counted, history: History, sides: Sides | None, earlier: Sequence[Report] = ()
) -> Report:
    """Return the report on the first pass."""
    notes = counted.every
    date, dates = history.options.date, None
    # A field of dates that only a record names may be missing.
    if date is not None and (date not in history.options.optional or any(date in note.seen for note in notes)):
        dates = sum((note.dates for note in notes), DateTally())
    order = () if dates is None else _order_of(dates, sum((report.dates or DateTally() for report in earlier), dates))
    return Report(
        files=len({file.path for file in sources.files}),
        bytes=sources.bytes,
        documents=counted.documents,
        missing_text=sum(note.missing for note in notes),
        replaced_bytes=sum(note.replaced for note in notes),
        skipped_documents=sum(note.skipped for note in notes),
        source_words=len(counted.words),
        source_tokens=sum(note.tokens for note in notes),
        segments=sum(note.segments for note in notes),
        attachments=sum(note.attachments for note in notes),
        unspaced_tokens=0 if history.options.tokenizer is not None else unspaced_tokens(counted),
        left_out=sources.left_out,
        dates=dates,
        guesses=distinct_guesses(
            history.report.guesses, *(note.guesses for note in notes), () if sides is None else sides.guesses, order
        ),
    )


def unspaced_tokens(counted: Counted) -> int:
    """Return the number of tokens that are several words each, because their script has no spaces between words.

    Texts that a segmenter has cut have long words too, so tokens count only where at least a quarter of those in such
    scripts are long; a few foreign names in other texts do not count at all.
    """
    words, tokens = counted.spelled, counted.column("tokens")
    unspaced = np.asarray(pc.match_substring_regex(words, _UNSPACED_SCRIPT), dtype=bool)
    long = np.asarray(pc.match_substring_regex(words, _SEVERAL_WORDS), dtype=bool)
    of_long = int(tokens[long].sum())
    few = of_long < MIN_UNSPACED_SHARE * tokens.sum() or of_long < MIN_LONG_SHARE * tokens[unspaced].sum()
    return 0 if few else of_long


def unspaced_notice(report: Report, option: str) -> str | None:
    """Return a line for texts whose words are not separated by spaces; None for others."""
    if not report.unspaced_tokens:
        return None
    share = report.unspaced_tokens / max(report.source_tokens, 1)
    return (
        f"{report.unspaced_tokens:,} tokens ({share:.0%}) are whole phrases, because their script (such as Chinese, "
        f"Japanese, Thai, Lao or Khmer) has no spaces between words; {option} names a function that cuts them"
    )


def _order_of(dates: DateTally, every: DateTally) -> tuple[Guess, ...]:
    """Return the guess on the order of day and month, where it is needed and all dates of the corpus show one."""
    if not dates.ambiguous or not every.order:
        return ()
    example = every.day_first_example if every.order == DAY_FIRST else every.month_first_example
    return (Guess("order of days and months", f"{every.order} first, as {example!r} shows", "date_order"),)


def require_seen(sources: Sources, history: History, counted: Counted) -> None:
    """Refuse a field that no document has, as a misspelt name would make a corpus without labels."""
    if not counted.notes or history.kind in ("mallet", "text"):
        return
    side_fields = () if history.side_files is None else (*history.side_files.labels, *history.side_files.covariates)
    seen = frozenset().union(*(note.seen for note in counted.notes), (one.partition("=")[2] for one in side_fields))
    for field, flag in Fields.of(history.options).required.items():
        if flag not in ("id", "text") and field not in seen:
            known = first_fields(sources.files[0], history.options) if history.kind == "jsonl" else seen
            raise InputError(sources.name, f"no document has a field {field!r} (`{flag}`){near(field, known)}")
