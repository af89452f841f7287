"""The hierarchical Dirichlet process by collapsed variational inference (CV-HDP; Teh, Kurihara and Welling 2007).

theta_d ~ Dir(alpha pi), phi_k ~ Dir(beta tau), pi_k = pt_k prod_{l<k} (1 - pt_l), pt_k ~ Beta(1, gamma);
alpha, beta, gamma ~ Gamma(shape, rate), tau ~ Dir. Truncated at K topics, nested: beyond K, pi keeps its prior.

Topic assignments are LDA's with a_k = G[alpha] G[pi_k] and b_w = G[beta] G[tau_w], where G[y] = exp E[log y];
prediction uses expectations in their place.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal, get_args

import numpy as np
import numpy.typing as npt
from pydantic import Field

from collapsium.storage.errors import OptionError
from collapsium.workers import special_functions as special
from collapsium.workers.arrays.delta import Delta, fresh
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.arrays.state import Arrays, present
from collapsium.workers.families import description
from collapsium.workers.families import generative as drawing
from collapsium.workers.families.cvb import collapsed, plain_topics, prevalence, schedule, split_merge, updates
from collapsium.workers.families.cvb.collapsed import NO_ROWS
from collapsium.workers.families.cvb.global_state import (
    HdpGlobalState,
    MovesState,
    StepSums,
    SweepSums,
    TauSums,
    Vector,
    WordSums,
)
from collapsium.workers.families.cvb.options import PlainTopicsOptions, with_seeds
from collapsium.workers.families.cvb.parameters import Parameters, active_settings
from collapsium.workers.families.cvb.plain_topics import PlainTopicsFamily
from collapsium.workers.families.cvb.schedule import Phase
from collapsium.workers.families.cvb.states import CollapsedRows
from collapsium.workers.families.family import Summary
from collapsium.workers.options import Formerly
from collapsium.workers.special_functions import betaln, digamma, gammaln


def predictive_words(rows: CollapsedRows, global_state: HdpGlobalState) -> Vector:
    """Return E[beta] E[tau_w] of the words of the rows."""
    tau = _tau(rows, global_state)
    share = np.full(rows.words, 1.0 / global_state.vocabulary) if tau is None else tau / global_state.tau_total
    words: Vector = global_state.beta * share
    return words


def _tau(rows: CollapsedRows, global_state: HdpGlobalState) -> Vector | None:
    """Return the parameters of q(tau) for the words of the rows; None while tau is fixed at 1/W."""
    if global_state.tau_total <= 0:
        return None
    tau: Vector = present(rows.word_tables) + global_state.tau_prior
    return tau


def _moving(global_state: HdpGlobalState) -> bool:
    """Return whether topics move, or redundant ones were found and rounds continue."""
    moves = global_state.moves
    return moves is not None and (moves.moving or moves.superfluous)


def geometric_mean(posterior: npt.NDArray[np.float64]) -> float:
    """Return G[y] = exp(psi(a)) / b of a Gamma with shape a and rate b."""
    return float(special.exp(digamma(posterior[0])) / posterior[1])


def divergence(global_state: HdpGlobalState, delta: Delta) -> float:
    """Return the sum of KL(q|p) over the hyperparameters, each from the parameters of its current q."""
    total = 0.0
    for posterior, prior in (
        (global_state.alpha_posterior, global_state.alpha_prior),
        (global_state.gamma_posterior, global_state.gamma_prior),
        (global_state.beta_posterior, global_state.beta_prior),
    ):
        if prior is not None and posterior.size:
            # KL between two Gammas given as (shape, rate).
            q, p = posterior, prior
            kl = (q[0] - p[0]) * digamma(q[0]) - gammaln(q[0]) + gammaln(p[0])
            total += float(kl + p[0] * special.log(q[1] / p[1]) + q[0] * (p[1] - q[1]) / q[1])
    sticks = global_state.stick_posterior
    if sticks.size:
        both = sticks.sum(axis=1)
        log_stick, log_rest = digamma(sticks[:, 0]) - digamma(both), digamma(sticks[:, 1]) - digamma(both)
        entropy = betaln(*sticks.T) - (sticks[:, 0] - 1) * log_stick - (sticks[:, 1] - 1) * log_rest
        gamma = global_state.gamma
        log_gamma = special.log(
            gamma if global_state.gamma_prior is None else geometric_mean(global_state.gamma_posterior)
        )
        total += float((-entropy - log_gamma - (gamma - 1.0) * log_rest).sum())
    tau = delta.read(TauSums)
    if tau is not None:
        words, prior_tau, tau_total = global_state.vocabulary, global_state.tau_prior, global_state.tau_total
        total += float(gammaln(tau_total)) - tau.tau_gammaln
        total += words * float(gammaln(prior_tau)) - float(gammaln(words * prior_tau))
        total += tau.tau_digamma - float(digamma(tau_total)) * tau.tau_more
    return total


HOLD_ORDER_0 = 15  # First sweeps with order 0 and a random start in which nothing is learned
MIN_SHARE = 1e-200  # Least G[pi_k], whose logarithm the bound and the tables take

Learned = Literal["alpha", "gamma", "pi", "beta", "tau"]
LEARNED: tuple[Learned, ...] = get_args(Learned)
# Learned while tokens are held out for split-merge moves, until redundant topics are found
SHARES: tuple[Learned, ...] = ("gamma", "pi")


class HdpOptions(PlainTopicsOptions, title="hierarchical Dirichlet process, collapsed variational inference (CV-HDP)"):
    """Options of the family."""

    topics: int = Field(200, ge=1, le=65_535, description="truncation K: the largest number of topics")
    alpha_shape: float = Field(
        4.0, gt=0, description="shape of the Gamma prior of alpha, the concentration of a document's topics"
    )
    alpha_rate: float = Field(4.0, gt=0, description="rate of the Gamma prior of alpha")
    gamma_shape: float = Field(
        7.0, gt=0, description="shape of the Gamma prior of gamma, the concentration of the topics' shares"
    )
    gamma_rate: float = Field(7.0, gt=0, description="rate of the Gamma prior of gamma")
    beta: float = Field(
        100.0,
        gt=0,
        description="concentration beta of a topic over the words; each of the W words has Dirichlet parameter beta/W, "
        "unless tau is learned. The initial value if beta is learned",
    )
    beta_shape: float = Field(4.0, gt=0, description="shape of the Gamma prior of beta, if beta is learned")
    beta_rate: float = Field(4.0, gt=0, description="rate of the Gamma prior of beta, if beta is learned")
    tau: float = Field(40.0, gt=0, description="concentration of the Dirichlet prior of tau, if tau is learned")
    order: Literal[0, 2] = Field(
        0, description="0: zeroth-order updates (CVB0); 2: the second-order updates of the paper"
    )
    hold: int | None = Field(
        None,
        ge=0,
        lt=1 << 31,
        description="number of first sweeps during which hyperparameters keep their initial values, because topics "
        "are still alike (default: 15 with order 0 and a random start, else 0)",
    )
    split_merge_moves: Annotated[bool | None, Formerly("moves")] = Field(
        None,
        description="merge, delete and split topics. A move is accepted if it improves the prediction of reserved "
        "tokens, to which topics are not fitted during the search: "
        f"{schedule.SPLIT_MERGE_HELD_TOKENS:,.0f} tokens, but at least {schedule.MIN_SPLIT_MERGE_HELD_SHARE:.0%} and "
        f"at most {schedule.MAX_SPLIT_MERGE_HELD_SHARE:.0%} of the corpus (default: true with active responsibilities, "
        f"at least {schedule.MIN_SPLIT_MERGE_ITERATIONS} iterations, at most {schedule.MAX_SPLIT_MERGE_TOPICS:,} "
        "topics and no seed words, except in a warm start)",
    )
    learn: tuple[Learned, ...] | None = Field(
        None,
        description="hyperparameters to learn: alpha, gamma, pi (shares of the topics), beta, tau (shares of the "
        "words, which are 1/W otherwise). By default gamma and pi and, with dense responsibilities, alpha, which "
        "tempered active responsibilities would overestimate",
    )

    @property
    def learned(self) -> tuple[Learned, ...]:
        """Names of the learned hyperparameters."""
        if self.learn is not None:
            return self.learn
        return ("gamma", "pi") if self.active else ("alpha", "gamma", "pi")

    @property
    def unused(self) -> dict[str, str]:
        """Options without effect under these options, and for each the condition under which it applies."""
        of_learned = {"beta_shape": "beta", "beta_rate": "beta", "tau": "tau"}
        idle = {name: f"`learn` {of}" for name, of in of_learned.items() if of not in self.learned}
        return super().unused | idle

    @property
    def needs_tables(self) -> bool:
        """True if E[s_k] is summed, to learn alpha or pi."""
        return bool({"alpha", "pi"} & set(self.learned))

    @property
    def needs_moments(self) -> bool:
        """True if V[n_kw] and Z[n_kw] are summed."""
        return self.order == 2 or bool({"beta", "tau"} & set(self.learned))


class Hdp(PlainTopicsFamily[HdpOptions, HdpGlobalState]):
    """The hierarchical Dirichlet process by collapsed variational inference."""

    Options = HdpOptions
    global_state_type = HdpGlobalState

    def initialise(self, summary: Summary, stream: Stream) -> HdpGlobalState:
        """Return the global state before any document was swept: the priors' means, and pi_k = 1/K."""
        options = self.options
        uniform, learn = np.full(options.topics, 1.0 / options.topics), options.learned
        alpha = np.array([options.alpha_shape, options.alpha_rate])
        gamma = np.array([options.gamma_shape, options.gamma_rate])
        hold = options.hold
        if hold is None:
            hold = 0 if summary.warm or summary.start or options.order == 2 else HOLD_ORDER_0
        mean, geometric = _initial_alpha(options)
        moves = _initial_moves(summary, options)
        counts = collapsed.initial_counts(summary, options, stream, topics_move=moves is not None)
        global_state = HdpGlobalState(
            **counts,
            hold=hold,
            alpha=mean,
            alpha_geometric=geometric,
            alpha_prior=alpha if "alpha" in learn else None,
            alpha_posterior=alpha,
            gamma=float(gamma[0] / gamma[1]),
            gamma_prior=gamma if "gamma" in learn else None,
            gamma_posterior=gamma,
            pi=uniform,
            pi_geometric=uniform,
            stick_order=np.arange(options.topics),
            stick_posterior=np.zeros((0, 2)),
            beta=options.beta,
            beta_geometric=options.beta,
            beta_prior=np.array([options.beta_shape, options.beta_rate]) if "beta" in learn else None,
            beta_posterior=np.zeros(0),
            tau_prior=options.tau / summary.words,
            moves=moves,
        )
        global_state = self.with_prevalence(global_state, summary, None)
        return with_seeds(global_state, summary, options)

    def carry(
        self, global_state: HdpGlobalState, known: HdpGlobalState, before: HdpOptions
    ) -> tuple[HdpGlobalState, int] | None:
        """Return the global state with alpha, gamma, pi and beta as another run has learned them."""
        options = self.options
        if (
            not self.can_carry(global_state, before)
            or global_state.moves is not None
            or self.uncounted_tokens(known) > 0
        ):
            return None
        after = updates.carried(plain_topics.with_known_prevalence(global_state, known), known, options)
        if "alpha" in options.learned:
            geometric, posterior = known.alpha_geometric, known.alpha_posterior
            after = replace(after, alpha=known.alpha, alpha_geometric=geometric, alpha_posterior=posterior)
        if "gamma" in options.learned:
            after = replace(after, gamma=known.gamma, gamma_posterior=known.gamma_posterior)
        if "pi" in options.learned:
            after = replace(after, pi=known.pi, pi_geometric=known.pi_geometric)
            after = replace(after, stick_order=known.stick_order, stick_posterior=known.stick_posterior)
        if "beta" in options.learned:
            geometric, posterior = known.beta_geometric, known.beta_posterior
            after = replace(after, beta=known.beta, beta_geometric=geometric, beta_posterior=posterior)
        return after, options.topics

    def update(self, global_state: HdpGlobalState, delta: Delta, stream: Stream) -> HdpGlobalState:
        """Return the next global state: changed counts, and the posteriors of the hyperparameters.

        q(pt_k) = Beta(1 + E[s_k], E[gamma] + sum_{l>k} E[s_l]) with sticks in the order of falling E[n_k];
        q(alpha) = Gamma(a + E[s], b - sum_d E[log eta_d]); q(gamma) = Gamma(a + K, b - sum_k E[log(1 - pt_k)]);
        q(beta) = Gamma(a + E[t], b - sum_k E[log xi_k]); q(tau) = Dir(a_tau + E[t_w]).
        """
        after, sums = updates.of_corpus(global_state, delta)
        parameters = self.update_parameters(NO_ROWS, global_state)
        after = updates.counted(global_state, after, delta, parameters)
        after = prevalence.updated_shares(after, delta, parameters.topics)
        if sums is None:
            return after
        step = delta.read(StepSums)
        after = replace(after, sweeps=after.sweeps + max(0.0 if step is None else step.batches, 1.0))
        after = split_merge.step(global_state, after, delta)
        if global_state.phase is Phase.SPLIT_MERGE:
            old, now = global_state.moves, after.moves
            if old is None or now is None or not (old.superfluous or now.superfluous):
                return _learned(global_state, after, sums, delta, self.options, SHARES)
            # While topics merge and split, redundant ones would raise alpha, which blurs them.
            alive = now.topic_alive
            share, alpha = alive / alive.sum(), float(schedule.REDUNDANT_TOPIC_PRIOR * alive.sum())
            return replace(
                after, alpha=alpha, alpha_geometric=alpha, pi=share, pi_geometric=np.maximum(share, MIN_SHARE)
            )
        if global_state.phase is Phase.RELEASE:
            mean, geometric = _initial_alpha(self.options)
            after = replace(after, alpha=mean, alpha_geometric=geometric)
        return _learned(global_state, after, sums, delta, self.options, LEARNED)

    def objective(self, global_state: HdpGlobalState, delta: Delta) -> dict[str, float]:
        """Return the second-order bound, in nats, less the divergence of learned hyperparameters; order 0 has none."""
        bounds = super().objective(global_state, delta)
        return {name: bound - divergence(global_state, delta) for name, bound in bounds.items()}

    def metrics(self, global_state: HdpGlobalState) -> dict[str, float]:
        """Return E[alpha], E[gamma], E[beta] and the number of topics that have 99% of the tokens."""
        metrics = {"alpha": global_state.alpha, "gamma": global_state.gamma, "beta": global_state.beta}
        metrics.update(updates.metrics(global_state))
        metrics["topics_99"] = float(description.holding(global_state.tokens))
        if global_state.moves is not None:
            state = global_state.moves
            metrics["topics"] = float(state.topic_alive.sum())
            metrics.update(merges=float(state.merges), deletes=float(state.deletes), splits=float(state.splits))
        return metrics

    def remark(self, global_state: HdpGlobalState) -> str | None:
        """Return a warning where a search for redundant topics has ended without any, so that all topics are left."""
        state = global_state.moves
        if state is None or state.merges + state.deletes or global_state.phase is Phase.SPLIT_MERGE:
            return None
        return f"no redundant topic was found: {state.topic_alive.size:,} is your limit, not a finding"

    def uneditable(self, global_state: HdpGlobalState) -> str | None:
        """Return the reason for which the topics of a model cannot be edited; None if they can."""
        if self.uncounted_tokens(global_state) > 0:
            return "some of its tokens are held out for moves of topics"
        return super().uneditable(global_state)

    def edited(
        self, global_state: HdpGlobalState, mixing: Vector, tokens: Vector, plain: Vector | None
    ) -> HdpGlobalState:
        """Return the global state after an edit of topics; the shares of merged topics add up."""
        alive = np.flatnonzero(tokens > 0.0)
        return replace(
            global_state,
            **plain_topics.edited_counts(global_state, mixing, tokens, plain),
            pi=plain_topics.mixed(mixing, global_state.pi),
            pi_geometric=np.maximum(plain_topics.mixed(mixing, global_state.pi_geometric), MIN_SHARE),
            stick_order=alive[np.argsort(-tokens[alive], kind="stable")],
            stick_posterior=np.zeros((0, 2)),
            moves=None,
        )

    def draw_model(self, summary: Summary, stream: Stream) -> tuple[Arrays, HdpGlobalState]:
        """Draw sticks and topics to simulate from, with alpha, gamma and beta at their priors' means."""
        pi = drawing.draw_sticks(self.options.topics, self.options.gamma_shape / self.options.gamma_rate, stream)
        tokens = np.maximum(1e9 * pi, 1.0)
        global_state = replace(
            self.initialise(summary, stream),
            pi=pi,
            pi_geometric=pi,
            beta=1e-9,
            moments=False,
            # The counts are complete: no word has background to spread.
            active=False,
            held=None,
            temperature_search=None,
            topic_moments=np.stack([tokens, np.zeros(self.options.topics)]),
        )
        return drawing.draw_topics(summary.words, tokens, self.options.beta, stream), global_state

    def simulated_prior(self, global_state: HdpGlobalState) -> Vector:
        """Return alpha pi."""
        prior: Vector = global_state.alpha * global_state.pi
        return prior

    def follows_design(self, global_state: HdpGlobalState) -> bool:
        """Return true once topics no longer merge and split."""
        moving = (Phase.SPLIT_MERGE, Phase.RELEASE)
        return super().follows_design(global_state) and global_state.phase not in moving

    def design_coefficients(self, global_state: HdpGlobalState) -> Vector | None:
        """Return the coefficients with the logarithms of the shares in the intercepts, -inf for deleted topics."""
        coefficients = super().design_coefficients(global_state)
        if coefficients is None:
            return None
        shares, coefficients = global_state.alpha * global_state.pi, np.array(coefficients)
        coefficients[0] = np.where(shares > 0.0, coefficients[0] + special.log(np.maximum(shares, MIN_SHARE)), -np.inf)
        return coefficients

    def moves(self, global_state: HdpGlobalState) -> MovesState | None:
        """Return the state of split-merge moves; None without them."""
        return global_state.moves

    def update_parameters(self, rows: CollapsedRows, global_state: HdpGlobalState) -> Parameters:
        """Return the parameters of the updates: geometric expectations G[y] = exp E[log y]."""
        tau = _tau(rows, global_state)
        if tau is None:
            share = np.full(rows.words, 1.0 / global_state.vocabulary)
        else:
            share = special.exp(digamma(tau) - digamma(global_state.tau_total))
        topics = global_state.alpha_geometric * global_state.pi_geometric
        return Parameters(
            topics=topics,
            concentration=global_state.alpha,
            words=np.maximum(global_state.beta_geometric * share, 1e-12),
            total=global_state.beta,
            order=self.options.order,
            tables=self.options.needs_tables,
            moments=global_state.moments,
            seeds=global_state.seed_rows(rows.word_number),
            active=active_settings(global_state, self.options, topics, moving=_moving(global_state)),
        )

    def predictive_parameters(self, rows: CollapsedRows, global_state: HdpGlobalState) -> Parameters:
        """Return the parameters of prediction: expectations."""
        topics = global_state.alpha * global_state.pi
        return Parameters(
            topics=topics,
            concentration=global_state.alpha,
            words=predictive_words(rows, global_state),
            total=global_state.beta,
            seeds=global_state.seed_rows(rows.word_number),
            active=active_settings(global_state, self.options, topics, moving=_moving(global_state)),
        )

    def fold(
        self, block: CollapsedRows, delta: Delta, global_state: HdpGlobalState, bands: slice | None = None
    ) -> tuple[CollapsedRows, Delta]:
        """Return a block of the vocabulary after the changes of its rows, with `TauSums` too where tau is learned."""
        after, folded = super().fold(block, delta, global_state, bands)
        tau = _tau(block, global_state)
        if tau is None:
            return after, folded
        tables = tau - global_state.tau_prior
        sums = {
            "tau_gammaln": fresh(float(gammaln(tau).sum())),
            "tau_digamma": fresh(float((tables * digamma(tau)).sum())),
            "tau_more": fresh(float(tables.sum())),
        }
        return after, folded + Delta(sums)


