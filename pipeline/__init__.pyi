"""Types of the public functions with all options. `python -m tests.stubs` writes this file."""

# ruff: noqa: A002, E402, E501, I001, RUF022
# fmt: off

import collapsium.pipeline.analysis.coherence
import collapsium.pipeline.analysis.evaluate
import collapsium.pipeline.analysis.infer
import collapsium.pipeline.analysis.labels.expected_topics
import collapsium.pipeline.analysis.metrics.measurement
import collapsium.pipeline.analysis.topic_shares
import collapsium.pipeline.analysis.topics
import collapsium.pipeline.analysis.verify
import collapsium.pipeline.corpora.options
import collapsium.pipeline.engine.edit.edit
import collapsium.pipeline.engine.resources.plan
import collapsium.pipeline.executors.base
import collapsium.pipeline.executors.schedulers
import collapsium.pipeline.models.model
import collapsium.pipeline.reporting.export
import collapsium.pipeline.reporting.page.report
import collapsium.pipeline.reporting.predict
import collapsium.pipeline.workflows.batch.job
import collapsium.pipeline.workflows.compare.compare
import collapsium.storage.corpus.manifest
import collapsium.storage.runs.published
import collapsium.workers.families.cvb.seeds
import collapsium.workers.families.networks.dirichlet_network
import collapsium.workers.families.word_weights
import collections.abc
import os
import typing

class _AuthorTopicOptions(typing.TypedDict, total=False):
    labels: collections.abc.Sequence[str]
    alpha: float
    eta: float
    topics: int

class _DirichletNetworkOptions(typing.TypedDict, total=False):
    topics: int
    alpha: float
    beta: float
    strength: float
    discount: float
    strength_mean: float
    learn: collections.abc.Sequence[typing.Literal['alpha', 'asymmetric-alpha', 'beta', 'strength', 'discount']]
    inference: typing.Literal['gibbs', 'variational']
    tables: bool
    network: collections.abc.Mapping[str, collapsium.workers.families.networks.dirichlet_network.Vectors]
    words_from: str | None

class _GibbsHdpOptions(typing.TypedDict, total=False):
    init_topics: int
    alpha_shape: float
    alpha_rate: float
    gamma_shape: float
    gamma_rate: float
    beta: float
    learn: collections.abc.Sequence[typing.Literal['alpha', 'gamma']]

class _GibbsLdaOptions(typing.TypedDict, total=False):
    topics: int
    alpha: float
    beta: float
    learn: collections.abc.Sequence[typing.Literal['alpha', 'asymmetric-alpha', 'beta']]

class _GibbsNcrpOptions(typing.TypedDict, total=False):
    depth: int
    eta: collections.abc.Sequence[float]
    alpha: collections.abc.Sequence[float]
    gamma: float
    learn: collections.abc.Sequence[typing.Literal['eta', 'alpha', 'gamma']]
    entry: typing.Literal['apart', 'together']
    branching: collections.abc.Sequence[int]

class _HcaOptions(typing.TypedDict, total=False):
    depth: int
    max_nodes: int
    gamma: float
    form: typing.Literal['conditional', 'factorised']
    prior_variance: float
    tau_shape: float
    tau_rate: float
    prune: float
    merge: float
    split: bool
    compare: bool
    branching: collections.abc.Sequence[int]
    loading_scale: float
    noise_scale: float

class _HdpOptions(typing.TypedDict, total=False):
    weights: typing.Literal['idf', 'log-tf-idf', 'entropy'] | collapsium.workers.families.word_weights.WeightTable | None
    topics: int
    seeds: collections.abc.Sequence[collapsium.workers.families.cvb.seeds.SeededTopic]
    beta: float
    order: typing.Literal[0, 2]
    responsibilities: typing.Literal['active', 'dense'] | None
    most_active: int | None
    momentum: float
    inverse_temperature: float | None
    alpha_shape: float
    alpha_rate: float
    gamma_shape: float
    gamma_rate: float
    beta_shape: float
    beta_rate: float
    tau: float
    hold: int | None
    split_merge_moves: bool | None
    learn: collections.abc.Sequence[typing.Literal['alpha', 'gamma', 'pi', 'beta', 'tau']] | None

class _HdspOptions(typing.TypedDict, total=False):
    topics: int
    scaling: typing.Literal['labels', 'linear']
    labels: collections.abc.Sequence[str]
    covariates: collections.abc.Sequence[str]
    gamma: float
    alpha: float | None
    eta: float
    weight_shape: float
    weight_rate: float
    weight_variance: float
    learn: collections.abc.Sequence[typing.Literal['gamma', 'alpha', 'weights', 'variance']]
    initial_topics: typing.Literal['labels', 'lda']
    lda_sweeps: int
    document_sweeps: int
    document_tolerance: float

class _KeywordLdaOptions(typing.TypedDict, total=False):
    weights: typing.Literal['idf', 'log-tf-idf', 'entropy'] | collapsium.workers.families.word_weights.WeightTable | None
    topics: int
    seeds: collections.abc.Sequence[collapsium.workers.families.cvb.seeds.SeededTopic]
    beta: float
    order: typing.Literal[0]
    responsibilities: typing.Literal['active', 'dense'] | None
    most_active: int | None
    momentum: float
    inverse_temperature: float
    alpha: float
    keyword_beta: float
    switch_yes: float
    switch_no: float
    learn: collections.abc.Sequence[typing.Literal['alpha', 'asymmetric-alpha']]

class _LabeledLdaOptions(typing.TypedDict, total=False):
    labels: collections.abc.Sequence[str]
    alpha: float
    eta: float

class _LdaOptions(typing.TypedDict, total=False):
    weights: typing.Literal['idf', 'log-tf-idf', 'entropy'] | collapsium.workers.families.word_weights.WeightTable | None
    topics: int
    seeds: collections.abc.Sequence[collapsium.workers.families.cvb.seeds.SeededTopic]
    beta: float
    order: typing.Literal[0, 2]
    responsibilities: typing.Literal['active', 'dense'] | None
    most_active: int | None
    momentum: float
    inverse_temperature: float | None
    alpha: float | None
    tau: float
    learn: collections.abc.Sequence[typing.Literal['alpha', 'beta', 'asymmetric-alpha', 'asymmetric-beta']]

