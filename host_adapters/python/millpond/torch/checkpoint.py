"""Weights and streamed state as one checkpoint, in torch.distributed.checkpoint's format.

    <path>/state/<save id>/...      what the plugin writes; its COMMIT.json is the switch
           weights-<save id>/...    a plain DCP directory: model, optimizer's handles, extra values

Both are written, then all ranks agree and the commit makes the pair count; until then the older
pair is the checkpoint. All functions are collective, on the thread that trains.
"""

from __future__ import annotations

import json
import os
import shutil
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint
from torch.distributed.checkpoint.state_dict import (
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)

from .. import abi
from ..errors import CheckpointError
from .optimizer import StreamedOptimizer
from .placement import local_of
from .saving import Save

Path_ = str | os.PathLike[str]
dcp: Any = torch.distributed.checkpoint
# DCP's own is no Exception.
FAILURES: tuple[type[BaseException], ...] = (Exception, dcp.CheckpointException)


def save(path: Path_, model: torch.nn.Module, optimizer: StreamedOptimizer, **extra: Any) -> None:
    """Writes weights and streamed state and commits them as one. `extra`: values that DCP can save;
    load returns them."""
    Pair(path, model, optimizer, extra, background=False).commit()


def async_save(
    path: Path_, model: torch.nn.Module, optimizer: StreamedOptimizer, **extra: Any
) -> Pair:
    """Returns when later steps cannot change what is being saved. Call commit() on the result from
    the training thread, on all ranks: without it nothing counts."""
    return Pair(path, model, optimizer, extra, background=True)


class Pair:
    """A save of both that is under way."""

    def __init__(
        self,
        path: Path_,
        model: torch.nn.Module,
        optimizer: StreamedOptimizer,
        extra: dict[str, Any],
        background: bool,
    ):
        self.path = Path(path)
        self._ranks = optimizer.ranks
        self._state: Save = optimizer.async_save(self.path / "state")
        self._target = self.path / f"weights-{self._state.save_id}"
        self._weights: Any = None
        self._failure: BaseException | None = None
        try:
            weights = {
                "model": get_model_state_dict(model),
                "optimizer": get_optimizer_state_dict(model, optimizer),
                "millpond": {"save_id": self._state.save_id},
                "extra": extra,
            }
            self._weights = self._start(weights, background)
        except FAILURES as failure:
            self._failure = failure  # told by commit, where all ranks are

    def _start(self, weights: dict[str, Any], background: bool) -> Any:
        if not background:
            dcp.save(weights, checkpoint_id=self._target)
            return None
        weights = _staged(weights)
        if dist.is_available() and dist.is_initialized():
            # A group of its own: its collectives run on another thread, beside the training's.
            started = dcp.async_save(
                weights, checkpoint_id=self._target, process_group=self._ranks.background_group()
            )
            return getattr(started, "upload_completion", started)
        pool = ThreadPoolExecutor(1)
        future: Future[Any] = pool.submit(dcp.save, weights, checkpoint_id=self._target)
        pool.shutdown(wait=False)
        return future

    def done(self) -> bool:
        """Whether commit would not wait for this rank's writing."""
        return self._state.done() and (self._weights is None or self._weights.done())

    def commit(self) -> None:
        """Waits for the writing; the pair counts on all ranks or on none. Collective."""
        try:
            if self._weights is not None:
                self._weights.result()
        except FAILURES as failure:
            self._failure = failure
        try:
            self._ranks.share_failure("saving the weights", self._failure)
        except BaseException:
            self._state.cancel()
            raise
        self._state.commit()
        self._ranks.barrier()
        if self._ranks.rank == 0:
            for older in self.path.glob("weights-*"):
                if older != self._target:
                    shutil.rmtree(older, ignore_errors=True)


def _staged(value: Any) -> Any:
    """Tensors of a nested state dict as they are now, on the CPU. DTensors of other devices stay:
    DCP brings them, but in releases before 2.7 takes CPU tensors as they are."""
    if isinstance(value, torch.Tensor):
        if value.device.type == "cpu":
            return value.detach().clone()
        return value if local_of(value) is not value else value.detach().cpu()
    if isinstance(value, dict):
        return {key: _staged(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_staged(item) for item in value]
    return value


def load(path: Path_, model: torch.nn.Module, optimizer: StreamedOptimizer, **extra: Any) -> Any:
    """Restores the newest committed pair. `extra`: destinations as given to save; returned as they
    were saved. A state without its weights, or the reverse, is refused."""
    base = Path(path)
    save_id = optimizer.ranks.broadcast_object(_newest(base))
    if save_id is None:
        raise CheckpointError(
            f"load: no committed pair of weights and streamed state is below {base}. A directory "
            "with weights only cannot resume this optimizer: export, or train on from the weights "
            "with a new optimizer.",
            code=abi.E_MISSING,
            field="path",
        )
    state: dict[str, Any] = {
        "model": get_model_state_dict(model),
        "optimizer": get_optimizer_state_dict(model, optimizer),
        "millpond": {"save_id": ""},
        "extra": extra,
    }
    dcp.load(state, checkpoint_id=base / f"weights-{save_id}")
    found = state["millpond"]["save_id"]
    if found != save_id:
        raise CheckpointError(
            f"load: weights-{save_id} was written with the streamed state {found}: they are not a "
            "pair",
            code=abi.E_MISMATCH,
            field="save_id",
        )
    set_model_state_dict(model, state["model"])
    set_optimizer_state_dict(model, optimizer, state["optimizer"])
    optimizer.load(base / "state", save_id)
    return state["extra"]


def _newest(base: Path) -> str | None:
    """The committed save with the highest sequence number that has weights beside it."""
    found: list[tuple[int, str]] = []
    for commit in base.glob("state/*/COMMIT.json"):
        save_id = commit.parent.name
        if (base / f"weights-{save_id}").is_dir():
            found.append((int(json.loads(commit.read_text()).get("sequence", 0)), save_id))
    return max(found)[1] if found else None
