"""Arguments that a host gets wrong: refused with the field named, and nothing has changed."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from millpond import abi as c
from millpond_fixtures import make_runtime, plugin  # noqa: F401
from millpond_host import MillpondError, Runtime, Store, adamw, fresh_status, str_of
from millpond_shards import Memory, Shard

ARITHMETIC = "te_fused_adam/1"
N = 600


class Model:
    """Two bf16 parameters and one fp32 parameter, in two groups."""

    def __init__(self) -> None:
        rng = np.random.default_rng(1)
        self.weights = [rng.integers(0x3C00, 0x3E00, N).astype(np.uint16) for _ in range(2)]
        self.bias = rng.normal(size=N).astype(np.float32)
        self.grads = [rng.normal(size=N).astype(np.float32) for _ in range(3)]
        models = [Memory.of_numpy(w, c.BF16) for w in self.weights] + [Memory.of_numpy(self.bias)]
        self.shards = [
            Shard(i, f"p{i}", model, Memory.of_numpy(self.grads[i]), group=i // 2)
            for i, model in enumerate(models)
        ]
        self.groups = [adamw(0, 0.1), adamw(1, 0.2)]

    def bytes(self) -> bytes:
        return b"".join(array.tobytes() for array in [*self.weights, self.bias])


@pytest.fixture
def model() -> Model:
    return Model()


@pytest.fixture
def runtime(make_runtime) -> Runtime:  # noqa: F811
    return make_runtime()


@pytest.fixture
def bound(plugin, runtime: Runtime, model: Model) -> Store:  # noqa: F811
    store = runtime.store()
    store.bind(model.shards, plugin.profile(model.shards, ARITHMETIC))
    return store


def refused(code: int, field: str, call: Callable[[], Any]) -> MillpondError:
    with pytest.raises(MillpondError) as caught:
        call()
    error = caught.value
    assert (error.code, error.field) == (code, field), str(error)
    assert len(error.message) > 20
    return error


# ---- bind: the C arguments


def spoil(path: str, value: Any) -> Callable[[c.BindArgs], None]:
    """Sets a member of bind_args, or "0.model.numel" of a shard's pointers."""

    def edit(args: c.BindArgs) -> None:
        names = path.split(".")
        target: Any = args
        if names[0].isdigit():
            pointers = ctypes.cast(args.shards.ptr, ctypes.POINTER(c.ShardPointers))
            target = pointers[int(names.pop(0))]
        for name in names[:-1]:
            target = getattr(target, name)
        setattr(target, names[-1], value)

    return edit


BIND_FAULTS = [
    ("header.type", c.TYPE_STEP_ARGS, "bind_args.header.type"),
    ("header.size", 8, "bind_args.header.size"),
    ("header.size", ctypes.sizeof(c.BindArgs) - 1, "bind_args.header.size"),
    ("header.size", 0xFFFFFFFF, "bind_args.header.size"),
    ("profile", None, "bind_args.profile"),
    ("profile_bytes", 7, "bind_args.profile"),
    ("shards.count", 2, "bind_args.shards.count"),
    ("shards.count", 0, "bind_args.shards.count"),
    ("shards.count", 4, "bind_args.shards.count"),
    ("shards.count", 1 << 40, "bind_args.shards.count"),
    ("shards.count", 1 << 62, "bind_args.shards.count"),
    ("shards.ptr", None, "bind_args.shards.ptr"),
    ("shards.stride", 0, "bind_args.shards.stride"),
    ("shards.stride", ctypes.sizeof(c.ShardPointers) - 8, "bind_args.shards.stride"),
    ("stream.device_type", c.DEVICE_CUDA, "bind_args.stream.device_type"),
    ("stream.handle", 5, "bind_args.stream.handle"),
    ("1.shard_id", 0, "bind_args.shards[1].shard_id"),
    ("0.model.data", None, "bind_args.shards[0].model.data"),
    ("2.model.data", None, "bind_args.shards[2].model.data"),
    ("0.model.numel", N - 1, "bind_args.shards[0].model.numel"),
    ("0.model.numel", 1 << 63, "bind_args.shards[0].model.numel"),
    ("0.model.dtype", c.FP16, "bind_args.shards[0].model.dtype"),
    ("0.model.device_type", c.DEVICE_CUDA, "bind_args.shards[0].model.device_type"),
    ("0.model.device_id", 1, "bind_args.shards[0].model.device_id"),
    ("0.model.byte_offset", (1 << 64) - 8, "bind_args.shards[0].model.byte_offset"),
    ("0.model.byte_offset", 1, "bind_args.shards[0].model.data"),
    ("0.model.reserved", 1, "bind_args.shards[0].model.reserved"),
    ("1.grad.numel", 0, "bind_args.shards[1].grad.numel"),
    ("1.grad.dtype", c.BF16, "bind_args.shards[1].grad.dtype"),
    ("1.grad.device_type", c.DEVICE_CUDA, "bind_args.shards[1].grad.device_type"),
    ("2.grad.reserved", 9, "bind_args.shards[2].grad.reserved"),
]


