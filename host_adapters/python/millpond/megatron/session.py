"""What the streamed optimizers of a process share: the runtime, the ranks, the step of a chain."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch.distributed as dist

from .. import __version__, abi
from ..callbacks import Callbacks
from ..errors import ForkedError, MillpondError, StateError
from ..runtime import Runtime
from ..torch.ranks import Ranks
from .checkpoint import Checkpoints
from .features import Feature, features_of
from .figures import Figures
from .member import Member

LOG = logging.getLogger("millpond.megatron")


@dataclass
class Chain:
    """Members that step together, in the order in which Megatron steps them, stubs left out."""

    number: int
    members: list[Member] = field(default_factory=list)
    built: int = 0  # distributed optimizers made for it, stubs counted
    closed: bool = False
    steps: int = 0


class Session:
    """Between `enable` and `disable`. Collective on all ranks: the first optimizer (it makes a gloo
    group) and every step."""

    version = __version__

    def __init__(
        self,
        options: dict[str, Any],
        arguments: Any = None,
        exact: str = "require",
        without_state: str = "error",
    ):
        self.options, self.arguments, self.exact = options, arguments, exact
        self.checkpoints = Checkpoints(self, without_state)
        self.chains: list[Chain] = []
        self.figures = Figures(arguments)
        self.suspended = False
        self._ranks: Ranks | None = None
        self._runtime: Runtime | None = None
        self._evaluated: dict[str, list[Feature]] = {}
        self._owner = os.getpid()

    # ---- what members use

    @property
    def core_version(self) -> str:
        from megatron import core

        return str(getattr(core, "__version__", "unknown"))

    @property
    def scratch(self) -> str:
        """The first scratch directory."""
        given = self.options["scratch"]
        return str(given if isinstance(given, str | os.PathLike) else given[0])

    @property
    def ranks(self) -> Ranks:
        if self._ranks is None:
            group = dist.new_group(backend="gloo") if dist.get_world_size() > 1 else None
            self._ranks = Ranks(group)
        return self._ranks

    @property
    def runtime(self) -> Runtime:
        if self._runtime is None:
            ranks = self.ranks
            callbacks = Callbacks(
                update=self._update, allgather=ranks.allgather if ranks.size > 1 else None
            )
            self._runtime = Runtime(self.options, callbacks)
        return self._runtime

    def features(self, optimizer: Any) -> list[Feature]:
        return features_of(optimizer, self.arguments)

    def members(self) -> list[Member]:
        return [member for chain in self.chains for member in chain.members]

    def _update(self, piece: abi.UpdatePiece) -> None:
        """The arithmetic "host/1": the member's inner optimizer on a piece."""
        uid = piece.uid.text()
        next(member for member in self.members() if member.uid == uid).host.update(piece)

    # ---- construction

    def _open_chain(self) -> Chain:
        if not self.chains or self.chains[-1].closed:
            self.chains.append(Chain(len(self.chains)))
        return self.chains[-1]

    def adopt(self, optimizer: Any) -> None:
        """A DistributedOptimizer was made, possibly a stub. Collective the first time."""
        chain = self._open_chain()
        rank = self.ranks.rank
        place = chain.built
        chain.built += 1
        uid = f"rank{rank:05d}/opt{chain.number}_{place}"
        self.figures.offer(getattr(getattr(optimizer, "config", None), "timers", None))
        if getattr(optimizer, "is_stub_optimizer", False):
            self._join_as_stub(optimizer, uid, chain, first=place == 0)
            return
        member = Member(self, optimizer, uid)
        self._evaluated[member.uid] = self.features(optimizer)
        chain.members.append(member)
        LOG.info("%s: %d shards in %s", member.uid, len(member.shards), self.options["scratch"])

    def close_chain(self, chained: Any) -> None:
        """A ChainedOptimizer was made of what was built since the last one."""
        chain = self._open_chain()
        _ = self.ranks
        chain.closed = True
        order = {id(one): place for place, one in enumerate(_flattened(chained))}
        chain.members.sort(key=lambda member: order.get(id(member.optimizer), len(order)))
        if not chained.chained_optimizers:
            uid = f"rank{self.ranks.rank:05d}/opt{chain.number}_0"
            self._join_as_stub(chained, uid, chain, first=True)

    def _join_as_stub(self, optimizer: Any, uid: str, chain: Chain, first: bool) -> None:
        """A rank without state still says that it is well before it gathers, and joins in saves
        and loads. `first`: of several stubs of a chain one speaks."""
        original = optimizer.step_with_ready_grads

        def step_with_ready_grads() -> Any:
            if first and not chain.members:
                self._step_all(chain, [])
            return original()

        def sharded_state_dict(*_: Any, is_loading: bool = False, **__: Any) -> dict[str, Any]:
            return self.checkpoints.stub_state(uid, is_loading)

        optimizer.step_with_ready_grads = step_with_ready_grads
        optimizer.sharded_state_dict = sharded_state_dict
        optimizer.load_state_dict = lambda _state: None

    # ---- a step

    def step_chain(self, first: Member) -> None:
        """All members of the first one's chain, then every rank agrees, all before any gather."""
        if os.getpid() != self._owner:
            raise ForkedError(
                "step: this is a forked child of the process that built the optimizer; only the "
                "parent may step",
                code=abi.E_FORKED,
            )
        chain = next(chain for chain in self.chains if first in chain.members)
        self._step_all(chain, chain.members if chain.closed else [first])

    def _step_all(self, chain: Chain, members: Sequence[Member]) -> None:
        """Collective. What a rank refuses beforehand is raised on all, and every store stays as it
        was; a failure while a step is applied is raised on all too, and poisons their stores."""
        self._check(chain, members)
        fresh = [member for member in members if member.steps == 0]
        failure: BaseException | None = None
        try:
            for member in members:
                member.step()
        except BaseException as raised:
            failure = raised
        self._agree(failure, members)
        chain.steps += 1
        for member in members:
            member.note_taken()
        self.figures.tell(members, self.ranks.rank, mains_only=len(fresh) == len(members))

    def _check(self, chain: Chain, members: Sequence[Member]) -> None:
        """Everything that can be refused without having applied anything, on all ranks or none."""
        refusal: BaseException | None = None
        try:
            if self.suspended:
                raise StateError("step: suspended: call resume() first", code=abi.E_STATE)
            self.checkpoints.before_step()
            if chain.steps == 0:
                self._judge_again(members)
            for member in members:
                member.check()
        except BaseException as raised:
            refusal = raised
        if self.ranks.anywhere(refusal is not None):
            self.ranks.share_failure("step (nothing was changed)", refusal)
        if chain.steps == 0 and chain.number == 0:
            self.figures.settle(self.ranks)

    def _judge_again(self, members: Sequence[Member]) -> None:
        """Megatron and trainers rewrite their arguments after parsing: what is on at the first step
        counts."""
        for member in members:
            now = self.features(member.optimizer)
            if now != self._evaluated[member.uid]:
                self._evaluated[member.uid] = []  # a refused bind leaves the store without one
                member.bind()
                self._evaluated[member.uid] = now

    def _agree(self, failure: BaseException | None, members: Sequence[Member]) -> None:
        if failure is not None and self.ranks.size > 1:
            for member in members[:1]:
                member.fail()
        if self.ranks.size > 1:
            try:
                self.runtime.agree(self.ranks.group)
            except MillpondError:
                if failure is None:
                    raise
        if failure is not None:
            raise failure

    # ---- phases

    def suspend(self, host_tier: bool = False) -> None:
        """phase/1: gives memory back to whoever uses the device between steps."""
        self.require_open("suspend")
        phase = self.runtime.plugin.extension("phase/1", abi.ExtPhase)
        self.runtime.call(phase.suspend, self.runtime.handle, 1 if host_tier else 0)
        self.suspended = True

    def resume(self, _tag: str | None = None) -> None:
        """Takes it again. With pause, what a memory saver calls: register the session with it."""
        self.require_open("resume")
        phase = self.runtime.plugin.extension("phase/1", abi.ExtPhase)
        self.runtime.call(phase.resume, self.runtime.handle)
        self.suspended = False

    def pause(self, _tag: str | None = None) -> None:
        """suspend, the host tier too, under the name that a memory saver calls."""
        self.suspend(host_tier=True)

    def close(self) -> None:
        """Stores and scratch files go. The optimizers cannot step afterwards."""
        self.figures.close()
        runtime, self._runtime = self._runtime, None
        if runtime is not None:
            runtime.close()
        self.chains.clear()

    def require_open(self, what: str) -> None:
        if self._runtime is None:
            raise StateError(f"{what}: no optimizer was built yet", code=abi.E_STATE)


def _flattened(optimizer: Any) -> list[Any]:
    inner = getattr(optimizer, "chained_optimizers", None)
    if inner is None:
        return [optimizer]
    return [one for part in inner for one in _flattened(part)]
