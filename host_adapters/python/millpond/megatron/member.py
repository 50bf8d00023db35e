"""One DistributedOptimizer of a chain with its state in a store: the methods of Megatron's object
that touch mains or moments are bound to this, on the instance."""

from __future__ import annotations

import copy
import ctypes
import dataclasses
import os
import secrets
from collections.abc import Callable
from typing import Any

import torch

from .. import abi
from ..errors import MillpondError, StateError
from ..runtime import Store, span_of
from ..torch.binding import DENSE, MAIN_AND_MOMENTS, MOMENTS_ONLY
from ..torch.placement import DTYPES
from ..torch.proof import stream_of
from . import arithmetic
from .deferred import is_handle
from .layout import Shard, group_key, run_of, shards_of, tensor_of, topology
from .readers import refuse_readers

PER_GROUP = 1


class Member:
    """`session` is what members share: runtime, options, features, the step of the whole chain."""

    def __init__(self, session: Any, optimizer: Any, uid: str):
        self.session, self.optimizer, self.uid = session, optimizer, uid
        self.inner = optimizer.optimizer
        self.shards: list[Shard] = shards_of(optimizer)
        self.host = arithmetic.host_of(self.inner)
        self.arithmetic = ""
        self.epoch = 0
        self.ready = False  # Megatron has put gradients in place for a step
        self.stepped = False  # the chain's step has been done for this member
        self.steps = 0
        self._grads = (ctypes.c_void_p * len(self.shards))()
        self._bound: list[int] = []
        self.store: Store = session.runtime.store(uid)
        try:
            self.bind()
        except BaseException:
            self.store.destroy()
            raise
        self._take_over()

    @property
    def device(self) -> torch.device:
        if self.shards:
            return self.shards[0].model.device
        buffers = self.optimizer.buffers
        return buffers[0].grad_data.device if buffers else torch.device("cpu")

    @property
    def stream(self) -> abi.Stream:
        """In whose order torch works on this member's device now."""
        return stream_of(self.device)

    # ---- binding

    def bind(self) -> None:
        """Judged by the guard, then the mains are written tile by tile from the 16-bit shards."""
        groups = self.inner.param_groups
        self.host.groups = groups
        if not self.arithmetic:
            self.arithmetic = arithmetic.choose(
                self.inner, groups, self.device, self.session.options, self.session.exact
            )
        self.epoch += 1
        pointers = (abi.ShardPointers * len(self.shards))()
        nothing = abi.Tensor(None, 0, 0, abi.DEVICE_CPU, 0, 0, 0)
        for i, shard in enumerate(self.shards):
            model = tensor_of(shard.model, DTYPES[shard.parameter.dtype])
            pointers[i] = abi.ShardPointers(i, model, nothing, nothing)
        self.store.bind(self._profile(groups), pointers, self.stream)
        self._bound = [shard.model.data_ptr() for shard in self.shards]

    def _profile(self, groups: list[dict[str, Any]]) -> Any:
        session = self.session
        profile = session.runtime.plugin.message("HostProfile")(
            framework="megatron", framework_version=session.core_version,
            adapter="millpond.megatron", adapter_version=session.version,
            arithmetic=self.arithmetic, config_epoch=self.epoch,
        )  # fmt: skip
        kind = type(self.inner)
        profile.optimizer.class_name = f"{kind.__module__}.{kind.__qualname__}"
        profile.optimizer.family = 1 if arithmetic.is_adam(kind) else 2
        for name, rank, size in topology():
            profile.topology.add(name=name, rank=rank, size=size)
        for feature in session.features(self.optimizer):
            profile.features.add(name=feature.name, state=feature.state, detail=feature.detail)
        keys = [group_key(group) for group in groups]
        for i, key in enumerate(keys):
            again = keys[:i].count(key)
            profile.groups.add(id=i, key=f"{key}#{again}" if again else key, counter=PER_GROUP)
        for i, shard in enumerate(self.shards):
            own = tensor_of(shard.model, 0)
            profile.shards.add(
                id=i, key=shard.key, global_shape=shard.global_shape,
                box_offset=shard.box_offset, box_shape=shard.parameter.shape,
                flat_begin=shard.flat[0], flat_end=shard.flat[1], group_id=shard.group,
                host_bucket=shard.bucket,
                kind=MOMENTS_ONLY if shard.native_fp32 else MAIN_AND_MOMENTS,
                model_dtype=DTYPES[shard.parameter.dtype], grad_dtype=abi.FP32,
                model_storage=DENSE, grad_storage=DENSE,
                device_type=own.device_type, device_id=own.device_id,
            )  # fmt: skip
        return profile

    # ---- Megatron's methods

    def _take_over(self) -> None:
        """Binds on the instance, so that other optimizers of the process stay Megatron's."""
        optimizer = self.optimizer
        refuse_readers(optimizer)
        self._grads_in_place = optimizer._copy_model_grads_to_main_grads
        optimizer._copy_model_grads_to_main_grads = self._note_gradients
        optimizer._copy_main_params_to_model_params = self._after_step
        optimizer._copy_model_params_to_main_params = self.refresh
        optimizer.state_dict = self.state_dict
        optimizer.load_state_dict = self.load_state_dict
        optimizer.sharded_state_dict = self.sharded_state_dict
        self.inner.step = self._inner_step
        self.write_steps()

    def _note_gradients(self) -> None:
        self._grads_in_place()
        self.ready, self.stepped = True, False

    def _inner_step(self, closure: Callable[[], Any] | None = None) -> None:
        """The chain's first member steps all of them, so that a failure anywhere is everybody's
        before the first parameter is gathered."""
        if closure is not None:
            raise StateError("step: Megatron passes no closure", code=abi.E_STATE)
        if not self.stepped:
            self.session.step_chain(self)
        self.stepped = False

    def _after_step(self) -> None:
        """The store has written the parameter buffer already."""

    def refresh(self, state_dict: dict[str, Any] | None = None) -> None:
        """mains := parameters; moments and counters stay."""
        if state_dict is not None:
            raise StateError(
                "reload_model_params(state_dict=...): mains from a checkpoint's model state "
                "(--load-main-params-from-ckpt) are not implemented. Leave the option out; the "
                "mains are made from the loaded parameters.",
                code=abi.E_UNSUPPORTED,
                field="load_main_params_from_ckpt",
            )
        self.store.refresh(self.stream)

    # ---- a step

    def check(self) -> None:
        """What a step needs, looked at on every rank before any rank applies anything: gradients in
        place, ranges that are what was bound (else it binds anew), and whatever the plugin demands
        of its arguments, hyperparameters among them."""
        if not self.ready:
            raise StateError(
                "the inner optimizer's step was called outside Megatron's training step (a dummy "
                "step to make state?): there are no gradients of this store. Nothing was changed.",
                code=abi.E_STATE,
            )
        moved = False
        for i, shard in enumerate(self.shards):
            numel = shard.flat[1] - shard.flat[0]
            run = run_of(self.optimizer, shard.parameter, shard.key, shard.main, numel)
            if run.data_ptr() != self._bound[i]:
                self.shards[i], moved = dataclasses.replace(shard, model=run), True
            self._grads[i] = self._gradient(shard)
        if moved:
            self.bind()
        self._call(found_inf=1)  # a skipped step is one whose arguments were all looked at

    def step(self) -> None:
        """Runs the store's step, after `check`. Gradients are Megatron's own, reduced, unscaled and
        clipped."""
        self.ready = False
        self._call(found_inf=0)
        self.stepped = True

    def _call(self, found_inf: int) -> None:
        groups = self.inner.param_groups
        array = (abi.GroupStep * len(groups))(
            *(arithmetic.group_step(self.inner, group, i) for i, group in enumerate(groups))
        )
        args = abi.StepArgs(
            abi.header_of(abi.StepArgs, abi.TYPE_STEP_ARGS), self.epoch, span_of(array),
            ctypes.addressof(self._grads), None, None, len(self.shards), 1.0, found_inf,
            (ctypes.c_uint8 * 3)(), self.stream,
        )  # fmt: skip
        self.store.step(args)

    def note_taken(self) -> None:
        """After every rank's step is good."""
        self.steps += 1
        self.write_steps()
        if self.shards:
            torch.autograd.graph.increment_version([s.parameter for s in self.shards])

    def _gradient(self, shard: Shard) -> int:
        grad = shard.main.grad
        if grad is None or grad.dtype != torch.float32 or not grad.is_contiguous():
            what = "is absent" if grad is None else f"is {grad.dtype}, strides {grad.stride()}"
            raise MillpondError(
                f"step: the gradient of {shard.key} {what}; a dense fp32 one was expected. "
                "Nothing was changed.",
                field=shard.key,
            )
        if grad.numel() != shard.main.numel():
            raise MillpondError(
                f"step: the gradient of {shard.key} has {grad.numel()} elements, its shard "
                f"{shard.main.numel()}. Nothing was changed.",
                wanted=shard.main.numel(), got=grad.numel(), field=shard.key,
            )  # fmt: skip
        return grad.data_ptr()

    def fail(self) -> None:
        """Gives the plugin a failure to tell in `agree`, where the failure was this side's."""
        args = abi.StepArgs(header=abi.header_of(abi.StepArgs, abi.TYPE_STEP_ARGS))
        try:
            self.store.step(args)
        except MillpondError:
            return

    # ---- counters and state dicts

    def write_steps(self) -> None:
        """The store's counter into what the inner optimizer's kind of bookkeeping is: the group
        (Transformer Engine, apex) or each parameter (torch)."""
        if arithmetic.counts_in_group(type(self.inner)):
            for group in self.inner.param_groups:
                group["step"] = self.steps
            return
        count = torch.tensor(float(self.steps))
        for group in self.inner.param_groups:
            for parameter in group["params"]:
                self.inner.state[parameter] = {"step": count}

    def read_steps(self, without_shards: int = 0) -> None:
        """After a load: the store's counters, which are the checkpoint's, 0 included. A rank with
        padding only has none: there the state dict's."""
        self.steps = self.store.counter(0) if self.shards else without_shards
        self.write_steps()

    def restart_from_model(self) -> None:
        """mains := parameters, moments zero, steps 0."""
        nowhere = os.path.join(self.session.scratch, f"none-{secrets.token_hex(8)}")
        self.store.load(nowhere, abi.IO_INIT_FROM_MODEL, "", self.stream)

    def state_dict(self) -> dict[str, Any]:
        """What Megatron keeps in the model file: groups without parameters, the step, the grad
        scaler. Values are in the store."""
        groups = []
        for group in self.inner.param_groups:
            kept = {k: copy.deepcopy(v) for k, v in group.items() if k != "params"}
            groups.append(kept | {"step": self.steps})
        made: dict[str, Any] = {"optimizer": {"param_groups": groups}}
        if self.optimizer.grad_scaler:
            made["grad_scaler"] = self.optimizer.grad_scaler.state_dict()
        return made

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.session.checkpoints.load_member(self, state_dict)

    def sharded_state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        made: dict[str, Any] = self.session.checkpoints.sharded_state(self, *args, **kwargs)
        return made

    def handles(self) -> list[torch.Tensor]:
        """Megatron's mains. Each is empty, always."""
        return [shard.main for shard in self.shards if not shard.native_fp32]

    def check_handles(self) -> None:
        for shard in self.shards:
            if not shard.native_fp32 and shard.main.numel() and not is_handle(shard.main):
                raise StateError(
                    f"{shard.key}: somebody gave the main parameter memory; its values are in the "
                    "store and what was written there is lost",
                    code=abi.E_STATE,
                    field=shard.key,
                )
