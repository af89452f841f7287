"""Schedule of a fit of `lda` or `hdp`: its phases, the transitions between them, and all constants.

A fit with sparse responsibilities may choose three things by the tokens of its training corpus that it holds out: the
inverse temperature of its responsibilities, the number of topics (`hdp`), and whether active sets are small. Each
has functions that begin, step and end it, in `updates` and in `split_merge`. After each sweep, `updates.decide` and, in
`hdp`, `split_merge.step` decide about the next one, whose phase is the `phase` of the global state.

    From                When                                             To
    ------------------  -----------------------------------------------  -----------------------------------------------
    the start           topics may merge and split                       SPLIT_MERGE
    the start           else, if the fit searches for its temperature    FORMING
    the start           else: the fit is short, dense, stochastic or     CONVERGING
                        warm, or its options name the temperature
    SPLIT_MERGE         rounds find no more moves, or LAST_ROUND has     RELEASE
                        passed (`split_merge.end`)
    RELEASE             one sweep has counted the released tokens        FORMING, TEMPERATURE_SEARCH or CONVERGING
    FORMING             documents have joined, and topics have formed    TEMPERATURE_SEARCH
    TEMPERATURE_SEARCH  the corpus is large, and enough sweeps are left  ACTIVE_SET_TRIAL
    ACTIVE_SET_TRIAL    the trial has decided                            TEMPERATURE_SEARCH
    TEMPERATURE_SEARCH  SEARCH_END has passed (`end_search`)             CONVERGING
"""

from __future__ import annotations

from enum import Enum, auto


class Phase(Enum):
    """Phase of the schedule that a sweep belongs to."""

    # Rounds of split-merge moves; the temperature search runs too, on the tokens that are held out for the moves
    SPLIT_MERGE = auto()
    # The sweep that first adds the tokens that only the rounds held out; alpha is reset
    RELEASE = auto()
    # Documents join, or topics form; the scores of the search have no effect yet
    FORMING = auto()
    # Every second sweep changes the temperature
    TEMPERATURE_SEARCH = auto()
    # Small and large active sets are compared; the temperature search continues
    ACTIVE_SET_TRIAL = auto()
    # All tokens count, nothing is tried, and hyperparameters are learned
    CONVERGING = auto()


# Held-out tokens ------------------------------------------------------------------------------------------------------

# Minimum number of tokens that the temperature search holds out, and the minimum and maximum share of a corpus: large
# corpora can spare more, which makes scores less noisy
SEARCH_HELD_TOKENS = 20_000.0
MIN_SEARCH_HELD_SHARE = 0.005
MAX_SEARCH_HELD_SHARE = 0.05
# The same for split-merge moves, whose share is always at least twice as large, so that the two can be distinguished.
# Topics do not learn from held-out tokens: holding out a tenth of 9 million simulated tokens costs 0.013 nats per token
# in the sixth sweep.
SPLIT_MERGE_HELD_TOKENS = 100_000.0
MIN_SPLIT_MERGE_HELD_SHARE = 0.01
MAX_SPLIT_MERGE_HELD_SHARE = 0.1


def search_share(tokens: float) -> float:
    """Return the share of a corpus's tokens that the temperature search holds out."""
    return min(max(SEARCH_HELD_TOKENS / max(tokens, 1.0), MIN_SEARCH_HELD_SHARE), MAX_SEARCH_HELD_SHARE)


def split_merge_share(tokens: float) -> float:
    """Return the share of a corpus's tokens that is held out for split-merge moves."""
    share = SPLIT_MERGE_HELD_TOKENS / max(tokens, 1.0)
    return min(max(share, MIN_SPLIT_MERGE_HELD_SHARE), MAX_SPLIT_MERGE_HELD_SHARE)


# Temperature search ---------------------------------------------------------------------------------------------------

# Minimum tokens of a corpus for a search: a share of `MAX_SEARCH_HELD_SHARE` still distinguishes temperatures
MIN_SEARCH_TOKENS = 20_000.0
# Iterations over all documents of a fit that searches, at least: after a random start, and after a start from clusters
MIN_SEARCH_ITERATIONS_RANDOM = 30
MIN_SEARCH_ITERATIONS_CLUSTERS = 20
# Inverse temperature of shorter fits: the best on news and blog entries, and between the best on reviews and on papers
SHORT_INVERSE_TEMPERATURE = 0.85
# Inverse temperature in the first sweeps of a random start: topics that form hot end in better optima; and in the first
# sweeps of a start from clusters, which has topics already
RANDOM_INVERSE_TEMPERATURE = 0.8
CLUSTERS_INVERSE_TEMPERATURE = 0.9
# Sweeps before the search, after a random start, where a colder fit scores better until topics have formed; and after a
# start from clusters or from a sample of the documents
FORMING_SWEEPS_RANDOM = 16
FORMING_SWEEPS_CLUSTERS = 4
# Bounds of the inverse temperature midway between the two halves of the documents; above 1 it would sharpen
# responsibilities
MIN_INVERSE_TEMPERATURE = 0.6
MAX_INVERSE_TEMPERATURE = 0.975
TEMPERATURE_SPREAD = 0.025  # Difference between the inverse temperature of either half and their midpoint
# Sweeps before the halves swap: in the first, documents adapt to the temperature, in the second, topics
SWEEPS_PER_TEMPERATURE = 2
TEMPERATURE_GAIN = 0.08  # Change of the inverse temperature per slope of the score, in nats per token
MAX_TEMPERATURE_CHANGE = 0.04  # Largest change of the inverse temperature at a time
# Share of the search's sweeps, at its end, whose inverse temperatures are averaged, as iterates of stochastic gradients
# are (Polyak and Juditsky 1992). Single values vary by 0.02, which costs 0.01 nats per token on reviews.
AVERAGED_SHARE = 1 / 3
SEARCH_END = 0.9  # Share of the iterations over all documents after which the search ends


