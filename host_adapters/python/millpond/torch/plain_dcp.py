"""A plain torch Adam's state in a torch.distributed.checkpoint directory, in and out, one tensor at
a time: for people who come or leave with more state than fits into memory."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed.checkpoint
from torch import Tensor
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict

from .. import abi
from ..errors import CheckpointError, MillpondError
from .incoming import MARKER, set_counters
from .moments import MOMENTS, write_run, zero_run
from .optimizer import StreamedOptimizer
from .outgoing import as_parameter, moment_of
from .placement import local_of
from .proof import stream_of

Path_ = str | os.PathLike[str]
dcp: Any = torch.distributed.checkpoint


def import_dcp(
    path: Path_, model: torch.nn.Module, optimizer: StreamedOptimizer, prefix: str = "optimizer"
) -> None:
    """Moments and counters of a plain torch Adam from a DCP directory, one tensor at a time and
    resharded on the way. `prefix`: what stands before ".state.<parameter>.exp_avg" in its keys.
    Load the weights before: mains begin as they are. Collective."""
    optimizer.bind()
    store, bound = optimizer._streamed.store, optimizer.binding
    names = _names(model)
    stems = [f"{prefix}.state.{names[id(entry.parameter)]}" for entry in bound.entries]
    there = _present(path, prefix, stems)
    optimizer.adopting()
    store.refresh(stream_of(bound.device))
    counters = []
    for i, (stem, parameter) in enumerate(zip(stems, bound.parameters, strict=True)):
        for name, segment in MOMENTS.items():
            if stem not in there:
                zero_run(store, i, segment, bound.flats[i].numel())
                continue
            value = torch.empty_like(parameter.detach(), dtype=torch.float32)
            dcp.load({f"{stem}.{name}": value}, checkpoint_id=path)
            begin, end = bound.ranges[i]
            run = local_of(value).permute(bound.placements[i].order).reshape(-1)
            write_run(store, i, segment, run[begin:end])
        step = torch.zeros(())
        if stem in there:
            dcp.load({f"{stem}.step": step}, checkpoint_id=path)
        counters.append(int(step))
    set_counters(counters, store)
    optimizer.adopted(counters)


def _present(path: Path_, prefix: str, stems: list[str]) -> set[str]:
    """Those of `stems` that the directory has state for: judged before anything changes."""
    known = dcp.FileSystemReader(path).read_metadata().state_dict_metadata
    there = set()
    for stem in stems:
        present = [f"{stem}.{name}" in known for name in ("step", *MOMENTS)]
        if any(present) != all(present):
            raise CheckpointError(
                f"import_dcp: {stem} has only a part of Adam's state",
                code=abi.E_MISMATCH,
                field=stem,
            )
        if all(present):
            there.add(stem)
    if not there:
        raise CheckpointError(
            f"import_dcp: no state of these parameters is below {path} with the prefix {prefix!r}",
            code=abi.E_MISSING,
            field="prefix",
        )
    return there


def export_dcp(
    path: Path_, model: torch.nn.Module, optimizer: StreamedOptimizer, prefix: str = "optimizer"
) -> None:
    """Moments, counters and groups as a DCP directory, which a plain torch Adam of the same model
    takes: `get_optimizer_state_dict`, `dcp.load`, `set_optimizer_state_dict`, on any number of
    ranks. One moment at a time is in memory. A parameter that never had a gradient comes with
    moments of zero and no steps. Collective."""
    optimizer.require_whole("export_dcp")
    optimizer.bind()
    store, bound = optimizer._streamed.store, optimizer.binding
    if len(bound.cuts) > 1:
        raise MillpondError(
            "export_dcp: with shard_state each rank has a run of every parameter, which DCP cannot "
            "put together. Use optimizer.plain_state_dict().",
            code=abi.E_UNSUPPORTED,
            field="shard_state",
        )
    state: dict[str, Any] = get_optimizer_state_dict(model, optimizer)
    for group in state["param_groups"]:
        group.pop(MARKER, None)
    names = _names(model)
    readers: dict[str, Callable[[], Tensor]] = {}
    for i, entry in enumerate(bound.entries):
        name = names[id(entry.parameter)]
        shape = local_of(entry.parameter).shape
        of = state["state"][name]
        for moment, segment in MOMENTS.items():
            of[moment] = as_parameter(torch.zeros(()).expand(shape), entry.parameter)
            readers[f"{prefix}.state.{name}.{moment}"] = _reader(store, bound, i, segment)
    with torch.no_grad():
        dcp.save({prefix: state}, checkpoint_id=path, planner=_Streaming(readers))


def _reader(store: Any, bound: Any, i: int, segment: int) -> Callable[[], Tensor]:
    return lambda: moment_of(store, bound, i, segment)


class _Streaming(DefaultSavePlanner):
    """Asks for a tensor when it is about to be written; until then a place holder of no memory
    stands for it."""

    def __init__(self, readers: dict[str, Callable[[], Tensor]]):
        super().__init__()
        self._readers = readers

    def lookup_object(self, index: Any) -> Any:
        reader = self._readers.get(index.fqn)
        return reader() if reader else super().lookup_object(index)


def _names(model: torch.nn.Module) -> dict[int, str]:
    """Parameters' names without what wrappers put into them, as DCP has them."""
    return {id(p): _plain(name) for name, p in model.named_parameters()}


def _plain(name: str) -> str:
    return ".".join(part for part in name.split(".") if part not in ("module", "_orig_mod"))
