"""A store on CUDA and everything around a step: formats, checkpoints, phases, failures."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from millpond import abi as c

torch = pytest.importorskip("torch", reason="torch is not installed for this Python")
if not torch.cuda.is_available():
    pytest.skip("no CUDA device here", allow_module_level=True)

from millpond_callbacks import Callbacks  # noqa: E402
from millpond_cuda import VARIANTS, Twin, bound, train  # noqa: E402
from millpond_fixtures import make_runtime, plugin  # noqa: E402, F401
from millpond_host import (  # noqa: E402
    MillpondError,
    Runtime,
    Store,
    adamw,
    fresh_status,
    str_of,
)
from millpond_shards import Memory, Shard  # noqa: E402

FORMATS = ["fp32", "bf16", "fp16", "fp8_e4m3", "fp8_e5m2"]
SIZES = [40_001, 4096, 257, 65_543, 1]
ANY_DEVICE = "te_fused_adam/1"  # runs on both
SMALL_TIER = {"tile_elements": 8192, "block_elements": 4096, "host_memory_bytes": 600_000}


class Pair:
    """The same model on the CPU and on the device, each with a store."""

    def __init__(self, make: Any, path: Any, **options: Any):
        generator = torch.Generator().manual_seed(7)
        self.generator = generator
        self.models: dict[str, list[Any]] = {"cpu": [], "cuda": []}
        self.grads: dict[str, list[Any]] = {"cpu": [], "cuda": []}
        for i, n in enumerate(SIZES):
            start = torch.randn(n, generator=generator) * 0.1
            model = start if i == 2 else start.bfloat16()
            for device in self.models:
                self.models[device].append(model.clone().to(device))
                self.grads[device].append(torch.zeros(n, device=device))
        self.stores: dict[str, Store] = {}
        for device in self.models:
            (path / device).mkdir(exist_ok=True)
            self.stores[device] = self.store(make(scratch=str(path / device), **options), device)

    def store(self, runtime: Runtime, device: str) -> Store:
        shards = [
            Shard(10 + i, f"p{i}", Memory.of_torch(model), Memory.of_torch(grad), group=i % 2)
            for i, (model, grad) in enumerate(
                zip(self.models[device], self.grads[device], strict=True)
            )
        ]
        store = runtime.store()
        if device == "cuda":
            store.stream = c.Stream(c.DEVICE_CUDA, 0, 1)
        store.bind(shards, runtime.plugin.profile(shards, ANY_DEVICE))
        return store

    def step(self, number: int) -> None:
        for i, n in enumerate(SIZES):
            grad = torch.randn(n, generator=self.generator) * 2.0 ** (-(number + i) % 9)
            for device in self.grads:
                self.grads[device][i].copy_(grad)
        groups = [adamw(0, 1e-3, weight_decay=0.1), adamw(1, 3e-3, 0.8, 0.95)]
        present = [(number + i) % 4 != 1 for i in range(len(SIZES))]
        for device, store in self.stores.items():
            store.step(groups, has_grad=present)
            assert all(torch.isfinite(model).all() for model in self.models[device])

    def compare(self, where: str) -> None:
        for i, n in enumerate(SIZES):
            cpu, cuda = (
                m[i].view(torch.int32 if i == 2 else torch.int16).cpu()
                for m in self.models.values()
            )
            assert torch.equal(cpu, cuda), f"{where}: model {i}"
            for segment in range(1 if i == 2 else 0, 3):
                values = [
                    np.ctypeslib.as_array(store.read(10 + i, segment, 0, n)).view(np.int32)
                    for store in self.stores.values()
                ]
                assert np.array_equal(*values), f"{where}: segment {segment} of {i}"
            counters = {store.counter(10 + i) for store in self.stores.values()}
            assert len(counters) == 1


@pytest.mark.parametrize("staging", [1 << 22, 0], ids=["staged", "mapped"])
@pytest.mark.parametrize("moments", FORMATS)
def test_the_cpus_bytes_in_every_format(make_runtime, tmp_path, moments: str, staging: int) -> None:  # noqa: F811
    """State, parameters and checkpoint files of a CPU store and a CUDA store are the same."""
    pair = Pair(make_runtime, tmp_path, moments=moments, device_staging_bytes=staging, **SMALL_TIER)
    for number in range(20):
        pair.step(number)
    pair.compare("20 steps")
    files = []
    for device, store in pair.stores.items():
        store.save(tmp_path / f"saved_{device}")
        found = sorted((tmp_path / f"saved_{device}").rglob("*.bin"))
        files.append([path.read_bytes() for path in found])
    assert files[0]
    assert files[0] == files[1]


def test_checkpoints_cross_devices(make_runtime, tmp_path) -> None:  # noqa: F811
    pair = Pair(make_runtime, tmp_path, **SMALL_TIER)
    for number in range(6):
        pair.step(number)
    for device, store in pair.stores.items():
        store.save(tmp_path / f"saved_{device}")
        store.destroy()
    for device, other in (("cpu", "cuda"), ("cuda", "cpu")):
        for model in pair.models[device]:
            if model.element_size() == 2:
                model.zero_()
        pair.stores[device] = pair.store(make_runtime(**SMALL_TIER), device)
        pair.stores[device].load(tmp_path / f"saved_{other}")
    pair.compare("after the loads")
    for number in range(6, 12):
        pair.step(number)
    pair.compare("12 steps")


def test_refresh_takes_the_parameters_on_the_device(make_runtime, tmp_path) -> None:  # noqa: F811
    pair = Pair(make_runtime, tmp_path, **SMALL_TIER)
    for number in range(3):
        pair.step(number)
    for models in pair.models.values():
        models[0].mul_(0.5)
    for store in pair.stores.values():
        store.refresh()
    pair.compare("after the refresh")
    pair.step(3)
    pair.compare("a step later")


def test_resume_from_a_checkpoint(make_runtime, tmp_path) -> None:  # noqa: F811
    twin = Twin([70_000, 4101, 9], "fused", seed=5)
    store = bound(make_runtime(), twin, VARIANTS["fused"])
    train(twin, store, 10)
    store.save(tmp_path / "checkpoint")
    store.runtime.destroy()
    for i, model in enumerate(twin.models):
        if i % 3 != 2:
            model.zero_()
    store = bound(make_runtime(), twin, VARIANTS["fused"])
    store.load(tmp_path / "checkpoint")
    twin.compare("after the load")
    train(twin, store, 10)
    twin.compare_state(store)


@pytest.mark.parametrize("flags", [0, 1], ids=["tier_kept", "tier_given_back"])
def test_suspended_it_holds_no_device_memory(make_runtime, flags: int) -> None:  # noqa: F811
    twin = Twin([300_000, 4101, 9], "fused", seed=6)
    held: dict[int, int] = {}

    def alloc(size: int, _alignment: int, _stream: Any) -> int:
        memory = torch.cuda.caching_allocator_alloc(size, 0)
        held[memory] = size
        return memory

    def free(memory: int, size: int, _stream: Any) -> None:
        assert held.pop(memory) == size
        torch.cuda.caching_allocator_delete(memory)

    runtime = make_runtime(Callbacks(alloc=alloc, free=free))
    store = bound(runtime, twin, VARIANTS["fused"])
    phase = runtime.extension("phase/1", c.ExtPhase)
    train(twin, store, 5)
    for _ in range(2):
        runtime.call(phase.suspend, runtime.handle, flags)
        assert held == {}
        figures = runtime.figures()
        assert figures.device_bytes == 0
        assert (figures.host_bytes == 0) == (flags == 1)
        with pytest.raises(MillpondError, match="suspended"):
            store.step(twin.groups())
        junk = torch.full((1 << 22,), float("nan"), device="cuda")  # takes the freed places
        runtime.call(phase.resume, runtime.handle)
        del junk
        assert runtime.figures().device_bytes == sum(held.values()) > 0
        train(twin, store, 5)
    twin.compare_state(store)


def test_parameters_that_the_host_keeps_itself(make_runtime) -> None:  # noqa: F811
    """Shards without a model tensor: mains are given, and handed back in pieces as they change."""
    n = 100_001
    twin = Twin([n], "fused", seed=12)
    copies = torch.zeros(n)

    def copy_main(_uid: str, _shard: int, begin: int, main: Any, count: int) -> None:
        values = np.ctypeslib.as_array(main, (count,))
        copies[begin : begin + count] = torch.from_numpy(values.copy())

    main = twin.resident[0].detach().clone()
    shard = Shard(10, "layer0.weight", None, twin.shards[0].grad, main=Memory.of_torch(main))
    runtime = make_runtime(Callbacks(copy_main=copy_main), tile_elements=8192)
    store = runtime.store()
    store.stream = c.Stream(c.DEVICE_CUDA, 0, 1)
    store.bind([shard], runtime.plugin.profile([shard], VARIANTS["fused"]))
    for _ in range(5):
        twin.draw()
        store.step(twin.groups())
        twin.step_resident(set())
        wanted = twin.resident[0].detach().cpu().view(torch.int32)
        assert torch.equal(copies.view(torch.int32), wanted)


def test_ceilings_of_the_device(plugin) -> None:  # noqa: F811
    sink_type = ctypes.CFUNCTYPE(None, ctypes.c_void_p, c.Str)
    entry_type = ctypes.CFUNCTYPE(
        ctypes.c_int32, ctypes.c_void_p, c.Str, sink_type, ctypes.c_void_p, c.StatusP
    )
    answers: list[Any] = []
    sink = sink_type(lambda _context, text: answers.append(json.loads(text.text())))
    table = plugin.table.get_extension(None, str_of("probe/1"))
    entry = entry_type(ctypes.c_void_p.from_address(table + 8 + 2 * 8).value)
    for moments in ("fp32", "fp8_e4m3"):
        request = {
            "measure": ["bus", "cuda_update"], "moments": moments, "elements": 32 << 20, "rounds": 3
        }  # fmt: skip
        status = fresh_status()
        assert entry(None, str_of(json.dumps(request)), sink, None, status) == c.OK, status.message
        bus, update = answers[-1]["bus"], answers[-1]["cuda_update"]
        print(json.dumps(answers[-1]))
        assert 1.0 < bus["both_bytes_per_s"] / bus["up_bytes_per_s"] < 2.1
        assert 0.3 < update["ceiling_s"] / update["update_s"] < 1.2
    request = {"measure": ["pin", "cuda_update"], "shards": 500, "rounds": 3, "pin_bytes": 64 << 20}
    status = fresh_status()
    assert entry(None, str_of(json.dumps(request)), sink, None, status) == c.OK, status.message
    assert answers[-1]["pin"]["touch_s"] > 0 < answers[-1]["pin"]["register_s"]
    assert 500 <= answers[-1]["cuda_update"]["elements"] <= 500 * 2000


def test_device_memory_that_is_refused(make_runtime) -> None:  # noqa: F811
    twin = Twin([300_000, 4101], "fused", seed=7)
    answers = iter([None, 1, 1, 1])

    def alloc(size: int, _alignment: int, _stream: Any) -> int:
        if next(answers) is None:
            raise RuntimeError("out of memory")
        return torch.cuda.caching_allocator_alloc(size, 0)

    def free(memory: int, _size: int, _stream: Any) -> None:
        torch.cuda.caching_allocator_delete(memory)

    runtime = make_runtime(Callbacks(alloc=alloc, free=free))
    with pytest.raises(MillpondError, match=r"host_api.alloc") as refused:
        bound(runtime, twin, VARIANTS["fused"])
    assert refused.value.code == 16  # MILLPOND_E_CALLBACK
    store = runtime.store("rank00000/opt0_1")
    store.stream = c.Stream(c.DEVICE_CUDA, 0, 1)
    store.bind(twin.shards, runtime.plugin.profile(twin.shards, VARIANTS["fused"]))
    train(twin, store, 3)
    with pytest.raises(MillpondError, match="not one tile fits") as refused:
        bound(make_runtime(device_staging_bytes=4096), twin, VARIANTS["fused"])
    assert refused.value.field == "options.device_staging_bytes"


def test_cuda_without_memory_says_how_much_was_wanted(make_runtime) -> None:  # noqa: F811
    twin = Twin([16_000_000], "fused", seed=7)
    torch.cuda.empty_cache()
    hogs = []
    free, _ = torch.cuda.mem_get_info()
    while free > 64 << 20:
        hogs.append(torch.empty(max(free - (48 << 20), 1 << 20), dtype=torch.uint8, device="cuda"))
        free, _ = torch.cuda.mem_get_info()
    options = {"tile_elements": 1 << 20, "host_memory_bytes": 512 << 20}
    try:
        with pytest.raises(MillpondError, match="cudaErrorMemoryAllocation") as refused:
            bound(make_runtime(**options), twin, VARIANTS["fused"])
    finally:
        hogs.clear()
        torch.cuda.empty_cache()
    assert (refused.value.code, refused.value.native) == (14, 2)
    assert refused.value.wanted > 64 << 20
    train(twin, bound(make_runtime(**options), twin, VARIANTS["fused"]), 2)


def test_an_io_error_while_tiles_are_on_the_device(make_runtime, tmp_path) -> None:  # noqa: F811
    """A scratch file is cut under the store: the step fails, poisons, and a load makes it well."""
    twin = Twin([400_000, 4101], "fused", seed=8)
    options = {"tile_elements": 8192, "block_elements": 4096, "host_memory_bytes": 1 << 20}
    store = bound(make_runtime(**options), twin, VARIANTS["fused"])
    train(twin, store, 4)
    store.save(tmp_path / "saved")
    shutil.copytree(tmp_path / "saved", tmp_path / "checkpoint")  # the saved files may be linked
    cut = 0
    for name in os.listdir("/proc/self/fd"):
        link = f"/proc/self/fd/{name}"
        ours = os.path.isfile(link) and str(tmp_path / "scratch") in os.readlink(link)
        if ours and os.path.getsize(link) > 1 << 20:
            os.truncate(link, os.path.getsize(link) // 2 // 4096 * 4096)
            cut += 1
    assert cut > 0
    twin.draw()
    with pytest.raises(MillpondError) as failed:
        store.step(twin.groups())
    assert failed.value.code in (7, 10)  # MILLPOND_E_IO, or short contents: MILLPOND_E_CORRUPT
    with pytest.raises(MillpondError, match="poisoned"):
        store.step(twin.groups())
    store.load(tmp_path / "checkpoint")
    twin.compare("after the load")
    train(twin, store, 4)
    twin.compare_state(store)


LOSE_THE_DEVICE = """
import sys, torch
from millpond_cuda import Twin, VARIANTS, bound
from millpond_host import MillpondError, Plugin, Runtime
twin = Twin([300_000, 4101], "fused")
runtime = Runtime(Plugin(sys.argv[1]), {"scratch": sys.argv[2], "host_memory_bytes": 64 << 20})
store = bound(runtime, twin, VARIANTS["fused"])
store.step(twin.groups())
index = torch.full((8,), 1 << 40, device="cuda", dtype=torch.int64)
try:
    torch.zeros(4, device="cuda")[index].cpu()
