"""The streamed state of one optimizer: a runtime, a store, and what is bound in it."""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from .. import abi
from ..callbacks import Callbacks
from ..errors import ForkedError, MillpondError
from ..interrupts import INTERRUPTS
from ..runtime import Runtime, Store, span_of
from .binding import Binding, Entry, address_of
from .flags import flags_of, refuse_flags
from .hostadam import HostAdam
from .moments import reconcile
from .proof import HOST, candidates, prove, stream_of
from .ranks import Ranks
from .saving import Save

LOG = logging.getLogger("millpond.torch")
EXACT = ("require", "prefer", "off")


class Streamed:
    """kind: the torch.optim class whose bits are wanted; options: the runtime's.

    Collective where ranks are several: the first bind, and every step."""

    def __init__(
        self,
        kind: type[torch.optim.Optimizer],
        options: dict[str, Any],
        exact: str,
        shard_state: bool,
        process_group: Any,
    ):
        self.kind, self.exact, self.shard_state = kind, exact, shard_state
        self.options = options
        self._process_group = process_group
        self.ranks = Ranks(process_group)
        self.runtime: Runtime | None = None
        self.store_made: Store | None = None
        self.binding: Binding | None = None  # None too after a bind that failed
        self._before: Binding | None = None  # the last one that the store took
        self.arithmetic = ""
        self._flags: list[Any] = []
        self._epoch = 0
        self._host = HostAdam(kind)
        self._owner = os.getpid()
        self.identity = os.urandom(16).hex()
        self.loaded = False  # the state came from a checkpoint of save()

    @property
    def store(self) -> Store:
        if self.store_made is None:
            raise MillpondError("the optimizer is not bound yet", code=abi.E_STATE)
        return self.store_made

    @property
    def bound(self) -> Binding:
        if self.binding is None:
            raise MillpondError("the optimizer is not bound", code=abi.E_STATE)
        return self.binding

    def check_process(self, operation: str) -> None:
        if os.getpid() != self._owner:
            raise ForkedError(
                f"{operation}: this is a forked child of the process that made the optimizer; only "
                f"process {self._owner} may use it. Make a new optimizer in the child, or keep the "
                "work in the parent.",
                code=abi.E_FORKED,
            )

    # ---- binding

    def ensure_bound(self, entries: Sequence[Entry], groups: list[dict[str, Any]]) -> None:
        """Binds where that has not been done. Collective the first time."""
        self.check_process("bind")
        if self.store_made is not None:
            self._follow(entries, groups)
            return
        ranks = self.ranks = Ranks(self._process_group)
        failure: BaseException | None = None
        try:
            self._open()
            self._bind(entries, groups)
        except BaseException as raised:
            failure = raised
            self.close()
        ranks.share_failure("bind", failure)

    def _open(self) -> None:
        ranks = self.ranks
        callbacks = Callbacks(
            update=self._host.update,
            allgather=ranks.allgather if ranks.size > 1 else None,
            alloc=cuda_alloc,
            free=cuda_free,
        )
        self.runtime = Runtime(self.options, callbacks)
        self.store_made = self.runtime.store(f"rank{ranks.rank:05d}/opt0_0")

    def _follow(self, entries: Sequence[Entry], groups: list[dict[str, Any]]) -> None:
        """Rebinds when Parameters, memory or flags are no longer what was bound; notices weights
        that somebody wrote. Local: failures of one rank are told by agree."""
        bound = self.binding
        if bound is None or bound.moved(entries) or self._flags != flags_of(groups):
            self._bind(entries, groups)
            return
        rewritten = bound.rewritten()
        if rewritten:
            changed = reconcile(self.store, bound, rewritten)
            if changed:
                LOG.info(
                    "weights of %d parameters were written since the last step: %d mains follow",
                    len(rewritten),
                    changed,
                )
            bound.note_versions()

    def _bind(self, entries: Sequence[Entry], groups: list[dict[str, Any]]) -> None:
        if not entries:
            raise MillpondError("bind: no parameter requires a gradient", field="params")
        for number, group in enumerate(groups):
            refuse_flags(group, f"group {number} has")
        old, self.binding = self._before, None
        new = Binding(entries, self.ranks, self.shard_state, old)
        if old is not None:
            self._check_kept(old, new)
        flags = flags_of(groups)
        if flags != self._flags or (old is not None and old.device != new.device):
            self.arithmetic = self._choose(groups, new.device)
        self._epoch += 1
        self._host.groups = groups
        profile = new.profile(
            self.store.runtime.plugin.message, self.arithmetic,
            f"torch.optim.{self.kind.__name__}", self._epoch, len(groups),
        )  # fmt: skip
        pointers = new.pointers()
        self.store.bind(profile, pointers, stream_of(new.device))
        self.binding = self._before = new
        self._flags = flags
        if old is not None:
            known = {old.key(i) for i in range(len(old.entries))}
            kept = [i for i, has in enumerate(new.with_main) if has and new.key(i) in known]
            reconcile(self.store, new, kept)
        new.note_versions()

    def _check_kept(self, old: Binding, new: Binding) -> None:
        """State of a parameter that changed its shape would be dropped without a word."""
        present = {
            (new.key(i), p, new.ranges[i], new.with_main[i]) for i, p in enumerate(new.placements)
        }
        for i, place in enumerate(old.placements):
            if (old.key(i), place, old.ranges[i], old.with_main[i]) in present:
                continue
            if self.store.counter(i):
                raise MillpondError(
                    f"{old.entries[i].name} has taken {self.store.counter(i)} steps and is now "
                    "another shard (shape, placement or dtype changed, or it left the optimizer): "
                    "its state would be lost. Undo the change and go on, or save before it and "
                    "load into a new optimizer after it.",
                    code=abi.E_MISMATCH,
                    field=old.entries[i].name,
                )

    def _choose(self, groups: list[dict[str, Any]], device: torch.device) -> str:
        first = candidates(device, groups[0])[0]
        if self.exact == "off":
            chosen, why = first, "not proven: exact='off'"
        else:
            found = prove(self.kind, groups, device, self.options, group_step)
            if found:
                chosen, why = found, "the same bits as torch's on this machine, shown just now"
            elif device.type == "cpu":
                chosen, why = (
                    HOST,
                    "torch's own step on the pieces: no built-in variant has its bits",
                )
            elif self.exact == "require":
                raise MillpondError(
                    f"no variant of the plugin gives the bits of torch {torch.__version__}'s "
                    f"{self.kind.__name__} on {device} with these flags, and on CUDA torch cannot "
                    "be called for the pieces. Use other flags (foreach=True), or exact='prefer' "
                    "to train with rounding that differs in the last bit.",
                    code=abi.E_UNSUPPORTED,
                    field="exact",
                )
            else:
                chosen, why = first, "NOT the same bits as torch's: no variant has them"
                LOG.warning("arithmetic of %s: %s (%s)", device, chosen, why)
                return chosen
        LOG.info("arithmetic of %s: %s (%s)", device, chosen, why)
        return chosen

    # ---- a step

    def step(
        self,
        entries: Sequence[Entry],
        gradients: Sequence[Tensor | None],
        groups: list[dict[str, Any]],
        grad_scale: float,
        found_inf: bool,
        check: Callable[[Sequence[Entry], Sequence[Tensor | None]], None],
    ) -> bool:
        """One step, after `check` of entries and their gradients; False where it was skipped.
        Collective: when it raises on one rank it raises on all, and the stores are poisoned."""
        self.check_process("step")
        if self.store_made is None:
            check(entries, gradients)
            self.ensure_bound(entries, groups)
        failure: BaseException | None = None
        taken = False
        try:
            check(entries, gradients)
            self._follow(entries, groups)
            taken = self._call(gradients, groups, grad_scale, found_inf)
        except BaseException as raised:
            failure = raised
        finally:
            if self.binding is not None:
                self.binding.forget()
        if self.ranks.size > 1:
            self._agree(failure)
        if failure is not None:
            raise failure
        if taken:
            if self.shard_state:
                self.bound.spread()
            self.bound.note_updated()
        return taken

    def _call(
        self,
        gradients: Sequence[Tensor | None],
        groups: list[dict[str, Any]],
        grad_scale: float,
        found_inf: bool,
    ) -> bool:
        bound = self.bound
        bound.collect(gradients)
        array = (abi.GroupStep * len(groups))(
            *(group_step(g, i, self.kind) for i, g in enumerate(groups))
        )
        args = abi.StepArgs(
            abi.header_of(abi.StepArgs, abi.TYPE_STEP_ARGS), self._epoch, span_of(array),
            address_of(bound.grads), address_of(bound.dtypes), address_of(bound.has_grad),
            len(bound.entries), grad_scale, found_inf, (ctypes.c_uint8 * 3)(),
            stream_of(bound.device),
        )  # fmt: skip
        return self.store.step(args)

    def _agree(self, failure: BaseException | None) -> None:
        runtime = self.store.runtime
        if failure is not None:
            # So that the plugin has a failure to tell, also where it was not asked: an argument
            # that it refuses. Its own earlier words count first.
            args = abi.StepArgs(header=abi.header_of(abi.StepArgs, abi.TYPE_STEP_ARGS))
            with contextlib.suppress(MillpondError):
                self.store.step(args)
        try:
            runtime.agree(self.ranks.group)
        except MillpondError:
            if failure is None:
                raise

    # ---- checkpoints

    def save(self, path: str | os.PathLike[str], background: bool) -> Save:
        """Begins a save; its commit makes it count. Collective."""
        return Save(self.store, self.ranks, path, background, stream_of(self.bound.device))

    def load(self, path: str | os.PathLike[str], save_id: str = "") -> None:
        """Verifies on all ranks, then installs on all. Collective."""
        runtime, group = self.store.runtime, self.ranks.group
        with INTERRUPTS.held(1):
            failure: MillpondError | None = None
            try:
                self.store.load(path, abi.IO_STAGE, save_id, stream_of(self.bound.device))
            except MillpondError as raised:
                failure = raised
            try:
                runtime.load_commit(group)
            except MillpondError as told:
                raise failure or told from None
            bound = self.bound
            bound.has_grad[:] = b"\1" * len(bound.entries)
            if self.shard_state:
                bound.spread()
            bound.note_updated()
            self.loaded = True

    def refresh(self) -> None:
        """Mains := weights, as they are now."""
        self.store.refresh(stream_of(self.bound.device))
        self.bound.note_versions()

    def counters(self) -> list[int]:
        """Completed steps of every entry."""
        return [self.store.counter(i) for i in range(len(self.bound.entries))]

    def close(self) -> None:
        """Destroys the runtime; scratch files go."""
        if self.runtime is not None:
            self.runtime.close()
        self.runtime = self.store_made = self.binding = self._before = None


def cuda_alloc(size: int, _alignment: int, stream: abi.Stream) -> int:
    """Staging from torch's caching allocator, so that it shows in torch's figures of memory."""
    handle = 0 if stream.handle == 1 else stream.handle
    return int(torch.cuda.caching_allocator_alloc(size, stream.device_id, handle))


def cuda_free(memory: int, _size: int, _stream: abi.Stream) -> None:
    delete: Any = torch.cuda.caching_allocator_delete  # has no types
    delete(memory)


def group_step(group: dict[str, Any], number: int, kind: Any) -> abi.GroupStep:
    """A group's hyperparameters of this step, as doubles. Releases before 2.7 have the kind of
    weight decay in the class, not in the group."""
    beta1, beta2 = group["betas"]
    decoupled = group.get("decoupled_weight_decay", kind is torch.optim.AdamW)
    return abi.GroupStep(
        number, float(group["lr"]), float(beta1), float(beta2), float(group["eps"]),
        float(group["weight_decay"]), int(decoupled), int(group["maximize"]),
    )  # fmt: skip
