import pytest

from benchmarks import _peak


@pytest.mark.slow
def test_unrolling_keeps_the_iterations_and_implicit_does_not() -> None:
    def added(gradient: str, iterations: int) -> float:
        return _peak.added(
            layer="fixed_point",
            batch=64,
            groups=16,
            units=256,
            gradient=gradient,
            iterations=iterations,
        )

    # A state of one megabyte: 100 of them are hard to overlook.
    assert added("unrolled", 100) > added("unrolled", 2) + 60
    assert added("implicit", 100) < added("implicit", 2) + 10
