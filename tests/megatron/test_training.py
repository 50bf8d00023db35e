"""Real Megatron on gloo ranks: streamed gives the bits of resident."""

from __future__ import annotations

import hashlib
import os

import pytest
import ranks

NEWEST = "0.16.1"
RELEASES = ("0.10.0", "0.13.1", NEWEST)
SMALL = (
    "net,net_bf16_grads,net_overlapped,net_overlapped_bf16,net_chunks,net_chunks_overlapped,"
    "net_native_fp32,net_padding,net_found_inf,net_fp16,net_unclipped"
)
GPT = "gpt,gpt_overlapped,gpt_tp2,gpt_experts"


def need(release: str) -> None:
    if ranks.core_path(release) is None:
        pytest.skip(
            f"no megatron-core {release}: pip install --no-deps --target DIR/{release} "
            f"megatron-core=={release}, and MILLPOND_MEGATRON=DIR"
        )


def run(release: str, *arguments: str, size: int = 2) -> str:
    """What rank 0 of `size` ranks printed; all must end well."""
    need(release)
    done = ranks.launch(release, list(arguments), size)
    for rank, one in enumerate(done):
        assert one.returncode == 0, (
            f"rank {rank} ended with {one.returncode}:\n{one.stdout[-6000:]}"
        )
    return done[0].stdout


def digest() -> str:
    with open(os.environ["MILLPOND_PLUGIN"], "rb") as plugin:
        return hashlib.sha256(plugin.read()).hexdigest()


@pytest.mark.parametrize("release", RELEASES[1:])
def test_the_shims_really_reduce(release: str) -> None:
    assert "reduced = by hand" in run(release, "run_shims.py")


@pytest.mark.parametrize("release", RELEASES)
def test_20_steps_have_the_bits_of_the_resident_run(release: str) -> None:
    """One plugin file for all releases, the same before and after."""
    before = digest()
    cases = f"{SMALL},{GPT}"
    if release == "0.10.0":  # its local experts are Transformer Engine's
        cases = cases.removesuffix(",gpt_experts")
    output = run(release, "run_training.py", "20", cases)
    for case in cases.split(","):
        assert f"{case}: 20 steps" in output
    assert digest() == before
