"""Real torch.optim.AdamW on CUDA tensors beside the plugin's CUDA device: the same bits."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed for this Python")
if not torch.cuda.is_available():
    pytest.skip("no CUDA device here", allow_module_level=True)

from millpond_callbacks import Callbacks  # noqa: E402
from millpond_cuda import VARIANTS, Twin, bound, stream_of, train  # noqa: E402
from millpond_fixtures import make_runtime, plugin  # noqa: E402, F401
from millpond_host import MillpondError  # noqa: E402
from millpond_shards import Memory  # noqa: E402

SIZES = [3_000_001, 65_543, 300_001, 4101, 257, 7, 1, 256, 131_072]
STEPS = 200
# The ring is 32 MiB: a part of the tiles stays, the others use the drive.
SMALL_TIER = {"host_memory_bytes": 40 << 20}


@pytest.mark.parametrize("grad_dtype", [torch.bfloat16, torch.float32], ids=["bf16", "fp32"])
@pytest.mark.parametrize("path", list(VARIANTS))
def test_same_bits_over_200_steps(make_runtime, path: str, grad_dtype: Any) -> None:  # noqa: F811
    twin = Twin(SIZES, path, grad_dtype)
    store = bound(make_runtime(**SMALL_TIER), twin, VARIANTS[path])
    train(twin, store, STEPS)
    twin.compare("the end")
    twin.compare_state(store)
    figures = store.last_step()
    assert figures.bytes_read > 0
    assert 0 < figures.tiles_from_tier < figures.tiles


@pytest.mark.parametrize(
    "options",
    [
        {"tile_elements": 4096, "block_elements": 4096},
        {"tile_elements": 1 << 20, "host_memory_bytes": 256 << 20},
        {"device_staging_bytes": 0},
        {"device_staging_bytes": 0, **SMALL_TIER},
        {"device_staging_bytes": 1 << 20},
        {"io_engine": "threads", **SMALL_TIER},
        {"direct": False, **SMALL_TIER},
        {"bucket_elements": 100_000, **SMALL_TIER},
    ],
    ids=lambda options: "-".join(f"{k}={v}" for k, v in options.items()),
)
def test_same_bits_whatever_the_options(make_runtime, options: dict[str, Any]) -> None:  # noqa: F811
    twin = Twin(SIZES, "fused", seed=3)
    store = bound(make_runtime(**options), twin, VARIANTS["fused"])
    train(twin, store, 40)
    twin.compare_state(store)


def test_single_tensor_path_and_maximize(make_runtime) -> None:  # noqa: F811
    twin = Twin([70_001, 300], "single", seed=4)
    for group in twin.optimizer.param_groups:
        group["maximize"] = True
    store = bound(make_runtime(), twin, "torch_cuda_single/1")
    for step in range(30):
        twin.draw()
        groups = twin.groups()
        for group in groups:
            group.maximize = 1
        store.step(groups)
        twin.step_resident(set())
        twin.compare(f"step {step + 1}")


def test_the_step_is_ordered_by_the_hosts_stream(make_runtime) -> None:  # noqa: F811
    """Gradients are written late on a side stream, and parameters are read right after the call."""
    side = torch.cuda.Stream()
    twin = Twin([1_000_003, 65_536], "fused", seed=5)
    store = bound(make_runtime(), twin, VARIANTS["fused"])
    torch.cuda.synchronize()
    store.stream = stream_of(side)
    for step in range(5):
        with torch.cuda.stream(side):
            torch.cuda._sleep(20_000_000)
            twin.draw()
        store.step(twin.groups())
        with torch.cuda.stream(side):
            seen = [model.clone() for model in twin.models]
            for model in twin.models:
                model.zero_()  # not seen by what the step still does
            for model, copy in zip(twin.models, seen, strict=True):
                model.copy_(copy)
        side.synchronize()
        twin.step_resident(set())
        twin.compare(f"step {step + 1}")


def test_gradients_by_address(make_runtime) -> None:  # noqa: F811
    twin = Twin([5000, 300], "fused", seed=8)
    store = bound(make_runtime(), twin, VARIANTS["fused"])
    for step in range(5):
        twin.draw()
        moved = [grad.clone() for grad in twin.grads]
        twin.step_resident(set())
        for grad in twin.grads:
            grad.fill_(float("nan"))  # the bound place is not read
        store.step(twin.groups(), grads=[g.data_ptr() for g in moved])
        twin.compare(f"step {step + 1}")


def test_memory_through_the_hosts_allocator(make_runtime) -> None:  # noqa: F811
    """Staging shows in torch's accounting, to the byte, within the option."""
    asked: list[int] = []

    def alloc(size: int, alignment: int, stream: Any) -> int:
        asked.append(size)
        memory = torch.cuda.caching_allocator_alloc(size, 0, torch.cuda.default_stream())
        assert memory % alignment == 0
        return memory

    twin = Twin([1_000_003, 65_536], "fused", seed=6)
    freed: list[int] = []

    def free(memory: int, size: int, stream: Any) -> None:
        freed.append(size)
        torch.cuda.caching_allocator_delete(memory)

    before = torch.cuda.memory_allocated()
    runtime = make_runtime(Callbacks(alloc=alloc, free=free), device_staging_bytes=4 << 20)
    store = bound(runtime, twin, VARIANTS["fused"])
    held = runtime.figures().device_bytes
    assert asked == [held]
    assert 0 < torch.cuda.memory_allocated() - before - held < 1 << 20
    assert held <= (4 << 20) + (64 << 10)  # staging, and the tables
    train(twin, store, 10)
    torch.cuda.synchronize()
    with_store = torch.cuda.memory_allocated()
    store.unbind()
    assert freed == asked
    assert 0 <= with_store - torch.cuda.memory_allocated() - held < 1 << 20


def test_what_is_not_this_devices_memory_is_refused(make_runtime) -> None:  # noqa: F811
    twin = Twin([5000, 300], "fused", seed=9)
    runtime = make_runtime()
    store = bound(runtime, twin, VARIANTS["fused"])
    twin.draw()
    on_cpu = torch.zeros(5000)
    with pytest.raises(MillpondError, match="not CUDA memory") as refused:
        store.step(twin.groups(), grads=[on_cpu.data_ptr(), twin.grads[1].data_ptr()])
    assert refused.value.field == "step_args.grads[0]"
    store.stream.handle = 0
    with pytest.raises(MillpondError, match="names no CUDA stream"):
        store.step(twin.groups())
    store.stream = stream_of()
    train(twin, store, 4)  # nothing was changed
    lying = Memory.of_torch(on_cpu)
    lying.device_type = 2
    lying.dtype = twin.shards[0].grad.dtype
    twin.shards[0].grad = lying
    with pytest.raises(MillpondError, match="not CUDA memory") as refused:
        bound_again = runtime.store("rank00000/opt0_1")
        bound_again.stream = stream_of()
        bound_again.bind(twin.shards, runtime.plugin.profile(twin.shards, VARIANTS["fused"]))
    assert refused.value.field == "bind_args.shards[0].grad.data"
