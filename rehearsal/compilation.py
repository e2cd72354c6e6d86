"""The lowered step, compiled for a real chip."""

import dataclasses
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from errors import RunError
from rehearsal import child
from rehearsal import chips
from rehearsal import roofline
from rehearsal.lower import Lowered
from rehearsal.plan import Plan
from rehearsal.plan import in_words

_TIMEOUT_SECS = 3600.0
_SHOWN = 3


@dataclasses.dataclass(frozen=True)
class Compiled:
    """What the compiler says of one topology."""

    plan: Plan
    reply: Mapping[str, Any]
    """The child's; see `worker`."""

    def estimate(self) -> dict[str, float]:
        """Returns what a step may take, in seconds; empty if nothing fits."""
        if "flops" not in self.reply:
            return {}
        chip = chips.of(self.plan.name)
        return roofline.estimate(self.reply, chip)._asdict()

    def lines(self) -> list[str]:
        """Returns it in words."""
        reply = self.reply
        verb = "fits" if reply["fits"] else "does not fit"
        margin = in_words(abs(reply["bytes_left"]))
        lines = [
            f"Compiled for {self.plan.name} in {reply['compile_secs']:.0f} s: "
            f"{verb}, {in_words(reply['bytes_per_core'])} of "
            f"{in_words(reply['bytes_available'])} per core, {margin} "
            f"{'left' if reply['fits'] else 'too much'}",
        ]
        lines += [
            f"  {in_words(each['bytes'])}: {each['name'] or each['shape']}"
            + (f" ({each['layer']})" if each["layer"] else "")
            for each in reply["largest_buffers"][:_SHOWN]
        ]
        lines += _describe_collectives(reply.get("collectives", []))
        estimate = self.estimate()
        if estimate:
            secs = estimate["step_secs"]
            rate = self.plan.global_batch / secs
            lines.append(
                f"  a step, by the chip's peaks: {secs * 1e3:.3g} ms, "
                f"{rate:,.0f} examples/s (an estimate)"
            )
        return lines


def _describe_collectives(
    collectives: Sequence[Mapping[str, Any]],
) -> list[str]:
    lines = []
    for kind in sorted({each["kind"] for each in collectives}):
        some = [each for each in collectives if each["kind"] == kind]
        size = in_words(sum(each["bytes"] for each in some))
        layers = sorted({name for each in some for name in each["layers"]})
        words = ", ".join(layers[:_SHOWN])
        if len(layers) > _SHOWN:
            words += f" and {len(layers) - _SHOWN} more layers"
        lines.append(f"  {len(some)} {kind}, {size} a core: {words}")
    return lines


def compile_all(
    parts: Sequence[tuple[Plan, Lowered]], dtype: str
) -> list[Compiled]:
    """Compiles each for its TPU, and says what came of it.

    Args:
        parts: Plans, and a replica's step of each.
        dtype: Of the computation. float64 is left out: a TPU has it in
            software, and not for every operation.

    Raises:
        RequestError, RunError: as `compile_step`.
    """
    if dtype == "float64":
        print("Not compiled: a TPU has float64 in software, and not in all")
        return []
    compiled = []
    for plan, lowered in parts:
        compiled.append(compile_step(plan, lowered))
        print("\n".join(compiled[-1].lines()), flush=True)
    return compiled


def verify(compiled: Sequence[Compiled]) -> None:
    """Refuses what does not fit.

    Raises:
        RunError: naming the TPUs.
    """
    names = [each.plan.name for each in compiled if not each.reply["fits"]]
    if names:
        raise RunError(
            f"rehearsal: the step does not fit into a core of "
            f"{', '.join(names)}; use more chips, a smaller "
            "--global_batch_size, half precision, or more cores a replica."
        )


def compile_step(plan: Plan, lowered: Lowered) -> Compiled:
    """Compiles a step for `plan.name`.

    Raises:
        RequestError: if jax or libtpu is not installed.
        RunError: if the compiler does not take the step, with its reason.
    """
    request = {
        "kind": "compile",
        "module": lowered.module,
        "topology": plan.name,
        "num_replicas": plan.replicas,
        "num_partitions": plan.devices_per_replica,
        "layers": lowered.layers,
        "argument_names": [
            *(f"input {i}" for i in range(lowered.num_inputs)),
            *lowered.names,
        ],
    }
    reply, _ = child.run(request, {}, _TIMEOUT_SECS)
    return Compiled(plan, reply)
