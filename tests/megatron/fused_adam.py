"""An inner optimizer with the conventions of Transformer Engine's and apex's FusedAdam, which need
CUDA: the step is in each group that has parameters, and nowhere else; adam_w_mode is an attribute.
The arithmetic is plain torch, so that any cut of a parameter has the same bits."""

from __future__ import annotations

from typing import Any

import torch


class FusedAdam(torch.optim.Optimizer):
    def __init__(
        self, params: Any, lr: float = 1e-3, betas: Any = (0.9, 0.999), eps: float = 1e-8,
        adam_w_mode: bool = True, weight_decay: float = 0.0,
    ):  # fmt: skip
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps,
                                  "weight_decay": weight_decay})  # fmt: skip
        self.adam_w_mode = adam_w_mode

    @torch.no_grad()
    def step(self, _closure: Any = None) -> None:
        for group in self.param_groups:
            if not group["params"]:
                continue
            group["step"] = group.get("step", 0) + 1
            (beta1, beta2), number = group["betas"], group["step"]
            for parameter in group["params"]:
                state = self.state[parameter]
                if not state:
                    state["exp_avg"] = torch.zeros_like(parameter)
                    state["exp_avg_sq"] = torch.zeros_like(parameter)
                gradient = parameter.grad
                state["exp_avg"].mul_(beta1).add_(gradient * (1 - beta1))
                state["exp_avg_sq"].mul_(beta2).add_(gradient * gradient * (1 - beta2))
                mean = state["exp_avg"] / (1 - beta1**number)
                root = (state["exp_avg_sq"] / (1 - beta2**number)).sqrt() + group["eps"]
                parameter.mul_(1 - group["lr"] * group["weight_decay"])
                parameter.sub_(mean / root * group["lr"])