@pytest.mark.parametrize(("path", "value", "field"), BIND_FAULTS, ids=lambda v: str(v)[:40])
def test_bind_argument(plugin, runtime, model, path: str, value: Any, field: str) -> None:  # noqa: F811
    store = runtime.store()
    profile = plugin.profile(model.shards, ARITHMETIC)
    before = model.bytes()
    refused(c.E_ARGUMENT, field, lambda: store.bind(model.shards, profile, spoil(path, value)))
    assert model.bytes() == before
    refused_state(store, model)
    store.bind(model.shards, profile)  # the store is as good as new
    assert store.step(model.groups)


def refused_state(store: Store, model: Model) -> None:
    with pytest.raises(MillpondError) as caught:
        store.step(model.groups)
    assert caught.value.code == c.E_STATE, str(caught.value)


@pytest.mark.parametrize(("path", "value", "field"), BIND_FAULTS[::4], ids=lambda v: str(v)[:40])
def test_second_bind_refused_leaves_unbound(plugin, bound, model, path, value, field) -> None:  # noqa: F811
    """A refused bind parks the state: step is refused, an accepted bind takes it up again."""
    assert bound.step(model.groups)
    moments = bytes(bound.read(0, c.SEGMENT_EXP_AVG, 0, N))
    profile = plugin.profile(model.shards, ARITHMETIC)
    refused(c.E_ARGUMENT, field, lambda: bound.bind(model.shards, profile, spoil(path, value)))
    refused_state(bound, model)
    report = bound.bind(model.shards, profile)
    assert report.plan.shards_kept == 3
    assert bytes(bound.read(0, c.SEGMENT_EXP_AVG, 0, N)) == moments
    assert bound.counter(0) == 1


def test_moments_only_shard_has_no_main(plugin, runtime, model) -> None:  # noqa: F811
    model.shards[2].main = Memory.of_numpy(np.zeros(N, np.float32))
    profile = plugin.profile(model.shards, ARITHMETIC)
    field = "bind_args.shards[2].main.data"
    refused(c.E_ARGUMENT, field, lambda: runtime.store().bind(model.shards, profile))


def test_one_memory_for_two_parameters(plugin, runtime, model) -> None:  # noqa: F811
    model.shards[1].model = model.shards[0].model
    profile = plugin.profile(model.shards, ARITHMETIC)
    field = "bind_args.shards[1].model.data"
    refused(c.E_ARGUMENT, field, lambda: runtime.store().bind(model.shards, profile))


@pytest.mark.parametrize("which", ["bind_args", "element"])
def test_unknown_tail(plugin, runtime, model, which: str) -> None:  # noqa: F811
    """What a newer host sets and this plugin does not know is refused; zeros there are taken."""

    class NewerArgs(ctypes.Structure):
        _fields_ = [("known", c.BindArgs), ("tail", ctypes.c_uint64)]

    class NewerPointers(ctypes.Structure):
        _fields_ = [("known", c.ShardPointers), ("tail", ctypes.c_uint64)]

    raw = plugin.profile(model.shards, ARITHMETIC).SerializeToString()
    pointers = (NewerPointers * 3)()
    for i, shard in enumerate(model.shards):
        pointers[i].known = shard.pointers()
    args = NewerArgs()
    args.known.header = c.Header(ctypes.sizeof(NewerArgs), c.TYPE_BIND_ARGS)
    args.known.profile = ctypes.cast(ctypes.c_char_p(raw), ctypes.c_void_p)
    args.known.profile_bytes = len(raw)
    args.known.shards = c.Span(ctypes.addressof(pointers), 3, ctypes.sizeof(NewerPointers))
    args.known.stream = c.Stream(c.DEVICE_CPU, 0, 0)
    store = runtime.store()

    def bind() -> None:
        pointer = ctypes.cast(ctypes.pointer(args), ctypes.POINTER(c.BindArgs))
        runtime.call(store.table.bind, store.handle, pointer, None)

    if which == "bind_args":
        args.tail = 1 << 56
        error = refused(c.E_UNKNOWN_TAIL, "bind_args", bind)
        assert error.offset == ctypes.sizeof(c.BindArgs) + 7
        args.tail = 0
    else:
        pointers[1].tail = 3
        error = refused(c.E_UNKNOWN_TAIL, "bind_args.shards[1]", bind)
        assert error.offset == ctypes.sizeof(c.ShardPointers)
        pointers[1].tail = 0
    bind()


