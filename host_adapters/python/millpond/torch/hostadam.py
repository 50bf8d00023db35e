"""The user's own optimizer as the plugin's callback (arithmetic "host/1"): exact whatever its
formula, since torch itself updates the pieces. On the thread that is inside step."""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch import Tensor

from .. import abi
from .proof import reference


class HostAdam:
    """`groups` are the optimizer's live param_groups, set at every bind. `step_in_group`: the class
    counts in group["step"] (as Transformer Engine's and apex's FusedAdam), not in each parameter's
    state."""

    def __init__(self, kind: type[torch.optim.Optimizer], step_in_group: bool = False):
        self._kind, self._step_in_group = kind, step_in_group
        self.groups: list[dict[str, Any]] = []

    def update(self, piece: abi.UpdatePiece) -> None:
        group = self.groups[piece.group_id]
        count = piece.count
        parameter = torch.nn.Parameter(_view(piece.main, count))
        gradient = _view(piece.grad, count)
        fused = bool(group.get("fused"))
        if piece.grad_scale != 1.0 and not fused:
            gradient.div_(piece.grad_scale)
        parameter.grad = gradient
        optimizer = reference(self._kind, group, [parameter])
        state = {
            "exp_avg": _view(piece.exp_avg, count),
            "exp_avg_sq": _view(piece.exp_avg_sq, count),
        }
        if self._step_in_group:
            optimizer.param_groups[0]["step"] = int(piece.step - 1)
        else:
            state["step"] = torch.tensor(float(piece.step - 1))
        optimizer.state[parameter] = state
        if piece.grad_scale != 1.0 and fused:
            optimizer.grad_scale = torch.tensor(piece.grad_scale)
            optimizer.found_inf = torch.tensor(0.0)
        with torch.enable_grad():
            optimizer.step()


def _view(pointer: Any, count: int) -> Tensor:
    """The plugin's memory as a tensor, valid during the callback."""
    address = ctypes.cast(pointer, ctypes.c_void_p).value
    return torch.frombuffer(
        (ctypes.c_float * count).from_address(address or 0), dtype=torch.float32
    )
