"""Some hostile corpora given to all commands; `make fuzz` tries many, with kernels that check bounds."""

import pytest

from tests.chaos.hostile_paths import FAMILIES, try_path

pytestmark = pytest.mark.kernels


@pytest.mark.long
@pytest.mark.parametrize(("seed", "family"), list(enumerate(FAMILIES)))
def test_a_hostile_corpus__ends_every_command_with_a_result_or_a_clear_error(seed, family, tmp_path):
    assert try_path(seed, tmp_path, family=family) is None
