import pytest

from errors import RequestError
from model import ModelConfig


def test_rejects_unknown_dtype_policy() -> None:
    with pytest.raises(RequestError, match="--dtype_policy=int8: must be"):
        ModelConfig(dtype_policy="int8")