def _initial_moves(summary: Summary, options: HdpOptions) -> MovesState | None:
    """Return the state of split-merge moves before any round; None without them."""
    able = (
        options.active
        and not summary.stochastic
        and "pi" in options.learned
        and options.topics <= schedule.MAX_SPLIT_MERGE_TOPICS
        # Moves might merge or delete a topic that was seeded.
        and not options.seeds
    )
    if options.split_merge_moves and not able:
        raise OptionError(
            "true requires active responsibilities, the batch schedule, pi in `learn`, no `seeds`, and at most "
            f"{schedule.MAX_SPLIT_MERGE_TOPICS} topics",
            "split_merge_moves",
        )
    # A warm start keeps the other run's topics.
    default = summary.iterations >= schedule.MIN_SPLIT_MERGE_ITERATIONS and not summary.warm
    requested = default if options.split_merge_moves is None else options.split_merge_moves
    if not (able and requested) or options.topics == 1:
        return None
    if summary.iterations and not split_merge.possible(summary.iterations):
        raise OptionError(
            f"true requires more iterations, found {summary.iterations}: they end before moves can be scored",
            "split_merge_moves",
        )
    return split_merge.begin(options.topics, summary.iterations)


def _initial_alpha(options: HdpOptions) -> tuple[float, float]:
    """Return the prior's E[alpha] and G[alpha]; where alpha is not learned, both are the mean."""
    prior = np.array([options.alpha_shape, options.alpha_rate])
    mean = float(prior[0] / prior[1])
    return mean, geometric_mean(prior) if "alpha" in options.learned else mean


