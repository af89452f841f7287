"""The metrics by name, with their requirements, definitions and sources."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from collapsium.storage.errors import OptionError, suggestion

WIDTH = 110  # Characters of a line of the listing
ALL = "all"  # Selects all metrics whose requirements are met


class Needs(Enum):
    """Inputs of a metric besides the model, as a heading of lists."""

    TOPICS = "of the topics alone"
    TEXTS = "of the topics' words in texts (`coherence` TEXTS)"
    CORPUS = "of the topics' words in documents (`coherence` CORPUS|TEXTS; by default the training corpus)"
    FITTED = "of the training documents, beside what the model expects"
    LABELS = "of documents with labels (`unseen` CORPUS|TEXTS; by default the training corpus)"
    CLASSES = "of documents with at least two different labels (`unseen` CORPUS|TEXTS; by default the training corpus)"
    DOCUMENTS = "of documents (`unseen` CORPUS|TEXTS), with proportions integrated out"
    TOKENS = "of held-out tokens (`heldout` CORPUS) or documents (`unseen` CORPUS|TEXTS)"


@dataclass(frozen=True)
class Metric:
    """A metric of topics."""

    name: str  # Name on the command line
    needs: Needs  # What it is computed from
    summary: str  # What it measures, in a line
    definition: str  # Its definition; ``{words}``, ``{texts}`` and the like are filled in for a measurement
    source: str  # The publication that defines it
    words: int = 0  # Number of most probable words of each topic; 0 for metrics of documents
    abbreviation: str = ""  # An abbreviation in wide use, which stands for the name; empty if there is none

    @property
    def field(self) -> str:
        """Its name as a column of tables."""
        return self.name.replace("-", "_")


_RÖDER = "Röder, Both and Hinneburg (2015), Exploring the space of topic coherence measures, WSDM"
_WALLACH = "Wallach, Murray, Salakhutdinov and Mimno (2009), Evaluation methods for topic models, ICML"
_WINDOWS = (
    "; probabilities are shares of the windows of {size} tokens of {texts:,} texts, counted as gensim does; "
    "of the {words} most probable words of each topic, mean over the topics"
)
_EPSILON = "(p_ij + 1e-12)"
FREX_WEIGHT = 0.7  # Weight of exclusivity in the metric of this name, as in the R package stm
LEAST_EXPECTED = 0.01  # Expected count from which a cell is a residual's degree of freedom (Taddy 2012, section 3.3)

_METRICS = (
    Metric(
        "c_v",
        Needs.TEXTS,
        "coherence: similarity of the words' contexts, in windows of 110 tokens",
        f"mean cosine of each word's vector of log({_EPSILON} / (p_i p_j)) / -log {_EPSILON} with the sum of all "
        "words' vectors" + _WINDOWS,
        _RÖDER,
        10,
    ),
    Metric(
        "c_npmi",
        Needs.TEXTS,
        "coherence: normalised pointwise mutual information in windows of 10 tokens",
        f"mean over the pairs of words of log({_EPSILON} / (p_i p_j)) / -log {_EPSILON}" + _WINDOWS,
        "Aletras and Stevenson (2013), Evaluating topic coherence using distributional semantics, IWCS; " + _RÖDER,
        10,
    ),
    Metric(
        "c_uci",
        Needs.TEXTS,
        "coherence: pointwise mutual information in windows of 10 tokens",
        f"mean over the pairs of words of log({_EPSILON} / (p_i p_j))" + _WINDOWS,
        "Newman, Lau, Grieser and Baldwin (2010), Automatic evaluation of topic coherence, NAACL; " + _RÖDER,
        10,
    ),
    Metric(
        "u_mass",
        Needs.CORPUS,
        "coherence: probability of each word given each more probable one, in documents",
        f"mean over the pairs of words, j more probable than i, of log({_EPSILON} / p_j); probabilities are shares of "
        "{documents:,} documents; of the {words} most probable words of each topic, mean over the topics",
        "Mimno, Wallach, Talley, Leenders and McCallum (2011), Optimizing semantic coherence in topic models, EMNLP; "
        + _RÖDER,
        10,
    ),
    Metric(
        "npmi",
        Needs.CORPUS,
        "coherence: normalised pointwise mutual information in documents",
        "mean over the pairs of words of log(p_ij / (p_i p_j)) / -log p_ij, -1 for words that never co-occur and 1 for "
        "words in every document; probabilities are shares of {documents:,} documents; of the {words} most probable "
        "words of each topic, mean over the topics",
        "Lau, Newman and Baldwin (2014), Machine reading tea leaves, EACL",
        10,
    ),
    Metric(
        "diversity",
        Needs.TOPICS,
        "share of different words among the topics' words",
        "number of different words among the {words} most probable words of each topic, divided by the number of all "
        "these words",
        "Dieng, Ruiz and Blei (2020), Topic modeling in embedding spaces, TACL",
        25,
    ),
    Metric(
        "strict-diversity",
        Needs.TOPICS,
        "share of the topics' words that no other topic has",
        "number of words that only one topic has among its {words} most probable words, divided by the number of all "
        "these words",
        "Wu, Dong, Nguyen and Luu (2023), Effective neural topic modeling with embedding clustering regularization, "
        "ICML",
        15,
    ),
    Metric(
        "inverted-rbo",
        Needs.TOPICS,
        "difference of the topics' rankings of words",
        "1 minus the mean over two topics each of the extrapolated rank-biased overlap, p = 0.9, of their {words} most "
        "probable words",
        "Bianchi, Terragni and Hovy (2021), Pre-training is a hot topic, ACL; Webber, Moffat and Zobel (2010), A "
        "similarity measure for indefinite rankings, TOIS",
        10,
        abbreviation="irbo",
    ),
    Metric(
        "exclusivity",
        Needs.TOPICS,
        "how much the topics' words belong to them alone, and are frequent in them",
        f"mean FREX score of the {{words}} most probable words of each topic, 1 / ({FREX_WEIGHT:g} / E + "
        f"{1 - FREX_WEIGHT:.1g} / F): E and F are the shares of the vocabulary's words that are at most as exclusive "
        "to the topic, and as probable in it; mean over the topics",
        "Roberts, Stewart, Tingley et al. (2014), Structural topic models for open-ended survey responses, AJPS; "
        "Bischof and Airoldi (2012), Summarizing topical content with word frequency and exclusivity, ICML",
        10,
    ),
    Metric(
        "dispersion",
        Needs.FITTED,
        "residuals: how much more the counts of words vary than the model expects; 1 if it fits",
        "sum of (x - e)^2 / (e (1 - p)) over the documents and all words, for counts x, expected counts e = n_d p and "
        f"p = sum_k theta_dk phi_kw, divided by the number of cells with e > {LEAST_EXPECTED:g} less the number of the "
        "parameters; of {sampled}",
        "Taddy (2012), On estimation and selection for topic models, AISTATS",
    ),
    Metric(
        "purity",
        Needs.LABELS,
        "share of documents with the most frequent label of their largest topic",
        "share of {labelled} whose label is the most frequent one of the documents with the same largest topic",
        "Manning, Raghavan and Schütze (2008), Introduction to information retrieval, 16.3",
    ),
    Metric(
        "nmi",
        Needs.LABELS,
        "normalised mutual information of largest topics and labels",
        "mutual information of largest topic and label, divided by the mean of both entropies; of {labelled}",
        "Manning, Raghavan and Schütze (2008), Introduction to information retrieval, 16.3",
    ),
    Metric(
        "ari",
        Needs.LABELS,
        "agreement of largest topics and labels on pairs of documents, adjusted for chance",
        "adjusted Rand index: share of the pairs of documents on which largest topics and labels agree, minus its "
        "expectation, divided by the maximum of this difference; of {labelled}",
        "Hubert and Arabie (1985), Comparing partitions, Journal of Classification",
    ),
    Metric(
        "classifier-accuracy",
        Needs.CLASSES,
        "share of labels that a linear classifier of the proportions predicts",
        "accuracy of logistic regression of the label on topic proportions, {classified}",
        "Lacoste-Julien, Sha and Jordan (2008), DiscLDA, NIPS; the classifier is scikit-learn's, with its defaults",
    ),
    Metric(
        "left-to-right",
        Needs.DOCUMENTS,
        "log likelihood of documents, in nats per token, by particles from the first token to the last",
        "sum over documents of log p(w_d), divided by their tokens, in nats; p(w_d) is the product over the tokens n "
        "of the mean over {particles} particles of p(w_n | z_1..z_n-1), where each particle draws the topics of the "
        "tokens before n anew; of {sampled}",
        _WALLACH + ", Algorithm 3",
    ),
    Metric(
        "annealed-importance",
        Needs.DOCUMENTS,
        "log likelihood of documents, in nats per token, by annealed importance sampling",
        "sum over documents of log p(w_d), divided by their tokens, in nats; p(w_d) is the mean weight of {runs} runs "
        "of annealed importance sampling from p(z) to p(z | w) in {steps} steps; of {sampled}",
        _WALLACH + "; Neal (2001), Annealed importance sampling, Statistics and Computing",
        abbreviation="ais",
    ),
    Metric(
        "perplexity",
        Needs.TOKENS,
        "perplexity of a token by document completion",
        "exp(-score) of {completion}",
        _WALLACH + ", document completion",
    ),
    Metric(
        "document-perplexity",
        Needs.TOKENS,
        "perplexity of a document by document completion, each document with the same weight",
        "exp of minus the mean over {documents:,} documents of the mean log probability of a document's scored tokens; "
        "{completion}",
        "Miao, Yu and Blunsom (2016), Neural variational inference for text processing, ICML",
    ),
)

METRICS = {metric.name: metric for metric in _METRICS}  # The metrics by name; further ones may be added

# Needs of the metrics that use an option
USES = {
    "coherence": (Needs.TEXTS, Needs.CORPUS),
    "label_field": (Needs.LABELS, Needs.CLASSES),
    "sample_documents": (Needs.DOCUMENTS,),
}


def metrics_of(names: Sequence[str]) -> tuple[Metric, ...]:
    """Return metrics by their names."""
    known = {_plain(name): metric for name, metric in METRICS.items()}
    known |= {metric.abbreviation: metric for metric in METRICS.values() if metric.abbreviation}
    if not names:
        raise OptionError(f"expected one name or more, or {ALL}{suggestion('', METRICS)}", "metrics")
    if is_all(names):
        return tuple(METRICS.values())
    for name in names:
        if _plain(name) not in known:
            raise OptionError(f"unknown metric '{name}'{suggestion(name, [*METRICS, ALL])}", "metrics")
    return tuple(dict.fromkeys(known[_plain(name)] for name in names))


def require_used(metrics: Sequence[Metric], options: Mapping[str, object]) -> None:
    """Refuse options that no metric uses; values that are None are not given."""
    for option, value in options.items():
        if value is not None and not any(metric.needs in USES[option] for metric in metrics):
            named = ", ".join(metric.name for metric in metrics)
            users = ", ".join(metric.name for metric in METRICS.values() if metric.needs in USES[option])
            raise OptionError(f"is not used by the metrics {named}; it applies to {users}", option)


def is_all(names: Sequence[str]) -> bool:
    """Return whether names select all metrics."""
    return any(_plain(name) == ALL for name in names)


def _plain(name: str) -> str:
    return name.strip().lower().replace("_", "-")


def listing() -> str:
    """Return the meaning and the source of each metric, grouped by their requirements."""
    lines = []
    for needs in Needs:
        lines.append(f"metrics {needs.value}:")
        for metric in [metric for metric in METRICS.values() if metric.needs is needs]:
            names = f"{metric.name}, {metric.abbreviation}" if metric.abbreviation else metric.name
            text = f"  {names:28}{metric.summary}; {metric.source.partition(')')[0]})"
            lines += textwrap.wrap(text, WIDTH, subsequent_indent=" " * 30, break_on_hyphens=False)
        lines.append("")
    return "\n".join(lines[:-1])
