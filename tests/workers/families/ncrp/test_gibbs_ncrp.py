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
        {"eta": 0.01, "gamma": 50.0, "learn": ()},  # many are born: slots run out within a sweep
        {"depth": 4, "eta": [1.0, 0.5, 0.3, 0.2], "learn": ("eta", "alpha", "gamma")},
    )

    losing = (4, 5)  # a start takes two rounds

    def sized(self, topics):
        return {}

    def require_order(self, listed, model):
        """Depth first: the root, and then whole branches, each of which begins with what the others hang from."""
        assert listed[0].id == 0
        parent, open_ = model.global_state.node_parent, []
        for topic in listed:
            while open_ and open_[-1] not in above(parent, topic.id):
                open_.pop()
            seen = [earlier.id for earlier in listed[: listed.index(topic)]]
            assert [node for node in above(parent, topic.id) if node in seen] == [
                node for node in open_ if node in seen
            ]
            open_.append(topic.id)

    def check_ground_truth(self, tmp_path, documents, options):
        """The sampler finds the documents of each leaf of a regular tree, and most of the groups above them."""
        depth = options.get("depth", 3)
        if options.get("gamma") == 50.0 or depth > 3:
            return  # one asks for far more nodes than there are, the other for more documents
        settings = {"depth": depth, "eta": 0.05, "entry": "together", "iterations": 200}
        *inner, leaves = agreement(tmp_path, 3, documents, settings, depth, branching=3)
        assert leaves > 0.85
        assert all(share > 0.6 for share in inner)


def above(parent, node):
    """The nodes above one, from the root down."""
    found = []
    while parent[node] >= 0:
        node = int(parent[node])
        found.insert(0, node)
    return found


def paths_of(table, parent, depth):
    """The paths of documents, from their proportions at nodes."""
    level, found = levels(parent), []
    for row in table.to_pylist():
        deepest = max(row["topics"], key=lambda node: level[node])
        found.append(([*above(parent, deepest), deepest] + [-1] * depth)[:depth])
    return np.array(found)


def agreement(place, seed, documents, options, depth, branching):
    """Plant a tree, fit one, and tell of each level what share of pairs of documents are together, or apart, in both."""
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
        known = simulated[:, level] >= 0  # a proportion so small that it is not kept
        same = [paths[known, level][:, np.newaxis] == paths[known, level] for paths in (simulated, path)]
        both = np.triu(same[0] & same[1], 1).sum()
        found.append(2.0 * both / (np.triu(same[0], 1).sum() + np.triu(same[1], 1).sum()))
    return found
