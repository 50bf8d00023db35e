"""Which elements of which parameter a rank's distributed optimizer owns, under names that are the
same on every rank and in every topology where that is possible."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .. import abi
from ..errors import CheckpointError, MillpondError

_LAYER = re.compile(r"^(.*\blayers)\.(\d+)$")
_EXPERT = re.compile(r"(\.local_experts\.)(\d+)(\.)")
IDENTIFIER_KEYS = ("wd_mult", "lr_mult", "is_expert_parallel", "is_decoupled_lr")


@dataclass(frozen=True)
class Shard:
    """One shard: `main` is Megatron's handle, or for a native fp32 parameter its own shard; `model`
    is the run of the parameter buffer that the gather reads."""

    key: str
    group: int
    parameter: Tensor
    main: Tensor
    model: Tensor
    flat: tuple[int, int]
    global_shape: tuple[int, ...]
    box_offset: tuple[int, ...]
    bucket: int

    @property
    def native_fp32(self) -> bool:
        return self.parameter.dtype == torch.float32


def shards_of(optimizer: Any) -> list[Shard]:
    """The shards of a DistributedOptimizer, group by group, fp32 ones after the others."""
    names = names_of(optimizer.model_chunks)
    found = []
    for group, (half, full, mains, singles) in enumerate(
        zip(
            optimizer.model_float16_groups,
            optimizer.model_fp32_groups,
            optimizer.shard_fp32_from_float16_groups,
            optimizer.shard_fp32_groups,
            strict=True,
        )
    ):
        pairs = [*zip(half, mains, strict=True), *zip(full, singles, strict=True)]
        for parameter, main in pairs:
            found.append(_shard(optimizer, names[parameter], group, parameter, main))
    keys = [shard.key for shard in found]
    if len(set(keys)) != len(keys):
        twice = sorted({key for key in keys if keys.count(key) > 1})
        raise MillpondError(f"two parameters have the name {twice[0]}", field=twice[0])
    return found


def _shard(optimizer: Any, name: str, group: int, parameter: Tensor, main: Tensor) -> Shard:
    buffer, _, bucket = optimizer.model_param_gbuf_map[parameter]
    place = optimizer._get_model_param_range_map(parameter)["param"]
    begin, end = place.start, place.end
    model = run_of(optimizer, parameter, name, main, end - begin)
    size, rank = _tensor_parallel(parameter)
    shape = list(parameter.shape)
    offset = [0] * len(shape)
    if size > 1:
        dimension = parameter.partition_dim  # type: ignore[attr-defined]
        if _interleaved(optimizer, name, parameter):
            name = f"{name}@tp{rank}/{size}"  # no box of the whole: another size is another name
        else:
            offset[dimension] = shape[dimension] * rank
            shape[dimension] *= size
    return Shard(
        name, group, parameter, main, model, (begin, end), tuple(shape), tuple(offset),
        optimizer.gbuf_idx_to_model_idx_map.get(buffer, 0) * 65536 + buffer * 4096 + bucket,
    )  # fmt: skip


def run_of(optimizer: Any, parameter: Tensor, name: str, main: Tensor, numel: int) -> Tensor:
    """The run of the parameter buffer that the gather reads, as it is now. Its size, the main's and
    the range's must be equal, and the buffer must have its memory, each time it is asked for."""
    buffer, _, bucket = optimizer.model_param_gbuf_map[parameter]
    place = optimizer._get_model_param_range_map(parameter)["gbuf_world_in_bucket"]
    data: Tensor = optimizer.buffers[buffer].buckets[bucket].param_data
    end = min(place.end, data.numel())
    wanted = (data.storage_offset() + end) * data.element_size() if numel else 0
    held = data.untyped_storage().nbytes()
    if held < wanted:
        raise MillpondError(
            f"{name}: the parameter buffer has {held} bytes of memory, its range ends at byte "
            f"{wanted}: somebody took the buffer away. Nothing was changed; bring it back before "
            "the step.",
            wanted=wanted,
            got=held,
            field=name,
        )
    run = data.view(-1)[place.start : place.end]
    if not run.numel() == main.numel() == numel:
        raise MillpondError(
            f"{name}: the optimizer's shard has {main.numel()} elements, the parameter buffer's "
            f"range {run.numel()}, the parameter's range {numel}. Nothing was changed.",
            wanted=numel,
            got=main.numel() if main.numel() != numel else run.numel(),
            field=name,
        )
    return run


def _tensor_parallel(parameter: Tensor) -> tuple[int, int]:
    """Size and rank of the group that the parameter is cut over; (1, 0) where it is whole."""
    from megatron.core import parallel_state

    if not getattr(parameter, "tensor_model_parallel", False):
        return 1, 0
    if getattr(parameter, "allreduce", True):
        return (
            parallel_state.get_tensor_model_parallel_world_size(),
            parallel_state.get_tensor_model_parallel_rank(),
        )
    return (
        parallel_state.get_expert_tensor_parallel_world_size(),
        parallel_state.get_expert_tensor_parallel_rank(),
    )


