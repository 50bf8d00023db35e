"""Which arithmetic gives the bits of the inner optimizer that Megatron built: torch's, Transformer
Engine's or apex's Adam."""

from __future__ import annotations

import functools
import logging
from typing import Any

import torch

from .. import abi
from ..errors import MillpondError
from ..torch.hostadam import HostAdam
from ..torch.proof import HOST, candidates, prove

LOG = logging.getLogger("millpond.megatron")
TE = "te_fused_adam/1"
TE_FAST = "te_fused_adam_fast/1"  # as Transformer Engine and apex build it, on CUDA alone


def is_adam(kind: type) -> bool:
    """Any class that calls itself Adam and is torch's, Transformer Engine's or apex's."""
    return kind in (torch.optim.Adam, torch.optim.AdamW) or is_fused(kind)


def is_fused(kind: type) -> bool:
    """Transformer Engine's or apex's FusedAdam."""
    return kind.__name__ == "FusedAdam"


def counts_in_group(kind: type) -> bool:
    """FusedAdam keeps its step in group['step'], torch in each parameter's state."""
    return is_fused(kind)


def host_of(inner: Any) -> HostAdam:
    """The inner optimizer's own step on the plugin's pieces (arithmetic "host/1")."""
    kind: Any = type(inner)
    if is_fused(kind):
        return HostAdam(_fused_kind(kind, bool(getattr(inner, "adam_w_mode", 1))), True)
    return HostAdam(kind)


def group_step(inner: Any, group: dict[str, Any], number: int) -> abi.GroupStep:
    """A group's hyperparameters of this step, as doubles: read anew every step."""
    beta1, beta2 = group["betas"]
    if is_fused(type(inner)):
        decoupled = bool(getattr(inner, "adam_w_mode", 1))
    else:
        decoupled = bool(group.get("decoupled_weight_decay", isinstance(inner, torch.optim.AdamW)))
    return abi.GroupStep(
        number, float(group["lr"]), float(beta1), float(beta2), float(group["eps"]),
        float(group["weight_decay"]), int(decoupled), int(group.get("maximize", False)),
    )  # fmt: skip


def choose(
    inner: Any, groups: list[dict[str, Any]], device: torch.device, options: dict[str, Any],
    exact: str,
) -> str:  # fmt: skip
    """A variant of the plugin, shown to have the inner optimizer's bits on this machine. On the CPU
    the inner optimizer itself works on the pieces where there is none."""
    kind = type(inner)
    if not is_adam(kind) or not groups:
        return "torch_cpu_foreach/1" if device.type == "cpu" else "torch_cuda_foreach/1"
    if is_fused(kind):
        first = TE if device.type == "cpu" else TE_FAST
        found = first if exact == "off" else _prove_fused(inner, groups, device, options)
    else:
        first = candidates(device, groups[0])[0]
        found = first if exact == "off" else prove(kind, groups, device, options, _torch_step)
    if found:
        LOG.info("arithmetic of %s: %s", kind.__name__, found)
        return found
    if device.type == "cpu":
        return HOST
    if exact == "require":
        raise MillpondError(
            f"no variant of the plugin gives the bits of {kind.__module__}.{kind.__name__} on "
            f"{device} with these groups. Use exact='prefer' to train with rounding that differs "
            "in the last bit.",
            code=abi.E_UNSUPPORTED,
            field="exact",
        )
    LOG.warning("arithmetic of %s: %s, NOT the same bits", kind.__name__, first)
    return first


def _prove_fused(inner: Any, groups: Any, device: Any, options: Any) -> str | None:
    """FusedAdam against the plugin's variants, on scratch tensors."""
    plain: Any = type(inner)
    kind: Any = _fused_kind(plain, bool(getattr(inner, "adam_w_mode", 1)))

    def step(group: dict[str, Any], number: int, _kind: Any) -> abi.GroupStep:
        return group_step(inner, group, number)

    order = [TE] if device.type == "cpu" else [TE_FAST, TE]
    return prove(kind, groups, device, options, step, order)


@functools.cache
def _fused_kind(kind: Any, adam_w_mode: bool) -> Any:
    return functools.partial(kind, adam_w_mode=adam_w_mode)


def _torch_step(group: dict[str, Any], number: int, kind: type) -> abi.GroupStep:
    beta1, beta2 = group["betas"]
    decoupled = group.get("decoupled_weight_decay", kind is torch.optim.AdamW)
    return abi.GroupStep(
        number, float(group["lr"]), float(beta1), float(beta2), float(group["eps"]),
        float(group["weight_decay"]), int(decoupled), int(group.get("maximize", False)),
    )  # fmt: skip
