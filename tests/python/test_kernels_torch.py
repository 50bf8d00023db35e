"""The CPU variants against the real torch optimizers, bit by bit.

tests/kernels/CMakeLists.txt runs this file once as torch comes, and again with torch's and MKL's
code limited to AVX2, each in a process of its own, since both choose their code when they start.
"""

import ctypes
import os

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed for this Python")

from kernels_shim import AVX2, AVX512, BF16, PORTABLE, Hyper, Kernels  # noqa: E402

STEPS = 100
LARGE = 1_048_576 + 5
SMALL_SIZES = [1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 31, 249, 250, 255, 256, 257, 263, 511, 4101]

pytestmark = pytest.mark.skipif(
    torch.backends.cpu.get_cpu_capability() == "DEFAULT",
    reason="without AVX2 torch's kernels have no FMA: another arithmetic, served by host/1",
)


def square_root_is_ieee() -> bool:
    """What the adapter's probe finds out: whether torch.sqrt is correctly rounded."""
    values = torch.rand(1 << 16, generator=torch.Generator().manual_seed(3))
    return bool(np.array_equal(torch.sqrt(values).numpy(), np.sqrt(values.numpy())))


def variant_of(path: str) -> str:
    if path == "fused":
        return "torch_cpu_fused/1"
    return "torch_cpu_foreach/1" if square_root_is_ieee() else "torch_cpu_foreach_mkl/1"


def optimizer_of(path: str, hyper: Hyper, parameters):
    kind = torch.optim.AdamW if hyper.decoupled else torch.optim.Adam
    return kind(
        parameters,
        lr=hyper.lr,
        betas=(hyper.beta1, hyper.beta2),
        eps=hyper.eps,
        weight_decay=hyper.weight_decay,
        maximize=hyper.maximize,
        foreach=path == "foreach",
        fused=path == "fused",
    )


def gradients(numel: int, seed: int):
    """Magnitudes over many binades, some exact zeros."""
    generator = torch.Generator().manual_seed(seed)
    base = torch.randn(numel, generator=generator)
    scale = torch.exp2(torch.randint(-40, 3, (numel,), generator=generator).float())
    base = base * scale
    base[torch.rand(numel, generator=generator) < 0.01] = 0.0
    while True:
        base = base.roll(4097).mul_(torch.rand((), generator=generator) + 0.5)
        yield base


def differing_bits(a, b) -> int:
    return int((a.view(torch.int32) != b.view(torch.int32)).sum())


def differing_values(a, b) -> int:
    """Bits, but that any NaN equals any other: torch's own narrowing has several."""
    return int(((a.view(torch.int16) != b.view(torch.int16)) & ~(a.isnan() & b.isnan())).sum())


def compare(
    path, hyper, numel, *, processor=AVX512, steps=STEPS, run=4096, change=None, grad_scale=None
):
    kernels = Kernels(processor)
    name = variant_of(path)
    start = torch.randn(numel, generator=torch.Generator().manual_seed(numel)) * 0.1
    theirs = torch.nn.Parameter(start.clone())
    optimizer = optimizer_of(path, hyper, [theirs])
    main, exp_avg, exp_avg_sq = start.clone(), torch.empty(numel), torch.empty(numel)
    model = torch.empty(numel, dtype=torch.bfloat16)
    source = gradients(numel, 7)
    for step in range(1, steps + 1):
        grad = next(source)
        if change is not None:
            hyper = change(step, hyper, optimizer)
        theirs.grad = grad if grad_scale is None else grad.clone()  # scaled in place
        if grad_scale is not None:
            optimizer.grad_scale = torch.tensor(grad_scale)
            optimizer.found_inf = torch.tensor(0.0)
        optimizer.step()
        kernels.update(
            name,
            hyper,
            step,
            main,
            exp_avg,
            exp_avg_sq,
            grad,
            model=model,
            run=run,
            model_element=BF16,
            fresh=step == 1,
            grad_scale=grad_scale or 1.0,
        )
    state = optimizer.state[theirs]
    assert int(state["step"]) == steps
    found = {
        "parameter": differing_bits(main, theirs.detach()),
        "exp_avg": differing_bits(exp_avg, state["exp_avg"]),
        "exp_avg_sq": differing_bits(exp_avg_sq, state["exp_avg_sq"]),
        "model": differing_values(model, theirs.detach().to(torch.bfloat16)),
    }
    assert found == dict.fromkeys(found, 0), f"{path} {name} {numel} elements, {hyper}"


def test_the_square_root_is_what_the_environment_says():
    if os.environ.get("MKL_ENABLE_INSTRUCTIONS") == "AVX2":
        assert square_root_is_ieee()


@pytest.mark.parametrize("path", ["single", "foreach", "fused"])
def test_a_million_elements_100_steps(path):
    compare(path, Hyper(), LARGE, run=65_536)


@pytest.mark.parametrize("decoupled,maximize", [(True, True), (False, False), (False, True)])
@pytest.mark.parametrize("path", ["single", "foreach", "fused"])
def test_l2_and_maximize(path, decoupled, maximize):
    compare(path, Hyper(decoupled=decoupled, maximize=maximize), 131_077, run=65_536, steps=40)


@pytest.mark.parametrize("path", ["single", "foreach", "fused"])
def test_every_tail(path):
    for numel in SMALL_SIZES:
        compare(path, Hyper(), numel, run=256)