def _with_expert(name: str, first: int) -> str:
    """The name with its expert's number in the whole model."""
    return _EXPERT.sub(lambda m: f"{m[1]}{int(m[2]) + first}{m[3]}", name)


def _interleaved(optimizer: Any, name: str, parameter: Tensor) -> bool:
    """A rank's part is not one box."""
    return getattr(parameter, "partition_stride", 1) != 1 or _gated(optimizer, name)


def _gated(optimizer: Any, name: str) -> bool:
    """A layer of which each rank holds a part of the gate and one of the rest."""
    gated = getattr(optimizer.model_chunks[0].config, "gated_linear_unit", False)
    return bool(gated) and "linear_fc1." in name


def why_absent(failure: MillpondError, optimizer: Any) -> MillpondError:
    """A load's failure, where another size of parallelism is behind it with the words."""
    if failure.code not in (abi.E_MISMATCH, abi.E_MISSING):
        return failure
    if _gated(optimizer, failure.field):
        words = (
            "The rows of a gated layer are laid out for one size of tensor parallelism: load with "
            "the --tensor-model-parallel-size that saved"
        )
    elif ".experts." in failure.field:
        words = (
            "With --expert-model-parallel-size 1 experts belong to the dense optimizer, with more "
            "to one of their own: load with the one or the other, as it was saved"
        )
    else:
        return failure
    return CheckpointError(f"{failure}. {words}.", code=failure.code, field=failure.field)


def names_of(chunks: Sequence[torch.nn.Module]) -> dict[Tensor, str]:
    """Names by parameter: layers and experts carry their number in the whole model, not on this
    rank; what is left ambiguous between virtual chunks carries the chunk's."""
    found: dict[Tensor, str] = {}
    for number, chunk in enumerate(chunks):
        layers = _layer_names(chunk)
        first_expert = _first_expert(chunk)
        own = {}
        for raw, parameter in chunk.named_parameters():
            name = raw
            for old, new in layers:
                if name.startswith(old):
                    name = new + name[len(old) :]
                    break
            while name.startswith("module."):
                name = name.removeprefix("module.")
            own[parameter] = _with_expert(name, first_expert)
        taken = set(found.values())
        clash = any(name in taken for name in own.values())
        found |= {p: f"chunk{number}.{name}" if clash else name for p, name in own.items()}
    return found


def _layer_names(chunk: torch.nn.Module) -> list[tuple[str, str]]:
    """Prefixes of layers with the number on this rank, and with the number in the model."""
    renamed = []
    for name, module in chunk.named_modules():
        match = _LAYER.match(name)
        number = getattr(module, "layer_number", None)
        if match and isinstance(number, int):
            renamed.append((f"{name}.", f"{match[1]}.{number - 1}."))
    return renamed


def _first_expert(chunk: Any) -> int:
    from megatron.core import parallel_state

    experts = getattr(chunk.config, "num_moe_experts", None)
    if not experts:
        return 0
    size = parallel_state.get_expert_model_parallel_world_size()
    return int(parallel_state.get_expert_model_parallel_rank() * (experts // size))


def group_key(group: dict[str, Any]) -> str:
    """A group's identity over runs and releases, whose order of groups differs."""
    try:
        from megatron.core.optimizer.optimizer import param_group_identifier_keys as keys
    except ImportError:
        keys = IDENTIFIER_KEYS
    values = [(key, group.get(key, group.get(f"pre_{key}"))) for key in keys]
    return ",".join(f"{key}={value}" for key, value in values)


def topology() -> list[tuple[str, int, int]]:
    """(name, rank, size) of the job's axes."""
    from megatron.core import parallel_state as state

    return [
        ("dp", state.get_data_parallel_rank(), state.get_data_parallel_world_size()),
        (
            "tp",
            state.get_tensor_model_parallel_rank(),
            state.get_tensor_model_parallel_world_size(),
        ),
        (
            "pp",
            state.get_pipeline_model_parallel_rank(),
            state.get_pipeline_model_parallel_world_size(),
        ),
        (
            "ep",
            state.get_expert_model_parallel_rank(),
            state.get_expert_model_parallel_world_size(),
        ),
    ]


def tensor_of(tensor: Tensor, dtype: int) -> abi.Tensor:
    from ..torch.proof import dlpack_device

    n = tensor.numel()
    return abi.Tensor(
        tensor.data_ptr() if n else None, 0, n, *dlpack_device(tensor.device), dtype, 0
    )
