import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from collapsium.workers.arrays.random_streams import Stream

addresses = st.builds(
    Stream, st.integers(-5, 2**70), st.sampled_from(["start", "sweep", ""]), st.integers(0, 9), st.integers(-1, 9)
)


def numbers(stream):
    return stream.generator().random(8)


@given(addresses)
def test_streams_with_the_same_address__have_the_same_numbers(stream):
    np.testing.assert_array_equal(numbers(stream), numbers(stream.at()))


@given(addresses, addresses)
def test_streams_with_another_address__have_other_numbers(first, second):
    assert (first == second) == bool((numbers(first) == numbers(second)).all())


def test_streams__are_uniform_across_neighbouring_addresses():
    first = np.array([Stream(0, "start", 0, place).generator().random() for place in range(2000)])
    counts, _ = np.histogram(first, bins=10, range=(0, 1))
    # chi-squared with 9 degrees of freedom exceeds 30 with a probability below 1/2000
    assert ((counts - 200) ** 2 / 200).sum() < 30
