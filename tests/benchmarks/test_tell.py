import pytest

from benchmarks import _tell


def test_tells_step_and_memory_in_a_line_of_its_own(capsys) -> None:
    _tell.make(None).on_train_batch_end(200)
    told = [_tell.read(line) for line in capsys.readouterr().out.splitlines()]
    step, megabytes = told[-1]
    assert step == 200
    assert 100 < megabytes < 100_000


@pytest.mark.parametrize("line", ["", "step 3/7: loss 1.0", "told 3"])
def test_other_lines_are_none(line: str) -> None:
    assert _tell.read(line) is None
