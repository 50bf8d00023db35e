"""Megatron-core on CPU with gloo: what it takes for granted of CUDA, answered from the CPU.

For examples and tests. `install()` before anything of megatron is imported; the process is then for
CPU training only. tests/megatron/run_shims.py proves that gradients are really reduced.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

FACTORIES = ("tensor", "zeros", "ones", "empty", "full", "arange", "rand", "randn", "randint")


class _NoStream:
    """Stream and event: everything is already in order."""

    def __init__(self, *_: Any, **__: Any):
        self.cuda_stream = 0

    def __getattr__(self, _name: str) -> Callable[..., Any]:
        return lambda *_, **__: self

    def __enter__(self) -> _NoStream:
        return self

    def __exit__(self, *_: object) -> None:
        return None


class _Done:
    """The handle of a collective that is finished."""

    def wait(self, *_: Any) -> bool:
        return True

    def is_completed(self) -> bool:
        return True


def _on_cpu(factory: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(factory)
    def made(*args: Any, **kwargs: Any) -> Any:
        device = kwargs.get("device")
        if isinstance(device, int) or str(device).startswith("cuda"):
            kwargs["device"] = "cpu"
        return factory(*args, **kwargs)

    return made


def _gather(tensor: torch.Tensor, group: Any) -> list[torch.Tensor]:
    """Every rank's tensor, through the list form: a coalescing manager only queues the others, and
    then every rank would keep its own values without an error."""
    source = tensor.detach().contiguous()
    raw = source.view(-1).view(torch.uint8)  # gloo has no bf16
    parts = [torch.empty_like(raw) for _ in range(dist.get_world_size(group))]
    dist.all_gather(parts, raw, group=group)
    return [part.view(source.dtype).view(source.shape) for part in parts]


def _reduced(parts: list[torch.Tensor], op: Any) -> torch.Tensor:
    total = parts[0].clone()
    for part in parts[1:]:
        total += part
    if op == dist.ReduceOp.AVG:
        return total / len(parts)
    if op != dist.ReduceOp.SUM:
        raise NotImplementedError(f"reduce_scatter with {op}")
    return total


def _reduce_scatter_tensor(
    output: torch.Tensor,
    input: torch.Tensor,
    op: Any = dist.ReduceOp.SUM,
    group: Any = None,
    async_op: bool = False,
) -> _Done | None:
    total = _reduced(_gather(input, group), op).view(-1)
    rank, numel = dist.get_rank(group), output.numel()
    output.view(-1).copy_(total[rank * numel : (rank + 1) * numel])
    return _Done() if async_op else None


def _all_gather_into_tensor(
    output: torch.Tensor, input: torch.Tensor, group: Any = None, async_op: bool = False
) -> _Done | None:
    parts = _gather(input, group)
    output.view(-1).copy_(torch.cat([part.view(-1) for part in parts]))
    return _Done() if async_op else None


def _all_to_all_single(
    output: torch.Tensor,
    input: torch.Tensor,
    output_split_sizes: Any = None,
    input_split_sizes: Any = None,
    group: Any = None,
    async_op: bool = False,
) -> _Done | None:
    size, rank = dist.get_world_size(group), dist.get_rank(group)
    even = [input.shape[0] // size] * size
    splits = even if input_split_sizes is None else [int(n) for n in input_split_sizes]
    everyones: list[Any] = [None] * size
    dist.all_gather_object(
        everyones, [part.clone() for part in torch.split(input.detach(), splits)], group=group
    )
    output.copy_(torch.cat([parts[rank] for parts in everyones]).view_as(output))
    return _Done() if async_op else None


def _patch_tensors() -> None:
    kind = torch.Tensor.type

    def type_name(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        answer = kind(self, *args, **kwargs)
        return answer.replace("torch.", "torch.cuda.", 1) if isinstance(answer, str) else answer

    torch.Tensor.type = type_name
    torch.Tensor.cuda = lambda self, *_, **__: self
    torch.Tensor.record_stream = lambda self, *_: None
    torch.nn.Module.cuda = lambda self, *_, **__: self
    for name in FACTORIES:
        setattr(torch, name, _on_cpu(getattr(torch, name)))
    torch.Tensor.to = _to(torch.Tensor.to)


def _to(original: Callable[..., Any]) -> Callable[..., Any]:
    def to(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        args = tuple("cpu" if str(arg).startswith("cuda") else arg for arg in args)
        if str(kwargs.get("device")).startswith("cuda"):
            kwargs["device"] = "cpu"
        return original(self, *args, **kwargs)

    return to


def _patch_cuda() -> None:
    cuda = torch.cuda
    cuda.current_device = lambda: "cpu"
    cuda.Stream = cuda.Event = _NoStream
    cuda.stream = lambda *_: contextlib.nullcontext()
    cuda.current_stream = cuda.default_stream = _NoStream
    cuda.set_device = cuda.synchronize = cuda.empty_cache = lambda *_, **__: None
    cuda.get_rng_state = lambda *_, **__: torch.get_rng_state()
    cuda.set_rng_state = lambda *_, **__: None
    cuda.device_count = lambda: 1
    cuda.get_device_capability = lambda *_: (8, 0)


def _patch_collectives() -> None:
    dist.reduce_scatter_tensor = dist._reduce_scatter_base = _reduce_scatter_tensor
    dist.all_gather_into_tensor = dist._all_gather_base = _all_gather_into_tensor
    dist.all_to_all_single = _all_to_all_single


def _no_extension(*_: Any, **__: Any) -> None:
    raise ImportError("no CUDA extensions on the CPU")


def install() -> None:
    """Makes this process a CPU Megatron. Once, before megatron is imported."""
    if "megatron.core" in sys.modules:
        raise RuntimeError("megatron.core was imported before megatron_cpu.install()")
    _patch_tensors()
    _patch_cuda()
    _patch_collectives()
    from torch.utils import cpp_extension

    cpp_extension.load_inline = _no_extension
    from megatron.core.tensor_parallel import random
    from megatron.core.transformer.moe import moe_utils

    random.CudaRNGStatesTracker.fork = lambda self, *_: contextlib.nullcontext()
    moe_utils.te_general_gemm = None
