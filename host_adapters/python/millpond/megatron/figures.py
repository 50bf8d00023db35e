"""What this rank's step has cost: one log line, Megatron's timers, and its TensorBoard and W&B
writers where there are any."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ..abi import StepFigures

LOG = logging.getLogger("millpond.megatron")
STORE_LOG = logging.getLogger("millpond")
STAGES = ("fetch", "upload", "update", "download", "flush")
STEP_TIMER = "streamed-optimizer-step"
TIMERS = (STEP_TIMER, *(f"streamed-optimizer-wait-{stage}" for stage in STAGES))
BESIDE = "optimizer-inner-step"  # Megatron's own timer, in whose company ours are printed
LEVEL = 1  # of ours, as of BESIDE: from --timing-log-level 1 on


class Figures:
    """`arguments`: Megatron's, or None: the iteration's number and how often to write."""

    def __init__(self, arguments: Any = None):
        self._arguments = arguments
        self._offered: Any = None
        self._timers: Any = None
        self._bound: list[tuple[str, Callable[..., Any]]] = []
        STORE_LOG.addFilter(_not_a_step)

    def offer(self, timers: Any) -> None:
        """The timers of a configuration, or None."""
        self._offered = self._offered or timers

    def settle(self, ranks: Any) -> None:
        """At the first step, on all ranks alike, since printing timers is a collective whose names
        must agree. Collective."""
        timers = self._offered or _asked("get_timers", "_GLOBAL_TIMERS")
        if ranks.anywhere(timers is None) or self._timers is not None:
            return
        self._timers = timers
        for name in ("log", "write"):
            original = getattr(timers, name)
            self._bound.append((name, original))
            setattr(timers, name, _with_ours(original))

    def tell(self, members: Sequence[Any], rank: int, mains_only: bool) -> None:
        """After a step that every rank has taken. Nothing on a rank without state."""
        if not members:
            return
        figures = [member.store.last_step() for member in members]
        step = max(member.steps for member in members)
        LOG.info("%s", line_of(figures, step, rank, mains_only))
        self._time(figures)
        self._write(figures, step)

    def close(self) -> None:
        STORE_LOG.removeFilter(_not_a_step)
        while self._bound:
            name, original = self._bound.pop()
            setattr(self._timers, name, original)

    def _time(self, figures: Sequence[StepFigures]) -> None:
        if self._timers is None:
            return
        seconds = [sum(f.seconds for f in figures)]
        seconds += [sum(f.waiting_seconds[i] for f in figures) for i in range(len(STAGES))]
        for name, spent in zip(TIMERS, seconds, strict=True):
            timer = self._timers(name, log_level=LEVEL)
            if hasattr(timer, "_elapsed"):  # not the stand-in for one above the log level
                timer._elapsed += spent

    def _write(self, figures: Sequence[StepFigures], step: int) -> None:
        every = int(getattr(self._arguments, "tensorboard_log_interval", 1) or 1)
        before = getattr(self._arguments, "curr_iteration", None)
        iteration = step if before is None else int(before) + 1
        if iteration % every:
            return
        tensorboard = _asked("get_tensorboard_writer", "_GLOBAL_TENSORBOARD_WRITER")
        wandb = _asked("get_wandb_writer", "_GLOBAL_WANDB_WRITER")
        if tensorboard is None and wandb is None:
            return
        scalars = dict(scalars_of(figures))
        if tensorboard is not None:
            for name, value in scalars.items():
                tensorboard.add_scalar(name, value, iteration)
        if wandb is not None:
            wandb.log(scalars, iteration)


def line_of(figures: Sequence[StepFigures], step: int, rank: int, mains_only: bool) -> str:
    """One line for the stores of a rank together; bounded by the stage that they waited for
    longest."""
    waited = [sum(f.waiting_seconds[i] for f in figures) for i in range(len(STAGES))]
    read = sum(f.bytes_read for f in figures)
    first = " (mains only: there are no moments before the first step)" if mains_only else ""
    waits = " ".join(f"{name} {s:.3f}" for name, s in zip(STAGES, waited, strict=True) if s)
    longest = max(figures, key=lambda f: f.seconds)
    return (
        f"streamed step {step} of rank {rank}: {sum(f.seconds for f in figures):.3f} s, bound by "
        f"{STAGES[min(longest.bound_by, len(STAGES) - 1)]}; read {read / 1e6:.1f} MB{first}, "
        f"written {sum(f.bytes_written for f in figures) / 1e6:.1f} MB, from host memory "
        f"{sum(f.bytes_from_tier for f in figures) / 1e6:.1f} MB; waited for, s: {waits or 'none'}"
    )


def scalars_of(figures: Sequence[StepFigures]) -> Iterator[tuple[str, float]]:
    """Names and values for the writers; bytes in GB of 10^9."""
    yield "streamed-optimizer/step-seconds", sum(f.seconds for f in figures)
    yield "streamed-optimizer/read-GB", sum(f.bytes_read for f in figures) / 1e9
    yield "streamed-optimizer/written-GB", sum(f.bytes_written for f in figures) / 1e9
    yield "streamed-optimizer/from-host-memory-GB", sum(f.bytes_from_tier for f in figures) / 1e9
    for i, stage in enumerate(STAGES):
        yield f"streamed-optimizer/wait-{stage}-seconds", sum(f.waiting_seconds[i] for f in figures)


def _not_a_step(record: logging.LogRecord) -> bool:
    """The plugin's own line for each store is left out: a rank has one line a step."""
    return not record.getMessage().startswith("step ")


def _with_ours(original: Callable[..., Any]) -> Callable[..., Any]:
    """Timers.log or Timers.write that has ours wherever Megatron's inner step is asked for."""

    def listed(names: Any = None, *args: Any, **kwargs: Any) -> Any:
        if names is not None and BESIDE in names:
            names = [*names, *TIMERS]
        return original(names, *args, **kwargs)

    return listed


def _asked(getter: str, variable: str) -> Any:
    """What Megatron's training has set up globally, without importing it. None: not there."""
    module = sys.modules.get("megatron.training.global_vars")
    if module is None or getattr(module, variable, None) is None:
        return None
    return getattr(module, getter)()
