import numpy as np
import pyarrow.parquet as pq

from collapsium.pipeline import fit, simulate
from collapsium.pipeline.models.model import Model
from collapsium.workers.families.ncrp.state import levels
from tests.conformance import Conformance, references  # noqa: F401 - fixture


class TestGibbsNCRP(Conformance):
    family = "gibbs-ncrp"
    matrix = (
        {},
        {"depth": 2, "learn": ()},
        {"eta": 0.01, "gamma": 50.0, "learn": ()},  # so many nodes are born that the free slots run out within a sweep
        {"depth": 4, "eta": [1.0, 0.5, 0.3, 0.2], "learn": ("eta", "alpha", "gamma")},
    )

    lost_every = (4, 5)  # the initialisation takes two rounds

    def sized(self, topics):
        return {}

    def require_order(self, listed, model):
        """Require depth-first order: the root, and then complete branches, each of which begins with its topmost node."""
        assert listed[0].id == 0
        parent, open_ = model.global_state.node_parent, []
        for topic in listed:
            while open_ and open_[-1] not in ancestors(parent, topic.id):
                open_.pop()
            seen = [earlier.id for earlier in listed[: listed.index(topic)]]
            assert [node for node in ancestors(parent, topic.id) if node in seen] == [
                node for node in open_ if node in seen
            ]
            open_.append(topic.id)

    def check_ground_truth(self, tmp_path, documents, options):
        """The sampler finds the documents of each leaf of a regular tree, and most of the groups above them."""
        depth = options.get("depth", 3)
        if options.get("gamma") == 50.0 or depth > 3:
            return  # gamma = 50 asks for far more nodes than there are, and deeper trees need more documents
        settings = {"depth": depth, "eta": 0.05, "entry": "together", "iterations": 200}
        *inner, leaves = agreement(tmp_path, 3, documents, settings, depth, branching=3)
        assert leaves > 0.85
        assert all(share > 0.6 for share in inner)


def ancestors(parent, node):
    """Return the ancestors of a node, from the root down."""
    found = []
    while parent[node] >= 0:
        node = int(parent[node])
        found.insert(0, node)
    return found


def paths_of(table, parent, depth):
    """Return the paths of documents, from their proportions at nodes."""
    level, found = levels(parent), []
    for row in table.to_pylist():
        deepest = max(row["topics"], key=lambda node: level[node])
        found.append(([*ancestors(parent, deepest), deepest] + [-1] * depth)[:depth])
    return np.array(found)


def agreement(place, seed, documents, options, depth, branching):
    """Return the Rand index of a fitted and a simulated tree at each level: the share of document pairs on which they
    agree."""
    settings = {"family": "gibbs-ncrp", "depth": depth, "eta": 0.05, "alpha": 3.0, "branching": branching}
    simulate(place / "simulated", documents=documents, words=100, tokens=100, seed=seed, **settings)
    true = Model(place / "simulated").global_state.node_parent
    simulated = paths_of(pq.read_table(place / "simulated/truth/proportions"), true, depth)
    model = fit(
        place / "simulated", place / "run", scheduler="serial", seed=seed, **{"family": "gibbs-ncrp", **options}
    )
    parts = [model.local_state(shard).document_path for shard in range(len(model.record.shards))]
    path, found = np.concatenate(parts), []
    for level in range(1, depth):
        known = simulated[:, level] >= 0  # a document whose proportion at this level was too small to be stored
        same = [paths[known, level][:, np.newaxis] == paths[known, level] for paths in (simulated, path)]
        both = np.triu(same[0] & same[1], 1).sum()
        found.append(2.0 * both / (np.triu(same[0], 1).sum() + np.triu(same[1], 1).sum()))
    return found
