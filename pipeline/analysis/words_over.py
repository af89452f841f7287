"""Follow the words of topics over time, by a chain of Dirichlet distributions after a static fit.

With n_t the expected tokens of a topic's words in period t, the words of each period are drawn around the words of the
period before, rho_t ~ Dir(c rho_t-1), and n_t from rho_t. Tokens of later periods inform earlier ones by the tables r_t
of a Chinese restaurant franchise (Teh et al. 2006), with the expectation of collapsed inference (Teh, Kurihara and
Welling 2008):

    backwards  r_t = tables(n_t + r_t+1; c rho_t-1)
    forwards   rho_t ~ c rho_t-1 + n_t + r_t+1,   in the first period b + n_1 + r_2
    tables(m; g) = min(m, P+ g (psi(g + E+) - psi(g))),   P+ = 1 - exp(-m),   E+ = max(m / P+, 1)

Large strengths c hold the words constant. The one that predicts a topic's tokens of the last period best from the
periods before it is chosen; small last periods are joined by those before.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from collapsium.pipeline.analysis.effects import WORDS, RunSource, field_of_period, open_training
from collapsium.pipeline.analysis.group_words import expected_tokens, groups_of, is_topic, texts_of
from collapsium.pipeline.analysis.options import WordChainOptions
from collapsium.pipeline.executors.base import Executor, in_order
from collapsium.pipeline.executors.open import open_executor
from collapsium.pipeline.executors.schedulers import Scheduling
from collapsium.pipeline.fitted_model import load_blocks, require_pandas
from collapsium.pipeline.formatting import plain
from collapsium.pipeline.models.model import Model
from collapsium.pipeline.models.topics import topics as topics_of
from collapsium.pipeline.monitoring.progress import shows
from collapsium.pipeline.options import keywords
from collapsium.storage.corpus.shard import Shard
from collapsium.storage.errors import OptionError, near
from collapsium.storage.printable import ShortRepr
from collapsium.storage.units import Counting, silent
from collapsium.workers import special_functions as special
from collapsium.workers import tasks
from collapsium.workers.design import MISSING, Floats
from collapsium.workers.periods import EXPECTED, NAMES, is_period

if TYPE_CHECKING:
    import pandas as pd

STRENGTHS = (1e3, 3e3, 1e4, 3e4, 1e5, 3e5, 1e6)  # Choices of c, in tokens
PASSES = 5  # Backwards and forwards; more change next year's score on NIPS papers by less than 0.0001
FIRST = 0.01  # b, prior tokens of each word in the first period
PREDICTED = 0.05  # Share of a topic's tokens in the last periods that are predicted
MAX_PERIODS = 500
MAX_CELLS = 1 << 26  # Topics, periods and words, each with 16 bytes on the driver
CLEAR = 0.5  # Change in standard errors from which a word counts as rising or falling
SHOWN = 8  # Words of each period, and words that rise and fall, that are returned by default


@dataclass(frozen=True, repr=False)
class WordsOver(ShortRepr):
    """Words of topics by period.

    Attributes
    ----------
    topics : numpy.ndarray of int64, shape (topics,)
        Permanent ids of the topics.
    names : list of str
        Name or first words of each topic.
    period : str
        Width of the periods, or the field whose values they are.
    periods : list of str
        Names of the periods that have documents, in order.
    documents : numpy.ndarray of int64, shape (periods,)
        Number of documents of each period.
    words : list of str
        Words of the vocabulary.
    probability : numpy.ndarray of float64, shape (topics, periods, words)
        Probabilities of the words in each period, which sum to 1.
    tokens : numpy.ndarray of float64, shape (topics, periods, words)
        Expected tokens of the topics in each period.
    evidence : numpy.ndarray of float64, shape (topics, periods)
        Tokens on which the probabilities are based: the period's tokens, and contributions of its neighbours.
    strength : numpy.ndarray of float64, shape (topics,)
        Strength c of each chain in tokens; infinite where constant words predict the last period best.
    gain : numpy.ndarray of float64, shape (topics,)
        Gain of the chain over constant words in predicting the tokens of the last period from the earlier ones, in nats
        per token of the topic; NaN with two periods.
    """

    topics: npt.NDArray[np.int64]
    names: list[str]
    period: str
    periods: list[str]
    documents: npt.NDArray[np.int64]
    words: list[str]
    probability: Floats
    tokens: Floats
    evidence: Floats
    strength: Floats
    gain: Floats

    def change(self, row: int) -> Floats:
        """Return how clearly each word rises from the first to the last period: log ratios divided by their errors.

        The errors assume independent tokens, although a document repeats its words. So the values rank words, but are
        not a test.

        Parameters
        ----------
        row : int
            Number of the topic among `topics`.

        Returns
        -------
        numpy.ndarray of float64, shape (words,)
            Positive for words that rise.
        """
        first, last = self.probability[row, 0], self.probability[row, -1]
        variance = 1.0 / (first * self.evidence[row, 0]) + 1.0 / (last * self.evidence[row, -1])
        return np.asarray(np.log(last / first) / np.sqrt(variance), dtype=np.float64)

    def rising(self, row: int, count: int = SHOWN) -> list[int]:
        """Return the numbers of up to `count` words that rise most clearly in the topic of a row."""
        return _foremost(self.change(row), count)

    def falling(self, row: int, count: int = SHOWN) -> list[int]:
        """Return the numbers of up to `count` words that fall most clearly in the topic of a row."""
        return _foremost(-self.change(row), count)

    def records(self, count: int = SHOWN) -> list[dict[str, str | int | float]]:
        """Return the first `count` words by topic and period: topic, period, rank, word, probability and tokens."""
        rows: list[dict[str, str | int | float]] = []
        for row, topic in enumerate(self.topics.tolist()):
            for column, period in enumerate(self.periods):
                best = np.argsort(-self.probability[row, column], kind="stable")[:count].tolist()
                for rank, word in enumerate(best, start=1):
                    rows.append(
                        {
                            "topic": topic,
                            "period": period,
                            "rank": rank,
                            "word": self.words[word],
                            "probability": float(self.probability[row, column, word]),
                            "tokens": float(self.tokens[row, column, word]),
                        }
                    )
        return rows

    def changes(self, count: int = SHOWN) -> list[dict[str, str | int | float]]:
        """Return the words that rise and fall: topic, word, change, first, last, peak and tokens.

        Parameters
        ----------
        count : int, optional
            Words of each topic that rise, and as many that fall.

        Returns
        -------
        list of dict
            Rows by topic; words that rise most clearly first, words that fall most clearly last. `first` and `last` are
            probabilities, and `peak` is the period of the highest one.
        """
        rows: list[dict[str, str | int | float]] = []
        for row, topic in enumerate(self.topics.tolist()):
            change, probability = self.change(row), self.probability[row]
            rows += [
                {
                    "topic": topic,
                    "word": self.words[word],
                    "change": float(change[word]),
                    "first": float(probability[0, word]),
                    "last": float(probability[-1, word]),
                    "peak": self.periods[int(probability[:, word].argmax())],
                    "tokens": float(self.tokens[row, :, word].sum()),
                }
                for word in [*self.rising(row, count), *self.falling(row, count)[::-1]]
            ]
        return rows

    def frame(self, count: int = SHOWN) -> pd.DataFrame:
        """Return `records` as a pandas frame."""
        frame: pd.DataFrame = require_pandas().DataFrame(self.records(count))
        return frame

    def changes_frame(self, count: int = SHOWN) -> pd.DataFrame:
        """Return `changes` as a pandas frame."""
        frame: pd.DataFrame = require_pandas().DataFrame(self.changes(count))
        return frame


def _foremost(change: Floats, count: int) -> list[int]:
    order = np.argsort(-change, kind="stable")[:count].tolist()
    return [word for word in order if change[word] > CLEAR]


@shows("reading documents", "parts")
@keywords(options=WordChainOptions, scheduling=Scheduling)
def words_over(
    run: str | os.PathLike[str],
    topics: int | Iterable[int] | None = None,
    period: str = "year",
    *,
    options: WordChainOptions,
    scheduling: Scheduling,
    progress: Counting = silent,
) -> WordsOver:
    """Return the words of topics by period, and which words rise and fall.

    The topics come from the fit, which need not know of dates. A chain of Dirichlet distributions smooths the words
    of each period towards its neighbours; its strength is chosen by how well the last period is predicted.

    Parameters
    ----------
    run : str or path-like
        Folder of a run or a model.
    topics : int or iterable of int, optional
        Permanent ids of topics; by default all.
    period : str, optional
        A period of the date as for `shares_over`, such as ``decade`` or ``5 years``, or a field whose values in
        ascending order are the periods, such as a number.
    options : WordChainOptions
        Strength of the chain.

    Returns
    -------
    WordsOver
        Probabilities of the words in each period.

    Raises
    ------
    OptionError
        A topic or the field does not exist, no document has a date that is precise enough, or there is a single period.
    AbsentError
        There is no model with proportions, or no corpus.
    """
    field = field_of_period(period)
    model, corpus = open_training(run, options.corpus)
    names = {known.id: plain(known.title or " ".join(known.names)) for known in topics_of(model.folder.url, WORDS)}
    chosen = (
        sorted(names) if topics is None else list(dict.fromkeys(topics)) if isinstance(topics, Iterable) else [topics]
    )
    for topic in chosen:
        if not is_topic(topic, names):
            raise OptionError(f"{topic!r}: there is no such topic; expected ids, then the period", "topics")
    ids = np.array(chosen, dtype=np.int64)
    source = RunSource(model.folder.address, corpus.references, ids)
    with contextlib.closing(open_executor(**dict(scheduling))) as executor:
        documents = followed_periods(source, executor, period, len(model.vocabulary.words))
        periods = list(documents)
        words = [str(word) for word in model.vocabulary.words]
        blocks = load_blocks(model, executor)
        tokens = np.zeros((ids.size, len(periods), len(words)))
        submitted = (executor.submit(_tokens, source, part, field, periods, blocks) for part in range(source.parts))
        for done, (word_ids, sums) in enumerate(in_order(executor, submitted, 2 * executor.workers), start=1):
            tokens[:, :, word_ids] += sums
            progress(done)
    probability = np.empty_like(tokens)
    evidence, strength, gain = np.empty(tokens.shape[:2]), np.empty(ids.size), np.empty(ids.size)
    for row, counts in enumerate(tokens):
        strength[row], gain[row] = chosen_strength(counts) if options.strength is None else (options.strength, math.nan)
        probability[row], evidence[row] = chain(counts, strength[row])
    return WordsOver(
        ids, [names[topic] for topic in chosen], period, periods,
        np.array([*documents.values()], dtype=np.int64), words, probability, tokens, evidence, strength, gain,
    )  # fmt: skip


def followed_periods(source: RunSource, executor: Executor, period: str, words: int) -> dict[str, int]:
    """Return the periods, in order, over which words of the source's topics can be followed, with their documents."""
    try:
        documents = groups_of(source, executor, field_of_period(period), "period")
    except OptionError as error:
        hint = "" if is_period(period) else f"; periods are {EXPECTED}{near(str(period), NAMES)}"
        raise OptionError(f"{error.message}{hint}", error.parameter) from None
    documents.pop(MISSING, None)
    if not 1 < len(documents) <= MAX_PERIODS:
        raise OptionError(
            f"{period!r} gives {len(documents):,} periods with documents; expected 2 to {MAX_PERIODS}", "period"
        )
    if source.topics.size * len(documents) * words > MAX_CELLS:
        raise OptionError(
            f"{source.topics.size:,} topics, {len(documents):,} periods and {words:,} words are too many at once; "
            "expected fewer topics",
            "topics",
        )
    return {name: documents[name] for name in sorted(documents, key=_order)}


