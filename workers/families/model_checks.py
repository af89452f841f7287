"""Check the arrays of models, checkpoints and local states by the fields of their family's states.

Arrays from disk pass `ModelChecks` before they are used.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from collapsium.storage.errors import DamagedError
from collapsium.workers.arrays.annotations import Sizes
from collapsium.workers.arrays.state import Arrays, CheckContext, LocalState, Rows
from collapsium.workers.families.document_entries import CountedTokens, Keys, document_pairs
from collapsium.workers.kernels.gibbs.consistency import FingerprintKeys, find_uncounted, fingerprint_rows

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Shard
    from collapsium.storage.corpus.vectors import AnyShard
    from collapsium.workers.families.family import AnyFamily


@dataclass(frozen=True)
class ModelChecks:
    """Checks of the arrays of one model or checkpoint, whose global state is sound."""

    model: AnyFamily  # The family
    global_state: Any  # The model's global state
    sizes: Sizes  # The sizes that its arrays bind

    @staticmethod
    def of(model: AnyFamily, words: int, global_arrays: Arrays, where: str, tokens: int | None = None) -> ModelChecks:
        """Check the global state of a model, and return the checks of its other arrays."""
        topics = model.options.model_dump().get("topics")
        sizes: Sizes = {"topic": topics} if isinstance(topics, int) else {}
        global_state = model.global_state_type.checked(global_arrays, CheckContext(sizes), where)
        if global_state.vocabulary != words:
            raise DamagedError(f"{where}/vocabulary", f"expected {words} words, found {global_state.vocabulary:g}")
        total = np.asarray(global_arrays.get("topic", 0))
        counted = float(total.sum(dtype=np.float64))
        if tokens is not None and total.dtype.kind == "i" and counted > tokens:
            raise DamagedError(
                f"{where}/topic", f"expected at most the {tokens} tokens of the corpus, found {counted:g}"
            )
        return ModelChecks(model, global_state, sizes)

    @property
    def counts_tokens(self) -> bool:
        """True if sweeps rely on rows that count each token of the local states."""
        return issubclass(self.model.local_type, CountedTokens)

    def rows(self, rows: Arrays, words: int, where: str, *, finished: bool) -> Rows:
        """Return the rows of a block of the vocabulary; refuse arrays that are not the family's."""
        checked: Rows = self.model.rows_type.checked(rows, self._known({"word": words}, finished=finished), where)
        return checked

    def local(self, local: Arrays, shard: AnyShard, where: str) -> None:
        """Refuse a local state that is not the family's, or not of this shard."""
        sizes = {"document": shard.documents}
        if not shard.of_vectors:
            sizes.update(pair=shard.pairs, token=shard.tokens)
        self.model.local_type.checked(local, self._known(sizes, shard), where)

    def documents(self, saved: Arrays, documents: int, where: str) -> LocalState:
        """Return a finished model's documents; refuse arrays that are not the family's, or of another number."""
        known = self._known({"document": documents}, finished=True)
        checked: LocalState = self.model.documents_type.checked(saved, known, where)
        return checked

    def tallies(self, local: Arrays, rows: Arrays, shard: AnyShard, where: str) -> None:
        """Refuse a local state whose tokens the rows and the global state do not count, where sweeps rely on it."""
        state = self.model.local_type.from_arrays(local)
        if not isinstance(state, CountedTokens) or shard.of_vectors:
            return
        totals, uncounted = np.array(self.global_state.topic, dtype=np.int64), np.zeros(1, dtype=np.int64)
        word_topic = np.array(rows["word_topic"], dtype=np.int32)
        column = np.ascontiguousarray(state.token_columns(shard))
        find_uncounted(document_pairs(shard), column, word_topic, totals, uncounted)
        if uncounted[0] >= 0:
            raise DamagedError(where, "expected tokens that the rows and the global state count")

    def token_fingerprint(self, local: Arrays, shard: Shard, seed: int) -> int:
        """Return the fingerprint of the tokens of a checked local state, by random keys of a seed."""
        words, columns = self._keys(seed)
        state = self.model.local_type.from_arrays(local)
        if not isinstance(state, CountedTokens):
            return 0
        return state.token_fingerprint(shard, words[shard.words], columns)

    def row_fingerprint(self, rows: Arrays, low: int, seed: int) -> tuple[int, npt.NDArray[np.int64]]:
        """Return the fingerprint of the counts of a block of the vocabulary, and the sums of its columns."""
        words, columns = self._keys(seed)
        totals, total = np.zeros(columns.size, dtype=np.int64), np.zeros(1, dtype=np.uint64)
        counts = np.ascontiguousarray(rows["word_topic"], dtype=np.int32)
        fingerprint_rows(counts, FingerprintKeys(words[low : low + len(counts)], columns), totals, total)
        return int(total[0]), totals

    def _keys(self, seed: int) -> tuple[Keys, Keys]:
        """Return the keys of all words, and of all columns."""
        return _random_keys(seed, int(self.global_state.vocabulary), self.global_state.topic.size)

    def _known(self, sizes: Sizes, shard: AnyShard | None = None, *, finished: bool = False) -> CheckContext:
        return CheckContext({**self.sizes, **sizes}, self.global_state, shard, finished)


@functools.lru_cache(maxsize=1)
def _random_keys(seed: int, words: int, columns: int) -> tuple[Keys, Keys]:
    """Return random keys of words and of columns; each block and each shard needs the keys of one seed."""
    generator = np.random.Generator(np.random.PCG64(seed))
    both = generator.integers(0, 1 << 64, words + columns, dtype=np.uint64)
    return both[:words], both[words:]