def _learned(
    global_state: HdpGlobalState,
    after: HdpGlobalState,
    sums: SweepSums,
    delta: Delta,
    options: HdpOptions,
    learnable: tuple[Learned, ...],
) -> HdpGlobalState:
    """Return the global state with the posteriors of those hyperparameters that are learned and learnable now."""
    if after.sweeps <= global_state.hold:
        return after
    learned, words, tables = set(options.learned) & set(learnable), delta.read(WordSums), sums.tables
    if "pi" in learned and tables is not None:
        alive = np.ones(options.topics, dtype=bool) if global_state.moves is None else global_state.moves.topic_alive
        after = _with_sticks(after, tables, global_state.gamma, alive)
    if "gamma" in learned and after.stick_posterior.size:
        sticks = after.stick_posterior
        log_rest = digamma(sticks[:, 1]) - digamma(sticks.sum(axis=1))
        posterior = np.array([options.gamma_shape + len(sticks), options.gamma_rate - log_rest.sum()])
        after = replace(after, gamma_posterior=posterior, gamma=float(posterior[0] / posterior[1]))
    if "alpha" in learned and tables is not None:
        posterior = np.array([options.alpha_shape + tables.sum(), options.alpha_rate - sums.log_eta])
        mean, geometric = float(posterior[0] / posterior[1]), geometric_mean(posterior)
        after = replace(after, alpha_posterior=posterior, alpha=mean, alpha_geometric=geometric)
    if "beta" in learned and words is not None:
        log_xi, _ = collapsed.topic_totals(after.topic_moments, after.topic_log_absent, global_state.beta)
        posterior = np.array([options.beta_shape + words.tables_of_words, options.beta_rate - log_xi.sum()])
        mean, geometric = float(posterior[0] / posterior[1]), geometric_mean(posterior)
        after = replace(after, beta_posterior=posterior, beta=mean, beta_geometric=geometric)
    if "tau" in learned and words is not None:
        after = replace(after, tau_total=options.tau + words.tables_of_words)
    return after