def _order(name: str) -> tuple[float, str]:
    """Order numbers by their values, and names of periods as texts."""
    try:
        return float(name), name
    except ValueError:
        return math.inf, name


def _tokens(
    source: RunSource, part: int, field: str, periods: Sequence[str], blocks: list[tasks.Block]
) -> tuple[npt.NDArray[np.int32], Floats]:
    """Return a shard's words, and the expected tokens by topic, period and word."""
    model = Model(source.url)
    shard = Shard.of(part, source.references[part].documents())
    place = {period: number for number, period in enumerate(periods)}
    # Documents without a period go to one that is dropped.
    group = np.array([place.get(text, len(periods)) for text in texts_of(source, part, field, shard.documents)], int)
    cells = (len(periods) + 1) * shard.words.size
    sums = np.zeros((cells, source.topics.size))
    for document, position, tokens in expected_tokens(model, source, part, shard, blocks):
        cell = group[document] * shard.words.size + position
        order = np.argsort(cell, kind="stable")
        known, starts = np.unique(cell[order], return_index=True)
        sums[known] += np.add.reduceat(tokens[order], starts, axis=0)
    by_period = sums.reshape(len(periods) + 1, shard.words.size, source.topics.size)[:-1]
    return shard.words, np.ascontiguousarray(by_period.transpose(2, 0, 1))


