"""AdamW and Adam for PyTorch whose state is streamed. One line to change:

    optimizer = millpond.torch.AdamW(model.parameters(), lr=3e-4, scratch="/mnt/nvme/scratch")

Everything that torch.optim.AdamW takes means the same, but for what is refused in words.
"""

from __future__ import annotations

import os
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..errors import MillpondError
from .optimizer import Params, StreamedOptimizer


class AdamW(StreamedOptimizer):
    """torch.optim.AdamW with its state on NVMe.

    params, lr, betas, eps, weight_decay, maximize, foreach, fused: as torch's, and choose its bits.
    scratch: directory on a node-local drive, or several; MILLPOND_SCRATCH otherwise.
    host_memory_bytes: cap of pinned memory, "auto": a share of what is free.
    Same bits: as torch's step on fp32 tensors. bf16 and fp16 parameters have fp32 mains, which take
    that step and are then rounded; torch's AdamW on bf16 tensors rounds its state too and differs.
    moments: "fp32" (the same bits), "bf16", or a block-scaled "fp16", "fp8_e4m3", "fp8_e5m2".
    exact: "require" the bits of torch's own step, "prefer" them (default), or "off": no proof.
    shard_state: with DDP each rank streams its part and parameters are broadcast afterwards.
    process_group: the ranks that train together; None: all.
    options: further options of the plugin (README lists them)."""

    kind: ClassVar[type[torch.optim.Optimizer]] = torch.optim.AdamW

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-3,
        betas: tuple[float | Tensor, float | Tensor] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        scratch: str | os.PathLike[str] | list[str] | None = None,
        host_memory_bytes: int | str = "auto",
        moments: str = "fp32",
        exact: str = "prefer",
        shard_state: bool = False,
        process_group: Any = None,
        options: dict[str, Any] | None = None,
    ):
        flags = dict(
            lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, amsgrad=amsgrad,
            maximize=maximize, foreach=foreach, capturable=capturable,
            differentiable=differentiable, fused=fused,
        )  # fmt: skip
        super().__init__(
            params, flags, runtime=runtime_options(scratch, host_memory_bytes, moments, options),
            exact=exact, shard_state=shard_state, process_group=process_group,
        )  # fmt: skip


class Adam(AdamW):
    """torch.optim.Adam (L2 weight decay) with its state on NVMe. Arguments as AdamW's."""

    kind = torch.optim.Adam

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-3,
        betas: tuple[float | Tensor, float | Tensor] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        *arguments: Any,
        **named: Any,
    ):
        super().__init__(params, lr, betas, eps, weight_decay, *arguments, **named)


def runtime_options(
    scratch: Any, host_memory_bytes: Any, moments: str, options: dict[str, Any] | None
) -> dict[str, Any]:
    """The plugin's options; ranks of a node divide its memory as torchrun numbers them."""
    scratch = scratch or os.environ.get("MILLPOND_SCRATCH")
    if not scratch:
        raise MillpondError(
            'scratch: name a directory on a node-local drive, scratch="/mnt/nvme/scratch" (or a '
            "list of several), or set MILLPOND_SCRATCH",
            field="scratch",
        )
    paths = scratch if isinstance(scratch, list) else [scratch]
    return {
        "scratch": [os.fspath(path) for path in paths],
        "host_memory_bytes": host_memory_bytes,
        "moments": moments,
        "local_rank": int(os.environ.get("LOCAL_RANK", "0")),
        "local_size": int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
    } | (options or {})