class _NcrpOptions(typing.TypedDict, total=False):
    depth: int
    max_nodes: int
    leaves: int | None
    alpha: collections.abc.Sequence[float]
    eta: collections.abc.Sequence[float]
    gamma: float
    form: typing.Literal['conditional', 'factorised']
    posterior: typing.Literal['point', 'dirichlet']
    initial_tree: typing.Literal['clustering', 'gradual']
    learn: collections.abc.Sequence[typing.Literal['alpha', 'eta', 'gamma']]
    document_sweeps: int
    new_paths: int | None
    prune: float
    merge: float
    compare: bool
    branching: collections.abc.Sequence[int]

class _PartiallyLabeledLdaOptions(typing.TypedDict, total=False):
    labels: collections.abc.Sequence[str]
    alpha: float
    eta: float
    topics_per_label: int
    background: int | None

class _SegmentedLdaOptions(typing.TypedDict, total=False):
    topics: int
    alpha: float
    beta: float
    strength: float
    discount: float
    strength_mean: float
    learn: collections.abc.Sequence[typing.Literal['alpha', 'asymmetric-alpha', 'beta', 'strength', 'discount']]
    inference: typing.Literal['gibbs', 'variational']
    tables: bool

class _SequentialLdaOptions(typing.TypedDict, total=False):
    topics: int
    alpha: float
    beta: float
    strength: float
    discount: float
    strength_mean: float
    learn: collections.abc.Sequence[typing.Literal['alpha', 'asymmetric-alpha', 'beta', 'strength', 'discount']]
    inference: typing.Literal['gibbs', 'variational']
    tables: bool

class _VbLdaOptions(typing.TypedDict, total=False):
    weights: typing.Literal['idf', 'log-tf-idf', 'entropy'] | collapsium.workers.families.word_weights.WeightTable | None
    topics: int
    alpha: float
    beta: float
    learn: collections.abc.Sequence[typing.Literal['alpha', 'beta', 'asymmetric-alpha']]
    document_sweeps: int
    document_tolerance: float
    even_sweeps: int

from collapsium.pipeline.analysis.coherence import Coherence as Coherence

from collapsium.pipeline.workflows.compare.compare import Comparison as Comparison

from collapsium.storage.corpus.corpus import Corpus as Corpus

from collapsium.pipeline.engine.edit.edit import Edited as Edited

from collapsium.pipeline.analysis.evaluate import Evaluation as Evaluation

from collapsium.pipeline.analysis.labels.expected_topics import ExpectedTopic as ExpectedTopic

from collapsium.pipeline.reporting.export import Exported as Exported

from collapsium.pipeline.analysis.verify import Findings as Findings

from collapsium.pipeline.analysis.labels.expected_topics import LabelTopics as LabelTopics

from collapsium.pipeline.analysis.metrics.measurement import Measurement as Measurement

from collapsium.pipeline.models.model import Model as Model

from collapsium.pipeline.workflows.batch.job import Outcome as Outcome

from collapsium.pipeline.engine.resources.plan import Plan as Plan

from collapsium.pipeline.reporting.predict import Prediction as Prediction

from collapsium.pipeline.analysis.evaluate import Reconstruction as Reconstruction

from collapsium.pipeline.reporting.page.report import Report as Report

from collapsium.pipeline.executors.base import TLS as TLS

from collapsium.pipeline.analysis.topic_shares import TimeShares as TimeShares

from collapsium.pipeline.analysis.topics import Topic as Topic

def append(corpus: str | os.PathLike[str], sources: str | os.PathLike[str] | collections.abc.Sequence[str | os.PathLike[str]], *, tls: collapsium.pipeline.executors.base.TLS | None = ..., progress: collections.abc.Callable[[int], None] = ..., grow: bool = ..., skip_existing: bool = ..., format: typing.Literal['csv', 'jsonl', 'ldac', 'mallet', 'mtx', 'npz', 'parquet', 'svmlight', 'text', 'uci', 'vectors'] | None = ..., encoding: str | None = ..., separator: str | None = ..., tokenizer: str | None = ..., headings: str | None = ..., max_decompressed: int | None = ..., label_files: collections.abc.Sequence[str] = ..., label_names: collections.abc.Sequence[str] = ..., label_separator: str | None = ..., scheduler: str | collapsium.pipeline.executors.schedulers.ClientOrCluster = ..., workers: int | None = ...) -> collapsium.storage.corpus.manifest.Manifest:
    """Add documents, or vectors, to a corpus as new shards, read as its own documents were."""

def batch(job: str | os.PathLike[str], *, accept: bool = ..., sinks: collections.abc.Sequence[collections.abc.Callable[[dict[str, typing.Any]], None]] = ...) -> collapsium.pipeline.workflows.batch.job.Outcome:
    """Update a job's published model from its sources."""

def coherence(run: str | os.PathLike[str], documents: str | os.PathLike[str] | collections.abc.Sequence[str | os.PathLike[str]], *, words: int = ..., tls: collapsium.pipeline.executors.base.TLS | None = ..., format: str | None = ..., encoding: str | None = ..., separator: str | None = ..., id: str | None = ..., text: str | None = ..., vocabulary: str | collections.abc.Sequence[str] | None = ..., tokenizer: str | None = ..., headings: str | None = ..., bad_bytes: typing.Literal['error', 'replace'] | None = ..., scheduler: str | collapsium.pipeline.executors.schedulers.ClientOrCluster = ..., workers: int | None = ...) -> collapsium.pipeline.analysis.coherence.Coherence:
    """Measure the coherence and diversity of a model's topics."""

def compare(corpus: str | os.PathLike[str], out: str | os.PathLike[str], *, tls: collapsium.pipeline.executors.base.TLS | None = ..., sinks: collections.abc.Sequence[collections.abc.Callable[[dict[str, typing.Any]], None]] = ..., families: collections.abc.Sequence[str] = ..., topics: collections.abc.Sequence[int] = ..., init_topics: collections.abc.Sequence[int] = ..., restarts: int = ..., init_from: str | None = ..., iterations: int = ..., samples: int = ..., sample_every: int = ..., settings: collections.abc.Mapping[str, collections.abc.Mapping[str, typing.Any]] = ..., vary: collections.abc.Mapping[str, collections.abc.Mapping[str, list[typing.Any]]] = ..., heldout: str | None = ..., unseen: str | None = ..., fraction: float | None = ..., seed: int = ..., metrics: collections.abc.Sequence[str] = ..., coherence: collections.abc.Sequence[str] | None = ..., label_field: str | None = ..., field: str | None = ..., scheduler: str | collapsium.pipeline.executors.schedulers.ClientOrCluster = ..., workers: int | None = ..., memory: collapsium.pipeline.executors.schedulers.MemoryOptions = ..., scratch: str | None = ...) -> collapsium.pipeline.workflows.compare.compare.Comparison:
    """Compare families over numbers of topics and restarts, by held-out tokens or on unseen documents."""

