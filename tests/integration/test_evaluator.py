"""Two workers train while the evaluator of the same TF_CONFIG looks on."""

import json
import math
from pathlib import Path

from tests import processes


def _losses(path: Path) -> dict[int, float]:
    lines = map(json.loads, path.read_text().splitlines())
    return {
        line["step"]: line["loss"] for line in lines if line["split"] == "eval"
    }


def test_the_evaluator_finds_what_the_workers_find(tmp_path) -> None:
    flags = [
        "--model=mlp",
        "--strategy=multi_worker_mirrored",
        f"--model_dir={tmp_path}",
        "--train_steps=12",
        "--eval_every_steps=4",
        "--checkpoint_every_steps=4",
        "--checkpoints_to_keep=9",
    ]
    configs = [json.loads(text) for text in processes.tf_configs(2)]
    cluster = configs[0]["cluster"] | {"evaluator": ["127.0.0.1:1"]}
    tasks = [config["task"] for config in configs]
    tasks.append({"type": "evaluator", "index": 0})
    started = [
        processes.start(
            *flags,
            env={"TF_CONFIG": json.dumps({"cluster": cluster, "task": task})},
        )
        for task in tasks
    ]
    done = [processes.finish(process) for process in started]
    assert [each.returncode for each in done] == [0, 0, 0], done
    theirs = _losses(tmp_path / "metrics.jsonl")
    ours = _losses(tmp_path / "evaluator" / "metrics.jsonl")
    assert sorted(ours) == [4, 8, 12]
    for step, loss in theirs.items():
        assert math.isclose(ours[step], loss, rel_tol=1e-5)
    assert done[2].stdout.count("Evaluation at step") == 3
    assert "Starting at step" not in done[2].stdout
