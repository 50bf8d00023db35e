"""On a rank: what is refused around the store, settings that change, and a rank that has nothing
to stream. The oracle is Megatron's resident run."""

from __future__ import annotations

import argparse
import dataclasses
import functools
from pathlib import Path
from typing import Any

import millpond.megatron
import torch
import torch.distributed as dist
from cases import CASES
from core_names import BOUND
from megatron.core import dist_checkpointing, parallel_state
from megatron.core.optimizer import get_megatron_optimizer
from millpond import RefusedError, StateError
from millpond.megatron.readers import PREFIXES, READERS
from models import module_of, optimizer_config
from saving import directory, load, options, refused, save, train
from scenarios_step import inner
from training import Run


def readers(case: str, base: Path) -> None:
    """Every method that would read or write a main is refused by its name, also through the chain;
    so is a step that is none of training's. Nothing has changed afterwards."""
    resident = train(case, 3)
    legacy = base / "legacy"
    torch.save([{}, {}], legacy)
    with millpond.megatron.streamed(**options()) as session:
        run = train(case, 1)
        assert len(session.members()) == 2, "a chain of one delegates"
        for member in session.members():
            own = vars(member.optimizer)
            assert [name for name in BOUND if name not in own] == []
            known = dir(type(member.optimizer))
            names = [n for n in known if n in READERS or n.startswith(PREFIXES)]
            assert "get_parameter_state_dp_zero" in names
            for name in names:
                refused(StateError, name, getattr(member.optimizer, name))
            refused(StateError, "outside Megatron's training step", member.inner.step)
        for through_the_chain in ("save_parameter_state", "load_parameter_state"):
            call = getattr(run.optimizer, through_the_chain)
            refused(StateError, "--ckpt-format torch_dist", lambda call=call: call(str(legacy)))
        run.advance(2)
        assert run.digests == resident.digests and run.norms == resident.norms


def in_order(case: str, _base: Path) -> None:
    """Every member steps, all ranks agree once, and only then a parameter is gathered."""
    with millpond.megatron.streamed(**options()) as session:
        run = train(case, 1)
        seen: list[str] = []

        def noted(name: str, call: Any) -> Any:
            def noting(*args: Any, **kwargs: Any) -> Any:
                seen.append(name)
                return call(*args, **kwargs)

            return noting

        for member in session.members():
            member.step = noted(member.uid[-1], member.step)
        session.runtime.agree = noted("agree", session.runtime.agree)
        for chunk in run.chunks:
            chunk.start_param_sync = noted("gather", chunk.start_param_sync)
        run.advance(1)
        assert seen[:3] == ["0", "1", "agree"] and {*seen[3:]} == {"gather"}, seen


class Other(torch.optim.Adam):
    """An inner optimizer whose class says nothing about its arithmetic."""

    def __init__(self, params: Any, adam_w_mode: bool = True, **kwargs: Any):
        super().__init__(params, **kwargs)


def others(case: str, _base: Path) -> None:
    """Optimizers without sharded state; a setting that is switched on after start-up, before the
    optimizer is built, and before its first step."""
    resident = train(case, 2)
    arguments = argparse.Namespace(log_params_norm=False)
    plain = dataclasses.replace(optimizer_config(CASES[case]), use_distributed_optimizer=False)
    with millpond.megatron.streamed(arguments, **options()):
        for kind, half in (("Float16OptimizerWithFloat16Params", True), ("FP32Optimizer", False)):
            build = functools.partial(
                get_megatron_optimizer, dataclasses.replace(plain, bf16=half), resident.chunks
            )
            assert "--use-distributed-optimizer" in refused(RefusedError, kind, build)
        with inner(Other):
            told = refused(RefusedError, "Other", lambda: Run.start(CASES[case]))
            assert "Adam" in told, told
        arguments.log_params_norm = True
        refused(RefusedError, "log_params_norm", lambda: Run.start(CASES[case]))
    arguments.log_params_norm = False
    with millpond.megatron.streamed(arguments, **options()):
        run = Run.start(CASES[case])
        before = run.digest()
        arguments.log_params_norm = True
        refused(RefusedError, "log_params_norm", lambda: run.advance(1))
        assert run.digest() == before
        arguments.log_params_norm = False
        run.advance(2)
        assert run.digests == resident.digests


def hyperparameters(case: str, base: Path) -> None:
    """R05: all are read in every step. R02: a checkpoint of step 0 takes the counters back to 0."""

    def trained(run: Run) -> list[str]:
        run.advance(2)
        for group in run.optimizer.param_groups:
            group.update(lr=0.02, betas=(0.8, 0.95), eps=1e-3, weight_decay=0.3)
        run.advance(3)
        return run.digests

    resident = trained(Run.start(CASES[case]))
    assert resident != train(case, 5).digests, "the change changes nothing"
    path = directory(base, f"zero_{case}")
    with millpond.megatron.streamed(**options()) as session:
        run = Run.start(CASES[case])
        save(run, path)
        assert trained(run) == resident
        load(run, path)
        for member in session.members():
            assert member.steps == 0
            assert {member.store.counter(i) for i in range(len(member.shards))} <= {0}
        run.advance(2)
        assert run.digests[5:] == resident[:2]


def passing_by(case: str, base: Path) -> None:
    """Nothing of ours is in a checkpoint's folder before Megatron's own save has returned, and
    nothing ever where the state dict has no optimizer of ours."""
    megatrons, seen = dist_checkpointing.save, []

    def looked_at(state: Any, path: str, *args: Any, **kwargs: Any) -> Any:
        made = megatrons(state, path, *args, **kwargs)
        seen.extend(Path(path).glob("nvme_opt_state*"))
        dist.barrier()  # all ranks have looked before one of them goes on
        return made

    dist_checkpointing.save = looked_at
    try:
        with millpond.megatron.streamed(**options()):
            run = train(case, 1)
            whole, weights = directory(base, f"whole_{case}"), directory(base, f"weights_{case}")
            save(run, whole)
            assert list(whole.glob("nvme_opt_state/*/COMMIT.json"))
            model = run.chunks[0].module.sharded_state_dict()
            dist_checkpointing.save({"model": model}, str(weights))
            run.advance(1)
    finally:
        dist_checkpointing.save = megatrons
    assert seen == [], seen
    assert not list(weights.glob("nvme_opt_state*"))


def frozen(case: str, base: Path) -> None:
    """The last pipeline stage trains nothing: its rank steps, agrees, saves and loads with the
    others."""

    def half_frozen(one: Any, config: Any) -> torch.nn.Module:
        return module_of(one, config).requires_grad_(not parallel_state.is_pipeline_last_stage())

    resident = Run.start(CASES[case], make=half_frozen)
    resident.advance(5)
    moved = len(set(resident.digests)) > 1
    assert moved != parallel_state.is_pipeline_last_stage()
    path = directory(base, f"frozen_{case}")
    with millpond.megatron.streamed(**options()) as session:
        run = Run.start(CASES[case], make=half_frozen)
        run.advance(3)
        save(run, path)
        run.advance(2)
        assert run.digests == resident.digests and run.norms == resident.norms
        held = [len(member.shards) for member in session.members()]
    everyone: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, sum(held))
    assert everyone[0] > 0 and everyone[-1] == 0, everyone
    with millpond.megatron.streamed(**options()):
        run = Run.start(CASES[case], seed=99, make=half_frozen)
        load(run, path)
        run.advance(2)
        assert run.digests == resident.digests[3:] and run.norms == resident.norms[3:]