def edit(run: str | os.PathLike[str], out: str | os.PathLike[str], *, merge: collections.abc.Sequence[collections.abc.Sequence[int]] = ..., delete: collections.abc.Sequence[int] = ..., split: collections.abc.Sequence[int] = ..., rename: collections.abc.Mapping[int, str] = ..., corpus: str | None = ..., workers: int | None = ...) -> collapsium.pipeline.engine.edit.edit.Edited:
    """Write a model whose topics are merged, deleted, split or renamed; the run stays as it is."""

class _EstimateOptions(typing.TypedDict, total=False):
    schedule: typing.Literal['batch', 'stochastic']
    restarts: int
    samples: int
    combine: typing.Literal['predictions', 'consensus']
    init: str | None
    heldout: str | None
    scheduler: str | collapsium.pipeline.executors.schedulers.ClientOrCluster
    workers: int | None
    memory: str | int | None
    scratch: str | None

class _EstimateAuthorTopic(_EstimateOptions, _AuthorTopicOptions, total=False):
    pass

class _EstimateDirichletNetwork(_EstimateOptions, _DirichletNetworkOptions, total=False):
    pass

class _EstimateGibbsHdp(_EstimateOptions, _GibbsHdpOptions, total=False):
    pass

class _EstimateGibbsLda(_EstimateOptions, _GibbsLdaOptions, total=False):
    pass

class _EstimateGibbsNcrp(_EstimateOptions, _GibbsNcrpOptions, total=False):
    pass

class _EstimateHca(_EstimateOptions, _HcaOptions, total=False):
    pass

class _EstimateHdp(_EstimateOptions, _HdpOptions, total=False):
    pass

class _EstimateHdsp(_EstimateOptions, _HdspOptions, total=False):
    pass

class _EstimateKeywordLda(_EstimateOptions, _KeywordLdaOptions, total=False):
    pass

class _EstimateLabeledLda(_EstimateOptions, _LabeledLdaOptions, total=False):
    pass

class _EstimateLda(_EstimateOptions, _LdaOptions, total=False):
    pass

class _EstimateNcrp(_EstimateOptions, _NcrpOptions, total=False):
    pass

class _EstimatePartiallyLabeledLda(_EstimateOptions, _PartiallyLabeledLdaOptions, total=False):
    pass

class _EstimateSegmentedLda(_EstimateOptions, _SegmentedLdaOptions, total=False):
    pass

class _EstimateSequentialLda(_EstimateOptions, _SequentialLdaOptions, total=False):
    pass

class _EstimateVbLda(_EstimateOptions, _VbLdaOptions, total=False):
    pass

@typing.overload
def estimate(corpus: str | os.PathLike[str], *, family: typing.Literal['author-topic'], **options: typing.Unpack[_EstimateAuthorTopic]) -> collapsium.pipeline.engine.resources.plan.Plan:
    """Estimate the memory, disk and traffic of a fit, without running it."""

@typing.overload
def estimate(corpus: str | os.PathLike[str], *, family: typing.Literal['dirichlet-network'], **options: typing.Unpack[_EstimateDirichletNetwork]) -> collapsium.pipeline.engine.resources.plan.Plan:
    """Estimate the memory, disk and traffic of a fit, without running it."""

@typing.overload
def estimate(corpus: str | os.PathLike[str], *, family: typing.Literal['gibbs-hdp'], **options: typing.Unpack[_EstimateGibbsHdp]) -> collapsium.pipeline.engine.resources.plan.Plan:
    """Estimate the memory, disk and traffic of a fit, without running it."""

@typing.overload
def estimate(corpus: str | os.PathLike[str], *, family: typing.Literal['gibbs-lda'], **options: typing.Unpack[_EstimateGibbsLda]) -> collapsium.pipeline.engine.resources.plan.Plan:
    """Estimate the memory, disk and traffic of a fit, without running it."""

@typing.overload
def estimate(corpus: str | os.PathLike[str], *, family: typing.Literal['gibbs-ncrp'], **options: typing.Unpack[_EstimateGibbsNcrp]) -> collapsium.pipeline.engine.resources.plan.Plan:
    """Estimate the memory, disk and traffic of a fit, without running it."""

@typing.overload
def estimate(corpus: str | os.PathLike[str], *, family: typing.Literal['hca'], **options: typing.Unpack[_EstimateHca]) -> collapsium.pipeline.engine.resources.plan.Plan:
    """Estimate the memory, disk and traffic of a fit, without running it."""

@typing.overload
def estimate(corpus: str | os.PathLike[str], *, family: typing.Literal['hdp'], **options: typing.Unpack[_EstimateHdp]) -> collapsium.pipeline.engine.resources.plan.Plan:
    """Estimate the memory, disk and traffic of a fit, without running it."""

@typing.overload
def estimate(corpus: str | os.PathLike[str], *, family: typing.Literal['hdsp'], **options: typing.Unpack[_EstimateHdsp]) -> collapsium.pipeline.engine.resources.plan.Plan:
    """Estimate the memory, disk and traffic of a fit, without running it."""

@typing.overload
def estimate(corpus: str | os.PathLike[str], *, family: typing.Literal['keyword-lda'], **options: typing.Unpack[_EstimateKeywordLda]) -> collapsium.pipeline.engine.resources.plan.Plan:
    """Estimate the memory, disk and traffic of a fit, without running it."""

@typing.overload
def estimate(corpus: str | os.PathLike[str], *, family: typing.Literal['labeled-lda'], **options: typing.Unpack[_EstimateLabeledLda]) -> collapsium.pipeline.engine.resources.plan.Plan:
    """Estimate the memory, disk and traffic of a fit, without running it."""

@typing.overload
def estimate(corpus: str | os.PathLike[str], *, family: typing.Literal['lda'], **options: typing.Unpack[_EstimateLda]) -> collapsium.pipeline.engine.resources.plan.Plan:
    """Estimate the memory, disk and traffic of a fit, without running it."""

@typing.overload
def estimate(corpus: str | os.PathLike[str], *, family: typing.Literal['ncrp'], **options: typing.Unpack[_EstimateNcrp]) -> collapsium.pipeline.engine.resources.plan.Plan:
    """Estimate the memory, disk and traffic of a fit, without running it."""

@typing.overload
def estimate(corpus: str | os.PathLike[str], *, family: typing.Literal['partially-labeled-lda'], **options: typing.Unpack[_EstimatePartiallyLabeledLda]) -> collapsium.pipeline.engine.resources.plan.Plan:
    """Estimate the memory, disk and traffic of a fit, without running it."""