# Trial of small active sets -------------------------------------------------------------------------------------------

# Minimum tokens of a corpus for a trial: fits of smaller corpora end so soon that a trial takes longer than it saves
MIN_TRIAL_TOKENS = 4e6
# Sweeps of the three steps of a trial: all active sets are large; half of the documents have small sets; all do
TRIAL_LARGE_SWEEPS = 7
TRIAL_HALF_SWEEPS = 8
TRIAL_SMALL_SWEEPS = 8
TRIAL_COMPARED_SWEEPS = 4  # Last sweeps of the second and third step whose scores are compared with each other
SEARCH_SWEEPS_AFTER_TRIAL = 4  # Sweeps of the temperature search after the trial, at least
# Maximum loss of half of the documents, in nats per token, for which all documents get small active sets: reviews, news
# and blog entries lose 0.03 to 0.065, papers 0.016 to 0.023, simulated corpora 0.017 at most
MAX_TRIAL_LOSS = 0.02
# Gain of all documents, in nats per token, from which active sets stay small: scores of papers, whose topics gain
# nothing, rise by as much in eight sweeps
MIN_TRIAL_GAIN = 0.005


def half_selection() -> int:
    """Return the sweep of the trial that selects small active sets for half of the documents, counted from 1."""
    return TRIAL_LARGE_SWEEPS + 1


def full_selection() -> int:
    """Return the sweep of the trial that selects small active sets for all documents."""
    return half_selection() + TRIAL_HALF_SWEEPS + 1


def trial_sweeps() -> int:
    """Return the number of sweeps of a trial that does not end with a loss of the half."""
    return full_selection() + TRIAL_SMALL_SWEEPS


# Coefficients of prevalence: sweeps before the first step, in which topics form, and sweeps from one step to the next
PREVALENCE_FIRST = 20
PREVALENCE_INTERVAL = 4

# Split-merge moves; the values were tuned on corpora simulated from known topics --------------------------------------

# Iterations of a fit whose topics merge and split by default, at least: topics must converge after the last round
MIN_SPLIT_MERGE_ITERATIONS = 100
MAX_SPLIT_MERGE_TOPICS = 1024  # Largest truncation: products of all pairs of topics take 8 MB then
FIRST_ROUND = 40  # Sweeps before the first round
ROUND_INTERVAL = 5  # Sweeps from one round to the next
LAST_ROUND = 0.75  # Share of all sweeps after which there are no more rounds
IDLE_ROUNDS = 4  # Rounds in a row with few moves after which topics are split, or the rounds end
FEW_MOVES = 0.02  # Number of moves, as a share of the topics, up to which a round counts as having few moves
# Share of the topics; if the first round finds fewer certain merges, the truncation is not too large. Redundant topics
# are copies of others. Deletions do not reveal them: in short documents, every deletion seems to gain.
MIN_REDUNDANT_SHARE = 0.05
# Number of standard errors by which the gain of a certain merge exceeds zero. Accepted merges of copies always count as
# certain, because two topics that predict alike gain nothing by a merge.
SURE_MERGE_ERRORS = 1.0
REDUNDANT_TOPIC_PRIOR = 0.05  # Parameter alpha pi_k of each topic, from the round on that finds redundant topics
# A round moves nothing if its score, in nats per token, is lower than the best by this over the root of the held-out
# tokens
MAX_FALL = 0.5
MERGE_CANDIDATES = 5  # Nearest topics, by correlation of word counts, that each topic may merge with
# Smallest topics that may be deleted: their share of the topics, and their least and largest number
DELETE_CANDIDATES = 0.25
MIN_DELETE_CANDIDATES = 20
MAX_DELETE_CANDIDATES = 100
# Share of the topics that a round merges and deletes, at most
MAX_MERGES = 0.2
MAX_DELETES = 0.1
# Least gain of a merge and of a deletion, in standard errors of the sum
MERGE_ERRORS = 0.5
DELETE_ERRORS = 0.0
# Correlation of word counts from which on two topics are taken for copies, which are merged unless that loses more than
# one standard error
COPY_CORRELATION = 0.9
COPY_ERRORS = -1.0
SPLIT_SHARE = 0.5  # Share of the topics that are split, the largest
SPLIT_SWEEPS = 15  # Sweeps after which splits are scored
SPLIT_ERRORS = -2.0  # The halves of a split are merged again if that gains more than this many standard errors
