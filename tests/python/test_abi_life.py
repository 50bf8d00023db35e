"""A whole life through ctypes: the wire both ways, phases, two plugins."""

from __future__ import annotations

import shutil
from typing import Any

import numpy as np
import pytest
from millpond import abi as c
from millpond_callbacks import Callbacks
from millpond_fixtures import make_runtime, plugin  # noqa: F401
from millpond_host import MillpondError, Plugin, Runtime
from millpond_model import ARITHMETIC, Model, train
from millpond_shards import Shard


def test_whole_life(plugin, make_runtime, tmp_path) -> None:  # noqa: F811
    lines: list[str] = []
    model, whole = Model(), Model()
    profile = plugin.profile(model.shards, ARITHMETIC)

    reference = make_runtime().store("reference")
    reference.bind(whole.shards, profile)
    train(reference, whole, range(1, 9))

    runtime = make_runtime(Callbacks(log=lambda _, line: lines.append(line)), log_level="debug")
    store = runtime.store()
    report = store.bind(model.shards, profile)
    assert report.accepted and not report.refusals
    assert report.plan.shards == len(model.SIZES)
    assert report.plan.elements == sum(model.SIZES)
    assert report.plan.engine and report.plan.directories[0].bytes > 0
    figures = runtime.figures()
    assert report.plan.host_bytes == figures.host_bytes <= 64 << 20
    assert figures.scratch_bytes == report.plan.directories[0].bytes

    train(store, model, range(1, 5))
    runtime.agree()
    step = store.last_step()
    assert (step.outcome, step.step) == (1, 4)
    store.save(tmp_path / "checkpoint")

    # found_inf: nothing moves.
    before = model.bytes()
    model.draw(5)
    assert not store.step(model.groups(5), found_inf=True)
    assert model.bytes() == before and store.counter(100) == 4
    assert store.last_step().outcome == 2

    # A step too many, then back to the checkpoint.
    train(store, model, range(5, 6))
    own = [m.copy() for m, own in zip(model.models, model.own_main, strict=True) if own]
    assert model.bytes() != before
    store.load(tmp_path / "checkpoint")
    # fp32 parameters are their own mains: the host's to bring back.
    old = Model()
    old_store = runtime.store("again")
    old_store.bind(old.shards, profile)
    train(old_store, old, range(1, 5))
    for now, then, own_main in zip(model.models, old.models, model.own_main, strict=True):
        if own_main:
            now[:] = then
    assert model.bytes() == old.bytes() and own

    # Unbound: parked, then taken up again.
    store.unbind()
    with pytest.raises(MillpondError) as caught:
        store.step(model.groups(5))
    assert caught.value.code == c.E_STATE
    assert store.bind(model.shards, profile).plan.shards_kept == len(model.SIZES)
    train(store, model, range(5, 9))
    assert model.bytes() == whole.bytes()

    # B30: after refresh the mains are the model's own values.
    model.models[0][:] = 0x3F80  # 1.0
    store.refresh()
    assert np.all(np.ctypeslib.as_array(store.read(100, c.SEGMENT_MAIN, 0, 70_001)) == 1.0)
    store.destroy()
    runtime.destroy()
    assert lines and not any("\n" in line for line in lines)


def test_extensions_of_this_version(plugin, make_runtime) -> None:  # noqa: F811
    runtime = make_runtime()
    for name in ("report/1", "state/1", "phase/1", "checkpoint/1", "files/1", "probe/1"):
        assert runtime.extension(name, c.ExtPhase) is not None, name
    for name in ("", "report", "report/2", "deferred/1", "report/1 "):
        assert runtime.extension(name, c.ExtPhase) is None, name


def test_suspend_and_resume(plugin, make_runtime) -> None:  # noqa: F811
    """phase/1: the memory is given back to the byte, and training goes on with the same bits."""
    model, whole = Model(), Model()
    profile = plugin.profile(model.shards, ARITHMETIC)
    reference, runtime = make_runtime().store(), make_runtime()
    reference.bind(whole.shards, profile)
    store = runtime.store()
    store.bind(model.shards, profile)
    train(reference, whole, range(1, 7))
    train(store, model, range(1, 4))
    phase = runtime.extension("phase/1", c.ExtPhase)
    runtime.call(phase.suspend, runtime.handle, 1)
    assert runtime.figures().host_bytes == 0
    with pytest.raises(MillpondError) as caught:
        store.step(model.groups(4))
    assert caught.value.code == c.E_STATE
    runtime.call(phase.resume, runtime.handle)
    assert runtime.figures().host_bytes > 0
    train(store, model, range(4, 7))
    assert model.bytes() == whole.bytes()


