"""PyTorch's DistributedDataParallel on the models of `scaling`.

    .venv-peers/bin/python benchmarks/_torch_peer.py '{"model": "cnn", …}'

Runs in an environment of its own, without TensorFlow or anything of this
repository, and takes turns as `_turns` says. Same layers, data, batch and
optimizer; a batch is a slice of shuffled tensors in memory, without a
DataLoader, and the loss is all that is computed beside the gradients.
"""

import json
import os
import sys
import time
from collections.abc import Sequence
from typing import Any

import torch
from torch import distributed
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel


def main(argv: Sequence[str]) -> None:
    """Builds what the one argument describes, then serves turns.

    Its keys: `model`, `sizes`, `compression`, `batch` (of this
    replica), `examples`, `cores`, `rank`, `port`.
    """
    spec = json.loads(argv[1])
    os.sched_setaffinity(0, spec["cores"])
    torch.set_num_threads(1)
    torch.manual_seed(spec["rank"])
    # Both would look for a network beside loopback.
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    distributed.init_process_group(
        "gloo",
        init_method=f"tcp://127.0.0.1:{spec['port']}",
        rank=spec["rank"],
        world_size=2,
    )
    train = _make_train(spec)
    train(1)
    print("ready", flush=True)
    for line in sys.stdin:
        start = time.perf_counter()
        train(int(line))
        print("seconds", time.perf_counter() - start, flush=True)


def _make_train(spec: dict[str, Any]) -> Any:
    """Returns a function that trains for `n` steps."""
    batch, examples = spec["batch"], spec["examples"]
    features = torch.randn(examples, 1, 28, 28)
    labels = torch.randint(10, [examples])
    model = _cnn(spec) if spec["model"] == "cnn" else _mlp(spec)
    # No copies between gradients and buckets, as PyTorch advises.
    parallel = DistributedDataParallel(model, gradient_as_bucket_view=True)
    if spec["compression"] == "bfloat16":
        parallel.register_comm_hook(None, _compress)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loss_fn = nn.CrossEntropyLoss()

    def train(steps: int) -> None:
        for step in range(steps):
            first = step * batch % examples
            if first == 0:
                order = torch.randperm(examples)
            rows = order[first : first + batch]
            optimizer.zero_grad()
            loss_fn(parallel(features[rows]), labels[rows]).backward()
            optimizer.step()

    return train


def _compress(
    group: Any, bucket: distributed.GradBucket
) -> torch.futures.Future[torch.Tensor]:
    # Under its own name PyTorch takes the hook for NCCL alone.
    return default_hooks.bf16_compress_hook(group, bucket)


def _cnn(spec: dict[str, Any]) -> nn.Module:
    layers: list[nn.Module] = []
    channels, size = 1, 28
    for filters in spec["sizes"]:
        layers += [
            nn.Conv2d(channels, filters, 3, padding="same"),
            nn.ReLU(),
            nn.MaxPool2d(2, ceil_mode=True),
        ]
        channels, size = filters, -(-size // 2)
    outputs = nn.Linear(channels * size * size, 10)
    model = nn.Sequential(*layers, nn.Flatten(), outputs)
    # A quarter faster than in the other layout.
    return model.to(memory_format=torch.channels_last)


def _mlp(spec: dict[str, Any]) -> nn.Module:
    layers: list[nn.Module] = [nn.Flatten()]
    units = 28 * 28
    for hidden in spec["sizes"]:
        layers += [nn.Linear(units, hidden), nn.ReLU()]
        units = hidden
    return nn.Sequential(*layers, nn.Linear(units, 10))


if __name__ == "__main__":
    main(sys.argv)