@typing.overload
def estimate(corpus: str | os.PathLike[str], *, family: typing.Literal['segmented-lda'], **options: typing.Unpack[_EstimateSegmentedLda]) -> collapsium.pipeline.engine.resources.plan.Plan:
    """Estimate the memory, disk and traffic of a fit, without running it."""

@typing.overload
def estimate(corpus: str | os.PathLike[str], *, family: typing.Literal['sequential-lda'], **options: typing.Unpack[_EstimateSequentialLda]) -> collapsium.pipeline.engine.resources.plan.Plan:
    """Estimate the memory, disk and traffic of a fit, without running it."""

@typing.overload
def estimate(corpus: str | os.PathLike[str], *, family: typing.Literal['vb-lda'], **options: typing.Unpack[_EstimateVbLda]) -> collapsium.pipeline.engine.resources.plan.Plan:
    """Estimate the memory, disk and traffic of a fit, without running it."""

@typing.overload
def estimate(corpus: str | os.PathLike[str], *, family: str, **options: typing.Any) -> collapsium.pipeline.engine.resources.plan.Plan:
    """Estimate the memory, disk and traffic of a fit, without running it."""

def evaluate(run: str | os.PathLike[str], *, tls: collapsium.pipeline.executors.base.TLS | None = ..., notice: collections.abc.Callable[[str], None] | None = ..., heldout: str | None = ..., unseen: collections.abc.Sequence[str] | None = ..., in_document: collections.abc.Sequence[str] | None = ..., given_labels: bool = ..., field: collections.abc.Sequence[str] = ..., seed: int = ..., format: str | None = ..., encoding: str | None = ..., separator: str | None = ..., id: str | None = ..., text: str | None = ..., vocabulary: str | collections.abc.Sequence[str] | None = ..., tokenizer: str | None = ..., headings: str | None = ..., bad_bytes: typing.Literal['error', 'replace'] | None = ..., scheduler: str | collapsium.pipeline.executors.schedulers.ClientOrCluster = ..., workers: int | None = ...) -> collapsium.pipeline.analysis.evaluate.Evaluation | collapsium.pipeline.analysis.evaluate.Reconstruction:
    """Score a model on held-out tokens of its own documents, or on unseen documents or vectors."""

def expected_topics(run: str | os.PathLike[str], given: collections.abc.Sequence[str], words: int = ...) -> list[collapsium.pipeline.analysis.labels.expected_topics.ExpectedTopic]:
    """List the topics expected of a document with some labels, the largest proportion first."""

def explode(corpus: str | os.PathLike[str], out: str | os.PathLike[str], *, progress: collections.abc.Callable[[int], None] = ...) -> collapsium.storage.corpus.manifest.Manifest:
    """Make a corpus whose documents are the segments of another."""

def export(run: str | os.PathLike[str], out: str | os.PathLike[str], *, tls: collapsium.pipeline.executors.base.TLS | None = ..., progress: collections.abc.Callable[[int], None] = ..., to: typing.Literal['csv', 'gensim', 'pyldavis'], threshold: float = ..., corpus: str | None = ..., scheduler: str | collapsium.pipeline.executors.schedulers.ClientOrCluster = ..., workers: int | None = ...) -> collapsium.pipeline.reporting.export.Exported:
    """Write a model in another program's format."""

class _FitOptions(typing.TypedDict, total=False):
    iterations: int | None
    tolerance: float | typing.Literal['auto']
    stop_on: typing.Literal['counts', 'objective', 'score']
    score_every: int | None
    local_sweeps: int
    schedule: typing.Literal['batch', 'stochastic']
    grow: typing.Literal['auto', 'always', 'never']
    passes: int
    batch_shards: int
    samples: int
    sample_every: int
    seed: int
    heldout: str | None
    init: str | None
    init_strength: float
    warm: str | None
    restarts: int
    keep: typing.Literal['all', 'best']
    combine: typing.Literal['predictions', 'consensus']
    scheduler: str | collapsium.pipeline.executors.schedulers.ClientOrCluster
    workers: int | None
    memory: str | int | None
    scratch: str | None
    checkpoint_every: int | None
    strict_bits: bool
    cluster_timeout: float

class _FitAuthorTopic(_FitOptions, _AuthorTopicOptions, total=False):
    pass

class _FitDirichletNetwork(_FitOptions, _DirichletNetworkOptions, total=False):
    pass

class _FitGibbsHdp(_FitOptions, _GibbsHdpOptions, total=False):
    pass

class _FitGibbsLda(_FitOptions, _GibbsLdaOptions, total=False):
    pass

class _FitGibbsNcrp(_FitOptions, _GibbsNcrpOptions, total=False):
    pass

class _FitHca(_FitOptions, _HcaOptions, total=False):
    pass

class _FitHdp(_FitOptions, _HdpOptions, total=False):
    pass

class _FitHdsp(_FitOptions, _HdspOptions, total=False):
    pass

class _FitKeywordLda(_FitOptions, _KeywordLdaOptions, total=False):
    pass

class _FitLabeledLda(_FitOptions, _LabeledLdaOptions, total=False):
    pass

class _FitLda(_FitOptions, _LdaOptions, total=False):
    pass

class _FitNcrp(_FitOptions, _NcrpOptions, total=False):
    pass

class _FitPartiallyLabeledLda(_FitOptions, _PartiallyLabeledLdaOptions, total=False):
    pass

class _FitSegmentedLda(_FitOptions, _SegmentedLdaOptions, total=False):
    pass

class _FitSequentialLda(_FitOptions, _SequentialLdaOptions, total=False):
    pass

class _FitVbLda(_FitOptions, _VbLdaOptions, total=False):
    pass

@typing.overload
def fit(corpus: object, out: str | os.PathLike[str] | None = ..., *, tls: collapsium.pipeline.executors.base.TLS | None = ..., sinks: collections.abc.Sequence[collections.abc.Callable[[dict[str, typing.Any]], None]] = ..., family: typing.Literal['author-topic'], **options: typing.Unpack[_FitAuthorTopic]) -> collapsium.pipeline.models.model.Model:
    """Fit a model to a corpus, or to texts."""

@typing.overload
def fit(corpus: object, out: str | os.PathLike[str] | None = ..., *, tls: collapsium.pipeline.executors.base.TLS | None = ..., sinks: collections.abc.Sequence[collections.abc.Callable[[dict[str, typing.Any]], None]] = ..., family: typing.Literal['dirichlet-network'], **options: typing.Unpack[_FitDirichletNetwork]) -> collapsium.pipeline.models.model.Model:
    """Fit a model to a corpus, or to texts."""

