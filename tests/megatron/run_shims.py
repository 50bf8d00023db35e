"""On a rank: that the CPU shims really reduce. A shim that only queues its collective leaves every
rank with its own gradients, and no comparison of two such runs can see it.

    python run_shims.py
"""

from __future__ import annotations

import dataclasses

import job

RANK = job.start()

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from cases import CASES  # noqa: E402
from models import data, loss_of  # noqa: E402
from training import Run  # noqa: E402


def reduced(run: Run) -> dict[str, torch.Tensor]:
    """The reduced gradient of every parameter, put together from the parts that ranks own."""
    run.gradients()
    found = {}
    for number, chunk in enumerate(run.chunks):
        names = {parameter: name for name, parameter in chunk.named_parameters()}
        for buffer in chunk.buffers:
            for bucket in buffer.buckets:
                size = bucket.grad_data.numel() // dist.get_world_size()
                own = bucket.grad_data[RANK * size : (RANK + 1) * size].float().clone()
                parts = [torch.empty_like(own) for _ in range(dist.get_world_size())]
                dist.all_gather(parts, own)
                whole = torch.cat(parts)
                for parameter in bucket.params_list:
                    begin, end, _ = buffer.param_index_map[parameter]
                    part = whole[begin - bucket.offset : end - bucket.offset]
                    found[f"{number}.{names[parameter]}"] = part
    return found


def by_hand(run: Run) -> dict[str, torch.Tensor]:
    """The same from plain autograd: every rank's batch, summed here."""
    module, totals = run.chunks[0].module, {}
    names = {parameter: name for name, parameter in run.chunks[0].named_parameters()}
    parameters = list(module.parameters())
    for rank in range(dist.get_world_size()):
        source = torch.Generator().manual_seed(rank)
        batch = torch.randn(5, 67, generator=source).to(run.case.torch_dtype)
        gradients = torch.autograd.grad(loss_of(run.case, [module], batch), parameters)
        for parameter, gradient in zip(parameters, gradients, strict=True):
            name = f"0.{names[parameter]}"
            value = gradient.float().view(-1) / dist.get_world_size()
            totals[name] = totals[name] + value if name in totals else value
    return totals


job.lay_out()
plain = dataclasses.replace(CASES["net"], bucket_size=4000)
run = Run.start(plain)
hand = by_hand(run)
mine = reduced(run)
assert all(part.abs().sum() > 0 for part in hand.values()), "a parameter has no gradient"
assert hand.keys() == mine.keys()
for name, part in hand.items():
    torch.testing.assert_close(mine[name], part, rtol=1e-6, atol=1e-9)

# Each rank's own gradient is something else: the comparison above can fail.
batch = data(plain, 0, 0)
alone = torch.autograd.grad(
    loss_of(plain, [run.chunks[0].module], batch), list(run.chunks[0].module.parameters())
)
everyone: list[object] = [None] * dist.get_world_size()
dist.all_gather_object(everyone, [float(g.float().sum()) for g in alone])
assert everyone[0] != everyone[1], "the ranks have the same batch"

half = reduced(Run.start(dataclasses.replace(plain, fp32_grads=False)))
assert any(not torch.equal(half[name], mine[name]) for name in mine), (
    "bf16 buffers hold fp32 values"
)

over = Run.start(dataclasses.replace(plain, overlap=True))
assert len(over.chunks[0].bucket_groups) > 1, "one bucket: nothing can overlap"
over_parts = reduced(over)
same = Run.start(dataclasses.replace(plain))
for name, part in reduced(same).items():
    assert torch.equal(over_parts[name], part), name
for _ in range(3):
    over.advance()
    same.advance()
assert over.digests == same.digests, "overlapped differs from not overlapped"

# Parameters are equal on all ranks after the gather, and have moved.
digests: list[object] = [None] * dist.get_world_size()
dist.all_gather_object(digests, same.digests)
assert digests[0] == digests[1]
assert len(set(same.digests)) == len(same.digests)
if RANK == 0:
    print(
        f"reduced = by hand for {len(hand)} parameters; bf16 differs; overlapped = not overlapped"
    )
