"""The features of a bind, as the plugin's guard wants them: every one judged."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..features import ACTIVE, FEATURES, INACTIVE
from .rules import RULES

DISK_BACKUP = b"TMS_INIT_ENABLE_DISK_BACKUP"


@dataclass(frozen=True)
class Feature:
    """`detail`: the option or value behind it."""

    name: str
    state: int
    detail: str = ""


def features_of(optimizer: Any, arguments: Any) -> list[Feature]:
    """From the optimizer's and DDP's configuration, the parsed arguments (or None), the inner
    optimizer, the parameters and the environment."""
    active = dict(_from_rules(optimizer, arguments))
    active |= dict(_from_objects(optimizer))
    active |= dict(_from_trainer(arguments))
    return [
        Feature(name, ACTIVE if name in active else INACTIVE, active.get(name, ""))
        for name in FEATURES
    ]


def _from_rules(optimizer: Any, arguments: Any) -> Iterator[tuple[str, str]]:
    model = optimizer.model_chunks[0].config
    for source in (optimizer.config, optimizer.ddp_config, model, arguments):
        for rule in RULES:
            value = getattr(source, rule.argument, None)
            if rule.feature and rule.active(value):
                yield rule.feature, f"{rule.argument} = {value!r}"


def _from_objects(optimizer: Any) -> Iterator[tuple[str, str]]:
    config, ddp = optimizer.config, optimizer.ddp_config
    yield "parallel.distributed_optimizer", "DistributedOptimizer"
    if getattr(ddp, "overlap_param_gather", False):
        yield "parallel.overlap_param_gather", "overlap_param_gather"
    if config.clip_grad > 0.0:
        yield "grad.clip_norm", f"clip_grad = {config.clip_grad}"
    if optimizer.grad_scaler is not None:
        yield "grad.loss_scale", type(optimizer.grad_scaler).__name__
    kind = type(optimizer).__name__
    if "LayerWise" in kind:
        yield "optimizer.layer_wise", kind
    inner = type(optimizer.optimizer).__name__
    if "HybridDevice" in inner:
        yield "optimizer.cpu_offload", inner
    if "Muon" in inner:
        yield "optimizer.muon", inner
    for group in optimizer.optimizer.param_groups:
        if group.get("amsgrad"):
            yield "optimizer.amsgrad", "amsgrad = True"
    quantized = _quantized(optimizer)
    if quantized:
        yield ("param.fp4" if "4" in quantized else "param.fp8"), quantized


def _quantized(optimizer: Any) -> str:
    """The class of a quantised parameter, in whatever subclass of a tensor."""
    for groups in (optimizer.model_float16_groups, optimizer.model_fp32_groups):
        for group in groups:
            for parameter in group:
                name = type(parameter).__qualname__
                if any(word in name for word in ("Float8", "FP8", "NVFP4", "FP4", "Blockwise")):
                    return name
    return ""


def _from_trainer(arguments: Any) -> Iterator[tuple[str, str]]:
    if getattr(arguments, "offload_train", False):
        target = getattr(arguments, "offload_train_target", "cpu")
        yield "trainer.offload", f"offload_train_target = {target!r}"
        if target == "disk":
            yield "trainer.offload.disk_target", "offload_train_target = 'disk'"
    saver = memory_saver()
    if saver is not None:
        yield "memory_saver", str(saver)
        if knows_disk_backup(saver):
            yield "memory_saver.disk_backup", str(saver)


def memory_saver() -> Path | None:
    """The memory saver's binary that LD_PRELOAD names."""
    for one in os.environ.get("LD_PRELOAD", "").replace(":", " ").split():
        if "torch_memory_saver" in os.path.basename(one):
            return Path(one)
    return None


def knows_disk_backup(binary: Path) -> bool:
    """Whether the file itself, not a package's version, has the name of the setting."""
    try:
        return DISK_BACKUP in binary.read_bytes()
    except OSError:
        return False