def _with_sticks(
    global_state: HdpGlobalState, tables: Vector, gamma: float, alive: npt.NDArray[np.bool_]
) -> HdpGlobalState:
    """Return the global state with q(pt), in the order of the sticks, and E[pi] and G[pi], 0 for deleted topics."""
    topic = global_state.topic_moments[0]
    order = np.argsort(-topic, kind="stable")
    order = order[alive[order]]
    s = tables[order]
    beyond = np.cumsum(s[::-1])[::-1] - s
    posterior = np.stack([1.0 + s, gamma + beyond], axis=1)
    both = posterior.sum(axis=1)
    log_stick, log_rest = digamma(posterior[:, 0]) - digamma(both), digamma(posterior[:, 1]) - digamma(both)
    mean, geometric = np.zeros(topic.size), np.zeros(topic.size)
    rest = np.cumprod(posterior[:, 1] / both)
    mean[order] = posterior[:, 0] / both * np.concatenate([[1.0], rest[:-1]])
    geometric[order] = special.exp(log_stick + np.concatenate([[0.0], np.cumsum(log_rest)[:-1]]))
    geometric = np.maximum(geometric, MIN_SHARE)
    return replace(global_state, stick_order=order, stick_posterior=posterior, pi=mean, pi_geometric=geometric)
