"""Callbacks: only on the calling thread, failures noticed, groups of ranks."""

from __future__ import annotations

import ctypes
import sys
import threading
from typing import Any

import numpy as np
import pytest
from millpond import abi as c
from millpond_callbacks import Callbacks
from millpond_fixtures import make_runtime, plugin  # noqa: F401
from millpond_host import MillpondError, Runtime
from millpond_model import ARITHMETIC, Model, host_update, train
from millpond_shards import Memory


def test_callbacks_on_the_calling_thread(plugin, make_runtime, tmp_path) -> None:  # noqa: F811
    """Every callback there is, seen only on the thread that is inside a call."""
    seen: dict[str, set[int]] = {}

    def note(name: str) -> None:
        seen.setdefault(name, set()).add(threading.get_ident())

    def update(piece: Any) -> None:
        note("update")
        host_update(piece)

    callbacks = Callbacks(
        update=update,
        release_main=lambda uid, ids: note("release_main"),
        copy_main=lambda *_: note("copy_main"),
        log=lambda level, line: note("log"),
        progress=lambda *_: note("progress") or 0,
    )
    model = Model()
    mains = [np.full(n, 0.5, np.float32) for n in model.SIZES]
    for i, shard in enumerate(model.shards):
        if not model.own_main[i]:
            shard.main = Memory.of_numpy(mains[i])
    model.shards[3].model, model.shards[3].numel = None, model.SIZES[3]
    caller: list[int] = []
    failed: list[BaseException] = []

    def body() -> None:
        try:
            caller.append(threading.get_ident())
            runtime = make_runtime(callbacks, log_level="debug")
            store = runtime.store()
            store.bind(model.shards, plugin.profile(model.shards, "host/1"))
            train(store, model, range(1, 4))
            store.save(tmp_path / "checkpoint")
            store.load(tmp_path / "checkpoint")
            store.destroy()
            runtime.destroy()
        except BaseException as error:  # noqa: BLE001
            failed.append(error)

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    assert not failed, failed
    assert set(seen) == {"update", "release_main", "copy_main", "log", "progress"}
    assert all(threads == {caller[0]} for threads in seen.values()), (seen, caller)


@pytest.fixture
def quiet_callbacks(monkeypatch) -> list[BaseException]:
    """What callbacks raise goes here instead of to stderr."""
    raised: list[BaseException] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda args: raised.append(args.exc_value))
    return raised


def test_a_raising_callback_fails_the_step(plugin, make_runtime, quiet_callbacks, tmp_path) -> None:  # noqa: F811
    """The answer decides, not the garbage that a callback returns after an exception."""
    broken = [False]

    def update(piece: Any) -> None:
        if broken[0]:
            raise ValueError("the host's optimizer fell over")
        host_update(piece)

    model, whole = Model(), Model()
    profile = plugin.profile(model.shards, "host/1")
    reference = make_runtime(Callbacks(update=host_update)).store()
    reference.bind(whole.shards, profile)
    train(reference, whole, range(1, 5))

    store = make_runtime(Callbacks(update=update)).store()
    store.bind(model.shards, profile)
    train(store, model, range(1, 3))
    store.save(tmp_path / "checkpoint")
    own = [m.copy() for m in model.models]
    broken[0] = True
    with pytest.raises(MillpondError) as caught:
        store.step(model.groups(3))
    assert caught.value.code == c.E_CALLBACK
    assert caught.value.flags & c.STATUS_POISONED
    assert quiet_callbacks and isinstance(quiet_callbacks[0], ValueError)
    broken[0] = False
    for call in (lambda: store.step(model.groups(3)), lambda: store.save(tmp_path / "other")):
        with pytest.raises(MillpondError) as caught:
            call()
        assert caught.value.code == c.E_POISONED
    # A load makes it well; the host brings its own mains back.
    store.load(tmp_path / "checkpoint")
    for i, own_main in enumerate(model.own_main):
        if own_main:
            model.models[i][:] = own[i]
    train(store, model, range(3, 5))
    assert model.bytes() == whole.bytes()


def test_a_callback_may_not_call_back(plugin, make_runtime) -> None:  # noqa: F811
    answers: list[int] = []
    model = Model()

    def update(piece: Any) -> None:
        with pytest.raises(MillpondError) as caught:
            store.unbind()
        answers.append(caught.value.code)
        host_update(piece)

    store = make_runtime(Callbacks(update=update)).store()
    store.bind(model.shards, plugin.profile(model.shards, "host/1"))
    train(store, model, range(1, 2))
    assert set(answers) == {c.E_STATE}


def test_progress_cancels(plugin, make_runtime, tmp_path) -> None:  # noqa: F811
    cancel = [0]
    model = Model()
    store = make_runtime(Callbacks(progress=lambda *_: cancel[0])).store()
    store.bind(model.shards, plugin.profile(model.shards, ARITHMETIC))
    train(store, model, range(1, 3))
    store.save(tmp_path / "checkpoint")
    saved = {path: path.read_bytes() for path in (tmp_path / "checkpoint").rglob("*.*")}
    cancel[0] = 1
    with pytest.raises(MillpondError) as caught:
        store.save(tmp_path / "checkpoint")
    assert caught.value.code == c.E_CANCELLED
    cancel[0] = 0
    assert {path: path.read_bytes() for path in saved} == saved
    store.load(tmp_path / "checkpoint")


# ---- groups of ranks, in one process: each rank is a runtime on a thread of its own


class Gather:
    """An allgather between threads, as a host's collective library would give."""

    def __init__(self, size: int):
        self.barrier = threading.Barrier(size, timeout=60)
        self.parts: list[bytes] = [b""] * size
        self.rounds = 0

    def __call__(self, group: c.Group, send: int, receive: int, size: int) -> None:
        assert group.token == 0xFEED
        self.parts[group.rank] = ctypes.string_at(send, size)
        self.barrier.wait()
        whole = b"".join(self.parts)
        ctypes.memmove(receive, whole, len(whole))
        if self.barrier.wait() == 0:
            self.rounds += 1


def test_agree_poisons_every_rank(plugin, tmp_path, quiet_callbacks) -> None:  # noqa: F811
    """One round; the healthy rank learns which rank failed, and is poisoned too."""
    gather = Gather(2)
    outcome: dict[int, MillpondError] = {}

    def rank_body(rank: int) -> None:
        def update(piece: Any) -> None:
            if rank == 1:
                raise ValueError("this rank fails")
            host_update(piece)

        scratch = tmp_path / f"rank{rank}"
        scratch.mkdir()
        model = Model()
        options = {"scratch": str(scratch), "tile_elements": 65536, "host_memory_bytes": 32 << 20}
        with Runtime(plugin, options, Callbacks(update=update, allgather=gather)) as runtime:
            store = runtime.store(f"rank{rank:05}/opt0_0")
            store.bind(model.shards, plugin.profile(model.shards, "host/1"))
            model.draw(1)
            if rank == 1:
                with pytest.raises(MillpondError):
                    store.step(model.groups(1))
            else:
                assert store.step(model.groups(1))
            with pytest.raises(MillpondError) as caught:
                runtime.agree(0xFEED, rank, 2)
            outcome[rank] = caught.value
            with pytest.raises(MillpondError) as caught:
                store.step(model.groups(2))
            assert caught.value.code == c.E_POISONED

    threads = [threading.Thread(target=rank_body, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert gather.rounds == 1
    assert set(outcome) == {0, 1}
    assert outcome[0].code == c.E_PEER and "1" in outcome[0].message