@typing.overload
def fit(corpus: object, out: str | os.PathLike[str] | None = ..., *, tls: collapsium.pipeline.executors.base.TLS | None = ..., sinks: collections.abc.Sequence[collections.abc.Callable[[dict[str, typing.Any]], None]] = ..., family: typing.Literal['gibbs-hdp'], **options: typing.Unpack[_FitGibbsHdp]) -> collapsium.pipeline.models.model.Model:
    """Fit a model to a corpus, or to texts."""

@typing.overload
def fit(corpus: object, out: str | os.PathLike[str] | None = ..., *, tls: collapsium.pipeline.executors.base.TLS | None = ..., sinks: collections.abc.Sequence[collections.abc.Callable[[dict[str, typing.Any]], None]] = ..., family: typing.Literal['gibbs-lda'], **options: typing.Unpack[_FitGibbsLda]) -> collapsium.pipeline.models.model.Model:
    """Fit a model to a corpus, or to texts."""

@typing.overload
def fit(corpus: object, out: str | os.PathLike[str] | None = ..., *, tls: collapsium.pipeline.executors.base.TLS | None = ..., sinks: collections.abc.Sequence[collections.abc.Callable[[dict[str, typing.Any]], None]] = ..., family: typing.Literal['gibbs-ncrp'], **options: typing.Unpack[_FitGibbsNcrp]) -> collapsium.pipeline.models.model.Model:
    """Fit a model to a corpus, or to texts."""

@typing.overload
def fit(corpus: object, out: str | os.PathLike[str] | None = ..., *, tls: collapsium.pipeline.executors.base.TLS | None = ..., sinks: collections.abc.Sequence[collections.abc.Callable[[dict[str, typing.Any]], None]] = ..., family: typing.Literal['hca'], **options: typing.Unpack[_FitHca]) -> collapsium.pipeline.models.model.Model:
    """Fit a model to a corpus, or to texts."""

@typing.overload
def fit(corpus: object, out: str | os.PathLike[str] | None = ..., *, tls: collapsium.pipeline.executors.base.TLS | None = ..., sinks: collections.abc.Sequence[collections.abc.Callable[[dict[str, typing.Any]], None]] = ..., family: typing.Literal['hdp'], **options: typing.Unpack[_FitHdp]) -> collapsium.pipeline.models.model.Model:
    """Fit a model to a corpus, or to texts."""

@typing.overload
def fit(corpus: object, out: str | os.PathLike[str] | None = ..., *, tls: collapsium.pipeline.executors.base.TLS | None = ..., sinks: collections.abc.Sequence[collections.abc.Callable[[dict[str, typing.Any]], None]] = ..., family: typing.Literal['hdsp'], **options: typing.Unpack[_FitHdsp]) -> collapsium.pipeline.models.model.Model:
    """Fit a model to a corpus, or to texts."""

@typing.overload
def fit(corpus: object, out: str | os.PathLike[str] | None = ..., *, tls: collapsium.pipeline.executors.base.TLS | None = ..., sinks: collections.abc.Sequence[collections.abc.Callable[[dict[str, typing.Any]], None]] = ..., family: typing.Literal['keyword-lda'], **options: typing.Unpack[_FitKeywordLda]) -> collapsium.pipeline.models.model.Model:
    """Fit a model to a corpus, or to texts."""

@typing.overload
def fit(corpus: object, out: str | os.PathLike[str] | None = ..., *, tls: collapsium.pipeline.executors.base.TLS | None = ..., sinks: collections.abc.Sequence[collections.abc.Callable[[dict[str, typing.Any]], None]] = ..., family: typing.Literal['labeled-lda'], **options: typing.Unpack[_FitLabeledLda]) -> collapsium.pipeline.models.model.Model:
    """Fit a model to a corpus, or to texts."""

@typing.overload
def fit(corpus: object, out: str | os.PathLike[str] | None = ..., *, tls: collapsium.pipeline.executors.base.TLS | None = ..., sinks: collections.abc.Sequence[collections.abc.Callable[[dict[str, typing.Any]], None]] = ..., family: typing.Literal['lda'], **options: typing.Unpack[_FitLda]) -> collapsium.pipeline.models.model.Model:
    """Fit a model to a corpus, or to texts."""

@typing.overload
def fit(corpus: object, out: str | os.PathLike[str] | None = ..., *, tls: collapsium.pipeline.executors.base.TLS | None = ..., sinks: collections.abc.Sequence[collections.abc.Callable[[dict[str, typing.Any]], None]] = ..., family: typing.Literal['ncrp'], **options: typing.Unpack[_FitNcrp]) -> collapsium.pipeline.models.model.Model:
    """Fit a model to a corpus, or to texts."""

@typing.overload
def fit(corpus: object, out: str | os.PathLike[str] | None = ..., *, tls: collapsium.pipeline.executors.base.TLS | None = ..., sinks: collections.abc.Sequence[collections.abc.Callable[[dict[str, typing.Any]], None]] = ..., family: typing.Literal['partially-labeled-lda'], **options: typing.Unpack[_FitPartiallyLabeledLda]) -> collapsium.pipeline.models.model.Model:
    """Fit a model to a corpus, or to texts."""

@typing.overload
def fit(corpus: object, out: str | os.PathLike[str] | None = ..., *, tls: collapsium.pipeline.executors.base.TLS | None = ..., sinks: collections.abc.Sequence[collections.abc.Callable[[dict[str, typing.Any]], None]] = ..., family: typing.Literal['segmented-lda'], **options: typing.Unpack[_FitSegmentedLda]) -> collapsium.pipeline.models.model.Model:
    """Fit a model to a corpus, or to texts."""

@typing.overload
def fit(corpus: object, out: str | os.PathLike[str] | None = ..., *, tls: collapsium.pipeline.executors.base.TLS | None = ..., sinks: collections.abc.Sequence[collections.abc.Callable[[dict[str, typing.Any]], None]] = ..., family: typing.Literal['sequential-lda'], **options: typing.Unpack[_FitSequentialLda]) -> collapsium.pipeline.models.model.Model:
    """Fit a model to a corpus, or to texts."""

@typing.overload
def fit(corpus: object, out: str | os.PathLike[str] | None = ..., *, tls: collapsium.pipeline.executors.base.TLS | None = ..., sinks: collections.abc.Sequence[collections.abc.Callable[[dict[str, typing.Any]], None]] = ..., family: typing.Literal['vb-lda'], **options: typing.Unpack[_FitVbLda]) -> collapsium.pipeline.models.model.Model:
    """Fit a model to a corpus, or to texts."""

