"""What torch sees of a streamed optimizer: groups, steps, state dicts, hooks, GradScaler."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, NoReturn

import torch
from torch import Tensor
from torch._compile import _disable_dynamo

from .. import abi
from ..errors import CheckpointError, MillpondError, StateError
from ..interrupts import INTERRUPTS
from .alive import Owned
from .binding import Binding, Entry
from .flags import refuse_flags
from .handles import Handles
from .incoming import MARKER, Incoming, judge, marker, stream_in
from .outgoing import outgoing
from .ranks import Ranks
from .saving import Save
from .streamed import EXACT, Streamed

Params = Iterable[Any]  # as torch.optim.Optimizer's: tensors, dicts, or (name, tensor)


class StreamedOptimizer(torch.optim.Optimizer):
    """What AdamW and Adam share. Not for direct use.

    Threads: the one that trains. Ranks: the first step or bind, every step, save and load are
    collective over `process_group` where torch.distributed is initialised."""

    kind: ClassVar[type[torch.optim.Optimizer]]

    def __init__(
        self,
        params: Params,
        flags: dict[str, Any],
        *,
        runtime: dict[str, Any],
        exact: str,
        shard_state: bool,
        process_group: Any,
    ):
        refuse_flags(flags, f"{self.kind.__name__}:")
        if exact not in EXACT:
            raise MillpondError(f"exact={exact!r} is none of {', '.join(EXACT)}", field="exact")
        # torch's own class judges the values, and knows which keys a group has in this release.
        defaults = self.kind([torch.zeros(1)], **flags).defaults
        # Before super().__init__, which calls add_param_group.
        self._streamed = Streamed(
            self.kind,
            runtime,
            exact,
            shard_state,
            process_group,
        )
        self._handles = Handles(self)
        self._owned = Owned()
        self._awaited: str | None = None  # why steps, saves and exports must wait for a load
        self._expected: list[int] | None = None  # the counters that this load must bring
        self._close = weakref.finalize(self, self._streamed.close)
        super().__init__(params, defaults)
        self._owned.note([entry.parameter for entry in self._handles.entries])

    # ---- torch's interface

    @_disable_dynamo
    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """As torch's; a parameter twice in one group is refused: it would be updated twice."""
        given = param_group["params"]
        members = [given] if isinstance(given, Tensor) else list(given)
        tensors = [m[1] if isinstance(m, tuple) else m for m in members]
        if len({id(t) for t in tensors}) != len(tensors):
            raise ValueError(
                "a parameter is twice in one group: list tied weights once, as model.parameters() "
                "does"
            )
        refuse_flags(param_group, f"{self.kind.__name__}:")
        super().add_param_group(param_group | {"params": members})
        self._handles.extend()
        if self._owned.noted:
            self._owned.note([entry.parameter for entry in self._handles.entries])

    @property
    def _step_supports_amp_scaling(self) -> bool:
        """GradScaler: unscale inside the step where torch's own would, and always for fp16
        parameters, whose gradients the scaler refuses to unscale."""
        return any(
            group.get("fused") or any(p.dtype == torch.float16 for p in group["params"])
            for group in self.param_groups
        )

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One optimizer step. Collective where ranks are several.

        Ctrl-C waits until the step is whole; a second one gives the step up, which needs a load
        afterwards. Raises MillpondError with the plugin's words."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._update()
        return loss

    @_disable_dynamo
    def _update(self) -> None:
        if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
            raise StateError(
                "step: a CUDA graph is being captured; a streamed step reads files and cannot be "
                "replayed. Capture forward and backward only.",
                code=abi.E_STATE,
            )
        self._streamed.check_process("step")
        self.require_whole("step")
        try:
            scale, found_inf = self._amp()
            with torch.no_grad(), INTERRUPTS.held(2):
                entries = self._entries()
                gradients = self._handles.gradients()
                if self._streamed.step(
                    entries, gradients, self.param_groups, scale, found_inf, self._owned.check
                ):
                    self._handles.count(self._streamed.bound.has_grad)
        except BaseException:
            # GradScaler removes these only after a step that returned.
            for name in ("grad_scale", "found_inf"):
                self.__dict__.pop(name, None)
            raise

    def _amp(self) -> tuple[float, bool]:
        """What GradScaler hung on the optimizer. Waits for the device that decided it."""
        scale, found = getattr(self, "grad_scale", None), getattr(self, "found_inf", None)
        return (
            1.0 if scale is None else float(scale),
            found is not None and bool(torch.as_tensor(found).item()),
        )

    # ---- state dicts: counters, hyperparameters and a marker; no bytes

    def state_dict(self) -> dict[str, Any]:
        """As torch's, with empty moments and a marker in each group. The bytes travel through save
        and load."""
        self._handles.extend()
        made: dict[str, Any] = super().state_dict()
        text = marker(self._streamed.identity, self._handles.most())
        made["param_groups"] = [group | {MARKER: text} for group in made["param_groups"]]
        return made

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """One of ours: counters and hyperparameters; the next step then needs `load` unless the
        bytes are here already. One of a plain torch Adam: its moments are streamed in, in every
        form in which they can come. Collective in the second case where ranks are several."""
        self._streamed.check_process("load_state_dict")
        taken: list[Incoming] = []

        def take(_: Any, given: dict[str, Any]) -> dict[str, Any]:
            taken.append(judge(given, self.param_groups, self._entries()))
            return given | {"state": {}}

        # The last of the hooks: the user's have run, torch has not looked yet.
        hook = self.register_load_state_dict_pre_hook(take)
        try:
            super().load_state_dict(state_dict)
        finally:
            hook.remove()
        for group in self.param_groups:
            group.pop(MARKER, None)
            for name, value in self.defaults.items():
                group.setdefault(name, value)
        self._adopt(taken[0])

    def plain_state_dict(self) -> dict[str, Any]:
        """For a plain torch optimizer of the same groups: counters, and moments in fp32 on the CPU,
        all of them in memory. DTensor parameters have DTensor moments. Collective with
        shard_state."""
        self.require_whole("plain_state_dict")
        self.bind()
        made: dict[str, Any] = super().state_dict()
        index = {id(p): i for i, p in enumerate(p for g in self.param_groups for p in g["params"])}
        entries = self._handles.entries
        with torch.no_grad():
            moments = outgoing(self._streamed.store, self._streamed.bound)
        made["state"] = {
            index[id(entry.parameter)]: {"step": torch.tensor(float(count)), **state}
            for entry, count, state in zip(entries, self._streamed.counters(), moments, strict=True)
            if count
        }
        return made

    def _adopt(self, incoming: Incoming) -> None:
        streamed = self._streamed
        if incoming.has_moments:
            self.bind()
            self.adopting()
            with torch.no_grad():
                stream_in(incoming, streamed.store, streamed.bound)
            self._awaited, self._expected = None, None
        elif not self._holds(incoming):
            self._expected = incoming.counters
            self._awaited = (
                f"the loaded state dict is of step {max(incoming.counters, default=0)} and holds "
                "no moments: they are in the checkpoint that save() wrote. Call load(path) before "
                "the next step; without that checkpoint this run cannot be resumed."
            )
        self._handles.install(incoming.counters)

    def _holds(self, incoming: Incoming) -> bool:
        """Whether the state that the handles stand for is the one that is here."""
        streamed, counters = self._streamed, incoming.counters
        if not any(counters):
            return streamed.store_made is None or not any(streamed.counters())
        known = incoming.runtime == streamed.identity or streamed.loaded
        return known and streamed.store_made is not None and streamed.counters() == counters

    # ---- ours

    def bind(self) -> None:
        """Plans, reserves scratch space and proves the arithmetic now, not at the first step.
        Collective where ranks are several."""
        with torch.no_grad():
            self._streamed.ensure_bound(self._entries(), self.param_groups)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the state below `path` and commits it: afterwards it is the checkpoint there, and
        the one before is gone. Collective where ranks are several. fp32 parameters are their own
        mains: they are in the model's checkpoint only."""
        self._begin_save(path, background=False).commit()

    def async_save(self, path: str | os.PathLike[str]) -> Save:
        """Returns when later steps cannot change what is being saved; commit() of the result makes
        it count. Both are collective, on the thread that trains."""
        return self._begin_save(path, background=True)

    def _begin_save(self, path: str | os.PathLike[str], background: bool) -> Save:
        self.require_whole("save")
        with torch.no_grad():
            self._streamed.ensure_bound(self._entries(), self.param_groups)
            return self._streamed.save(path, background)

    def load(self, path: str | os.PathLike[str], save_id: str = "") -> None:
        """Restores what `save` wrote (the newest, or the one named): moments, counters, mains, and
        16-bit parameters as rounded mains. Load fp32 weights before. Everything is verified first;
        a refusal changes nothing. Also makes an optimizer well after a failed step. Collective
        where ranks are several."""
        with torch.no_grad():
            self._streamed.ensure_bound(self._entries(), self.param_groups)
            self._streamed.load(path, save_id)
        counters = self._streamed.counters()
        if self._expected is not None and counters != self._expected:
            self._handles.install(counters)
            self._awaited = (
                f"the checkpoint at {os.fspath(path)} is of step {max(counters, default=0)}, the "
                f"state dict that was loaded of step {max(self._expected, default=0)}: they are "
                "not a pair. Load the two that were saved together."
            )
            raise CheckpointError(f"load: {self._awaited}", code=abi.E_MISMATCH)
        self.adopted(counters)

    def require_whole(self, operation: str) -> None:
        """Raises where the state that is here is not the one that the counters tell of."""
        if self._awaited:
            raise StateError(f"{operation}: {self._awaited}", code=abi.E_STATE)

    def adopting(self) -> None:
        """The state that is here is not whole until `adopted`."""
        self._awaited = "a state was not taken in to its end: load it again"

    def adopted(self, counters: list[int]) -> None:
        """The state that is here now is whole, with these counters."""
        self._awaited, self._expected = None, None
        self._handles.install(counters)

    @property
    def ranks(self) -> Ranks:
        """The ranks that train together, as of bind."""
        return self._streamed.ranks

    def refresh(self) -> None:
        """Mains := weights, after weights were written in a way that autograd does not count
        (`parameter.data`). Other writes are noticed by the next step."""
        self._streamed.refresh()

    def close(self) -> None:
        """Destroys the state and its scratch files. The optimizer is of no use afterwards."""
        self._streamed.close()
        self._awaited = "the optimizer was closed"

    @property
    def arithmetic(self) -> str:
        """The variant chosen at bind, "host/1" where torch itself does the pieces."""
        return self._streamed.arithmetic

    @property
    def binding(self) -> Binding:
        return self._streamed.bound

    def last_step(self) -> abi.StepFigures:
        """Bytes and seconds of the last step by stage (millpond/report.h)."""
        return self._streamed.store.last_step()

    def figures(self) -> abi.RuntimeFigures:
        """Memory and scratch space that the state takes on this rank now (millpond/report.h)."""
        return self._streamed.store.runtime.figures()

    def _entries(self) -> list[Entry]:
        """The parameters that are updated, in the order of the groups: those that require a
        gradient, and those that did when they were bound."""
        self._handles.extend()
        return self._handles.entries

    def _refuse_copy(self, what: str) -> NoReturn:
        raise TypeError(
            f"{what} of a {type(self).__name__} of Millpond: its state is in files that belong to "
            "this process. Use state_dict() for counters and hyperparameters, save(path) and "
            "load(path) for the state."
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> NoReturn:
        self._refuse_copy("deepcopy")

    def __copy__(self) -> NoReturn:
        self._refuse_copy("copy")

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        self._refuse_copy("pickling")
