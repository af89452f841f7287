import datetime

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from collapsium.pipeline.analysis.topic_shares import TimeShares
from collapsium.pipeline.models.topics import Topic
from collapsium.pipeline.reporting.plots.time import BAND, FEW_DOCUMENTS, _named, labelled_periods, top_of_scale
from collapsium.storage.runs.summary import DatesSummary


def shares_of(share, error, documents):
    starts = [datetime.datetime(1940 + 10 * row, 1, 1) for row in range(len(share))]
    names, ends = [f"{start.year}s" for start in starts], [start.replace(year=start.year + 10) for start in starts]
    columns = [np.array(values, dtype=np.float64)[:, np.newaxis] for values in (share, error)]
    counts = np.array(documents)
    no_dates = DatesSummary.model_construct()
    return TimeShares("decade", names, starts, counts, counts * 10.0, np.array([0]), *columns, 0, no_dates, ends)


@given(
    st.lists(
        st.tuples(st.floats(0.0, 1.0), st.floats(0.0, 0.3), st.integers(FEW_DOCUMENTS, 99)), min_size=1, max_size=9
    )
)
def test_bands_of_periods_with_enough_documents__are_shown_completely(periods):
    share, error, documents = zip(*periods, strict=True)
    assert top_of_scale(shares_of(share, error, documents), 0) >= max(np.array(share) + BAND * np.array(error))


def test_bands_of_periods_with_few_documents__do_not_determine_the_scale():
    assert top_of_scale(shares_of([0.1, 0.1], [0.01, 5.0], [50, FEW_DOCUMENTS - 1]), 0) < 0.2


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=60, unique=True), st.integers(1, 6))
def test_labels__name_the_last_period_and_have_room(places, limit):
    places = sorted(places)
    rows = labelled_periods(places, limit)
    assert rows[-1] == len(places) - 1
    assert rows == sorted(set(rows))
    assert all(np.diff([places[row] for row in rows]) >= 1 / limit - 1e-9)


def test_titles__of_long_words_stay_above_their_panel():
    topic = Topic(7, 0.1, [(f"{'long' * 3}{number}", 0.1) for number in range(5)])
    assert _named(7, topic) == "7: longlonglong0 longlonglong1 longlonglong2"
    assert _named(7, None) == "7"