@typing.overload
def fit(corpus: object, out: str | os.PathLike[str] | None = ..., *, tls: collapsium.pipeline.executors.base.TLS | None = ..., sinks: collections.abc.Sequence[collections.abc.Callable[[dict[str, typing.Any]], None]] = ..., family: str, **options: typing.Any) -> collapsium.pipeline.models.model.Model:
    """Fit a model to a corpus, or to texts."""

def infer(run: str | os.PathLike[str], documents: str | os.PathLike[str] | collections.abc.Sequence[str | os.PathLike[str]], out: str | os.PathLike[str], *, tls: collapsium.pipeline.executors.base.TLS | None = ..., notice: collections.abc.Callable[[str], None] | None = ..., progress: collections.abc.Callable[[int], None] = ..., dense: bool = ..., segments: bool = ..., threshold: float | None = ..., seed: int = ..., member: int | None = ..., format: str | None = ..., encoding: str | None = ..., separator: str | None = ..., id: str | None = ..., text: str | None = ..., vocabulary: str | collections.abc.Sequence[str] | None = ..., tokenizer: str | None = ..., headings: str | None = ..., bad_bytes: typing.Literal['error', 'replace'] | None = ..., scheduler: str | collapsium.pipeline.executors.schedulers.ClientOrCluster = ..., workers: int | None = ...) -> collapsium.pipeline.analysis.infer.Inference:
    """Write the topic proportions of documents or of their segments."""

def info(path: str | os.PathLike[str]) -> dict[str, typing.Any]:
    """Describe a folder."""

def ingest(sources: str | os.PathLike[str] | collections.abc.Sequence[str | os.PathLike[str]], corpus: str | os.PathLike[str], *, tls: collapsium.pipeline.executors.base.TLS | None = ..., progress: collections.abc.Callable[[int], None] = ..., like: str | None = ..., format: typing.Literal['csv', 'jsonl', 'ldac', 'mallet', 'mtx', 'npz', 'parquet', 'svmlight', 'text', 'uci', 'vectors'] | None = ..., encoding: str | None = ..., separator: str | None = ..., vocabulary: str | collections.abc.Sequence[str] | None = ..., min_documents: int = ..., max_document_share: float = ..., shard_tokens: int | None = ..., max_decompressed: int | None = ..., max_words: int | None = ..., index_base: typing.Literal[0, 1] | None = ..., id: str | None = ..., text: str | None = ..., title: str | None = ..., date: str | None = ..., date_order: typing.Literal['day', 'month'] | None = ..., labels: collections.abc.Sequence[str] = ..., covariates: collections.abc.Sequence[str] = ..., label_files: collections.abc.Sequence[str] = ..., label_names: collections.abc.Sequence[str] = ..., label_separator: str | None = ..., stop_words: str | collections.abc.Sequence[str] | None = ..., min_characters: int | None = ..., normalise: str | None = ..., tokenizer: str | None = ..., segments: str | None = ..., phrases: typing.Literal['npmi', 'count'] | None = ..., phrase_count: int | None = ..., phrase_threshold: float | None = ..., bad_bytes: typing.Literal['error', 'replace'] | None = ..., values: str | None = ..., header: typing.Literal['yes', 'no'] | None = ..., scheduler: str | collapsium.pipeline.executors.schedulers.ClientOrCluster = ..., workers: int | None = ...) -> collapsium.storage.corpus.manifest.Manifest:
    """Read files of texts, word counts or vectors, and write a corpus."""

def label_topics(run: str | os.PathLike[str], words: int = ...) -> collapsium.pipeline.analysis.labels.expected_topics.LabelTopics:
    """Return the weights of all labels on all topics."""

def measure(run: str | os.PathLike[str], *, heldout: str | os.PathLike[str] | None = ..., unseen: str | os.PathLike[str] | collections.abc.Sequence[str | os.PathLike[str]] | None = ..., seed: int = ..., tls: collapsium.pipeline.executors.base.TLS | None = ..., notice: collections.abc.Callable[[str], None] | None = ..., progress: collections.abc.Callable[[int], None] = ..., metrics: collections.abc.Sequence[str] = ..., label_field: str | None = ..., top_words: int | None = ..., sample_documents: int = ..., coherence: collections.abc.Sequence[str] | None = ..., format: str | None = ..., encoding: str | None = ..., separator: str | None = ..., id: str | None = ..., text: str | None = ..., vocabulary: str | collections.abc.Sequence[str] | None = ..., tokenizer: str | None = ..., headings: str | None = ..., bad_bytes: typing.Literal['error', 'replace'] | None = ..., scheduler: str | collapsium.pipeline.executors.schedulers.ClientOrCluster = ..., workers: int | None = ...) -> dict[str, collapsium.pipeline.analysis.metrics.measurement.Measurement]:
    """Measure the topics of a model by the field's public metrics."""

def name_topics(run: str | os.PathLike[str], namer: str | collections.abc.Callable[[list[str], list[str]], object], *, notice: collections.abc.Callable[[str], None] | None = ..., progress: collections.abc.Callable[[int], None] = ..., texts: collections.abc.Sequence[str] | collapsium.pipeline.corpora.options.TextsInMemory | None = ..., rank_by: typing.Literal['probability', 'frex', 'lift', 'relevance'] = ..., rank_weight: float | None = ...) -> dict[int, str]:
    """Name the topics of a model by a function or a command, and save the names with the model."""

def neighbour_distance(run: str | os.PathLike[str], *, document: str | None = ..., corpus: str | os.PathLike[str] | None = ...) -> float:
    """Return the mean Hellinger distance between the proportions of neighbouring segments of a document."""

def plot(run: str | os.PathLike[str], out: str | os.PathLike[str], *, what: collections.abc.Sequence[str] | None = ..., title: str | None = ..., document: str | None = ..., compare_with: str | None = ..., period: str | None = ..., csv: str | None = ..., topics: collections.abc.Sequence[int] | None = ..., corpus: str | None = ..., min_share: float | None = ..., levels: int | None = ...) -> list[str]:
    """Draw a run."""

