"""Names and properties of the libraries and classifiers to compare with, without importing any of them."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Library:
    """Another library's model."""

    name: str  # The name in ``--peers``
    module: str  # Name of the module to import
    samples: bool = False  # Whether its states are samples, whose predictions can be averaged
    finds_topics: bool = False  # Whether it determines the number of topics
    starts_from_topics: bool = False  # Whether it also starts from a number of topics
    options: Mapping[str, int | str] = field(default_factory=dict)  # Options of this library alone, with their defaults


_LIBRARIES = (
    Library("scikit-learn", "sklearn"),
    Library("gensim", "gensim"),
    Library("tomotopy", "tomotopy", samples=True, options={"optim_interval": 0}),
    Library("topica", "topica", options={"sampler": "cvb0"}),
    Library("tomotopy-hdp", "tomotopy", samples=True, finds_topics=True, starts_from_topics=True),
    Library("topica-hdp", "topica", finds_topics=True),
    Library("gensim-hdp", "gensim", finds_topics=True),
)
LIBRARIES = {library.name: library for library in _LIBRARIES}

LDA_SVM = "lda-svm"  # A linear SVM on the proportions of LDA and the other labels
SUPERVISED_LDA = "slda"  # Supervised LDA of tomotopy
WORD_CLASSIFIERS = ("naive-bayes", "svm", "tree")  # Classifiers of scikit-learn on words alone
CLASSIFIERS = (LDA_SVM, *WORD_CLASSIFIERS, SUPERVISED_LDA)


def installed(module: str) -> bool:
    """Return whether a module is installed, without importing it."""
    return importlib.util.find_spec(module) is not None
