"""Fewer points for a line that looks the same."""

import itertools

import numpy as np

DESCRIPTION = (
    "Where a line has more points than can be told apart, it is cut into "
    "equal parts, and of each part its lowest and its highest value are drawn. "
    "A gap in a line is a value that was not finite."
)
# The lowest, the highest and a gap.
_OF_EACH_PART = 3


def thin(
    steps: np.ndarray, values: np.ndarray, most: int
) -> tuple[np.ndarray, np.ndarray]:
    """Returns at most about `most` of the points of a line.

    The line is cut into parts of equally many points. Of each stay the lowest
    value, the highest one and the first that is not finite, so that no spike
    and no gap is lost; and the first and the last point of all.

    Args:
        steps: `[N]`, in order.
        values: `[N]`; NaN is a gap.
        most: Points to keep; 3 or more.

    Returns:
        Steps and values, `[M]` each.
    """
    if len(steps) <= most:
        return steps, values
    parts = max(1, most // _OF_EACH_PART)
    edges = np.linspace(0, len(steps), parts + 1).astype(int)
    kept = {0, len(steps) - 1}
    for first, end in itertools.pairwise(edges):
        part = values[first:end]
        finite = np.isfinite(part)
        if not finite.all():
            kept.add(first + int(np.argmin(finite)))
        if finite.any():
            kept.add(first + int(np.nanargmin(part)))
            kept.add(first + int(np.nanargmax(part)))
    order = sorted(kept)
    return steps[order], values[order]
