"""Ten steps with every option, in every place: the numbers of one device."""

import dataclasses

import numpy as np
import pytest

from model import DTYPE_POLICIES
from model import ModelConfig
from tests import processes
from tests import wheel
from tests.equivalence import cells
from tests.equivalence import digit_words
from tests.equivalence import results
from tests.equivalence import table
from training import OPTIMIZERS
from training import TrainConfig

# What no cell changes, and why.
EXCLUDED_FIELDS = {
    "train_steps": "ten, for all",
    "steps_per_loop": "one, for all: every loss is compared",
    "eval_every_steps": "when, not what",
    "checkpoint_every_steps": "when, not what",
    "checkpoints_to_keep": "files",
    "checkpoint_errors": "files",
    "preemption_grace_secs": "when, not what",
    "callbacks": "one of the tests' own, for all",
    "early_stopping": "when, not what; its own tests run two workers",
    "export": "files",
    "profile": "watches; changes no number",
    "initial_model": "what it starts from; its own tests run on replicas",
    "run_eagerly": "the same functions line by line, for a debugger",
    "model": "one of the tests' own, for all",
}
EXCLUDED_POLICIES = {"float64": "float32 with less rounding"}
EXCLUDED_OPTIMIZERS = {"adamw": "adam with the decay of 'all at once'"}

EXACT = [name for name, cell in cells.CELLS.items() if cell.is_exact]
COMPRESSED = [name for name, cell in cells.CELLS.items() if cell.is_compressed]
ROUNDED = sorted(cells.CELLS.keys() - {*EXACT, *COMPRESSED})

