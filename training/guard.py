"""When to stop a run that has gone wrong."""

import math
from collections.abc import Mapping

from errors import RunError
from training.loss_scale import STUCK_STEPS
from training.state import TrainState


def check(
    state: TrainState,
    logs: Mapping[str, float],
    evaluation: Mapping[str, float],
    first: int,
    step: int,
) -> None:
    """Stops on numbers that are not finite, after an inner loop.

    Steps that float16 made overflow and that were skipped are no reason, but
    `STUCK_STEPS` of them in a row are.

    Args:
        state: Its loss scale knows of skipped steps.
        logs: Training metrics of the inner loop.
        evaluation: Of the evaluation after it; empty if there was none.
        first: Step before the inner loop.
        step: Step after it.

    Raises:
        RunError: naming the steps.
    """
    if state.loss_scale and state.loss_scale.is_stuck():
        raise RunError(
            f"the gradients of {STUCK_STEPS} steps in a row up to step {step} "
            "were not finite in float16, with the loss scale down to "
            f"{state.loss_scale.logs()['loss_scale']:g}. Try "
            "--dtype_policy=mixed_bfloat16, or a lower --learning_rate."
        )
    losses = {"evaluation": evaluation.get("loss", 0.0)}
    # If all steps were skipped there is no loss to speak of.
    if not (state.loss_scale and state.loss_scale.is_skipping(step - first)):
        losses["training"] = logs["loss"]
    for split, loss in losses.items():
        if not math.isfinite(loss):
            raise RunError(
                f"the {split} loss became {loss} between step {first + 1} and "
                f"step {step}; the checkpoint before them stays the newest. "
                "Try a lower --learning_rate, or --steps_per_loop=1 to find "
                "the step."
            )
