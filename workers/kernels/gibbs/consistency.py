"""Compare the topics of tokens that were read from disk with the counts of the model."""

from __future__ import annotations

from collapsium.workers.kernels.argument_types import Int64Vector, OutInt32Matrix, OutInt64Vector
from collapsium.workers.kernels.jit import kernel
from collapsium.workers.kernels.records import DocumentPairs


@kernel
def find_uncounted(
    documents: DocumentPairs,
    token_column: Int64Vector,
    word_topic: OutInt32Matrix,
    totals: OutInt64Vector,
    uncounted: OutInt64Vector,
) -> None:
    """Find tokens that the counts of the model do not have; twin: `naive.gibbs.uncounted`.

    Parameters
    ----------
    documents : DocumentPairs
        The documents.
    token_column : int64, shape (tokens,)
        Column of the counts that has each token, those of a pair side by side; -1 of tokens that none has.
    word_topic : int32, shape (rows, columns)
        n_kw; reduced by the tokens before the first that is not counted.
    totals : int64, shape (columns or more,)
        n_k; reduced alike.
    uncounted : int64, shape (1,)
        Filled with the number of the first token that is not counted, -1 if there is none.
    """
    token, columns = 0, min(word_topic.shape[1], totals.size)
    uncounted[0] = -1
    for pair in range(documents.position.size):
        row = documents.position[pair]
        for _ in range(documents.counts[pair]):
            column = token_column[token]
            if column >= columns or (column >= 0 and (word_topic[row, column] <= 0 or totals[column] <= 0)):
                uncounted[0] = token
                return
            if column >= 0:
                word_topic[row, column] -= 1
                totals[column] -= 1
            token += 1
