"""Initial responsibilities from another run's proportions and topics."""

import numpy as np

from tests.naive.active import UNIT


def owners(offsets):
    """Return the document of each pair."""
    return np.repeat(np.arange(offsets.size - 1), np.diff(offsets))


def responsibilities(offsets, position, theta, phi):
    """Return q of each pair over all topics; NaN if no topic explains the pair."""
    weight = theta[owners(offsets)].astype(np.float64) * phi[position].astype(np.float64)
    with np.errstate(invalid="ignore"):
        return weight / weight.sum(axis=1, keepdims=True)


def expected(offsets, position, counts, theta, phi):
    """Return E[n_dk]."""
    result = np.zeros(theta.shape)
    q = np.nan_to_num(responsibilities(offsets, position, theta, phi))
    np.add.at(result, owners(offsets), counts[:, np.newaxis] * q)
    return result


def steps(offsets, position, theta, phi, lists, topic):
    """Return the active topics' responsibilities in steps, pair by pair, in the order of the active topics."""
    q = np.nan_to_num(responsibilities(offsets, position, theta, phi))
    steps_of_documents = [np.zeros(0)]
    for d in range(offsets.size - 1):
        active = topic[lists[d] : lists[d + 1]].astype(np.int64)
        for pair in range(offsets[d], offsets[d + 1]):
            wide = np.concatenate([q[pair], np.zeros(max(int(active.max(initial=0)) + 1 - q.shape[1], 0))])
            steps_of_documents.append(np.floor(wide[active] * (UNIT - 0.01)))
    return np.concatenate(steps_of_documents)
