"""Whole processes that test_life.py looks at from outside."""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
from typing import Any

import millpond
import millpond.torch
import torch
from processes import dump_when_late


def optimizer_of(scratch: str, elements: int = 400_000, **options: Any) -> tuple[Any, Any]:
    torch.manual_seed(1)
    parameter = torch.nn.Parameter(torch.randn(elements).bfloat16())
    optimizer = millpond.torch.AdamW(
        [parameter], lr=1e-2, scratch=scratch, exact="off", host_memory_bytes=4 << 20,
        options={"tile_elements": 4096, "block_elements": 4096} | options,
    )  # fmt: skip
    return parameter, optimizer


def gradient(parameter: Any, step: int) -> None:
    generator = torch.Generator().manual_seed(step)
    parameter.grad = torch.randn(parameter.shape, generator=generator).bfloat16()


def interrupts(scratch: str) -> None:
    """50 signals at random moments of steps: KeyboardInterrupt once each, the step is whole."""
    parameter, optimizer = optimizer_of(scratch)
    mirror, other = optimizer_of(scratch)
    gradient(parameter, 0)
    begin = time.perf_counter()
    optimizer.step()
    optimizer.step()
    length = (time.perf_counter() - begin) / 2
    for _ in range(2):
        mirror.grad = parameter.grad
        other.step()
    arrived = 0
    moments = random.Random(20)
    for step in range(1, 51):
        gradient(parameter, step)
        mirror.grad = parameter.grad
        delay = moments.uniform(0, length)
        timer = threading.Timer(delay, os.kill, (os.getpid(), signal.SIGINT))
        here = 0
        try:
            timer.start()
            optimizer.step()
            timer.join()
            for _ in range(100):
                pass
        except KeyboardInterrupt:
            here += 1
        try:
            timer.join()
            time.sleep(0.001)
        except KeyboardInterrupt:
            here += 1
        assert here == 1, (step, here)
        arrived += here
        taken = int(optimizer.state[parameter]["step"])
        if taken == step + 1:
            optimizer.step()  # the signal came before the step began
        assert int(optimizer.state[parameter]["step"]) == step + 2
        other.step()
        assert torch.equal(parameter, mirror), step
    assert arrived == 50
    print("whole")


def second_interrupt(scratch: str) -> None:
    """A second Ctrl-C gives the step up and poisons; a load makes it well."""
    parameter, optimizer = optimizer_of(scratch)
    gradient(parameter, 0)
    optimizer.step()
    optimizer.save(scratch + "/../saved")
    calls = [0]

    def twice(what: str, *_: Any) -> bool:
        calls[0] += what == "step"
        if calls[0] in (2, 4):
            os.kill(os.getpid(), signal.SIGINT)
        return False

    optimizer._streamed.store.runtime.callbacks.progress = twice
    try:
        optimizer.step()
    except KeyboardInterrupt as error:
        assert isinstance(error.__context__, millpond.CancelledError), error.__context__
    else:
        raise AssertionError("no KeyboardInterrupt")
    optimizer._streamed.store.runtime.callbacks.progress = None
    try:
        optimizer.step()
    except millpond.PoisonedError:
        pass
    else:
        raise AssertionError("a cancelled step did not poison")
    optimizer.load(scratch + "/../saved")
    optimizer.step()
    print("whole")


def fork(scratch: str) -> None:
    """DataLoader workers forked in mid-training; a child that uses or drops the optimizer."""
    parameter, optimizer = optimizer_of(scratch, 50_000)
    gradient(parameter, 0)
    optimizer.step()
    loader = torch.utils.data.DataLoader(list(range(8)), num_workers=2)
    for step, _ in enumerate(loader):
        gradient(parameter, step)
        optimizer.step()
    child = os.fork()
    if child == 0:
        try:
            optimizer.step()
        except millpond.ForkedError:
            del optimizer
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    optimizer.step()
    print("whole")


def left_alone(scratch: str) -> None:
    """Nothing is closed: the interpreter ends all the same."""
    parameter, optimizer = optimizer_of(scratch)
    gradient(parameter, 0)
    optimizer.step()
    globals()["kept"] = optimizer
    print("whole")


def raises(scratch: str) -> None:
    parameter, optimizer = optimizer_of(scratch)
    gradient(parameter, 0)

    def closure() -> None:
        raise LookupError("the batch is gone")

    optimizer.step()
    optimizer.step(closure)


if __name__ == "__main__":
    # A shell's background job begins with SIGINT ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    dump_when_late()
    globals()[sys.argv[1]](sys.argv[2])
