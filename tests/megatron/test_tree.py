# ruff: noqa: SIM905
"""A full Megatron-LM source tree, outside this one: its `pretrain` with its own arguments,
checkpointing, timers and writers. MILLPOND_MEGATRON_LM names the tree; without it all is skipped.

    MILLPOND_MEGATRON_LM=.../Megatron-LM MILLPOND_PLUGIN=.../libmillpond.so pytest test_tree.py
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ranks

TREE = os.environ.get("MILLPOND_MEGATRON_LM", "")
if not TREE or not (Path(TREE) / "megatron" / "training").is_dir():
    pytest.skip(
        "no Megatron-LM source tree: MILLPOND_MEGATRON_LM=DIR, a checkout of one of the releases "
        "in ARCHITECTURE.md's table",
        allow_module_level=True,
    )
HAVE_WANDB = importlib.util.find_spec("wandb") is not None
COMMON = """--num-layers 2 --hidden-size 32 --ffn-hidden-size 64 --num-attention-heads 4
 --seq-length 16 --max-position-embeddings 16 --position-embedding-type learned_absolute
 --micro-batch-size 2 --global-batch-size 4 --train-iters 8 --lr 1e-2 --min-lr 1e-2
 --lr-decay-style constant --weight-decay 0.1 --bf16 --use-distributed-optimizer
 --transformer-impl local --no-masked-softmax-fusion --no-bias-gelu-fusion
 --no-bias-swiglu-fusion --no-bias-dropout-fusion --no-gradient-accumulation-fusion
 --no-persist-layer-norm --no-rope-fusion --attention-dropout 0 --hidden-dropout 0
 --use-cpu-initialization --tokenizer-type NullTokenizer --vocab-size 255
 --distributed-backend gloo --eval-iters 0 --eval-interval 1000 --log-interval 1
 --logging-level 20 --timing-log-level 1 --num-workers 0""".split()


class Job:
    """Runs of two ranks in one folder."""

    def __init__(self, base: Path):
        self.base = base
        (base / "scratch").mkdir()
        self.checkpoints = base / "checkpoints"

    def run(self, name: str, *more: str, streamed: bool = True, good: bool = True,
            **variables: str) -> list[str]:  # fmt: skip
        """What the ranks printed."""
        own = ["--stream-optimizer-state-to-disk", "--stream-optimizer-state-dir",
               str(self.base / "scratch"), "--stream-optimizer-state-host-memory",
               "0.0625"]  # fmt: skip
        format_ = [] if "--ckpt-format" in more else ["--ckpt-format", "torch_dist"]
        arguments = [*COMMON, *format_, *(own if streamed else []), *more]
        done = ranks.launch(
            Path(TREE), ["run_tree.py", str(self.base / name), *arguments], **variables
        )
        said = [
            f"{name}, rank {rank}, {one.returncode}:\n{one.stdout[-6000:]}"
            for rank, one in enumerate(done)
            if (one.returncode == 0) != good
        ]
        assert not said, "\n".join(said)
        return [one.stdout for one in done]

    def figures(self, name: str, rank: int = 0) -> dict[str, Any]:
        return dict(json.loads((self.base / f"{name}.{rank}").read_text()))

    def steps(self, *names: str) -> None:
        """That runs had the same losses and parameters, rank by rank, where they overlap at the
        end."""
        for rank in (0, 1):
            first, *others = (self.figures(name, rank) for name in names)
            for other in others:
                for key, values in other.items():
                    assert values and values == first[key][-len(values) :], (names, rank, key)


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    """A resident run, and a streamed one that saved after iterations 5 and 8."""
    made = Job(tmp_path_factory.mktemp("tree"))
    made.run("resident", streamed=False)
    board = ["--tensorboard-dir", str(made.base / "board"), "--log-timers-to-tensorboard"]
    if HAVE_WANDB:
        board += ["--wandb-project", "p", "--wandb-exp-name", "n", "--wandb-save-dir",
                  str(made.base / "wandb")]  # fmt: skip
    printed = made.run("streamed", "--save", str(made.checkpoints), "--save-interval", "5", *board,
                       WANDB_MODE="offline", WANDB_SILENT="true")  # fmt: skip
    (made.base / "printed").write_text(printed[1])
    return made


def back_to(job: Job, iteration: int) -> list[str]:
    (job.checkpoints / "latest_checkpointed_iteration.txt").write_text(str(iteration))
    return ["--load", str(job.checkpoints)]


def test_streamed_is_resident(job: Job) -> None:
    assert len(job.figures("resident")["params"]) == 8
    job.steps("resident", "streamed")
    for iteration in (5, 8):
        saves = list(job.checkpoints.glob(f"iter_{iteration:07d}/nvme_opt_state/*/COMMIT.json"))
        assert len(saves) == 1


def test_timers_and_lines_are_printed(job: Job) -> None:
    printed = (job.base / "printed").read_text()
    assert "streamed-optimizer-step" in printed and "optimizer-inner-step" in printed
    assert printed.count("streamed step ") == 8 and "mains only" in printed


def test_the_tensorboard_writer_has_every_iteration(job: Job) -> None:
    accumulator = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator",
        reason="tensorboard is not installed, so Megatron has no writer",
    )
    events = accumulator.EventAccumulator(str(job.base / "board"))
    events.Reload()
    for name in ("streamed-optimizer/step-seconds", "streamed-optimizer/wait-fetch-seconds"):
        assert [event.step for event in events.Scalars(name)] == [*range(1, 9)]
    assert max(event.value for event in events.Scalars("streamed-optimizer/step-seconds")) > 0


def records(path: Path) -> Iterator[bytes]:
    """Of an offline run: LevelDB's log format (blocks of 32 KiB, each chunk behind a checksum, a
    length and whether it is a whole record, 1, or its end, 4) after a header of 7 bytes."""
    data, at, whole = path.read_bytes(), 7, b""
    while at + 7 <= len(data):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        _, size, kind = struct.unpack_from("<IHB", data, at)
        whole += data[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):
            yield whole
            whole = b""


@pytest.mark.skipif(not HAVE_WANDB, reason="wandb is not installed, so Megatron has no writer")
def test_the_wandb_writer_has_every_iteration(job: Job) -> None:
    """Offline, on the last rank, where Megatron makes one."""
    from wandb.proto.wandb_internal_pb2 import Record

    (path,) = (job.base / "wandb").rglob("run-*.wandb")
    name, seconds = "streamed-optimizer/step-seconds", {}
    for one in map(Record.FromString, records(path)):
        items = {"/".join(i.nested_key) or i.key: i.value_json for i in one.history.item}
        if name in items:
            seconds[one.history.step.num] = float(items[name])
    assert list(seconds) == [*range(1, 9)], seconds
    assert min(seconds.values()) > 0


def test_a_resume_goes_on_with_the_same_bits(job: Job) -> None:
    job.run("resumed", *back_to(job, 5))
    assert len(job.figures("resumed")["params"]) == 3
    job.steps("resident", "resumed")


def test_an_asynchronous_save_resumes_as_well(job: Job) -> None:
    target = job.base / "async"
    job.run("async", "--save", str(target), "--save-interval", "5", "--async-save")
    job.steps("resident", "async")
    (target / "latest_checkpointed_iteration.txt").write_text("5")
    job.run("async_resumed", "--load", str(target))
    job.steps("resident", "async_resumed")


@pytest.mark.parametrize("option", ["--no-load-optim", "--finetune"])
def test_weights_alone_begin_with_new_moments(job: Job, option: str) -> None:
    name = option.strip("-")
    job.run(name, *back_to(job, 5), option)
    got, wanted = job.figures(name), job.figures("resident")
    assert got["params"][0] == wanted["params"][5], "not the loaded parameters"
    assert got["params"][2] != wanted["params"][7], "the moments were loaded"


def test_a_release_checkpoint_begins_with_new_moments(job: Job) -> None:
    """Which is what Megatron calls weights without iterations."""
    target = job.base / "released"
    shutil.copytree(job.checkpoints / "iter_0000005", target / "release")
    (target / "latest_checkpointed_iteration.txt").write_text("release")
    job.run("release", "--load", str(target))
    got, wanted = job.figures("release"), job.figures("resident")
    assert got["params"][0] == wanted["params"][5], "not the loaded parameters"
    assert got["params"][2] != wanted["params"][7], "the moments were loaded"


def test_a_checkpoint_from_before_streaming_is_refused(job: Job) -> None:
    target = job.base / "before"
    job.run("before", "--save", str(target), "--save-interval", "8", streamed=False)
    for text in job.run("after", "--load", str(target), good=False):
        assert "has no streamed optimizer state" in text or "rank" in text
    job.run("after_weights", "--load", str(target), "--no-load-optim", "--train-iters", "9")


def test_the_legacy_format_is_refused_at_start_up(job: Job) -> None:
    for text in job.run("legacy", "--ckpt-format", "torch", good=False):
        assert "--ckpt-format" in text and "torch_dist" in text
        assert "initializing torch distributed" not in text


def test_an_argument_that_is_rewritten_is_judged_at_the_first_step(job: Job) -> None:
    changed = {"MILLPOND_CHANGE_ARGUMENT": "log_params_norm"}
    for text in job.run("rewritten", good=False, **changed):
        assert "log_params_norm" in text, text[-3000:]
    assert len(job.figures("rewritten")["params"]) == 1, "a step was taken"