each_other_place = pytest.mark.parametrize("place", cells.OTHERS)
each_place = pytest.mark.parametrize("place", cells.PLACES)
each_optimizer = pytest.mark.parametrize("optimizer", cells.OPTIMIZERS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cells")
    results.run_all(folder)
    return folder


def test_every_option_has_a_cell() -> None:
    """A new field must enter the matrix, or say here why it need not."""
    fields = {
        field.name
        for config in (TrainConfig, ModelConfig)
        for field in dataclasses.fields(config)
    }
    covered = {
        name
        for options in (
            *cells.OPTIMIZERS.values(),
            *(cell.train | cell.model for cell in cells.CELLS.values()),
        )
        for name in options
    }
    if not wheel.HAS_XLA_ON_CPU:
        covered.add("jit_compile")
    assert covered | EXCLUDED_FIELDS.keys() == fields
    assert not covered & EXCLUDED_FIELDS.keys()
    policies = {
        cell.model.get("dtype_policy", "float32")
        for cell in cells.CELLS.values()
    }
    assert policies | EXCLUDED_POLICIES.keys() == set(DTYPE_POLICIES)
    tried = {options["optimizer"] for options in cells.OPTIMIZERS.values()}
    assert tried | EXCLUDED_OPTIMIZERS.keys() == set(OPTIMIZERS)


@each_optimizer
@pytest.mark.parametrize("cell", EXACT)
@each_other_place
def test_every_loss_equals_one_devices(folder, place, cell, optimizer) -> None:
    run = results.read(folder, place, cell, optimizer)
    one = results.read(folder, "one_device", cell, optimizer)
    assert len(run.train) == len(one.train) == cells.STEPS
    assert results.loss_difference(run, one) <= 1e-5
    assert run.evaluation["examples"] == digit_words.NUM_EXAMPLES["eval"]
    for name in ("loss", "accuracy"):
        assert run.evaluation[name] == pytest.approx(
            one.evaluation[name], rel=1e-5
        )


@each_optimizer
@pytest.mark.parametrize("cell", EXACT)
@each_other_place
def test_every_value_equals_one_devices(folder, place, cell, optimizer) -> None:
    """Weights, statistics, averages, slots and counters."""
    run = results.read(folder, place, cell, optimizer)
    one = results.read(folder, "one_device", cell, optimizer)
    differences = results.value_differences(run, one)
    assert {
        name: difference
        for name, difference in differences.items()
        if not difference <= 1e-4
    } == {}


@each_optimizer
@pytest.mark.parametrize("cell", ROUNDED)
@each_other_place
def test_low_precision_differs_by_rounding_only(
    folder, place, cell, optimizer
) -> None:
    """Three times what another order of sums does on one device."""
    run = results.read(folder, place, cell, optimizer)
    one = results.read(folder, "one_device", cell, optimizer)
    other_order = results.read(
        folder, "one_device", f"{cell}, accumulation 2", optimizer
    )
    first, expected = run.column("loss")[0], one.column("loss")[0]
    assert first == pytest.approx(expected, rel=1e-3)
    received = results.differences_by_kind(run, one)
    noise = results.differences_by_kind(other_order, one)
    for name in noise:
        assert received[name] <= 3 * noise[name], name


@each_optimizer
@pytest.mark.parametrize("cell", COMPRESSED)
@each_other_place
def test_compressed_gradients_differ_by_their_rounding(
    folder, place, cell, optimizer
) -> None:
    """bfloat16 keeps 8 bits: each part of a gradient is off by up to 1/256.

    About three times what was measured.
    """
    run = results.read(folder, place, cell, optimizer)
    one = results.read(folder, "one_device", cell, optimizer)
    # The loss comes before any gradient, and is never compressed.
    first, expected = run.column("loss")[0], one.column("loss")[0]
    assert first == pytest.approx(expected, rel=1e-5)
    differences = results.differences_by_kind(run, one)
    assert 1e-4 < differences["slots"] <= 2e-2
    assert differences["weights"] <= 2e-2
    assert differences["loss"] <= 3e-4


@each_optimizer
@pytest.mark.parametrize("cell", COMPRESSED)
def test_one_device_compresses_nothing(folder, cell, optimizer) -> None:
    run = results.read(folder, "one_device", cell, optimizer)
    plain = results.read(folder, "one_device", "plain", optimizer)
    for name, value in plain.values.items():
        np.testing.assert_array_equal(run.values[name], value, name)


@each_optimizer
@each_place
def test_the_same_steps_are_skipped(folder, place, optimizer) -> None:
    """The overflows are on one replica; all of them skip the step."""
    run = results.read(folder, place, "mixed_float16", optimizer)
    first, second = sorted(digit_words.OVERFLOWS)
    skipped = [
        int(step >= first) + int(step >= second) for step in range(cells.STEPS)
    ]
    assert run.column("skipped_steps") == skipped
    scales = run.column("loss_scale")
    assert scales == [scales[0] / 2**count for count in skipped]
    assert run.values["step"] == cells.STEPS
    applied = run.values[f"optimizer/{optimizer}/iteration"]
    assert applied == cells.STEPS - 2


@each_optimizer
@pytest.mark.parametrize("cell", cells.CELLS)
@each_place
def test_replicas_and_workers_hold_the_same_bits(
    folder, place, cell, optimizer
) -> None:
    copies = results.read(folder, place, cell, optimizer).copies
    workers, replicas = {
        "one_device": (1, 1),
        "mirrored-2": (1, 2),
        "mirrored-4": (1, 4),
        "workers-2": (2, 1),
    }[place]
    assert len(copies) == workers
    for name in copies[0]:
        everywhere = [hash for worker in copies for hash in worker[name]]
        assert len(everywhere) == workers * replicas
        assert len(set(everywhere)) == 1, name


@each_optimizer
@pytest.mark.parametrize(
    "cell", [c for c in ("accumulation 4", "jit_compile") if c in cells.CELLS]
)
def test_how_a_step_is_computed_changes_nothing(
    folder, cell, optimizer
) -> None:
    run = results.read(folder, "one_device", cell, optimizer)
    plain = results.read(folder, "one_device", "plain", optimizer)
    assert results.loss_difference(run, plain) <= 1e-5
    assert max(results.value_differences(run, plain).values()) <= 1e-4


@each_optimizer
def test_averaging_leaves_the_raw_weights_alone(folder, optimizer) -> None:
    run = results.read(folder, "one_device", "EMA", optimizer)
    plain = results.read(folder, "one_device", "plain", optimizer)
    for name, value in plain.values.items():
        if name.startswith(("model/", "optimizer/")):
            np.testing.assert_array_equal(run.values[name], value, name)
    for name in plain.values:
        if name.startswith("model/"):
            average = run.values[name.replace("model/", "average/")]
            assert not np.array_equal(average, run.values[name]), name
    assert run.evaluation["loss"] != plain.evaluation["loss"]


@pytest.mark.parametrize(
    "cell",
    sorted({*cells.CELLS} - {"plain", "accumulation 4", "EMA", *COMPRESSED}),
)
def test_a_cell_is_not_plain(folder, cell) -> None:
    """An option without effect would make its comparisons worth nothing."""
    run = results.read(folder, "one_device", cell, "sgd")
    plain = results.read(folder, "one_device", "plain", "sgd")
    assert run.column("loss") != plain.column("loss")


def test_the_table(folder, capsys) -> None:
    text = table.render(folder)
    with capsys.disabled():
        print(f"\n\n{text}")
    for cell in cells.CELLS:
        assert f"| {cell} |" in text


def test_the_page_shows_every_cell() -> None:
    text = (processes.ROOT / "docs" / "equivalence.md").read_text()
    for cell in cells.CELLS:
        for optimizer in cells.OPTIMIZERS:
            assert f"| {cell} | {optimizer} |" in text
