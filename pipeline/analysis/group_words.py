"""Compare the words that groups of documents use for a topic, by log-odds with errors.

With n_dkw the expected tokens of word w and topic k in document d, y_jw = n_jkw + 500 phi_kw and Y_j = sum_w y_jw, the
log-odds of two groups are the difference of log y / (Y - y) (Monroe, Colaresi and Quinn 2008). As a document repeats
its words, their variance is summed over documents:

    sum_j max( 500 phi / y_j^2, (1/y_j + 1/(Y_j - y_j))^2 sum_{d in j} (n_dkw - n_dk n_jkw / n_jk)^2 )
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from collapsium.pipeline.analysis.effects import WORDS, RunSource, open_training
from collapsium.pipeline.analysis.infer import THETA
from collapsium.pipeline.analysis.options import GroupWordOptions
from collapsium.pipeline.executors.base import Executor, in_order
from collapsium.pipeline.executors.open import open_executor
from collapsium.pipeline.executors.schedulers import Scheduling
from collapsium.pipeline.fitted_model import load_blocks, require_pandas
from collapsium.pipeline.formatting import plain
from collapsium.pipeline.models.model import Model
from collapsium.pipeline.models.topics import mean_weights, topics
from collapsium.pipeline.monitoring.progress import shows
from collapsium.pipeline.options import keywords
from collapsium.storage.corpus.shard import Shard
from collapsium.storage.errors import OptionError, near
from collapsium.storage.printable import ShortRepr
from collapsium.storage.units import Counting, silent
from collapsium.workers import tasks
from collapsium.workers.design import DATE, MISSING, FieldCounts, Floats, count_values, level_text, split_values

if TYPE_CHECKING:
    import pandas as pd

PRIOR_TOKENS = 500.0  # Tokens by which the topic's own distribution weighs in each group
MAX_GROUPS = 50  # Groups, each of which has three sums for each word
PAIRS = 1 << 14  # Pairs of document and word whose arrays by topic are in memory at once
SHOWN = 10  # Words of each group that are returned as rows by default


@dataclass(frozen=True, repr=False)
class GroupWords(ShortRepr):
    """Words of a topic that groups of documents use more, or less, than other documents do.

    Attributes
    ----------
    topic : int
        Permanent id of the topic.
    name : str
        Name or first words of the topic.
    field : str
        Field whose values are the groups.
    groups : list of str
        What is compared, such as ``R - D``, or ``R`` for a group against all other documents.
    words : list of str
        Words of the vocabulary.
    log_odds, se : numpy.ndarray of float64, shape (groups, words)
        Differences of log-odds, positive for words of the first group, and their standard errors.
    tokens : numpy.ndarray of float64, shape (groups, words)
        Expected tokens of the topic in the first group.
    documents : dict
        Number of documents of each group.
    """

    topic: int
    name: str
    field: str
    groups: list[str]
    words: list[str]
    log_odds: Floats
    se: Floats
    tokens: Floats
    documents: dict[str, int]

    @property
    def z(self) -> Floats:
        """Log-odds divided by their standard errors."""
        return self.log_odds / self.se

    def foremost(self, row: int, count: int = SHOWN) -> list[int]:
        """Return the columns of the `count` words with the largest z-values of a group, in descending order."""
        return [int(word) for word in np.argsort(-self.z[row], kind="stable")[:count]]

    def records(self, count: int = SHOWN) -> list[dict[str, str | float]]:
        """Return rows of words: group, word, log_odds, se, z and tokens.

        Parameters
        ----------
        count : int, optional
            Words of each group. A difference of two groups has as many words for the second group.

        Returns
        -------
        list of dict
            Words in descending order of their z-values.
        """
        rows: list[dict[str, str | float]] = []
        for row, group in enumerate(self.groups):
            chosen = self.foremost(row, count)
            if " - " in group:
                last = np.argsort(self.z[row], kind="stable")[:count][::-1].tolist()
                chosen += [word for word in last if word not in chosen]
            for word in chosen:
                log_odds, se = float(self.log_odds[row, word]), float(self.se[row, word])
                rows.append(
                    {
                        "group": group,
                        "word": self.words[word],
                        "log_odds": log_odds,
                        "se": se,
                        "z": log_odds / se,
                        "tokens": float(self.tokens[row, word]),
                    }
                )
        return rows

    def frame(self, count: int = SHOWN) -> pd.DataFrame:
        """Return `records` as a pandas frame."""
        frame: pd.DataFrame = require_pandas().DataFrame(self.records(count))
        return frame


def is_topic(topic: object, known: Container[int]) -> bool:
    """Return True for the id of a topic; truth values and fractions would index arrays otherwise than ids do."""
    return isinstance(topic, (int, np.integer)) and not isinstance(topic, bool) and topic in known


@shows("reading documents", "parts")
@keywords(options=GroupWordOptions, scheduling=Scheduling)
def words_by(
    run: str | os.PathLike[str],
    topic: int,
    field: str,
    *,
    options: GroupWordOptions,
    scheduling: Scheduling,
    progress: Counting = silent,
) -> GroupWords:
    """Compare the words that groups of documents use for a topic.

    Parameters
    ----------
    run : str or path-like
        Folder of a run or a model.
    topic : int
        Permanent id of the topic.
    field : str
        Labels, or numbers of few values; ``date:decade`` and other periods are fields too. Documents without a value
        are a group of their own.
    options : GroupWordOptions
        Groups that are compared.

    Returns
    -------
    GroupWords
        Log-odds of all words, with errors: of each group against all other documents, or of one group against another.

    Raises
    ------
    OptionError
        The topic, the field or a group does not exist, or there are too many groups.
    AbsentError
        There is no model with proportions, or no corpus.
    """
    if not isinstance(field, str):
        raise OptionError(f"expected the name of a field, found {field!r}", "field")
    model, corpus = open_training(run, options.corpus)
    names = {known.id: plain(known.title or " ".join(known.names)) for known in topics(model.folder.url, WORDS)}
    if not is_topic(topic, names):
        raise OptionError(f"{topic}: there is no such topic", "topic")
    source = RunSource(model.folder.address, corpus.references, np.array([topic]))
    with contextlib.closing(open_executor(**dict(scheduling))) as executor:
        documents = compared_groups(source, executor, field)
        groups = list(documents)
        blocks = load_blocks(model, executor)
        sums, squares = np.zeros((3, len(groups), len(model.vocabulary.words))), np.zeros(len(groups))
        submitted = (executor.submit(_sums, source, part, field, groups, blocks) for part in range(source.parts))
        for done, part in enumerate(in_order(executor, submitted, 2 * executor.workers), start=1):
            words, part_sums, part_squares = part
            sums[:, :, words] += part_sums
            squares += part_squares
            progress(done)
    pairs = _compared(groups, options.contrast)
    probability = np.concatenate(
        [
            np.asarray(model.family.probabilities(model.rows(block), model.global_state)["word_topic"])[:, topic]
            for block in range(len(model.blocks))
        ]
    )
    weights = mean_weights(model)
    if weights is not None:
        # The counts are of plain tokens.
        probability = probability / weights
        probability /= probability.sum()
    prior = PRIOR_TOKENS * np.maximum(probability, 1e-12)
    log_odds, se, tokens = [], [], []
    for _, sides in pairs:
        odds, variances = [], []
        for side in sides:
            counts, counts_squared, products = sums[:, side].sum(axis=1)
            y = counts + prior
            rest = y.sum() - y
            rate = counts / max(float(counts.sum()), 1e-300)
            spread = np.maximum(counts_squared - 2.0 * rate * products + rate**2 * float(squares[side].sum()), 0.0)
            odds.append(np.log(y / rest))
            variances.append(np.maximum(prior / y**2, (1.0 / y + 1.0 / rest) ** 2 * spread))
        log_odds.append(odds[0] - odds[1])
        se.append(np.sqrt(variances[0] + variances[1]))
        tokens.append(sums[0, sides[0]].sum(axis=0))
    vocabulary = [str(word) for word in model.vocabulary.words]
    compared = [name for name, _ in pairs]
    return GroupWords(
        topic, names[topic], field, compared, vocabulary, np.stack(log_odds), np.stack(se), np.stack(tokens), documents
    )


def _counted(source: RunSource, part: int, field: str) -> tuple[FieldCounts | None, int, set[str]]:
    """Return the values of a field, the number of documents that are not empty, and the names of all fields."""
    fields, occupied, known = source.fields(part, [field])
    values = count_values(fields[field][occupied]) if field in fields else None
    return values, int(occupied.sum()), known


def compared_groups(source: RunSource, executor: Executor, field: str) -> dict[str, int]:
    """Return the groups of a field whose words can be compared, with the documents of each."""
    documents = groups_of(source, executor, field, "field")
    if not 1 < len(documents) <= MAX_GROUPS:
        raise OptionError(f"{field!r} has {len(documents):,} values; expected 2 to {MAX_GROUPS} groups", "field")
    return documents


def groups_of(source: RunSource, executor: Executor, field: str, option: str) -> dict[str, int]:
    """Return the values of the field that an option names with the documents of each, the most frequent first."""
    parts = executor.collect([executor.submit(_counted, source, part, field) for part in range(source.parts)])
    known = {name for _, _, names in parts for name in names}
    if field not in known and not (field.startswith(f"{DATE}:") and DATE in known):
        name = DATE if field.startswith(f"{DATE}:") else field
        raise OptionError(
            f"no field {name!r}{near(name, known)}; the documents have: {', '.join(sorted(known)) or 'none'}", option
        )
    documents: dict[str, int] = {}
    for values, count, _ in parts:
        texts = [] if values is None else [level_text(value) for value in values.values.tolist()]
        numbers = [] if values is None else values.counts.tolist()
        for text, number in zip([*texts, MISSING], [*numbers, count - sum(numbers)], strict=True):
            if number:
                documents[text] = documents.get(text, 0) + number
    return {group: documents[group] for group in sorted(documents, key=lambda group: (-documents[group], group))}


def _compared(groups: Sequence[str], contrast: Sequence[str] | None) -> list[tuple[str, tuple[list[int], list[int]]]]:
    """Return what is compared: names, and the groups of both sides."""
    everything = range(len(groups))
    if not contrast:
        return [
            (group, ([place], [opposite for opposite in everything if opposite != place]))
            for place, group in enumerate(groups)
        ]
    if any(group not in groups for group in contrast):
        contrast = split_values(",".join(contrast), groups)
    if len(contrast) != 2 or contrast[0] == contrast[1]:
        raise OptionError(f"expected two groups, such as R,D for R minus D; found {','.join(contrast)}", "contrast")
    for group in contrast:
        if group not in groups:
            raise OptionError(f"no document has the value {group!r}{near(group, groups)}", "contrast")
    first, second = contrast
    return [(f"{first} - {second}", ([groups.index(first)], [groups.index(second)]))]


def _sums(
    source: RunSource, part: int, field: str, groups: Sequence[str], blocks: list[tasks.Block]
) -> tuple[npt.NDArray[np.int32], Floats, Floats]:
    """Return a shard's words, and sums over the documents of each group.

    They are sums of n_dkw, n_dkw^2 and n_dk n_dkw by group and word, and of n_dk^2 by group.
    """
    model = Model(source.url)
    shard = Shard.of(part, source.references[part].documents())
    document = np.repeat(np.arange(shard.documents), np.diff(shard.offsets))
    chunks = [chunk[:, 0] for _, _, chunk in expected_tokens(model, source, part, shard, blocks)]
    tokens = np.concatenate([np.zeros(0), *chunks])
    place = {group: number for number, group in enumerate(groups)}
    # Documents without words may have values that no other document has.
    group = np.array([place.get(text, 0) for text in texts_of(source, part, field, shard.documents)], dtype=np.int64)
    of_document = np.bincount(document, weights=tokens, minlength=shard.documents)
    cell = group[document] * shard.words.size + shard.position
    shape = len(groups), shard.words.size
    weights = (tokens, tokens**2, of_document[document] * tokens)
    sums = np.stack(
        [np.bincount(cell, weights=weight, minlength=shape[0] * shape[1]).reshape(shape) for weight in weights]
    )
    squares = np.bincount(group, weights=of_document**2, minlength=len(groups))
    return shard.words, sums.astype(np.float64), squares.astype(np.float64)


def expected_tokens(
    model: Model, source: RunSource, part: int, shard: Shard, blocks: list[tasks.Block]
) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.int32], Floats]]:
    """Yield documents, words and expected tokens of the source's topics for the pairs of a shard."""
    theta = np.asarray(model.family.infer(model.local_state(part), model.global_state)[THETA], dtype=np.float64)
    rows = tasks.gather(blocks, shard.words, complete=True)
    phi = np.asarray(model.family.probabilities(rows, model.global_state)["word_topic"], dtype=np.float64)
    document = np.repeat(np.arange(shard.documents), np.diff(shard.offsets))
    for first in range(0, shard.pairs, PAIRS):
        chosen = slice(first, first + PAIRS)
        joint = theta[document[chosen]] * phi[shard.position[chosen]]
        shares = joint[:, source.topics] / np.maximum(joint.sum(axis=1), 1e-300)[:, np.newaxis]
        yield document[chosen], shard.position[chosen], shard.counts[chosen][:, np.newaxis] * shares


def texts_of(source: RunSource, part: int, field: str, documents: int) -> list[str]:
    """Return the values of a field in a shard's documents as texts."""
    fields, _, _ = source.fields(part, [field])
    values = fields[field].tolist() if field in fields else [None] * documents
    return [MISSING if value is None or value != value else level_text(value) for value in values]
