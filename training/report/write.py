"""From the folders of runs to a page in a file."""

from collections.abc import Sequence

import tensorflow as tf

from errors import RequestError
from training import files
from training.report import chart
from training.report import compare
from training.report import facts
from training.report import history as history_lib
from training.report import page


def write(folders: Sequence[str], output: str = "") -> str:
    """Writes a page of one run, or of several together; returns its path.

    Args:
        folders: Of the runs.
        output: Empty: `report.html` in the folder of one run, `compare.html`
            in the current folder for several.

    Raises:
        RequestError: if Matplotlib is missing, if a folder is none of a run,
            or if the page cannot be written.
    """
    chart.check_installed()
    # The same folder twice is one run.
    histories = [history_lib.read(folder) for folder in dict.fromkeys(folders)]
    is_one = len(histories) == 1 and not output
    output = output or "compare.html"
    try:
        if is_one:
            return page.write(histories[0])
        records = [facts.read(history.model_dir) for history in histories]
        files.write(output, compare.render(histories, records))
    except (OSError, tf.errors.OpError) as error:
        raise RequestError(
            f"the page cannot be written: {files.reason(error)}; give an "
            "--output that can."
        ) from error
    return output
