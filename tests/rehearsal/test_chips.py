"""The table of chips."""

import pytest

from errors import RequestError
from rehearsal import chips


@pytest.mark.parametrize("name", chips.CHIPS)
def test_a_core_has_no_more_than_its_share(name: str) -> None:
    chip = chips.CHIPS[name]
    share = chip.hbm_bytes / chip.cores
    assert 0.9 * share < chip.bytes_available < share


def test_of() -> None:
    assert chips.of("v5e:2x2") is chips.CHIPS["v5e"]
    with pytest.raises(RequestError, match=r"'v9' is not known.* v5p, v6e\."):
        chips.of("v9:2x2")
