"""Who may call what, and when: forked children, several threads, destroy in every state."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

import pytest
from millpond import abi as c
from millpond_callbacks import Callbacks
from millpond_fixtures import make_runtime, plugin  # noqa: F401
from millpond_host import MillpondError, Store
from millpond_model import ARITHMETIC, Model, host_update, train


def test_a_forked_child_is_refused(plugin, make_runtime) -> None:  # noqa: F811
    """The child touches nothing; the parent goes on with the same bits."""
    model, whole = Model(), Model()
    profile = plugin.profile(model.shards, ARITHMETIC)
    reference = make_runtime().store()
    reference.bind(whole.shards, profile)
    train(reference, whole, range(1, 5))
    store = make_runtime().store()
    store.bind(model.shards, profile)
    train(store, model, range(1, 3))
    child = os.fork()
    if child == 0:
        code = 0
        try:
            store.step(model.groups(3))
        except MillpondError as error:
            code = error.code
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 19  # MILLPOND_E_FORKED
    train(store, model, range(3, 5))
    assert model.bytes() == whole.bytes()


def test_a_second_thread_waits(plugin, make_runtime) -> None:  # noqa: F811
    """Two stores of one runtime stepped from two threads: one after another, each with its bits."""
    whole = Model()
    profile = plugin.profile(whole.shards, ARITHMETIC)
    reference = make_runtime().store()
    reference.bind(whole.shards, profile)
    train(reference, whole, range(1, 8))

    runtime = make_runtime()
    models = [Model(), Model()]
    stores = [runtime.store(f"rank00000/opt0_{i}") for i in range(2)]
    for store, model in zip(stores, models, strict=True):
        store.bind(model.shards, profile)
    failed: list[BaseException] = []

    def body(store: Store, model: Model) -> None:
        try:
            train(store, model, range(1, 8))
        except BaseException as error:
            failed.append(error)

    threads = [
        threading.Thread(target=body, args=pair) for pair in zip(stores, models, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed, failed
    assert all(model.bytes() == whole.bytes() for model in models)


def unbound(store: Store, model: Model) -> None:
    del store, model


def bound(store: Store, model: Model) -> None:
    store.bind(model.shards, store.plugin.profile(model.shards, "host/1"))


def stepped(store: Store, model: Model) -> None:
    bound(store, model)
    train(store, model, range(1, 3))


def parked(store: Store, model: Model) -> None:
    stepped(store, model)
    store.unbind()


def refused(store: Store, model: Model) -> None:
    stepped(store, model)
    with pytest.raises(MillpondError):
        store.bind(model.shards, store.plugin.profile(model.shards, "no such/1"))


def suspended(store: Store, model: Model) -> None:
    stepped(store, model)
    phase = store.runtime.extension("phase/1", c.ExtPhase)
    store.runtime.call(phase.suspend, store.runtime.handle, 1)


def poisoned(store: Store, model: Model) -> None:
    stepped(store, model)
    store.runtime.broken = True
    with pytest.raises(MillpondError) as caught:
        train(store, model, range(3, 4))
    assert caught.value.flags & c.STATUS_POISONED


STATES = [unbound, bound, stepped, parked, refused, suspended, poisoned]


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.__name__)
@pytest.mark.parametrize("whole_runtime", [False, True], ids=["store", "runtime"])
def test_B14_destroy_is_legal(
    make_runtime,  # noqa: F811
    tmp_path,
    monkeypatch,
    state: Callable[[Store, Model], None],
    whole_runtime: bool,
) -> None:
    monkeypatch.setattr("sys.unraisablehook", lambda _: None)

    def update(piece: Any) -> None:
        if runtime.broken:
            raise ValueError("on purpose")
        host_update(piece)

    runtime = make_runtime(Callbacks(update=update))
    runtime.broken = False
    store = runtime.store()
    state(store, Model())
    if not whole_runtime:
        store.destroy()
        runtime.broken = False
        if state is not suspended:  # the name is free again, and what is made works
            stepped(runtime.store(), Model())
    runtime.destroy()
    assert not any((tmp_path / "scratch").iterdir())  # nothing is left behind


@pytest.mark.parametrize("state", [parked, refused], ids=lambda state: state.__name__)
def test_parked_state_is_saved(plugin, make_runtime, tmp_path, state) -> None:  # noqa: F811
    """save_to works without a bind, and its checkpoint holds what was trained."""
    model = Model()
    store = make_runtime(Callbacks(update=host_update)).store()
    state(store, model)
    store.save(tmp_path / "checkpoint")
    other = Model()
    profile = plugin.profile(other.shards, "host/1")
    loaded = make_runtime(Callbacks(update=host_update)).store()
    loaded.bind(other.shards, profile)
    loaded.load(tmp_path / "checkpoint")
    store.bind(model.shards, profile)
    for shard in (100, 103, 105):
        for segment in (c.SEGMENT_EXP_AVG, c.SEGMENT_EXP_AVG_SQ):
            count = model.SIZES[shard - 100]
            ours = bytes(store.read(shard, segment, 0, count))
            assert bytes(loaded.read(shard, segment, 0, count)) == ours
            assert any(ours)
        assert loaded.counter(shard) == store.counter(shard) == 2
