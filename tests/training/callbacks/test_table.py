import csv

from training.callbacks import Context
from training.callbacks import table


def _write(folder, start_step: int, epoch: int, loss: float) -> None:
    context = Context(None, str(folder), True, start_step, 400)
    callback = table.make(context)
    callback.set_model(None)
    callback.on_train_begin()
    callback.on_epoch_end(epoch, {"loss": loss, "val_loss": 2 * loss})
    callback.on_train_end()


def test_a_run_that_goes_on_adds_rows(tmp_path) -> None:
    _write(tmp_path, 0, 0, 0.5)
    _write(tmp_path, 200, 1, 0.25)
    with open(tmp_path / "metrics.csv", newline="") as file:
        rows = [
            [float(x) for x in row.values()] for row in csv.DictReader(file)
        ]
    assert rows == [[0.0, 0.5, 1.0], [1.0, 0.25, 0.5]]


def test_only_the_chief_writes(tmp_path) -> None:
    context = Context(None, str(tmp_path), False, 0, 400)
    table.make(context).on_train_begin()
    assert not list(tmp_path.iterdir())
