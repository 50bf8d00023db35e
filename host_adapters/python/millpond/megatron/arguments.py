"""Command-line arguments: ours, the names that other launch scripts use already, and the check that
refuses at start-up what cannot go together."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from typing import Any

from ..errors import MillpondError, Refusal, refused
from .features import knows_disk_backup, memory_saver
from .rules import RULES

MOMENTS = ("fp32", "bf16", "fp16", "fp8_e4m3", "fp8_e5m2")
SUBDIRECTORY = "millpond"  # of a directory that is shared with a trainer's own files
_MIB = 1 << 20
_TILE_ALIGNMENT = 4096  # elements


def add_arguments(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Adds --stream-optimizer-state-*. Options that the parser has already, as some forks' do, stay
    the parser's own."""
    group = parser.add_argument_group("streamed optimizer state (Millpond)")
    known = {option for action in parser._actions for option in action.option_strings}

    def add(option: str, **kwargs: Any) -> None:
        if option not in known:
            group.add_argument(option, **kwargs)

    add(
        "--stream-optimizer-state-to-disk", action="store_true",
        help="Keep Adam's mains and moments in files on node-local NVMe and stream them through "
        "the device inside the step. The same bits as without.",
    )  # fmt: skip
    add(
        "--stream-optimizer-state-dir", metavar="DIR", default=None,
        help="Scratch directory on node-local NVMe; several, separated by commas, share the load. "
        "Default: --offload-train-disk-dir, in a subdirectory.",
    )  # fmt: skip
    add(
        "--stream-optimizer-state-moments", choices=MOMENTS, default="fp32",
        help="Storage format of the moments. Only fp32 gives the same bits as without streaming.",
    )  # fmt: skip
    add(
        "--stream-optimizer-state-host-memory", metavar="GIB", default="auto",
        help="Pinned host memory of this rank in GiB, for tiles kept between steps; 'auto': a "
        "share "
        "of what is available.",
    )  # fmt: skip
    add(
        "--stream-optimizer-state-chunk-mb", metavar="MIB", type=int, default=None,
        help="MiB of fp32 values of one segment that move at once. Default: "
        "--offload-train-disk-chunk-mb, or derived.",
    )  # fmt: skip
    return parser


def options_from(arguments: Any) -> dict[str, Any]:
    """The runtime's options (README) of parsed arguments."""
    own = getattr(arguments, "stream_optimizer_state_dir", None)
    shared = getattr(arguments, "offload_train_disk_dir", None)
    if own:
        scratch = [os.path.expandvars(path) for path in str(own).split(",") if path]
    elif shared:
        scratch = [os.path.join(os.path.expandvars(str(shared)), SUBDIRECTORY)]
    else:
        raise MillpondError(
            "--stream-optimizer-state-to-disk needs --stream-optimizer-state-dir, a directory on "
            "node-local NVMe",
            field="stream_optimizer_state_dir",
        )
    options: dict[str, Any] = {"scratch": scratch[0] if len(scratch) == 1 else scratch}
    moments = getattr(arguments, "stream_optimizer_state_moments", None)
    options["moments"] = (
        moments or getattr(arguments, "stream_optimizer_state_moment_dtype", None) or "fp32"
    )
    options["host_memory_bytes"] = _host_memory(arguments)
    chunk = getattr(arguments, "stream_optimizer_state_chunk_mb", None) or getattr(
        arguments, "offload_train_disk_chunk_mb", None
    )
    if chunk:
        options["tile_elements"] = max(int(chunk) * _MIB // 4, _TILE_ALIGNMENT)
    return options


def _host_memory(arguments: Any) -> int | str:
    value = getattr(arguments, "stream_optimizer_state_host_memory", None)
    if value in (None, "auto"):
        return "auto"
    try:
        return int(float(value) * (1 << 30))
    except (TypeError, ValueError) as cause:
        raise MillpondError(
            f"--stream-optimizer-state-host-memory takes GiB or 'auto', got {value!r}",
            field="stream_optimizer_state_host_memory",
        ) from cause


def check_arguments(arguments: Any) -> None:
    """Refuses at start-up, before any process group is made, and lists every reason. Call it when
    arguments are parsed; what is rewritten later is judged again at bind and at the first step."""
    refusals = [*_from_rules(arguments), *_from_trainer(arguments)]
    if refusals:
        raise refused(refusals)


def _from_rules(arguments: Any) -> Iterator[Refusal]:
    for rule in RULES:
        value = getattr(arguments, rule.argument, None)
        if rule.active(value):
            yield Refusal("argument", rule.option, f"{rule.reason} (it is {value!r})", rule.remedy)


def _from_trainer(arguments: Any) -> Iterator[Refusal]:
    offloaded = bool(getattr(arguments, "offload_train", False))
    target = getattr(arguments, "offload_train_target", "cpu")
    if offloaded and target != "disk":
        yield Refusal(
            "argument",
            "--offload-train-target",
            f"The paused trainer would be backed up in host memory (it is {target!r}), which is "
            "what streaming is there to save.",
            "Use --offload-train-target disk.",
        )
    if getattr(arguments, "colocate", False) and not offloaded:
        yield Refusal(
            "argument",
            "--colocate",
            "Inference on the same GPUs without --offload-train leaves the trainer in its memory.",
            "Add --offload-train --offload-train-target disk.",
        )
    saver = memory_saver()
    if saver is not None and not knows_disk_backup(saver):
        yield Refusal(
            "argument",
            "LD_PRELOAD",
            f"{saver} does not know TMS_INIT_ENABLE_DISK_BACKUP: the paused trainer would come "
            "back as garbage.",
            "Install a torch_memory_saver whose binary has the disk backup.",
        )
