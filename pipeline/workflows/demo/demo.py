"""The demonstration: CV-HDP on a local Dask cluster, fitted to the docstrings on this machine."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from collapsium.pipeline.analysis.topics import Topic, topics
from collapsium.pipeline.engine.fit import fit
from collapsium.pipeline.families.model import Model
from collapsium.pipeline.monitoring.events import Sink
from collapsium.pipeline.workflows.demo.docstrings import docstring_source
from collapsium.storage.building.ingest import ingest
from collapsium.storage.building.split import split_corpus
from collapsium.storage.building.vocabulary_cuts import Cuts
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.corpus.manifest import Manifest
from collapsium.storage.io.folder import Folder
from collapsium.storage.io.transactions import ensure_free

FAMILY, TOPICS, ITERATIONS = "hdp", 60, 80
CUTS = Cuts(min_documents=10, max_document_share=0.15)


@dataclass(frozen=True)
class Use:
    """A topic with the labels that use it most.

    Attributes
    ----------
    topic : Topic
        The topic.
    labels : list of (str, float)
        Values of a label's field with the share of the topic's tokens that they have, falling.
    """

    topic: Topic
    labels: list[tuple[str, float]]


def ingest_docstrings(corpus: str | os.PathLike[str]) -> Manifest:
    """Ingest the docstrings of the standard library and of what is installed with us.

    Parameters
    ----------
    corpus : str or path-like
        Folder to make.

    Returns
    -------
    Manifest
        What the corpus holds.
    """
    return ingest(docstring_source(), corpus, cuts=CUTS)


def demonstrate(folder: str | os.PathLike[str], sinks: list[Sink]) -> list[Use]:
    """Ingest docstrings, hold out a tenth of the tokens, fit CV-HDP on a local cluster, and list the topics.

    Parameters
    ----------
    folder : str or path-like
        Folder of the results: ``corpus``, ``train``, ``heldout`` and ``run``.
    sinks : list of callable
        Receive the events of the fit.

    Returns
    -------
    list of Use
        The topics, the largest first.

    Raises
    ------
    OccupiedError
        The folder exists.
    """
    root = Path(folder)
    ensure_free(Folder(root))
    ingest_docstrings(root / "corpus")
    split_corpus(Corpus(root / "corpus"), root / "train", root / "heldout")
    fit(
        root / "train",
        root / "run",
        family=FAMILY,
        topics=TOPICS,
        iterations=ITERATIONS,
        heldout=root / "heldout",
        scheduler="local",
        sinks=sinks,
    )
    return label_use(root / "run", root / "train", "package")


def label_use(run: str | os.PathLike[str], corpus: str | os.PathLike[str], field: str) -> list[Use]:
    """Return the values of a label that use each topic of a model most.

    Parameters
    ----------
    run : str or path-like
        The run or model.
    corpus : str or path-like
        Its training corpus, with labels.
    field : str
        The label's field.

    Returns
    -------
    list of Use
        The topics, the largest first, each with the three values that use it most.
    """
    model = Model(run)
    family = model.shard_model
    used: dict[str, np.ndarray[tuple[int], np.dtype[np.float64]]] = {}
    for reference in Corpus(corpus).references:
        theta = family.infer(model.documents(reference.number), model.global_state)["document_topic"]
        documents = reference.documents()
        tokens = theta * documents.tokens[:, np.newaxis]
        for labels, row in zip(documents.extras["labels"].to_pylist(), tokens, strict=True):
            for label in labels:
                if label["field"] == field:
                    used[label["value"]] = used.get(label["value"], 0.0) + row
    uses = []
    for topic in topics(run):
        most = Counter({value: float(tokens[topic.id]) for value, tokens in used.items()})
        total = max(most.total(), 1e-300)
        uses.append(Use(topic, [(value, tokens / total) for value, tokens in most.most_common(3)]))
    return uses