@pytest.mark.parametrize("processor", [PORTABLE, AVX2])
@pytest.mark.parametrize("path", ["foreach", "fused"])
def test_narrower_processors_give_the_same_bits(path, processor):
    if "mkl" in variant_of(path):
        pytest.skip("MKL's AVX-512 square root runs on AVX-512 alone: refused elsewhere")
    for decoupled in (True, False):
        compare(path, Hyper(decoupled=decoupled), 16_391, processor=processor, steps=20)


@pytest.mark.parametrize("path", ["single", "foreach", "fused"])
@pytest.mark.parametrize(
    "hyper",
    [
        Hyper(beta1=0.3),
        Hyper(beta1=0.5),
        Hyper(beta1=0.0, beta2=0.9),
        Hyper(weight_decay=0.0),
        Hyper(weight_decay=0.0, decoupled=False, maximize=True),
        Hyper(eps=1e-3, lr=0.3),
        Hyper(lr=0.0),
        Hyper(eps=0.0, beta2=0.95),
    ],
    ids=str,
)
def test_other_hyperparameters(path, hyper):
    compare(path, hyper, 32_775, steps=20)


@pytest.mark.parametrize("path", ["single", "foreach", "fused"])
def test_hyperparameters_that_change_every_step(path):
    def change(step, hyper, optimizer):
        new = Hyper(
            lr=1e-3 * (1 + step % 7),
            beta1=0.9 if step < 15 else 0.85 + step / 1000,
            beta2=0.999 if step < 20 else 0.97,
            weight_decay=0.01 * (step % 3),
        )
        group = optimizer.param_groups[0]
        group["lr"], group["betas"] = new.lr, (new.beta1, new.beta2)
        group["weight_decay"] = new.weight_decay
        return new

    compare(path, Hyper(), 16_391, steps=40, change=change)


@pytest.mark.parametrize("scale", [65536.0, 3.0, 0.1])
@pytest.mark.parametrize("maximize", [False, True])
def test_grad_scale_of_the_fused_step(scale, maximize):
    for decoupled in (True, False):
        compare(
            "fused",
            Hyper(decoupled=decoupled, maximize=maximize),
            16_391,
            steps=20,
            grad_scale=scale,
        )


@pytest.mark.parametrize("path", ["single", "foreach", "fused"])
def test_extreme_gradients(path):
    """Second moments from below 2^-120 to infinity, where square roots have special cases."""
    kernels = Kernels(AVX512)
    name, hyper, numel = variant_of(path), Hyper(), 65_543
    generator = torch.Generator().manual_seed(11)
    bits = torch.randint(0, 0x7F800001, (numel,), generator=generator, dtype=torch.int64)
    grad = bits.to(torch.int32).view(torch.float32).clone()
    start = torch.randn(numel, generator=generator)
    theirs = torch.nn.Parameter(start.clone())
    optimizer = optimizer_of(path, hyper, [theirs])
    main, exp_avg, exp_avg_sq = start.clone(), torch.zeros(numel), torch.zeros(numel)
    for step in range(1, 6):
        theirs.grad = grad.clone()
        optimizer.step()
        kernels.update(name, hyper, step, main, exp_avg, exp_avg_sq, grad)
    state = optimizer.state[theirs]
    for ours, reference in (
        (main, theirs.detach()),
        (exp_avg, state["exp_avg"]),
        (exp_avg_sq, state["exp_avg_sq"]),
    ):
        assert torch.equal(ours.isnan(), reference.isnan())
        same = ours.nan_to_num(0.0), reference.nan_to_num(0.0)
        assert differing_bits(*same) == 0


def test_every_non_negative_square_root_of_mkl():
    """The stated range of torch_cpu_foreach_mkl/1, through exp_avg_sq with beta2 = 1."""
    if square_root_is_ieee():
        pytest.skip("MKL uses its correctly rounded square root here")
    kernels = Kernels(AVX512)
    hyper = Hyper(lr=-1.0, beta1=0.0, beta2=0.0, eps=0.0, weight_decay=0.0)
    for binade in (0, 1, 2, 7, 26, 27, 46, 47, 48, 127, 128, 253, 254):
        bits = torch.arange(binade << 23, (binade + 1) << 23, 7, dtype=torch.int64)
        root = torch.sqrt(bits.to(torch.int32).view(torch.float32))
        # With beta2 = 0 the second moment is g * g rounded: take the root of that.
        grad = root.clone()
        square = grad * grad
        main, exp_avg, exp_avg_sq = (torch.zeros_like(grad) for _ in range(3))
        kernels.update(
            "torch_cpu_foreach_mkl/1", hyper, 1, main, exp_avg, exp_avg_sq, grad, numel=grad.numel()
        )
        assert differing_bits(exp_avg_sq, square) == 0
        expected = grad / torch.sqrt(square)
        assert torch.equal(main.nan_to_num(0.0), expected.nan_to_num(0.0)), binade


def test_settings_that_are_not_proven_are_said_so():
    kernels = Kernels(PORTABLE)
    te = kernels.variant("te_fused_adam/1")

    def proven(variant, decoupled, maximize, weight_decay):
        return kernels.lib.shim_hyper_proven(
            variant, decoupled, maximize, ctypes.c_double(weight_decay)
        )

    assert proven(te, 1, 0, 0.1) == 1
    assert proven(te, 0, 0, 0.0) == 1
    for decoupled, maximize in ((0, 0), (1, 1), (0, 1)):
        assert proven(te, decoupled, maximize, 0.1) == 0
    for name in ("torch_cpu_fused/1", "torch_cpu_foreach/1"):
        for decoupled, maximize in ((0, 0), (1, 1), (0, 1)):
            assert proven(kernels.variant(name), decoupled, maximize, 0.1) == 1