def chain(counts: Floats, strength: float) -> tuple[Floats, Floats]:
    """Return the probabilities of words by period, and the tokens that they rest on.

    The counts belong to one topic, (periods, words).
    """
    first = np.full(counts.shape[1], FIRST)
    if math.isinf(strength):
        y = first + counts.sum(axis=0)
        return np.tile(y / y.sum(), (len(counts), 1)), np.full(len(counts), y.sum())
    y = first + counts.sum(axis=0)
    rho = np.tile(y / y.sum(), (len(counts), 1))
    evidence = np.empty(len(counts))
    for _ in range(PASSES):
        later = np.zeros(counts.shape)  # r_t+1
        for period in range(len(counts) - 1, 0, -1):
            later[period - 1] = tables(counts[period] + later[period], strength * rho[period - 1])
        for period in range(len(counts)):
            y = (strength * rho[period - 1] if period else first) + counts[period] + later[period]
            evidence[period] = y.sum()
            rho[period] = y / evidence[period]
    return rho, evidence


def tables(counts: Floats, prior: Floats) -> Floats:
    """Return the expected tables of tokens under a prior, whose number is zero with probability exp(-counts)."""
    some = -np.expm1(-counts)
    positive = np.maximum(counts / np.maximum(some, 1e-300), 1.0)
    expected = some * prior * (special.digamma(prior + positive) - special.digamma(prior))
    return np.minimum(counts, np.asarray(expected, dtype=np.float64))


def chosen_strength(counts: Floats) -> tuple[float, float]:
    """Return the strength that predicts a topic's last periods best, and its gain over constant words per token.

    Each of the last periods, as many as have `PREDICTED` of the tokens, is predicted from the periods before it.
    """
    tokens = counts.sum(axis=1)
    enough = np.flatnonzero(tokens[::-1].cumsum()[::-1] >= PREDICTED * tokens.sum())
    predicted = range(max(int(enough[-1]), 2), len(counts))
    total = float(tokens[predicted.start :].sum())
    if total <= 0.0:
        # With a single period, all strengths predict the same.
        return STRENGTHS[len(STRENGTHS) // 2], math.nan
    scores = {
        strength: sum(float(counts[period] @ np.log(chain(counts[:period], strength)[0][-1])) for period in predicted)
        / total
        for strength in (*STRENGTHS, math.inf)
    }
    best = max(scores, key=lambda strength: scores[strength])
    return best, scores[best] - scores[math.inf]