def predict(run: str | os.PathLike[str], documents: str | os.PathLike[str] | collections.abc.Sequence[str | os.PathLike[str]], out: str | os.PathLike[str], *, tls: collapsium.pipeline.executors.base.TLS | None = ..., notice: collections.abc.Callable[[str], None] | None = ..., progress: collections.abc.Callable[[int], None] = ..., field: str, values: collections.abc.Sequence[str | float] | None = ..., confusion: str | None = ..., seed: int = ..., format: str | None = ..., encoding: str | None = ..., separator: str | None = ..., id: str | None = ..., text: str | None = ..., vocabulary: str | collections.abc.Sequence[str] | None = ..., tokenizer: str | None = ..., headings: str | None = ..., bad_bytes: typing.Literal['error', 'replace'] | None = ..., scheduler: str | collapsium.pipeline.executors.schedulers.ClientOrCluster = ..., workers: int | None = ...) -> collapsium.pipeline.reporting.predict.Prediction:
    """Predict a label or covariate of documents: the value under which each document's perplexity is lowest."""

def report(run: str | os.PathLike[str], out: str | os.PathLike[str], *, tls: collapsium.pipeline.executors.base.TLS | None = ..., progress: collections.abc.Callable[[int], None] = ..., corpus: str | None = ..., texts: collections.abc.Sequence[str] | collapsium.pipeline.corpora.options.TextsInMemory | None = ..., title: str | None = ..., rank_by: typing.Literal['probability', 'frex', 'lift', 'relevance'] = ..., rank_weight: float | None = ..., min_share: float | None = ..., levels: int | None = ..., scheduler: str | collapsium.pipeline.executors.schedulers.ClientOrCluster = ..., workers: int | None = ...) -> collapsium.pipeline.reporting.page.report.Report:
    """Write an HTML page on a run: topics, their map, example documents, labels, and the fit's convergence."""

def resume(run: str | os.PathLike[str], *, tls: collapsium.pipeline.executors.base.TLS | None = ..., sinks: collections.abc.Sequence[collections.abc.Callable[[dict[str, typing.Any]], None]] = ..., corpus: str | None = ..., heldout: str | None = ..., warm: str | None = ..., init: str | None = ..., scheduler: str | collapsium.pipeline.executors.schedulers.ClientOrCluster = ..., workers: int | None = ..., memory: collapsium.pipeline.executors.schedulers.MemoryOptions = ..., scratch: str | None = ..., checkpoint_every: int | None = ..., strict_bits: bool = ..., cluster_timeout: float = ..., **options: typing.Any) -> collapsium.pipeline.models.model.Model:
    """Resume a run from its latest complete checkpoint, or from its record where there is none."""

def rollback(job: str | os.PathLike[str], *, to: int | None = ...) -> int:
    """Make an older version of a job the current one."""

def sample_texts() -> list[dict[str, str | int]]:
    """Return the paragraphs of 124 addresses of presidents of the United States, for tutorials and first trials."""

class _SimulateOptions(typing.TypedDict, total=False):
    tokens: float | None
    seed: int
    shard_tokens: int | None

class _SimulateAuthorTopic(_SimulateOptions, _AuthorTopicOptions, total=False):
    pass

class _SimulateDirichletNetwork(_SimulateOptions, _DirichletNetworkOptions, total=False):
    pass

class _SimulateGibbsHdp(_SimulateOptions, _GibbsHdpOptions, total=False):
    pass

class _SimulateGibbsLda(_SimulateOptions, _GibbsLdaOptions, total=False):
    pass

class _SimulateGibbsNcrp(_SimulateOptions, _GibbsNcrpOptions, total=False):
    pass

class _SimulateHca(_SimulateOptions, _HcaOptions, total=False):
    pass

class _SimulateHdp(_SimulateOptions, _HdpOptions, total=False):
    pass

class _SimulateHdsp(_SimulateOptions, _HdspOptions, total=False):
    pass

class _SimulateKeywordLda(_SimulateOptions, _KeywordLdaOptions, total=False):
    pass

class _SimulateLabeledLda(_SimulateOptions, _LabeledLdaOptions, total=False):
    pass

class _SimulateLda(_SimulateOptions, _LdaOptions, total=False):
    pass

class _SimulateNcrp(_SimulateOptions, _NcrpOptions, total=False):
    pass

class _SimulatePartiallyLabeledLda(_SimulateOptions, _PartiallyLabeledLdaOptions, total=False):
    pass

class _SimulateSegmentedLda(_SimulateOptions, _SegmentedLdaOptions, total=False):
    pass

class _SimulateSequentialLda(_SimulateOptions, _SequentialLdaOptions, total=False):
    pass

class _SimulateVbLda(_SimulateOptions, _VbLdaOptions, total=False):
    pass

@typing.overload
def simulate(corpus: str | os.PathLike[str], *, progress: collections.abc.Callable[[int], None] = ..., documents: int, words: int, family: typing.Literal['author-topic'], **options: typing.Unpack[_SimulateAuthorTopic]) -> collapsium.storage.corpus.manifest.Manifest:
    """Draw a corpus from a family's generative model."""

@typing.overload
def simulate(corpus: str | os.PathLike[str], *, progress: collections.abc.Callable[[int], None] = ..., documents: int, words: int, family: typing.Literal['dirichlet-network'], **options: typing.Unpack[_SimulateDirichletNetwork]) -> collapsium.storage.corpus.manifest.Manifest:
    """Draw a corpus from a family's generative model."""

@typing.overload
def simulate(corpus: str | os.PathLike[str], *, progress: collections.abc.Callable[[int], None] = ..., documents: int, words: int, family: typing.Literal['gibbs-hdp'], **options: typing.Unpack[_SimulateGibbsHdp]) -> collapsium.storage.corpus.manifest.Manifest:
    """Draw a corpus from a family's generative model."""

@typing.overload
def simulate(corpus: str | os.PathLike[str], *, progress: collections.abc.Callable[[int], None] = ..., documents: int, words: int, family: typing.Literal['gibbs-lda'], **options: typing.Unpack[_SimulateGibbsLda]) -> collapsium.storage.corpus.manifest.Manifest:
    """Draw a corpus from a family's generative model."""

@typing.overload
def simulate(corpus: str | os.PathLike[str], *, progress: collections.abc.Callable[[int], None] = ..., documents: int, words: int, family: typing.Literal['gibbs-ncrp'], **options: typing.Unpack[_SimulateGibbsNcrp]) -> collapsium.storage.corpus.manifest.Manifest:
    """Draw a corpus from a family's generative model."""

@typing.overload
def simulate(corpus: str | os.PathLike[str], *, progress: collections.abc.Callable[[int], None] = ..., documents: int, words: int, family: typing.Literal['hca'], **options: typing.Unpack[_SimulateHca]) -> collapsium.storage.corpus.manifest.Manifest:
    """Draw a corpus from a family's generative model."""

