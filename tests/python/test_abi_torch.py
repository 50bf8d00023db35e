"""Real torch AdamW beside the plugin, through the C ABI: the same bits, or host/1 is exact.

The parameters here are fp32 mains with a bf16 model copy, and fp32 parameters that are their own
main. torch's optimizer runs on fp32 tensors (the mains); the plugin streams the same through files.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest
from millpond import abi as c
from millpond_callbacks import Callbacks
from millpond_fixtures import make_runtime, plugin  # noqa: F401
from millpond_host import Store, adamw
from millpond_shards import Memory, Shard

torch = pytest.importorskip("torch", reason="torch is not installed for this Python")

STEPS = 100
LARGE = 1_048_576
SMALL = [1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 255, 256, 257, 4101, 65541]
PATHS = ["single", "foreach", "fused"]
HYPER = {
    0: {"lr": 3e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.01},
    1: {"lr": 1e-2, "betas": (0.8, 0.95), "eps": 1e-6, "weight_decay": 0.0},
}

pytestmark = pytest.mark.skipif(
    torch.backends.cpu.get_cpu_capability() == "DEFAULT",
    reason="without AVX2 torch's kernels have no FMA: another arithmetic, served by host/1",
)


def square_root_is_ieee() -> bool:
    values = torch.rand(1 << 16, generator=torch.Generator().manual_seed(3))
    return bool(np.array_equal(torch.sqrt(values).numpy(), np.sqrt(values.numpy())))


def variant_of(path: str) -> str:
    """What an adapter's probe finds out at bind."""
    if path == "fused":
        return "torch_cpu_fused/1"
    return "torch_cpu_foreach/1" if square_root_is_ieee() else "torch_cpu_foreach_mkl/1"


def bits(tensor: Any) -> Any:
    return tensor.view(torch.int32 if tensor.dtype == torch.float32 else torch.int16)


class Twin:
    """The same parameters twice: torch's optimizer on its own tensors, the plugin on the others."""

    def __init__(self, sizes: list[int], path: str, seed: int):
        self.generator = torch.Generator().manual_seed(seed)
        self.sizes = sizes
        # bf16 start values: then the main, widened from the model, is the same in both.
        start = [torch.randn(n, generator=self.generator).bfloat16() * 0.1 for n in sizes]
        self.resident = [torch.nn.Parameter(t.float()) for t in start]
        # Every third parameter is fp32 and its own main.
        self.models = [t.float() if i % 3 == 2 else t.clone() for i, t in enumerate(start)]
        self.grads = [torch.zeros(n) for n in sizes]
        self.bases = [self.draw_base(n) for n in sizes]
        groups = [{"params": self.resident[g::2], **HYPER[g]} for g in HYPER if self.resident[g::2]]
        self.optimizer = torch.optim.AdamW(groups, foreach=path == "foreach", fused=path == "fused")
        self.shards = [
            Shard(
                10 + i,
                f"layer{i}.weight",
                Memory.of_torch(model),
                Memory.of_torch(grad),
                group=i % 2,
            )
            for i, (model, grad) in enumerate(zip(self.models, self.grads, strict=True))
        ]

    def draw_base(self, n: int) -> Any:
        """Magnitudes over many binades, some exact zeros."""
        exponents = torch.randint(-30, 3, (n,), generator=self.generator)
        base = torch.randn(n, generator=self.generator) * torch.exp2(exponents)
        base[torch.rand(n, generator=self.generator) < 0.01] = 0
        return base

    def draw(self) -> None:
        for grad, base in zip(self.grads, self.bases, strict=True):
            base.mul_(torch.rand((), generator=self.generator) + 0.5)
            grad.copy_(base.roll(int(torch.randint(1, 9999, (), generator=self.generator))))

    def step_resident(self, absent: set[int]) -> None:
        for i, parameter in enumerate(self.resident):
            parameter.grad = None if i in absent else self.grads[i]
        self.optimizer.step()

    def groups(self) -> list[c.GroupStep]:
        return [
            adamw(g, group["lr"], *group["betas"], group["eps"], group["weight_decay"])
            for g, group in enumerate(self.optimizer.param_groups)
        ]

    def compare(self, where: str) -> None:
        for i, (model, parameter) in enumerate(zip(self.models, self.resident, strict=True)):
            wanted = parameter.detach().to(model.dtype)
            differing = int((bits(model) != bits(wanted)).sum())
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
                assert np.array_equal(values.view(np.int32), bits(tensor).numpy()), (i, segment)
            assert store.counter(10 + i) == int(state["step"])


