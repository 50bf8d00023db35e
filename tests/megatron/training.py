"""Runs of one case, resident or streamed, and what is compared of them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

import torch
from megatron.core.distributed import finalize_model_grads
from models import Case, build, data, loss_of, make_up_gradients


@dataclass
class Run:
    """A model with its optimizer, and its figures step by step."""

    case: Case
    chunks: list[Any]
    optimizer: Any
    losses: list[str] = field(default_factory=list)
    norms: list[str] = field(default_factory=list)
    taken: list[bool] = field(default_factory=list)
    digests: list[str] = field(default_factory=list)
    step: int = 0

    @classmethod
    def start(cls, case: Case, seed: int = 7, **how: Any) -> Run:
        """`how`: further arguments of build."""
        return cls(case, *build(case, seed, **how))

    def gradients(self) -> torch.Tensor:
        """Forward, backward and reduction of the next step. Returns the loss."""
        case, total = self.case, torch.zeros(())
        for chunk in self.chunks:
            chunk.zero_grad_buffer()
        self.optimizer.zero_grad()
        if case.pp > 1:
            for chunk in self.chunks:
                make_up_gradients(chunk, self.step)
            finalize_model_grads(self.chunks)
            return total
        for micro in range(case.micro_batches):
            last = micro == case.micro_batches - 1
            contexts = [] if last else [chunk.no_sync() for chunk in self.chunks]
            for context in contexts:
                context.__enter__()
            loss = loss_of(case, self.chunks, data(case, self.step, micro))
            self.optimizer.scale_loss(loss / case.micro_batches).backward()
            for context in contexts:
                context.__exit__(None, None, None)
            total += loss.detach()
        finalize_model_grads(self.chunks)
        if case.inf_at == self.step and torch.distributed.get_rank() == 1:
            buffer = self.chunks[-1].buffers[-1]
            buffer.buckets[0].grad_data[-1 if buffer.numel == buffer.numel_unpadded else 0] = float(
                "inf"
            )
            buffer.grad_data.fill_(float("inf"))
        return total

    def advance(self, steps: int = 1) -> None:
        for _ in range(steps):
            loss = self.gradients()
            taken, norm, _ = self.optimizer.step()
            self.losses.append(loss.item().hex())
            self.norms.append(float(norm).hex() if norm is not None else "skipped")
            self.taken.append(bool(taken))
            self.step += 1
            self.digests.append(self.digest())

    def digest(self) -> str:
        """Of all parameters; an overlapped gather is finished first."""
        if self.case.overlap:
            for chunk in self.chunks:
                chunk.start_param_sync(force_sync=True)
        whole = hashlib.sha256()
        for chunk in self.chunks:
            for parameter in chunk.parameters():
                whole.update(parameter.detach().contiguous().view(torch.uint8).numpy())
        return whole.hexdigest()

    def figures(self) -> dict[str, list[Any]]:
        return {
            "loss": self.losses, "norm": self.norms, "taken": self.taken, "params": self.digests
        }  # fmt: skip


def members(optimizer: Any) -> list[Any]:
    """The distributed optimizers of a chain, in order, stubs left out."""
    inner = getattr(optimizer, "chained_optimizers", None)
    if inner is None:
        return [] if getattr(optimizer, "is_stub_optimizer", False) else [optimizer]
    return [one for part in inner for one in members(part)]