except RuntimeError:
    pass
for call in (lambda: store.step(twin.groups()), lambda: store.step(twin.groups())):
    try:
        call()
        print("no error")
    except MillpondError as error:
        print(error.code, error.native != 0, "restart" in error.message, error.flags & 1)
runtime.destroy()
print("destroyed")
"""


def test_a_lost_device_says_that_the_process_must_restart(plugin, tmp_path) -> None:  # noqa: F811
    done = subprocess.run(
        [sys.executable, "-c", LOSE_THE_DEVICE, plugin.path, str(tmp_path)],
        capture_output=True, text=True, timeout=120, check=False,
        cwd=os.path.dirname(os.path.abspath(__file__)),
    )  # fmt: skip
    lines = done.stdout.split("\n")
    assert lines[0] == "15 True True 1", done.stdout + done.stderr
    assert lines[1].startswith("13 "), done.stdout  # MILLPOND_E_POISONED
    assert lines[2] == "destroyed", done.stdout + done.stderr


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
def test_two_devices_in_one_process(make_runtime) -> None:  # noqa: F811
    runtime = make_runtime()
    twins, stores = [], []
    for device in range(2):
        with torch.cuda.device(device):
            twins.append(Twin([300_000, 4101], "fused", seed=9 + device))
            store = runtime.store(f"rank00000/opt0_{device}")
            store.stream = c.Stream(c.DEVICE_CUDA, device, 1)
            store.bind(
                twins[-1].shards, runtime.plugin.profile(twins[-1].shards, VARIANTS["fused"])
            )
            stores.append(store)
    for _ in range(3):
        for device in range(2):
            with torch.cuda.device(device):
                train(twins[device], stores[device], 4)
    assert torch.cuda.current_device() == 0
