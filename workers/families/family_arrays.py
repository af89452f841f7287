"""Check the arrays of models, checkpoints and local states by the declarations of their family.

Each family declares its arrays (`Family.arrays`). Arrays from disk pass `ModelChecks` before they are used.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import numpy.typing as npt

from collapsium.storage.errors import DamagedError
from collapsium.workers.arrays.array_fields import CheckContext, Keys, Sizes, check_arrays
from collapsium.workers.arrays.state import Arrays
from collapsium.workers.families.document_pairs import document_pairs
from collapsium.workers.families.family import AnyFamily
from collapsium.workers.kernels.gibbs.consistency import FingerprintKeys, find_uncounted, fingerprint_rows

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Shard
    from collapsium.storage.corpus.vectors import AnyShard


FloatT = TypeVar("FloatT", np.float32, np.float64)


def proportions_and_topics(
    warm: Arrays, words: int, dtype: type[FloatT]
) -> tuple[npt.NDArray[FloatT], npt.NDArray[FloatT]]:
    """Return the proportions of a shard's documents, and the probabilities of its words, from which a fit begins."""
    theta = np.ascontiguousarray(warm["document_topic"], dtype=dtype)
    if "word_topic" not in warm:
        return theta, np.ones((words, theta.shape[1]), dtype=dtype)
    return theta, np.ascontiguousarray(warm["word_topic"], dtype=dtype)


@dataclass(frozen=True)
class ModelChecks:
    """Checks of the arrays of one model or checkpoint, whose global state is sound."""

    model: AnyFamily  # The family
    global_state: Arrays  # The model's global state
    sizes: Sizes  # The sizes that they bind

    @staticmethod
    def of(model: AnyFamily, words: int, global_state: Arrays, where: str, tokens: int | None = None) -> ModelChecks:
        """Check the global state of a model, and return the checks of its other arrays."""
        topics = model.options.model_dump().get("topics")
        sizes: Sizes = {"topic": topics} if isinstance(topics, int) else {}
        check_arrays(global_state, model.arrays.global_state, CheckContext(sizes), where)
        if global_state["vocabulary"] != words:
            raise DamagedError(f"{where}/vocabulary", f"expected {words} words, found {global_state['vocabulary']:g}")
        total = np.asarray(global_state.get("topic", 0))
        counted = float(total.sum(dtype=np.float64))
        if tokens is not None and total.dtype.kind == "i" and counted > tokens:
            raise DamagedError(
                f"{where}/topic", f"expected at most the {tokens} tokens of the corpus, found {counted:g}"
            )
        return ModelChecks(model, global_state, sizes)

    def rows(self, rows: Arrays, words: int, where: str, *, finished: bool) -> None:
        """Refuse the rows of a block of the vocabulary that are not the family's."""
        declared = self.model.arrays
        group = (declared.rows if finished else declared.blocks)(self.global_state)
        check_arrays(rows, group, self._known(word=words), where)

    def local(self, local: Arrays, shard: AnyShard, where: str) -> None:
        """Refuse a local state that is not the family's, or not of this shard."""
        sizes = {"document": shard.documents}
        if not shard.of_vectors:
            sizes.update(pair=shard.pairs, token=shard.tokens)
        group = self.model.arrays.local(self.global_state)
        check_arrays(local, group, self._known(shard, **sizes), where)

    def tallies(self, local: Arrays, rows: Arrays, shard: AnyShard, where: str) -> None:
        """Refuse a local state whose tokens the rows and the global state do not count, where sweeps rely on it."""
        declared = self.model.arrays
        if declared.tokens is None or shard.of_vectors:
            return
        totals, uncounted = np.array(self.global_state["topic"], dtype=np.int64), np.zeros(1, dtype=np.int64)
        word_topic = np.array(rows["word_topic"], dtype=np.int32)
        column = np.ascontiguousarray(declared.tokens.columns(local, shard))
        find_uncounted(document_pairs(shard), column, word_topic, totals, uncounted)
        if uncounted[0] >= 0:
            raise DamagedError(where, "expected tokens that the rows and the global state count")

    def columns(self, local: Arrays, where: str) -> None:
        """Refuse a local state that names columns more often than the global state counts them; see `FamilyArrays`."""
        if self.model.arrays.totals is None:
            return
        name, other = self.model.arrays.totals
        passed = np.asarray(local[other])
        counted = np.bincount(passed[passed >= 0], minlength=self.global_state[name].size)
        if (self.global_state[name] < counted).any():
            raise DamagedError(where, f"expected what '{name}' of the global state counts in '{other}'")

    def token_fingerprint(self, local: Arrays, shard: Shard, seed: int) -> int:
        """Return the fingerprint of the tokens of a checked local state, by random keys of a seed."""
        words, columns = self._keys(seed)
        tokens = self.model.arrays.tokens
        return 0 if tokens is None else tokens.fingerprint(local, shard, words[shard.words], columns)

    def row_fingerprint(self, rows: Arrays, low: int, seed: int) -> tuple[int, npt.NDArray[np.int64]]:
        """Return the fingerprint of the counts of a block of the vocabulary, and the sums of its columns."""
        words, columns = self._keys(seed)
        totals, total = np.zeros(columns.size, dtype=np.int64), np.zeros(1, dtype=np.uint64)
        counts = np.ascontiguousarray(rows["word_topic"], dtype=np.int32)
        fingerprint_rows(counts, FingerprintKeys(words[low : low + len(counts)], columns), totals, total)
        return int(total[0]), totals

    def _keys(self, seed: int) -> tuple[Keys, Keys]:
        """Return the keys of all words, and of all columns."""
        return _random_keys(seed, int(self.global_state["vocabulary"]), self.global_state["topic"].size)

    def documents(self, saved: Arrays, documents: int, where: str) -> None:
        """Refuse a finished model's documents that are not the family's, or of another number."""
        group = self.model.arrays.local(self.global_state).only(self.model.documents_type.array_names())
        check_arrays(saved, group, self._known(document=documents), where)

    def _known(self, shard: AnyShard | None = None, **sizes: int) -> CheckContext:
        return CheckContext({**self.sizes, **sizes}, self.global_state, shard)


@functools.lru_cache(maxsize=1)
def _random_keys(seed: int, words: int, columns: int) -> tuple[Keys, Keys]:
    """Return random keys of words and of columns; those of one seed are needed for each block and each shard."""
    generator = np.random.Generator(np.random.PCG64(seed))
    both = generator.integers(0, 1 << 64, words + columns, dtype=np.uint64)
    return both[:words], both[words:]
