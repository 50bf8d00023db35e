"""A small GPT on the bytes of a real text, with torch.optim.AdamW or millpond.torch.AdamW.

    python examples/torch_train.py --text book.txt --streamed --scratch /mnt/nvme/scratch
    python examples/torch_train.py --text book.txt --compare  --scratch /mnt/nvme/scratch
    torchrun --nproc-per-node 2 examples/torch_train.py --text book.txt --ddp --compare ...
    torchrun --nproc-per-node 2 examples/torch_train.py --text book.txt --fsdp --compare ...

--compare trains two models in lock step, one with each optimizer, and ends with exit code 1 at the
first byte that differs (fp32 parameters; --bf16 has no plain counterpart that keeps fp32 mains).
"""

from __future__ import annotations

import argparse
import copy
import gc
import os
import sys
import time
from pathlib import Path
from typing import Any

import millpond.torch
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention


class Block(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        parts = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        seen = scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(torch.relu(self.up(self.norm2(x))))


class Gpt(nn.Module):
    """Bytes in, the next byte's logits out; the embedding is tied to the head."""

    def __init__(self, width: int, layers: int, heads: int, context: int):
        super().__init__()
        self.embed, self.place = nn.Embedding(256, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.embed(x) + self.place(torch.arange(x.shape[1], device=x.device))
        for block in self.blocks:
            hidden = block(hidden)
        return self.norm(hidden) @ self.embed.weight.t()


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--text", type=Path, required=True, help="file whose bytes are learnt")
    parser.add_argument("--scratch", help="directory on a node-local drive")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--streamed", action="store_true", help="millpond.torch.AdamW")
    which.add_argument("--compare", action="store_true", help="both, and every byte compared")
    spread = parser.add_mutually_exclusive_group()
    spread.add_argument("--ddp", action="store_true", help="DDP; streamed with shard_state")
    spread.add_argument("--fsdp", action="store_true", help="FSDP2 (fully_shard)")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--bf16", action="store_true", help="bf16 parameters, fp32 mains streamed")
    parser.add_argument("--fused", action="store_true", help="torch's fused arithmetic")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--width", type=int, default=128, help="of the hidden state, elements")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--context", type=int, default=64, help="bytes")
    parser.add_argument("--batch", type=int, default=8, help="sequences a rank")
    parser.add_argument("--lr", type=float, default=1e-3)
    given = parser.parse_args()
    if (given.streamed or given.compare) and not given.scratch:
        parser.error("--streamed and --compare need --scratch DIRECTORY")
    if given.compare and given.bf16:
        parser.error("--compare needs fp32 parameters: leave out --bf16")
    return given


class Side:
    """One model with its optimizer."""

    def __init__(self, given: argparse.Namespace, model: nn.Module, streamed: bool):
        self.model = model
        if given.fsdp:
            from torch.distributed.fsdp import fully_shard

            for block in model.blocks:
                fully_shard(block)
            fully_shard(model)
        elif given.ddp:
            self.model = nn.parallel.DistributedDataParallel(model)
        flags: dict[str, Any] = {"lr": given.lr, "fused": given.fused or None}
        if streamed:
            self.optimizer: torch.optim.Optimizer = millpond.torch.AdamW(
                model.named_parameters(), scratch=given.scratch, shard_state=given.ddp, **flags
            )
        else:
            self.optimizer = torch.optim.AdamW(model.parameters(), **flags)
        self.scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, given.steps)
        self.seconds = 0.0

    def step(self, x: Tensor, y: Tensor) -> float:
        self.optimizer.zero_grad(set_to_none=True)
        logits = self.model(x)
        loss = cross_entropy(logits.float().flatten(0, 1), y.flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        wait(x.device)
        begin = time.perf_counter()
        self.optimizer.step()
        wait(x.device)
        self.seconds = time.perf_counter() - begin
        self.scheduler.step()
        return loss.item()


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def memory(side: Side, bytes_each: int, device: torch.device) -> str:
    """Where this rank's optimizer state is. `bytes_each`: state of one parameter."""
    local = sum(getattr(p, "_local_tensor", p).numel() for p in side.model.parameters())
    state = local * bytes_each / 2**20
    if not isinstance(side.optimizer, millpond.torch.AdamW):
        return f"optimizer state of a rank: {state:.1f} MiB of memory"
    figures = side.optimizer.figures()
    files, host = figures.scratch_bytes / 2**20, figures.host_bytes / 2**20
    kept = figures.device_bytes / 2**20 if device.type == "cuda" else host
    return (
        f"optimizer state of a rank: {state:.1f} MiB if resident on {device.type}; {files:.1f} MiB "
        f"in files, {host:.1f} MiB of host memory for tiles, {kept:.1f} MiB on {device.type}: "
        f"{state - kept:.1f} MiB saved there"
    )


def first_difference(one: nn.Module, other: nn.Module) -> str | None:
    for (name, a), b in zip(one.named_parameters(), other.parameters(), strict=True):
        local_a, local_b = (getattr(p.detach(), "_local_tensor", p.detach()) for p in (a, b))
        number = int((local_a.view(torch.int32) != local_b.view(torch.int32)).sum())
        if number:
            return f"{name}: {number} of {local_a.numel()} elements"
    return None


def main() -> int:
    given = arguments()
    if given.ddp or given.fsdp:
        dist.init_process_group("nccl" if given.device == "cuda" else "gloo")
    rank = dist.get_rank() if dist.is_initialized() else 0
    device = torch.device(given.device, int(os.environ.get("LOCAL_RANK", "0")))
    if device.type == "cuda":
        torch.cuda.set_device(device)
        if given.compare:  # attention's backward does not repeat its own bits otherwise
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
            torch.use_deterministic_algorithms(True)
    else:
        device = torch.device("cpu")
    torch.manual_seed(1)
    model = Gpt(given.width, given.layers, max(1, given.width // 32), given.context).to(device)
    if given.bf16:
        model = model.bfloat16()
    kinds = [False, True] if given.compare else [given.streamed]
    sides = [Side(given, copy.deepcopy(model), streamed) for streamed in kinds]
    elements = sum(p.numel() for p in model.parameters())
    text = torch.frombuffer(bytearray(given.text.read_bytes()), dtype=torch.uint8).long()
    generator = torch.Generator().manual_seed(7 + rank)
    for step in range(1, given.steps + 1):
        at = torch.randint(0, len(text) - given.context - 1, (given.batch,), generator=generator)
        rows = torch.stack([text[i : i + given.context + 1] for i in at.tolist()]).to(device)
        losses = [side.step(rows[:, :-1], rows[:, 1:]) for side in sides]
        if given.compare and (found := first_difference(sides[0].model, sides[1].model)):
            print(f"step {step}: the models differ in {found}", file=sys.stderr)
            return 1
        if rank == 0 and (step % 10 == 0 or step in (1, given.steps)):
            times = " ".join(
                f"{'streamed' if kind else 'resident'} step {side.seconds * 1e3:.1f} ms"
                for kind, side in zip(kinds, sides, strict=True)
            )
            print(f"step {step}: loss {losses[-1]:.4f} nats a byte, {times}", flush=True)
    if rank == 0:
        print(f"{elements} parameters; {memory(sides[-1], 12 if given.bf16 else 8, device)}")
        if given.compare:
            print("all parameters were the same, bit for bit, after every step")
    if dist.is_initialized():
        sides.clear()  # DDP's reducers end before the group: torch 2.7 can deadlock the other way
        gc.collect()
        dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
