"""Bytes that a fit takes besides the state of its family."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Costs:
    """Bytes that a fit takes besides its family's state, measured on small corpora."""

    # A process with its libraries and kernels, by its use
    processes: Mapping[str, float] = field(
        default_factory=lambda: {"threads": 282e6, "serial": 282e6, "worker": 258e6, "driver": 297e6}
    )
    # Bytes that the system's allocator retains of freed rows of held-out words, as a share of them
    score_overhead: float = 1.0
    # Size from which the system's allocator returns an array as soon as it is freed (mallopt(3), M_MMAP_THRESHOLD)
    retained_array: float = 32e6
    proportion_copies: int = 2  # Copies of a shard's proportions while they are summarised
    read_pair: int = 60  # A pair while its shard is read from Parquet
    read_value: int = 24  # A value of a vector while its shard is read: its file, the decoded array, and a copy
    vocabulary_word: int = 190  # A word of the vocabulary, as text, on the driver
    pair: int = 8  # A pair of a shard in memory
    document: int = 8  # A document of a shard in memory
    # Copies of a shard's proportions, or a block's counts, while topics of models are compared: the mean of the models
    # and one of them, in double precision, their rounded values, and the model's as they are read
    joining_copies: int = 6
    # Sweeps that keep a worker busy; so many members of an ensemble are fitted at a time as give it these
    sweeps_per_worker: int = 2


COSTS = Costs()
