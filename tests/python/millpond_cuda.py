"""The same parameters twice on a GPU: torch's optimizer on its own tensors, the plugin on the
others."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from millpond import abi as c
from millpond_host import Runtime, Store, adamw
from millpond_shards import Memory, Shard

VARIANTS = {"fused": "torch_cuda_fused/2", "foreach": "torch_cuda_foreach/1"}
HYPER = {
    0: {"lr": 3e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.01},
    1: {"lr": 1e-2, "betas": (0.8, 0.95), "eps": 1e-6, "weight_decay": 0.0},
}


def stream_of(stream: Any = None) -> c.Stream:
    """DLPack's handles: torch's default stream is the legacy one, 1."""
    stream = stream or torch.cuda.current_stream()
    return c.Stream(c.DEVICE_CUDA, stream.device_index, stream.cuda_stream or 1)


def bits(tensor: Any) -> Any:
    return tensor.view(torch.int32 if tensor.element_size() == 4 else torch.int16)


def shifted(tensor: Any, by: int) -> Any:
    """The same values, `by` elements behind an aligned address."""
    flat = torch.zeros(tensor.numel() + by, dtype=tensor.dtype, device=tensor.device)
    flat[by:] = tensor
    return flat[by:]


class Twin:
    def __init__(self, sizes: list[int], path: str, grad_dtype: Any = torch.float32, seed: int = 1):
        self.generator = torch.Generator("cuda").manual_seed(seed)
        self.sizes = sizes
        draw = [torch.randn(n, generator=self.generator, device="cuda") for n in sizes]
        start = [(t * 0.1).bfloat16() for t in draw]
        self.resident = [torch.nn.Parameter(t.float()) for t in start]
        # Every third parameter is fp32 and its own main.
        self.models = [shifted(t.float() if i % 3 == 2 else t, i % 4) for i, t in enumerate(start)]
        self.grads = [
            shifted(torch.zeros(n, dtype=grad_dtype, device="cuda"), (i + 1) % 3)
            for i, n in enumerate(sizes)
        ]
        groups = [{"params": self.resident[g::2], **HYPER[g]} for g in HYPER if self.resident[g::2]]
        self.optimizer = torch.optim.AdamW(groups, foreach=path == "foreach", fused=path == "fused")
        self.shards = [
            Shard(10 + i, f"layer{i}.weight", Memory.of_torch(model), Memory.of_torch(grad),
                  group=i % 2)
            for i, (model, grad) in enumerate(zip(self.models, self.grads, strict=True))
        ]  # fmt: skip

    def draw(self) -> None:
        """Gradients over many binades, some exact zeros."""
        for grad in self.grads:
            n = grad.numel()
            base = torch.randn(n, generator=self.generator, device="cuda")
            scale = torch.randint(-30, 3, (n,), generator=self.generator, device="cuda")
            base = base * torch.exp2(scale.float())
            base[torch.rand(n, generator=self.generator, device="cuda") < 0.01] = 0
            grad.copy_(base)

    def step_resident(self, absent: set[int]) -> None:
        for i, parameter in enumerate(self.resident):
            parameter.grad = None if i in absent else self.grads[i].float()
        self.optimizer.step()

    def groups(self) -> list[c.GroupStep]:
        return [
            adamw(g, group["lr"], *group["betas"], group["eps"], group["weight_decay"])
            for g, group in enumerate(self.optimizer.param_groups)
        ]

    def compare(self, where: str) -> None:
        for i, (model, parameter) in enumerate(zip(self.models, self.resident, strict=True)):
            wanted = parameter.detach().to(model.dtype)
            differing = int((bits(model.clone()) != bits(wanted)).sum())
            assert differing == 0, (
                f"{where}: {differing} of {model.numel()} differ in parameter {i}"
            )

    def compare_state(self, store: Store) -> None:
        segments = {c.SEGMENT_EXP_AVG: "exp_avg", c.SEGMENT_EXP_AVG_SQ: "exp_avg_sq"}
        for i, parameter in enumerate(self.resident):
            state = self.optimizer.state[parameter]
            wanted = {s: state[name] for s, name in segments.items()}
            if i % 3 != 2:
                wanted[c.SEGMENT_MAIN] = parameter.detach()
            for segment, tensor in wanted.items():
                values = np.ctypeslib.as_array(store.read(10 + i, segment, 0, tensor.numel()))
                found = torch.from_numpy(values.view(np.int32)).cuda()
                differing = int((found != bits(tensor)).sum())
                assert differing == 0, f"{differing} differ in segment {segment} of parameter {i}"
            assert store.counter(10 + i) == int(state["step"])


def bound(runtime: Runtime, twin: Twin, arithmetic: str) -> Store:
    store = runtime.store()
    store.stream = stream_of()
    store.bind(twin.shards, runtime.plugin.profile(twin.shards, arithmetic))
    return store


def train(twin: Twin, store: Store, steps: int, every: int = 20) -> None:
    for step in range(steps):
        twin.draw()
        if step % 17 == 5:
            before = [bits(model.clone()) for model in twin.models]
            twin.grads[0][0] = float("inf")
            assert not store.step(twin.groups(), found_inf=True)
            assert all(
                torch.equal(a, bits(b.clone())) for a, b in zip(before, twin.models, strict=True)
            )
            continue
        absent = {i for i in range(len(twin.sizes)) if i % 5 == 1 and step % 4 == 2}
        for g, group in enumerate(twin.optimizer.param_groups):
            group["lr"] = HYPER[g]["lr"] * (1 - step / (2 * steps))  # a scheduler
            if step == steps // 2:
                group["betas"] = (0.85, 0.99)
        assert store.step(twin.groups(), has_grad=[i not in absent for i in range(len(twin.sizes))])
        twin.step_resident(absent)
        if step < 3 or step % every == every - 1:
            twin.compare(f"step {step + 1}")
