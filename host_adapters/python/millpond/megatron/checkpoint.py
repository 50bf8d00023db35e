"""Checkpoints at Megatron's seam: `megatron.core.dist_checkpointing.save` and `load`, which
training calls as attributes of the module in every release.

A state dict that holds our markers is a save or load of streamed state; anything else passes. Saves
go to `<checkpoint>/nvme_opt_state/<save id>/`, after Megatron's own `save` has returned; the commit
is a collective in the finalizer, so that the tracker file can name no checkpoint that a rank failed
to commit. All of it on every rank, also on one without a store.
"""

from __future__ import annotations

import functools
import logging
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .. import abi
from ..errors import CheckpointError, MillpondError, StateError
from . import markers, reference
from .grouping import apply_groups
from .layout import why_absent

LOG = logging.getLogger("millpond.megatron")
DIRECTORY = "nvme_opt_state"
POLICIES = ("error", "init_from_model")
REST = "millpond_rest"  # in a state dict under way: markers of ranks that are not there
FROM_MODEL, IMPORTED = "from_model", "imported"  # in the place of a save's id


class Checkpoints:
    """`session`: the streamed optimizers. `without_state`: what a load does with a checkpoint that
    has no streamed state: "error", or "init_from_model" (mains from the loaded parameters, steps
    0)."""

    def __init__(self, session: Any, without_state: str = "error"):
        if without_state not in POLICIES:
            raise MillpondError(f"without_state is one of {POLICIES}", field="without_state")
        self._session = session
        self._without_state = without_state
        self._asked: str = ""  # a state dict that was given out and has not come to a hook yet
        self._saving: str = ""  # a save id between begin and commit
        self._restored: str = ""  # the save that the stores have installed
        self._to_apply: set[str] = set()  # members whose load_state_dict has not been called yet
        self._originals: tuple[Any, Any] | None = None

    # ---- hooks

    def hook(self) -> None:
        from megatron.core import dist_checkpointing

        save, load = dist_checkpointing.save, dist_checkpointing.load
        self._originals = save, load
        dist_checkpointing.save = functools.wraps(save)(functools.partial(self._save, save))
        dist_checkpointing.load = functools.wraps(load)(functools.partial(self._load, load))

    def unhook(self) -> None:
        from megatron.core import dist_checkpointing

        if self._originals is not None:
            dist_checkpointing.save, dist_checkpointing.load = self._originals
            self._originals = None

    def before_step(self) -> None:
        """No training goes on over a save or load that has lost the optimizer state."""
        if self._asked:
            raise StateError(
                f"a state dict for a {self._asked} was made, and megatron.core.dist_checkpointing."
                f"{self._asked} was not called with it, or failed: the optimizer state is not "
                "in that checkpoint, or not loaded. Use --ckpt-format torch_dist.",
                code=abi.E_STATE,
            )
        if self._to_apply:
            raise StateError(
                f"the checkpoint's optimizer state was loaded, and load_state_dict of "
                f"{sorted(self._to_apply)} was not called: learning rates and steps would be "
                "others.",
                code=abi.E_STATE,
            )

    # ---- state dicts

    def sharded_state(
        self, member: Any, model_sharded_state_dict: Any = None, is_loading: bool = False,
        *_: Any, **__: Any,
    ) -> dict[str, Any]:  # fmt: skip
        """For a member of the chain; its groups, step and grad scaler travel in the marker."""
        self._asked = "load" if is_loading else "save"
        data = {"uid": member.uid, "save": "", "step": member.steps, **member.state_dict()}
        return {markers.ENTRY: markers.marker_of(member.uid, data)}

    def stub_state(self, uid: str, is_loading: bool) -> dict[str, Any]:
        """For a rank without state, so that it takes part."""
        self._asked = "load" if is_loading else "save"
        return {markers.ENTRY: markers.marker_of(uid, {"uid": uid, "save": ""})}

    def load_member(self, member: Any, state_dict: dict[str, Any]) -> None:
        """Bytes are installed already, by the hook; this brings groups, steps and the scaler."""
        entry = state_dict.get(markers.ENTRY) if isinstance(state_dict, dict) else None
        if not isinstance(entry, dict) or not self._restored:
            raise CheckpointError(
                f"{member.uid}: this optimizer state was not loaded through "
                "megatron.core.dist_checkpointing.load with streamed state: the values of mains "
                "and moments are not in it. Use --ckpt-format torch_dist, or --no-load-optim.",
                code=abi.E_MISSING,
            )
        if entry["save"] != self._restored:
            raise CheckpointError(
                f"{member.uid}: the state dict names the save {entry['save']}, the stores have "
                f"{self._restored}: load the checkpoint again",
                code=abi.E_MISMATCH,
            )
        if self._restored == FROM_MODEL:
            member.restart_from_model()
        if "optimizer" in entry:
            apply_groups(member.inner.param_groups, entry["optimizer"]["param_groups"])
            scaler = member.optimizer.grad_scaler
            if scaler and "grad_scaler" in entry:
                scaler.load_state_dict(entry["grad_scaler"])
        member.read_steps(without_shards=entry.get("step", 0))
        self._to_apply.discard(member.uid)

    # ---- save

    def _save(
        self, original: Callable[..., Any], state: Any, directory: Any, *args: Any, **kw: Any
    ) -> Any:
        found = list(markers.markers_in(state))
        if not found:
            return original(state, directory, *args, **kw)
        session = self._session
        if self._saving:
            raise StateError(
                f"save to {directory}: the asynchronous save before it is not finalized",
                code=abi.E_BUSY,
            )
        save_id = session.ranks.broadcast_object(secrets.token_hex(16))
        for marker in found:
            marker.data["save"] = save_id
        request = original(state, directory, *args, **kw)
        self._asked = ""
        base = Path(str(directory)) / DIRECTORY
        session.runtime.save_begin(base, session.ranks.group, save_id)
        self._saving = save_id
        failure = self._write(base, save_id)
        commit = functools.partial(self._commit, save_id, failure)
        if request is None:
            commit()
            return None
        request.finalize_fns.append(commit)
        return request

    def _write(self, base: Path, save_id: str) -> BaseException | None:
        """Each store's part. A failure is a vote in the commit, which every rank waits for."""
        try:
            for member in self._session.members():
                member.store.save(base, abi.IO_BACKGROUND, save_id, member.stream)
        except MillpondError as failure:
            LOG.error("save %s: %s", save_id, failure)
            return failure
        return None

    def _commit(self, save_id: str, failure: BaseException | None) -> None:
        """Collective. Raises on every rank where any has failed."""
        session, self._saving = self._session, ""
        try:
            session.runtime.save_commit(save_id, session.ranks.group)
        except MillpondError as verdict:
            raise verdict from failure
        LOG.info("save %s is committed", save_id)

    # ---- load

    def _load(
        self, original: Callable[..., Any], state: Any, directory: Any, *args: Any, **kw: Any
    ) -> Any:
        asked = list(markers.markers_in(state))
        if not asked:
            return original(state, directory, *args, **kw)
        base, ranks = Path(str(directory)) / DIRECTORY, self._session.ranks
        present = markers.keys_in_checkpoint(str(directory))
        missing = markers.retarget(asked, present)
        if len(missing) == len(asked):
            if reference.is_there(base):
                return self._import(base, original, state, directory, *args, **kw)
            if self._without_state == "init_from_model":
                return self._without(FROM_MODEL, original, state, directory, *args, **kw)
        if missing:
            raise CheckpointError(
                f"{directory} has no streamed optimizer state for {sorted(missing)}: it was "
                "written "
                "without Millpond or by another arrangement of optimizers. Use --no-load-optim, "
                "or enable(without_state='init_from_model') to begin with mains made from the "
                "loaded parameters and steps 0.",
                code=abi.E_MISSING,
            )
        keys = ranks.gather_objects([one.key for one in asked])
        markers.share(asked, keys, ranks.rank)
        rest = markers.unclaimed(present, keys) if ranks.rank == 0 else {}
        loaded = original(state | {REST: rest} if rest else state, directory, *args, **kw)
        plain = loaded[0] if isinstance(loaded, tuple) else loaded
        plain.pop(REST, None)
        entries = list(markers.entries_in(plain))
        if not entries:
            raise CheckpointError(
                f"{directory}: the load came back without the optimizer state that it was asked "
                "for; training would go on from zero.",
                code=abi.E_MISSING,
            )
        self._install(base, markers.save_id_of(entries, str(directory)))
        return loaded

    def _install(self, base: Path, save_id: str) -> None:
        """Verified on all ranks first, then on all stores or none. Collective."""
        session, refused = self._session, None
        for member in session.members():
            try:
                flags = abi.IO_STAGE | abi.IO_KEEP_MODEL
                member.store.load(base, flags, save_id, member.stream)
            except MillpondError as failure:
                refused = why_absent(failure, member.optimizer)
                LOG.error("load of %s: %s", save_id, refused)
                break
        try:
            session.runtime.load_commit(session.ranks.group)
        except MillpondError as verdict:
            raise refused or verdict from verdict
        self._installed(save_id)

    def _installed(self, name: str) -> None:
        self._asked, self._restored = "", name
        self._to_apply = {member.uid for member in self._session.members()}
        LOG.info("optimizer state of save %s is installed", name)

    def _import(self, base: Path, original: Callable[..., Any], *args: Any, **kw: Any) -> Any:
        """A checkpoint of the Python store: everything but the optimizer is Megatron's, the state
        comes from that store's files. Nothing is written unless every rank's are whole.
        Collective."""
        session, refusal, stores = self._session, None, []
        try:
            stores = reference.stores_of(session.members(), base, session.options)
        except (MillpondError, OSError) as failure:
            refusal = failure
        session.ranks.share_failure(f"import of {base}", refusal)
        steps = max(session.ranks.gather_objects(max((one.steps for one in stores), default=0)))
        loaded = self._without(IMPORTED, original, *args, steps=steps, **kw)
        self._asked = "load"  # a step now would be one without the state
        try:
            for store in stores:
                store.install()
        except (MillpondError, OSError) as failure:
            refusal = failure
        session.ranks.share_failure(f"import of {base}", refusal)
        self._installed(IMPORTED)
        return loaded

    def _without(
        self, name: str, original: Callable[..., Any], state: Any, *args: Any, steps: int = 0,
        **kw: Any,
    ) -> Any:  # fmt: skip
        """A checkpoint whose optimizer part Megatron cannot load: everything else is loaded. From
        before streaming (FROM_MODEL), mains are made from the parameters when the optimizer's part
        is applied."""
        rest = {key: value for key, value in state.items() if not any(markers.markers_in(value))}
        loaded = original(rest, *args, **kw)
        if name == FROM_MODEL:
            LOG.warning("no streamed optimizer state there: mains from the parameters, steps 0")
        plain = loaded[0] if isinstance(loaded, tuple) else loaded
        for key, value in state.items():
            if key not in rest:
                plain[key] = _named(value, {"save": name, "step": steps})
        self._installed(name)
        return loaded


def _named(value: Any, entry: dict[str, Any]) -> Any:
    """The optimizer's part of a state dict with markers replaced by `entry`."""
    if any(True for _ in markers.markers_in([value])) and hasattr(value, "replica_id"):
        return dict(entry)
    if isinstance(value, dict):
        return {key: _named(one, entry) for key, one in value.items()}
    return value