# ---- bind: the profile


PROFILE_FAULTS = {
    "range_outside_box": {"flat_end": N + 1},
    "box_outside_shape": {"box_offset": [1]},
    "shape_rank_mismatch": {"box_shape": [1, N]},
    "shape_overflow": {"global_shape": [1 << 62, 4], "box_shape": [0, 4], "box_offset": [0, 0]},
    "shard_duplicate": {"key": "p1"},
    "shard_id_duplicate": {"id": 1},
    "shard_key_invalid": {"key": ""},
    "group_unknown": {"group_id": 77},
    "storage_unspecified": {"model_storage": 0},
    "storage_unsupported": {"grad_storage": 2},
    "dtype_unspecified": {"model_dtype": 0},
    "dtype_unsupported": {"grad_dtype": 10 | 8 << 8 | 1 << 16},
    "kind_unspecified": {"kind": 0},
    "kind_dtype_mismatch": {"kind": 2},
    "device_unsupported": {"device_type": 99},
    "device_mixed": {"device_type": c.DEVICE_CUDA},
}


@pytest.mark.parametrize("code", PROFILE_FAULTS)
def test_profile_fault(plugin, runtime, model, code: str) -> None:  # noqa: F811
    model.shards[0].edits = PROFILE_FAULTS[code]
    store = runtime.store()
    with pytest.raises(MillpondError) as caught:
        store.bind(model.shards, plugin.profile(model.shards, ARITHMETIC, groups=[0, 1]))
    assert caught.value.code == c.E_REFUSED, str(caught.value)
    refusals = {refusal.code: refusal for refusal in caught.value.report.refusals}
    assert code in refusals, list(refusals)
    assert len(refusals[code].reason) > 10 and len(refusals[code].remedy) > 10
    assert not caught.value.report.accepted


def test_overlapping_shards(plugin, runtime, model) -> None:  # noqa: F811
    model.shards[0].edits = {"key": "w", "global_shape": [2 * N], "box_shape": [2 * N]}
    model.shards[1].edits = model.shards[0].edits | {"flat_begin": N - 1, "flat_end": 2 * N - 1}
    with pytest.raises(MillpondError) as caught:
        runtime.store().bind(model.shards, plugin.profile(model.shards, ARITHMETIC))
    assert [r.code for r in caught.value.report.refusals] == ["shard_overlap"]


def test_B42_every_refusal_is_listed(plugin, runtime, model) -> None:  # noqa: F811
    active = ["state.reset", "state.witness", "optimizer.muon", "no.such.feature"]
    profile = plugin.profile(model.shards, ARITHMETIC, features=dict.fromkeys(active, 2))
    with pytest.raises(MillpondError) as caught:
        runtime.store().bind(model.shards, profile)
    assert {r.subject for r in caught.value.report.refusals} >= set(active)


# ---- step


STEP_FAULTS = [
    (lambda a, g: setattr(a.header, "size", 12), "step_args.header.size"),
    (lambda a, g: setattr(a, "config_epoch", 2), "step_args.config_epoch"),
    (lambda a, g: setattr(a.groups, "count", 1), "step_args.groups.count"),
    (lambda a, g: setattr(a.groups, "stride", 8), "step_args.groups.stride"),
    (lambda a, g: setattr(g[1], "id", 0), "step_args.groups[1].id"),
    (lambda a, g: setattr(g[1], "id", 9), "step_args.groups[1].id"),
    (lambda a, g: setattr(g[0], "lr", float("nan")), "step_args.groups[0].lr"),
    (lambda a, g: setattr(g[1], "beta2", 1.0), "step_args.groups[1].beta2"),
    (lambda a, g: setattr(g[1], "eps", -1.0), "step_args.groups[1].eps"),
    (lambda a, g: setattr(g[0], "decoupled", 2), "step_args.groups[0].decoupled"),
    (lambda a, g: setattr(a, "shard_count", 2), "step_args.shard_count"),
    (lambda a, g: setattr(a, "grad_scale", 0.0), "step_args.grad_scale"),
    (lambda a, g: setattr(a, "grad_scale", float("inf")), "step_args.grad_scale"),
    (lambda a, g: setattr(a, "found_inf", 2), "step_args.found_inf"),
    (lambda a, g: a.reserved.__setitem__(1, 1), "step_args.reserved"),
    (lambda a, g: setattr(a.stream, "handle", 1), "step_args.stream.handle"),
]


