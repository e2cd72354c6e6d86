import pytest

from errors import RequestError
from strategies.cluster import _variable


@pytest.mark.parametrize(("text", "value"), [("2", 2), ("07", 7), ("9", 9)])
def test_reads_integer(text: str, value: int) -> None:
    assert _variable.integer({"N": text}, "N", 2, 9, "do this") == value


@pytest.mark.parametrize(
    "text",
    ["1", "10", "-3", "+3", "3.0", " 3", "3\n", "x", "٣", "3" * 5000],
    ids=str.encode,
)
def test_refuses_other_text(text: str) -> None:
    message = "N=.*: must be an integer from 2 to 9; do this."
    with pytest.raises(RequestError, match=f"(?s)^{message}$"):
        _variable.integer({"N": text}, "N", 2, 9, "do this")


@pytest.mark.parametrize("environ", [{}, {"N": ""}], ids=["unset", "empty"])
def test_refuses_nothing(environ: dict[str, str]) -> None:
    with pytest.raises(RequestError, match=r"^N is not set; do this\.$"):
        _variable.integer(environ, "N", 2, 9, "do this")
