"""What stands around an optimizer in a training loop, on several ranks: plain AdamW under the same
wrapper has the same bits after every step. A case of ranks_worker.py."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import millpond.torch
import torch
import torch.distributed as dist
from nets import Net
from torch.optim import lr_scheduler
from twins import OURS, differing

STEPS = 12
SCHEDULERS: dict[str, Callable[[Any], Any]] = {
    "lambda": lambda o: lr_scheduler.LambdaLR(o, lambda s: 1 / (1 + s)),
    "cosine": lambda o: lr_scheduler.CosineAnnealingLR(o, STEPS),
    "one_cycle": lambda o: lr_scheduler.OneCycleLR(o, 0.02, total_steps=STEPS),
}


def wrapped(wrapper: str) -> torch.nn.Module:
    if wrapper == "fsdp":
        from torch.distributed.fsdp import fully_shard

        return fully_shard(Net())
    return torch.nn.parallel.DistributedDataParallel(Net(), find_unused_parameters=True)


class Side:
    """One model with its optimizer, scheduler and scaler. `how`: a scheduler, or "grows": the late
    layer comes by add_param_group; words: adam, fused, foreach, maximize."""

    def __init__(
        self, scratch: str, streamed: bool, wrapper: str, how: str, words: tuple[str, ...]
    ):
        self.wrapper, self.grows = wrapper, how == "grows"
        self.model = wrapped(wrapper)
        net = getattr(self.model, "module", self.model)
        self.late = list(net.late.parameters())
        late = {id(p) for p in self.late}
        first = [p for p in self.model.parameters() if not self.grows or id(p) not in late]
        flags: dict[str, Any] = {word: True for word in words if word != "adam"}
        kind: Any = torch.optim.Adam if "adam" in words else torch.optim.AdamW
        if streamed:
            kind = OURS[kind]
            flags |= {"scratch": scratch, "shard_state": wrapper == "ddp_sharded"}
        self.optimizer = kind(first, lr=0.01, weight_decay=0.02, **flags)
        self.scheduler = None if self.grows else SCHEDULERS[how](self.optimizer)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=3000.0, growth_interval=4)

    def loss(self, step: int, part: int) -> torch.Tensor:
        generator = torch.Generator().manual_seed(100 * step + 10 * part + dist.get_rank())
        x = torch.randint(0, 51, (16,), generator=generator)
        return torch.nn.functional.cross_entropy(self.model(x, step % 3 != 1), x.roll(1))

    def step(self, step: int) -> None:
        if step == 5 and self.grows:
            self.optimizer.add_param_group({"params": self.late, "lr": 0.03})
        if step in (3, 4):
            self.optimizer.step(lambda: self.accumulate(step, lambda loss: loss))
        else:
            self.accumulate(step, self.scaler.scale)
            if step == 7:
                self.overflow()
            if step % 4 == 2:
                self.scaler.unscale_(self.optimizer)
                torch.nn.utils.clip_grad_norm_(self.model.parameters(), 0.1)
            self.scaler.step(self.optimizer)
            self.scaler.update()
        if self.scheduler:
            self.scheduler.step()

    def accumulate(self, step: int, scale: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        self.model.zero_grad(set_to_none=step % 2 == 0)
        for part in range(1 + step % 3):
            loss = self.loss(step, part)
            scale(loss).backward()
        return loss

    def overflow(self) -> None:
        """DDP's gradients are equal on all ranks; of FSDP2's only rank 1's shard overflows."""
        if self.wrapper != "fsdp" or dist.get_rank() == 1:
            last = [p for p in self.model.parameters() if p.grad is not None][-1].grad
            getattr(last, "_local_tensor", last).view(-1)[-1] = torch.inf


def loop(folder: Path, wrapper: str, how: str, *words: str) -> None:
    """wrapper: ddp, ddp_sharded or fsdp."""
    scratch = folder / f"scratch{dist.get_rank()}"
    scratch.mkdir()
    theirs, ours = (Side(str(scratch), streamed, wrapper, how, words) for streamed in (False, True))
    for step in range(STEPS):
        for side in (theirs, ours):
            side.step(step)
        assert theirs.scaler.get_scale() == ours.scaler.get_scale(), step
        for (name, a), b in zip(
            theirs.model.named_parameters(), ours.model.parameters(), strict=True
        ):
            local_a, local_b = (getattr(p.detach(), "_local_tensor", p.detach()) for p in (a, b))
            assert differing(local_a, local_b) == 0, (step, name)
    counters = [
        [int(side.optimizer.state[p]["step"]) for p in side.model.parameters() if p.requires_grad]
        for side in (theirs, ours)
    ]
    assert counters[0] == counters[1] and max(counters[0]) == STEPS - 1, counters
    assert all(
        p not in ours.optimizer.state for p in ours.model.parameters() if not p.requires_grad
    )
    assert isinstance(ours.optimizer, millpond.torch.AdamW)
    ours.optimizer.close()
    assert list(scratch.iterdir()) == []