def train(twin: Twin, store: Store, steps: int) -> None:
    for step in range(steps):
        twin.draw()
        absent = {i for i in range(len(twin.sizes)) if i % 5 == 1 and step % 4 == 2}
        for g, group in enumerate(twin.optimizer.param_groups):
            group["lr"] = HYPER[g]["lr"] * (1 - step / (2 * steps))  # a scheduler
            if step == steps // 2:
                group["betas"] = (0.85, 0.99)
        store.step(twin.groups(), has_grad=[i not in absent for i in range(len(twin.sizes))])
        twin.step_resident(absent)
        if step < 3 or step % 10 == 9:
            twin.compare(f"step {step + 1}")


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("sizes", [[LARGE], SMALL], ids=["large", "every_tail"])
def test_same_bits(plugin, make_runtime, path: str, sizes: list[int]) -> None:  # noqa: F811
    twin = Twin(sizes, path, seed=len(sizes))
    store = make_runtime(host_memory_bytes=8 << 20).store()
    store.bind(twin.shards, plugin.profile(twin.shards, variant_of(path)))
    train(twin, store, STEPS)
    twin.compare_state(store)


@pytest.mark.parametrize("path", PATHS)
def test_host_callback_is_exact(plugin, make_runtime, path: str) -> None:  # noqa: F811
    """host/1: torch itself updates the pieces. Exact by construction, whatever the arithmetic."""
    twin = Twin([LARGE // 4 + 5, 4101, 257, 7], path, seed=11)
    # The callback's optimizer is made once for each piece's place and keeps no state: that is the
    # plugin's, handed over in every piece.
    options = {"foreach": path == "foreach", "fused": path == "fused"}

    def tensor(pointer: Any, count: int) -> Any:
        return torch.from_numpy(np.ctypeslib.as_array(pointer, (count,)))

    def update(piece: Any) -> None:
        n = piece.count
        parameter = torch.nn.Parameter(tensor(piece.main, n))
        parameter.grad = tensor(piece.grad, n)
        group = twin.optimizer.param_groups[piece.group_id]
        hyper = {k: group[k] for k in ("lr", "betas", "eps", "weight_decay")}
        optimizer = torch.optim.AdamW([parameter], **hyper, **options)
        optimizer.state[parameter] = {
            "step": torch.tensor(float(piece.step - 1)),
            "exp_avg": tensor(piece.exp_avg, n),
            "exp_avg_sq": tensor(piece.exp_avg_sq, n),
        }
        optimizer.step()

    store = make_runtime(Callbacks(update=update), host_memory_bytes=8 << 20).store()
    store.bind(twin.shards, plugin.profile(twin.shards, "host/1"))
    train(twin, store, 20)
    twin.compare_state(store)


def test_R01_R02_counters_survive_save_and_load(plugin, make_runtime, tmp_path) -> None:  # noqa: F811
    """The same bits after a save, another process' worth of forgetting, and a load."""
    twin = Twin([70_000, 4101, 9], "fused", seed=5)
    profile = plugin.profile(twin.shards, "torch_cpu_fused/1")
    store = make_runtime().store()
    store.bind(twin.shards, profile)
    train(twin, store, 10)
    store.save(tmp_path / "checkpoint")
    store.runtime.destroy()
    for i, model in enumerate(twin.models):
        if i % 3 != 2:
            model.zero_()
    store = make_runtime().store()
    store.bind(twin.shards, profile)
    store.load(tmp_path / "checkpoint")
    twin.compare("after the load")
    train(twin, store, 10)
    twin.compare_state(store)


def test_gradients_by_address(plugin, make_runtime) -> None:  # noqa: F811
    """Gradients that move every step are given as a plain array of addresses."""
    twin = Twin([5000, 300], "fused", seed=8)
    store = make_runtime().store()
    store.bind(twin.shards, plugin.profile(twin.shards, "torch_cpu_fused/1"))
    for step in range(5):
        twin.draw()
        moved = [grad.clone() for grad in twin.grads]
        twin.step_resident(set())
        for grad in twin.grads:
            grad.fill_(float("nan"))  # the bound place is not read
        store.step(twin.groups(), grads=[ctypes.c_void_p(g.data_ptr()).value for g in moved])
        twin.compare(f"step {step + 1}")
