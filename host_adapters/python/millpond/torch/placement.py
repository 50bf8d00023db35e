"""Where this rank's elements of a parameter are: the local memory, and its box in the whole.

What cannot be told as a dense flat run of fp32, bf16 or fp16 elements is a Refusal.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .. import abi
from ..errors import Refusal

DTYPES = {torch.float32: abi.FP32, torch.bfloat16: abi.BF16, torch.float16: abi.FP16}
_QUANTIZED = ("float8", "float4", "int", "uint")


@dataclass(frozen=True)
class Placement:
    """`order` lists the dimensions from the slowest to the fastest in memory; shapes are in it, so
    that the box is row-major whatever the strides."""

    global_shape: tuple[int, ...]
    box_offset: tuple[int, ...]
    box_shape: tuple[int, ...]
    order: tuple[int, ...]

    def suffix(self) -> str:
        """Part of the shard's key where memory is not in the order of the dimensions: a checkpoint
        of the other order is another parameter."""
        in_order = self.order == tuple(range(len(self.order)))
        return "" if in_order else f"[order {','.join(map(str, self.order))}]"


def local_of(tensor: Tensor) -> Tensor:
    """The plain tensor with this rank's elements: a DTensor's local part, else the tensor."""
    local: Tensor = getattr(tensor, "_local_tensor", tensor)
    return local


def flat(tensor: Tensor, order: tuple[int, ...]) -> Tensor:
    """A dense tensor as one run in the order of its memory. Shares the memory."""
    return tensor.detach().permute(order).view(-1)


def memory_order(tensor: Tensor) -> tuple[int, ...] | None:
    """The dimensions by falling stride, or None where the memory has gaps or overlaps."""
    dimensions = range(tensor.dim())
    if tensor.is_contiguous():
        return tuple(dimensions)
    strides = tensor.stride()
    order = tuple(sorted(dimensions, key=lambda d: (-strides[d], d)))
    return order if tensor.permute(order).is_contiguous() else None


def place(name: str, parameter: Tensor) -> Placement | Refusal:
    """Where the parameter's local elements are."""
    local = local_of(parameter)
    refusal = _refusal(name, parameter, local)
    if refusal:
        return refusal
    order = memory_order(local)
    if order is None:
        return Refusal(
            "layout",
            name,
            f"has gaps or overlaps in memory: shape {tuple(local.shape)}, strides "
            f"{local.stride()}.",
            "Make it dense: parameter.data = parameter.data.contiguous().",
        )
    offset = [0] * local.dim()
    if local is not parameter:
        first = _first_row(name, parameter, local)
        if isinstance(first, Refusal):
            return first
        if offset:
            offset[0] = first

    def permuted(values: list[int]) -> tuple[int, ...]:
        return tuple(values[d] for d in order)

    return Placement(
        permuted(list(parameter.shape)), permuted(offset), permuted(list(local.shape)), order
    )


def _refusal(name: str, parameter: Tensor, local: Tensor) -> Refusal | None:
    quantized = quantized_storage(local)
    if quantized:
        return Refusal(
            "storage_quantized",
            name,
            f"is held as {quantized}: its bytes are not its values.",
            "Keep the parameter in bf16, fp16 or fp32 and quantise in the forward.",
        )
    if type(local) not in (Tensor, torch.nn.Parameter):
        return Refusal(
            "tensor_subclass",
            name,
            f"is a {type(local).__module__}.{type(local).__qualname__}, whose memory only that "
            "class understands.",
            "Use plain parameters or DTensor (fully_shard), or give this parameter to "
            "torch.optim.AdamW.",
        )
    if local.is_meta:
        return Refusal(
            "meta",
            name,
            "is a meta tensor: it has no memory.",
            "Call model.to_empty(device=...) and initialise the weights before the first step or "
            "optimizer.bind().",
        )
    if local.layout is not torch.strided:
        return Refusal(
            "storage_sparse",
            name,
            f"has the layout {local.layout}.",
            "Give sparse parameters to torch.optim.SparseAdam.",
        )
    if local.dtype not in DTYPES:
        return Refusal(
            "dtype_unsupported",
            name,
            f"has the dtype {local.dtype}.",
            "Parameters can be torch.float32, torch.bfloat16 or torch.float16.",
        )
    if local.device.type not in ("cpu", "cuda"):
        return Refusal(
            "device_unsupported",
            name,
            f"is on {local.device}.",
            "Parameters can be on the CPU or on CUDA.",
        )
    return None


def quantized_storage(tensor: Tensor) -> str | None:
    """The stored dtype of a quantised tensor, in whatever class: by what it holds, not by the dtype
    that it gives out."""
    if any(str(tensor.dtype).removeprefix("torch.").startswith(q) for q in _QUANTIZED):
        return str(tensor.dtype)
    if type(tensor) in (Tensor, torch.nn.Parameter):
        return "torch.quantized" if tensor.is_quantized else None
    inner = [value for value in _members(tensor) if isinstance(value, Tensor)]
    for value in inner:
        found = quantized_storage(value)
        if found:
            return f"{found} in a {type(tensor).__qualname__}"
    return None


def _members(tensor: Tensor) -> list[object]:
    flatten = getattr(tensor, "__tensor_flatten__", None)
    if flatten is not None:
        return [getattr(tensor, name, None) for name in flatten()[0]]
    return list(getattr(tensor, "__dict__", {}).values())


def _first_row(name: str, parameter: Tensor, local: Tensor) -> int | Refusal:
    """The first row of a DTensor's local part, by torch.chunk's rule."""
    from torch.distributed.tensor import Replicate, Shard

    placements = parameter.placements  # type: ignore[attr-defined]
    mesh = parameter.device_mesh  # type: ignore[attr-defined]
    sharded = [dim for dim, where in enumerate(placements) if type(where) is Shard]
    plain = all(
        type(where) is Replicate or (type(where) is Shard and where.dim == 0)
        for where in placements
    )
    if not plain or len(sharded) > 1:
        return Refusal(
            "placement",
            name,
            f"is placed as {tuple(placements)}: its local part is no run of whole rows.",
            "Use Replicate, and Shard(0) on one mesh dimension (fully_shard's default).",
        )
    if not sharded:
        return 0
    dim = sharded[0]
    rows: int
    ranks: int
    rank: int
    rows, ranks, rank = parameter.shape[0], mesh.size(dim), mesh.get_local_rank(dim)
    chunk = -(-rows // ranks)
    first = min(chunk * rank, rows)
    wanted = min(chunk, rows - first)
    if local.shape[0] != wanted:
        return Refusal(
            "placement",
            name,
            f"has {local.shape[0]} local rows on rank {rank} of {ranks}, where an even cut of "
            f"{rows} has {wanted}.",
            "Shard it with fully_shard or distribute_tensor.",
        )
    return first
