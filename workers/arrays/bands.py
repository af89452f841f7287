"""Bands of the vocabulary: runs of words that are summed separately, in a partition that depends on the block alone.

Sums of floats depend on their order. So a block's rows are summed band by band, and the sums of the bands are added in
the order of the vocabulary, whichever hosts computed them.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

BAND = "band"  # Name of the dim of sums of bands; ids are the first words of the bands
MOST_BANDS = 64  # Bands of a block: enough to spread over hosts
MIN_BAND_WORDS = 64  # Words of a band, at least, unless the block has fewer


def band_bounds(words: int) -> npt.NDArray[np.int64]:
    """Return the first word of each band of a block and, last, the block's number of words."""
    bands = min(MOST_BANDS, max(words // MIN_BAND_WORDS, 1))
    return np.arange(bands + 1, dtype=np.int64) * words // bands
