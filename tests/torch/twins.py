"""The same parameters twice: torch's own optimizer on resident tensors, Millpond's on the others.

A 16-bit parameter's resident twin is an fp32 main, to which torch's optimizer is applied, and a
rounded copy of it: what mixed-precision trainers keep in memory. An fp32 parameter's twin is
another fp32 parameter.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

import millpond.torch
import torch
from torch import Tensor

# gpu.sh runs the tests of loops and state dicts again on "cuda".
DEVICE = torch.device(os.environ.get("MILLPOND_TEST_DEVICE", "cpu"))
if DEVICE.type == "cuda":
    torch.use_deterministic_algorithms(True)  # two models are compared bit by bit
OURS = {torch.optim.AdamW: millpond.torch.AdamW, torch.optim.Adam: millpond.torch.Adam}
SHAPES: list[tuple[int, ...]] = [(300, 257), (1,), (0,), (7, 3, 5), (4099,), (256,), (65_541,), ()]


def bits(tensor: Tensor) -> Tensor:
    return tensor.detach().view(torch.int32 if tensor.dtype == torch.float32 else torch.int16)


def differing(a: Tensor, b: Tensor) -> int:
    return int((bits(a) != bits(b)).sum())


def values(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Magnitudes over many binades, some exact zeros."""
    spread = torch.exp2(torch.randint(-20, 4, shape, generator=generator))
    drawn = torch.randn(shape, generator=generator) * spread
    drawn[torch.rand(shape, generator=generator) < 0.01] = 0
    return drawn


class Twin:
    def __init__(
        self,
        scratch: Any,
        kind: type[torch.optim.Optimizer] = torch.optim.AdamW,
        shapes: Sequence[tuple[int, ...]] = SHAPES,
        dtypes: Sequence[torch.dtype] = (torch.float32, torch.bfloat16, torch.float16),
        groups: Sequence[dict[str, Any]] = ({}, {}),
        seed: int = 1,
        device: str | torch.device = DEVICE,
        ours: dict[str, Any] | None = None,
        **flags: Any,
    ):
        self.generator = torch.Generator().manual_seed(seed)
        start = [
            (torch.randn(shape, generator=self.generator) * 0.1).to(dtypes[i % len(dtypes)])
            for i, shape in enumerate(shapes)
        ]
        self.mine = [torch.nn.Parameter(t.to(device, copy=True)) for t in start]
        self.theirs = [torch.nn.Parameter(t.to(device, torch.float32, copy=True)) for t in start]
        self.bases = [values(shape, self.generator) for shape in shapes]
        count = len(groups)

        def grouped(params: list[Any]) -> list[dict[str, Any]]:
            return [dict(group, params=params[g::count]) for g, group in enumerate(groups)]

        self.resident = kind(grouped(self.theirs), **flags)
        self.optimizer = OURS[kind](
            grouped(self.mine), **flags, scratch=str(scratch), **(ours or {})
        )

    def draw(self, absent: Iterable[int] = (), scale: float = 1.0) -> None:
        """New gradients on both sides, those of `absent` parameters None."""
        gone = set(absent)
        for i, (mine, their) in enumerate(zip(self.mine, self.theirs, strict=True)):
            turn = int(torch.randint(1, 9999, (), generator=self.generator))
            scale *= 1 + 0.5 * float(torch.rand((), generator=self.generator))
            drawn = self.bases[i].roll(turn) if mine.dim() == 1 else self.bases[i]
            grad = (drawn * scale).to(mine.device, mine.dtype)
            mine.grad = None if i in gone else grad.clone()
            their.grad = None if i in gone else grad.float()

    def step(self, absent: Iterable[int] = (), scale: float = 1.0) -> None:
        self.draw(absent, scale)
        self.resident.step()
        self.optimizer.step()

    def compare(self, where: str = "") -> None:
        for i, (mine, their) in enumerate(zip(self.mine, self.theirs, strict=True)):
            wanted = their.detach().to(mine.dtype)
            n = differing(mine, wanted)
            assert n == 0, f"{where}: {n} of {mine.numel()} differ in parameter {i}"

    def compare_state(self) -> None:
        """Mains, moments and counters, read back from the store."""
        entries = self.optimizer.binding.entries
        for i, entry in enumerate(entries):
            j = next(k for k, mine in enumerate(self.mine) if mine is entry.parameter)
            compare_segments(self.optimizer, i, self.theirs[j], self.resident)


def compare_segments(optimizer: Any, shard: int, their: Tensor, resident: Any) -> None:
    store, bound = optimizer._streamed.store, optimizer.binding
    state = resident.state[their]
    order = bound.placements[shard].order
    if not state:
        assert store.counter(shard) == 0
        return
    assert store.counter(shard) == int(state["step"])
    assert int(optimizer.state[bound.parameters[shard]]["step"]) == int(state["step"])
    wanted = {1: state["exp_avg"], 2: state["exp_avg_sq"]}
    if bound.with_main[shard]:
        wanted[0] = their
    for segment, tensor in wanted.items():
        run = tensor.detach().cpu().permute(order).reshape(-1)
        got = torch.empty(run.numel())
        if run.numel():
            store.read(shard, segment, 0, run.numel(), got.data_ptr())
        assert differing(got, run.float()) == 0, (shard, segment)