@typing.overload
def simulate(corpus: str | os.PathLike[str], *, progress: collections.abc.Callable[[int], None] = ..., documents: int, words: int, family: typing.Literal['hdp'], **options: typing.Unpack[_SimulateHdp]) -> collapsium.storage.corpus.manifest.Manifest:
    """Draw a corpus from a family's generative model."""

@typing.overload
def simulate(corpus: str | os.PathLike[str], *, progress: collections.abc.Callable[[int], None] = ..., documents: int, words: int, family: typing.Literal['hdsp'], **options: typing.Unpack[_SimulateHdsp]) -> collapsium.storage.corpus.manifest.Manifest:
    """Draw a corpus from a family's generative model."""

@typing.overload
def simulate(corpus: str | os.PathLike[str], *, progress: collections.abc.Callable[[int], None] = ..., documents: int, words: int, family: typing.Literal['keyword-lda'], **options: typing.Unpack[_SimulateKeywordLda]) -> collapsium.storage.corpus.manifest.Manifest:
    """Draw a corpus from a family's generative model."""

@typing.overload
def simulate(corpus: str | os.PathLike[str], *, progress: collections.abc.Callable[[int], None] = ..., documents: int, words: int, family: typing.Literal['labeled-lda'], **options: typing.Unpack[_SimulateLabeledLda]) -> collapsium.storage.corpus.manifest.Manifest:
    """Draw a corpus from a family's generative model."""

@typing.overload
def simulate(corpus: str | os.PathLike[str], *, progress: collections.abc.Callable[[int], None] = ..., documents: int, words: int, family: typing.Literal['lda'], **options: typing.Unpack[_SimulateLda]) -> collapsium.storage.corpus.manifest.Manifest:
    """Draw a corpus from a family's generative model."""

@typing.overload
def simulate(corpus: str | os.PathLike[str], *, progress: collections.abc.Callable[[int], None] = ..., documents: int, words: int, family: typing.Literal['ncrp'], **options: typing.Unpack[_SimulateNcrp]) -> collapsium.storage.corpus.manifest.Manifest:
    """Draw a corpus from a family's generative model."""

@typing.overload
def simulate(corpus: str | os.PathLike[str], *, progress: collections.abc.Callable[[int], None] = ..., documents: int, words: int, family: typing.Literal['partially-labeled-lda'], **options: typing.Unpack[_SimulatePartiallyLabeledLda]) -> collapsium.storage.corpus.manifest.Manifest:
    """Draw a corpus from a family's generative model."""

@typing.overload
def simulate(corpus: str | os.PathLike[str], *, progress: collections.abc.Callable[[int], None] = ..., documents: int, words: int, family: typing.Literal['segmented-lda'], **options: typing.Unpack[_SimulateSegmentedLda]) -> collapsium.storage.corpus.manifest.Manifest:
    """Draw a corpus from a family's generative model."""

@typing.overload
def simulate(corpus: str | os.PathLike[str], *, progress: collections.abc.Callable[[int], None] = ..., documents: int, words: int, family: typing.Literal['sequential-lda'], **options: typing.Unpack[_SimulateSequentialLda]) -> collapsium.storage.corpus.manifest.Manifest:
    """Draw a corpus from a family's generative model."""

@typing.overload
def simulate(corpus: str | os.PathLike[str], *, progress: collections.abc.Callable[[int], None] = ..., documents: int, words: int, family: typing.Literal['vb-lda'], **options: typing.Unpack[_SimulateVbLda]) -> collapsium.storage.corpus.manifest.Manifest:
    """Draw a corpus from a family's generative model."""

@typing.overload
def simulate(corpus: str | os.PathLike[str], *, progress: collections.abc.Callable[[int], None] = ..., documents: int, words: int, family: str, **options: typing.Any) -> collapsium.storage.corpus.manifest.Manifest:
    """Draw a corpus from a family's generative model."""

def split(corpus: str | os.PathLike[str], train: str | os.PathLike[str], heldout: str | os.PathLike[str], *, progress: collections.abc.Callable[[int], None] = ..., fraction: float | None = ..., documents: bool = ..., folds: int | None = ..., fold: int | None = ..., drop_labels: float | None = ..., field: str | None = ..., seed: int = ...) -> None:
    """Split the tokens, documents or labels of a corpus into a training and a held-out corpus."""

def topic_shares(run: str | os.PathLike[str], *, period: str | None = ..., corpus: str | os.PathLike[str] | None = ..., tls: collapsium.pipeline.executors.base.TLS | None = ..., progress: collections.abc.Callable[[int], None] = ..., scheduler: str | collapsium.pipeline.executors.schedulers.ClientOrCluster = ..., workers: int | None = ...) -> collapsium.pipeline.analysis.topic_shares.TimeShares:
    """Return the topics' shares by period: means of the documents' proportions, weighted by document length."""

def topics(run: str | os.PathLike[str], words: int = ..., *, rank_by: typing.Literal['probability', 'frex', 'lift', 'relevance'] = ..., rank_weight: float | None = ...) -> list[collapsium.pipeline.analysis.topics.Topic]:
    """List the topics of a model, the largest first, or the nodes of its tree, depth-first."""

def verify(path: str | os.PathLike[str], *, progress: collections.abc.Callable[[int], None] = ...) -> collapsium.pipeline.analysis.verify.Findings:
    """Check a corpus, a run, a comparison, a checkpoint or a model against its digests and invariants."""

def versions(job: str | os.PathLike[str]) -> list[tuple[collapsium.storage.runs.published.VersionRecord, bool]]:
    """Return the published versions of a job, the oldest first, each with True if it is the current one."""

def write_sample_texts(out: str | os.PathLike[str]) -> int:
    """Write the sample texts as JSON lines, an object a line."""

__all__ = ['Coherence', 'Comparison', 'Corpus', 'Edited', 'Evaluation', 'ExpectedTopic', 'Exported', 'Findings', 'LabelTopics', 'Measurement', 'Model', 'Outcome', 'Plan', 'Prediction', 'Reconstruction', 'Report', 'TLS', 'TimeShares', 'Topic', 'append', 'batch', 'coherence', 'compare', 'edit', 'estimate', 'evaluate', 'expected_topics', 'explode', 'export', 'fit', 'infer', 'info', 'ingest', 'label_topics', 'measure', 'name_topics', 'neighbour_distance', 'plot', 'predict', 'report', 'resume', 'rollback', 'sample_texts', 'simulate', 'split', 'topic_shares', 'topics', 'verify', 'versions', 'write_sample_texts']
