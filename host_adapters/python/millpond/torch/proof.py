"""Which arithmetic gives the bits of the user's own optimizer: shown, not assumed.

The user's torch.optim class with the user's flags takes a few steps on a scratch tensor, and so
does a named variant of the plugin, streamed through a small store of its own. The first variant
without a differing bit is it.
"""

from __future__ import annotations

import copy
import ctypes
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .. import abi
from ..errors import MillpondError
from ..features import FEATURES, INACTIVE
from ..runtime import Runtime, Store, span_of

HOST = "host/1"
# A wrong square root shows in about one of 4,000 elements; tails of vector loops show in odd ones.
_SIZES = (1_048_583, 4_099, 257, 6)
_STEPS = 3
_proven: dict[tuple[Any, ...], bool] = {}


def candidates(device: torch.device, flags: dict[str, Any]) -> list[str]:
    """Variants that may be this path's, the likeliest first."""
    if device.type == "cpu":
        if flags.get("fused"):
            return ["torch_cpu_fused/1"]
        return ["torch_cpu_foreach_mkl/1", "torch_cpu_foreach/1"]
    if flags.get("fused"):
        return ["torch_cuda_fused/2", "torch_cuda_fused/1"]
    first, second = "torch_cuda_foreach/1", "torch_cuda_single/1"
    return [second, first] if flags.get("foreach") is False else [first, second]


def reference(
    kind: type[torch.optim.Optimizer], group: dict[str, Any], params: list[Tensor]
) -> Any:
    """The user's own optimizer on other tensors, with the group's flags and hyperparameters."""
    accepted = kind(params[:1]).defaults  # type: ignore[call-arg]
    own = {key: copy.deepcopy(group[key]) for key in accepted if key in group}
    own.pop("decoupled_weight_decay", None)
    made = kind(params, **own)
    if "decoupled_weight_decay" in group and "decoupled_weight_decay" in accepted:
        made.param_groups[0]["decoupled_weight_decay"] = group["decoupled_weight_decay"]
    return made


def prove(
    kind: type[torch.optim.Optimizer],
    groups: Sequence[dict[str, Any]],
    device: torch.device,
    options: dict[str, Any],
    group_step: Any,
    order: list[str] | None = None,
) -> str | None:
    """The variant that gives the bits of every group, or None. `options`: the runtime's, for the
    scratch directory. `order`: the variants to try, where the optimizer is none of torch's.
    Remembered for the process."""
    orders = [order or candidates(device, group) for group in groups]
    for variant in orders[0]:
        if all(
            variant in order and _agrees(kind, group, device, options, group_step, variant)
            for order, group in zip(orders, groups, strict=True)
        ):
            return variant
    return None


def _agrees(
    kind: Any, group: dict[str, Any], device: Any, options: Any, group_step: Any, variant: str
) -> bool:
    """A rate in a tensor makes torch compute with it in fp32, except in the fused step: that agrees
    for some rates and not for others, so it is no variant's. The rate itself is left out of what is
    remembered: schedulers change it, and no path of torch or of ours branches on it."""
    if isinstance(group["lr"], Tensor) and not group.get("fused"):
        return False
    flags = tuple(
        (name, type(group[name]) if name == "lr" else repr(group[name]))
        for name in sorted(kind([torch.zeros(1)]).defaults)
        if name in group
    )
    key = (kind, str(device), flags, variant)
    if key not in _proven:
        _proven[key] = _compare(kind, group, device, options, group_step, variant)
    return _proven[key]