# ---- the wire


def test_profile_in_any_encoding(plugin, make_runtime) -> None:  # noqa: F811
    """Fields that a newer host adds, unpacked repeated numbers, another order of fields."""
    model = Model()
    profile = plugin.profile(model.shards, ARITHMETIC)
    raw = profile.SerializeToString()

    def key(field: int, wire: int) -> bytes:
        return bytes([(field << 3 | wire) & 0x7F | (0x80 if field > 15 else 0)]) + (
            bytes([field >> 4]) if field > 15 else b""
        )

    unknown = key(100, 0) + b"\x05" + key(101, 2) + b"\x03abc" + key(102, 5) + b"1234"
    unknown += key(103, 1) + b"12345678"

    def unpacked(shard: Any) -> bytes:
        """The shard with one varint field a number, as proto2 writers and old libraries do."""
        copy = type(shard).FromString(shard.SerializeToString())
        numbers = b""
        for number, name in ((3, "global_shape"), (4, "box_offset"), (5, "box_shape")):
            for value in getattr(shard, name):
                numbers += key(number, 0) + varint(value)
            del getattr(copy, name)[:]
        return numbers + copy.SerializeToString()

    def varint(value: int) -> bytes:
        out = b""
        while value >= 0x80:
            out += bytes([value & 0x7F | 0x80])
            value >>= 7
        return out + bytes([value])

    bare = type(profile).FromString(raw)
    del bare.shards[:]
    bodies = [unpacked(shard) for shard in profile.shards]
    shards_first = b"".join(key(11, 2) + varint(len(body)) + body for body in bodies)
    for encoding in (raw + unknown, unknown + raw, shards_first + bare.SerializeToString()):
        store = make_runtime().store()
        report = store.bind(model.shards, encoding)
        assert report.accepted and report.plan.elements == sum(model.SIZES)


@pytest.mark.parametrize("cut", [1, 5, 40, 200, -1])
def test_broken_profile(plugin, make_runtime, cut: int) -> None:  # noqa: F811
    raw = plugin.profile(Model().shards, ARITHMETIC).SerializeToString()[:cut]
    with pytest.raises(MillpondError) as caught:
        make_runtime().store().bind(Model().shards, raw)
    assert caught.value.code in (c.E_ARGUMENT, c.E_REFUSED)
    if caught.value.code == c.E_ARGUMENT:
        assert caught.value.field == "bind_args.profile"
        assert caught.value.offset <= len(raw)


def test_text_travels_both_ways(plugin, make_runtime) -> None:  # noqa: F811
    """Names beyond ASCII come back in the refusals as they went."""
    shards = [Shard(0, "schicht.größe.重み", None, None, numel=0)]
    profile = plugin.profile(shards, ARITHMETIC, features={"merkmal.ü": 2})
    profile.shards[0].kind = 0
    with pytest.raises(MillpondError) as caught:
        make_runtime().store().bind(shards, profile)
    subjects = {refusal.subject for refusal in caught.value.report.refusals}
    assert subjects == {"schicht.größe.重み", "merkmal.ü"}


# ---- two plugins


def test_two_files_in_one_process(plugin, tmp_path) -> None:  # noqa: F811
    """A copy of the file is a plugin of its own: both train side by side, with the same bits."""
    path = tmp_path / "libmillpond_copy.so"
    shutil.copyfile(plugin.path, path)
    plugins = [plugin, Plugin(path)]
    models = [Model(), Model()]
    runtimes, stores = [], []
    for i, (each, model) in enumerate(zip(plugins, models, strict=True)):
        scratch = tmp_path / f"scratch{i}"
        scratch.mkdir()
        runtimes.append(Runtime(each, {"scratch": str(scratch), "host_memory_bytes": 32 << 20}))
        stores.append(runtimes[i].store())
        stores[i].bind(model.shards, each.profile(model.shards, ARITHMETIC))
    for step in range(1, 5):
        for store, model in zip(stores, models, strict=True):
            train(store, model, range(step, step + 1))
    assert models[0].bytes() == models[1].bytes()
    for runtime in reversed(runtimes):
        runtime.destroy()
