"""Where a training of a chaos run runs."""

from typing import NamedTuple

INTERVAL = 50
"""Steps between checkpoints."""
# Start-up is what a start costs: the steps themselves take a millisecond.
FLAGS = (
    "--model=mlp",
    "--global_batch_size=8",
    "--steps_per_loop=10",
    f"--checkpoint_every_steps={INTERVAL}",
    "--seed=1",
)
"""Of every training."""


class Place(NamedTuple):
    """Where a training runs, and how long it is."""

    steps: int
    start_secs: float
    """From the start to well into the training."""
    flags: tuple[str, ...] = ()
    num_workers: int = 1
    is_launched: bool = False
    timeout_secs: int = 120
    """For anything but the whole training."""


PLACES = {
    "one_device": Place(6000, 7.0),
    "mirrored": Place(
        4000, 8.0, ("--strategy=mirrored", "--devices=cpu:0,cpu:1")
    ),
    "two_workers": Place(
        2000,
        13.0,
        # Whoever starts alone ends in less than the half minute.
        ("--strategy=multi_worker_mirrored", "--worker_timeout_secs=15"),
        num_workers=2,
    ),
    "launched": Place(
        2000,
        13.0,
        ("--worker_timeout_secs=15",),
        num_workers=2,
        is_launched=True,
    ),
}
