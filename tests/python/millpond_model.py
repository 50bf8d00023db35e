"""A small model for the tests: many sizes of parameters, gradients by seed."""

from __future__ import annotations

from typing import Any

import numpy as np
from millpond import abi as c
from millpond_host import adamw
from millpond_shards import Memory, Shard

ARITHMETIC = "te_fused_adam/1"


class Model:
    """bf16 and fp32 parameters of many sizes, an empty one among them; gradients by seed."""

    SIZES = (70_001, 0, 256, 65_536, 1, 5_000)

    def __init__(self, seed: int = 1):
        rng = np.random.default_rng(seed)
        self.own_main = [i % 3 == 2 for i in range(len(self.SIZES))]
        self.models = [
            rng.normal(size=n).astype(np.float32)
            if own
            else rng.integers(0x3C00, 0x3E00, n).astype(np.uint16)
            for n, own in zip(self.SIZES, self.own_main, strict=True)
        ]
        self.grads = [np.zeros(n, np.float32) for n in self.SIZES]
        self.shards = [
            Shard(
                100 + i,
                f"block.{i}.weight",
                Memory.of_numpy(model, c.FP32 if self.own_main[i] else c.BF16),
                Memory.of_numpy(self.grads[i]),
                group=7 + i % 2,
                host_bucket=i // 3,
            )
            for i, model in enumerate(self.models)
        ]

    def draw(self, step: int) -> None:
        rng = np.random.default_rng(1000 + step)
        for grad in self.grads:
            grad[:] = rng.normal(size=grad.size)

    def groups(self, step: int) -> list[c.GroupStep]:
        return [
            adamw(7, 1e-2 / step, beta2=0.95),
            adamw(8, 2e-2, weight_decay=0.0),
        ]

    def bytes(self) -> bytes:
        return b"".join(model.tobytes() for model in self.models)


def train(store: Any, model: Model, steps: range) -> None:
    for step in steps:
        model.draw(step)
        assert store.step(model.groups(step))


def host_update(piece: Any) -> None:
    """An Adam of sorts for the host callback: any deterministic elementwise update will do."""
    n = piece.count
    main, grad, mean, square = (
        np.ctypeslib.as_array(p, (n,))
        for p in (piece.main, piece.grad, piece.exp_avg, piece.exp_avg_sq)
    )
    mean += (grad - mean) * np.float32(0.1)
    square += (grad * grad - square) * np.float32(0.01)
    main -= np.float32(0.001) * mean