def _compare(
    kind: Any, group: dict[str, Any], device: Any, options: Any, group_step: Any, variant: str
) -> bool:
    generator = torch.Generator().manual_seed(2026)
    start = [torch.randn(n, generator=generator) for n in _SIZES]
    base = [
        torch.randn(n, generator=generator)
        * torch.exp2(torch.randint(-24, 4, (n,), generator=generator))
        for n in _SIZES
    ]
    theirs = [torch.nn.Parameter(t.to(device, copy=True)) for t in start]
    ours = [t.to(device, copy=True) for t in start]
    grads = [torch.empty_like(t) for t in ours]
    resident = reference(kind, group, theirs)  # type: ignore[arg-type]
    small = {"host_memory_bytes": 48 << 20, "scratch": options["scratch"], "log_level": "error"}
    if device.type == "cuda":
        small["device_staging_bytes"] = 48 << 20
    runtime = Runtime(small)
    try:
        store = runtime.store("proof")
        _bind(store, ours, grads, variant, device)
        for step in range(_STEPS):
            for i, grad in enumerate(grads):
                grad.copy_(base[i].roll(97 * step) * (1.0 + 0.25 * step))
                theirs[i].grad = grad.clone()
            scale = 384.0 if group.get("fused") and step == _STEPS - 1 else 1.0
            if scale != 1.0:
                resident.grad_scale = torch.tensor(scale, device=device)
                resident.found_inf = torch.tensor(0.0, device=device)
            _step(store, group_step(group, 0, kind), scale, device)
            resident.step()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return _equal(store, resident, theirs, ours)
    except MillpondError as error:
        if error.code in (abi.E_REFUSED, abi.E_ARGUMENT, abi.E_UNSUPPORTED):
            return False  # the plugin itself says that this variant cannot do it
        raise
    finally:
        runtime.close()


def _bind(store: Store, ours: list[Tensor], grads: list[Tensor], variant: str, device: Any) -> None:
    message = store.runtime.plugin.message
    profile = message("HostProfile")(
        framework="torch", framework_version=torch.__version__, adapter="millpond.torch",
        adapter_version="proof", arithmetic=variant, config_epoch=1,
    )  # fmt: skip
    profile.optimizer.class_name, profile.optimizer.family = "torch.optim.AdamW", 1
    for name in FEATURES:
        profile.features.add(name=name, state=INACTIVE)
    profile.groups.add(id=0, key="proof")
    number = dlpack_device(device)
    pointers = (abi.ShardPointers * len(ours))()
    for i, (tensor, grad) in enumerate(zip(ours, grads, strict=True)):
        n = tensor.numel()
        profile.shards.add(
            id=i, key=f"p{i}", global_shape=[n], box_offset=[0], box_shape=[n], flat_end=n,
            kind=2, model_dtype=abi.FP32, grad_dtype=abi.FP32, model_storage=1, grad_storage=1,
            device_type=number[0], device_id=number[1],
        )  # fmt: skip
        pointers[i] = abi.ShardPointers(
            i,
            abi.Tensor(tensor.data_ptr(), 0, n, *number, abi.FP32, 0),
            abi.Tensor(grad.data_ptr(), 0, n, *number, abi.FP32, 0),
            abi.Tensor(None, 0, 0, abi.DEVICE_CPU, 0, 0, 0),
        )
    store.bind(profile, pointers, stream_of(device))


def _step(store: Store, group: abi.GroupStep, scale: float, device: Any) -> None:
    array = (abi.GroupStep * 1)(group)
    store.step(
        abi.StepArgs(
            abi.header_of(abi.StepArgs, abi.TYPE_STEP_ARGS), 1, span_of(array), None, None, None,
            len(_SIZES), scale, 0, (ctypes.c_uint8 * 3)(), stream_of(device),
        )
    )  # fmt: skip


def _equal(store: Store, resident: Any, theirs: list[Any], ours: list[Tensor]) -> bool:
    for i, (their, our) in enumerate(zip(theirs, ours, strict=True)):
        if not same_bits(their.detach(), our):
            return False
        for segment, name in ((1, "exp_avg"), (2, "exp_avg_sq")):
            values = torch.empty(our.numel())
            store.read(i, segment, 0, our.numel(), values.data_ptr())
            if not same_bits(resident.state[their][name].cpu(), values):
                return False
    return True


def same_bits(a: Tensor, b: Tensor) -> bool:
    number = torch.int32 if a.dtype == torch.float32 else torch.int16
    return torch.equal(a.view(number), b.view(number))


def dlpack_device(device: torch.device) -> tuple[int, int]:
    if device.type == "cuda":
        return abi.DEVICE_CUDA, device.index or 0
    return abi.DEVICE_CPU, 0


def stream_of(device: torch.device) -> abi.Stream:
    """The stream in whose order torch works on this device now."""
    if device.type != "cuda":
        return abi.Stream(abi.DEVICE_CPU, 0, 0)
    handle = torch.cuda.current_stream(device).cuda_stream
    return abi.Stream(abi.DEVICE_CUDA, device.index or 0, handle or 1)