@pytest.mark.parametrize(("fault", "field"), STEP_FAULTS)
def test_step_argument(bound, model, fault, field: str) -> None:
    """A refused step changes nothing, and the next one goes on."""
    assert bound.step(model.groups)
    before = model.bytes()

    def edit(args: c.StepArgs) -> None:
        fault(args, ctypes.cast(args.groups.ptr, ctypes.POINTER(c.GroupStep)))

    refused(c.E_ARGUMENT, field, lambda: bound.step(model.groups, edit=edit))
    assert model.bytes() == before
    assert bound.counter(0) == 1
    assert bound.step(model.groups)
    assert model.bytes() != before


def test_step_gradients(bound, model) -> None:
    addresses = [grad.ctypes.data for grad in model.grads]
    for spoiled, field in (
        ([*addresses[:2], None], "step_args.grads[2]"),
        ([addresses[0] + 1, *addresses[1:]], "step_args.grads[0]"),
    ):
        call = lambda grads=spoiled: bound.step(model.groups, grads, has_grad=[1, 1, 1])  # noqa: E731
        refused(c.E_ARGUMENT, field, call)
    field = "step_args.has_grad[1]"
    refused(c.E_ARGUMENT, field, lambda: bound.step(model.groups, has_grad=[1, 2, 1]))


# ---- handles, statuses, strings


def test_null_handles(plugin) -> None:  # noqa: F811
    table, status = plugin.table, fresh_status()
    assert table.destroy(None, status) == c.OK
    assert table.runtime_destroy(None, status) == c.OK
    for function in (table.step, table.refresh_main, table.save_to, table.load_from):
        assert function(None, None, status) == c.E_ARGUMENT
        assert status.field in (b"store", *(n + b"_args" for n in (b"step", b"refresh", b"io")))
    assert table.agree(None, c.Group(0, 0, 1), None) == c.E_ARGUMENT


def test_runtime_arguments(plugin, tmp_path) -> None:  # noqa: F811
    table, handle = plugin.table, ctypes.c_void_p(1)
    api = c.HostApi(header=c.header_of(c.HostApi, c.TYPE_HOST_API))
    options = str_of('{"scratch": "' + str(tmp_path) + '"}')

    def create(api: Any, options: c.Str, code: int, field: bytes) -> None:
        handle.value = 1
        status = fresh_status()
        assert table.runtime_create(api, options, handle, status) == code
        assert (status.code, status.field) == (code, field), status.message
        assert not handle.value

    create(None, options, c.E_ARGUMENT, b"host_api")
    wrong = c.HostApi(header=c.Header(ctypes.sizeof(c.HostApi), c.TYPE_STATUS))
    create(wrong, options, c.E_ARGUMENT, b"host_api.header.type")
    create(api, c.Str(None, 3), c.E_ARGUMENT, b"options_json.ptr")
    create(api, str_of(b'{"scratch": "\xff"}'), c.E_ARGUMENT, b"options_json")
    create(api, str_of('{"scratch": "/tmp", "qeue_depth": 4}'), c.E_OPTION, b"options.qeue_depth")


@pytest.mark.parametrize("uid", ["", "../x", "a//b", "/a", "a b", "x" * 129, "a/./b", "ä"])
def test_store_uid(runtime, uid: str) -> None:
    refused(c.E_ARGUMENT, "uid", lambda: runtime.store(uid))


def test_store_uid_twice(runtime) -> None:
    runtime.store("rank00000/opt0_0")
    refused(c.E_ARGUMENT, "uid", lambda: runtime.store("rank00000/opt0_0"))


def test_bad_status_is_refused_without_a_call(bound, model) -> None:
    status = c.Status(header=c.Header(4, c.TYPE_STATUS))
    assert bound.table.unbind(bound.handle, status) == c.E_ARGUMENT
    assert bound.step(model.groups)  # still bound
