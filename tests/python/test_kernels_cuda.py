"""The CUDA variants against torch's own optimizers on a GPU, bit by bit, and their speed.

Needs MILLPOND_CUDA_SHIM and a GPU. `python3 test_kernels_cuda.py` prints the measurement.
"""

import ctypes
import os
import statistics
from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed for this Python")

from kernels_shim import BF16, FP32, Hyper, Step, address  # noqa: E402

if not torch.cuda.is_available():
    pytest.skip("no CUDA device here", allow_module_level=True)
if not os.environ.get("MILLPOND_CUDA_SHIM"):
    pytest.skip("MILLPOND_CUDA_SHIM names no library", allow_module_level=True)

LIBRARY = ctypes.CDLL(os.environ["MILLPOND_CUDA_SHIM"])
WORKSPACE = torch.empty(65_536, dtype=torch.uint8, device="cuda")
NAMES = {"fused": "torch_cuda_fused/2", "foreach": "torch_cuda_foreach/1",
         "single": "torch_cuda_single/1"}  # fmt: skip


def variant(name: str) -> int:
    number = LIBRARY.cuda_shim_variant(name.encode(), ctypes.c_uint64(len(name)))
    assert number >= 0, name
    return number


def update(name, hyper, step, main, exp_avg, exp_avg_sq, grad, model, *, piece=65_536,
           grad_scale=1.0, fresh=False, blocks=0):  # fmt: skip
    s = Step(hyper.lr, hyper.beta1, hyper.beta2, hyper.eps, hyper.weight_decay, step, grad_scale,
             variant(name), hyper.decoupled, hyper.maximize, fresh)  # fmt: skip
    element = FP32 if grad.dtype == torch.float32 else BF16
    error = LIBRARY.cuda_shim_update(
        ctypes.byref(s), address(main), address(exp_avg), address(exp_avg_sq), address(grad),
        element, address(model), ctypes.c_uint64(main.numel()), ctypes.c_uint64(piece),
        address(WORKSPACE), ctypes.c_uint32(blocks),
        ctypes.c_void_p(torch.cuda.current_stream().cuda_stream))  # fmt: skip
    assert error == 0, error


def gradients(numel: int):
    generator = torch.Generator("cuda").manual_seed(numel)
    while True:
        base = torch.randn(numel, generator=generator, device="cuda")
        scale = torch.randint(-30, 2, (numel,), generator=generator, device="cuda")
        base = base * torch.exp2(scale.float())
        base[torch.rand(numel, generator=generator, device="cuda") < 0.01] = 0.0
        yield base


def differing_bits(a, b) -> int:
    kind = {4: torch.int32, 2: torch.int16}[a.element_size()]
    return int((a.view(kind) != b.view(kind)).sum())


@pytest.mark.parametrize("numel", [7, 65_543, 1_048_576])
@pytest.mark.parametrize("path", ["fused", "foreach", "single"])
@pytest.mark.parametrize(
    "hyper",
    [
        Hyper(),
        Hyper(decoupled=False),
        Hyper(maximize=True),
        Hyper(decoupled=False, maximize=True),
        Hyper(weight_decay=0.0),
        Hyper(weight_decay=0.0, decoupled=False),
        Hyper(beta1=0.3, beta2=0.9, lr=0.02),
        Hyper(beta1=0.5),
        Hyper(eps=1e-3),
    ],
    ids=str,
)
@pytest.mark.parametrize("grad_scale", [None, 3.0, 65536.0])
def test_the_bits_of_torch(path, hyper, numel, grad_scale):
    if grad_scale is not None and path != "fused":
        pytest.skip("torch scales gradients inside the fused step alone")
    if path == "fused" and not hyper.decoupled and hyper.weight_decay and grad_scale is None:
        pytest.skip("refused: torch rounds one element in four differently (next test)")
    start = torch.randn(numel, generator=torch.Generator("cuda").manual_seed(1), device="cuda")
    theirs = torch.nn.Parameter(start.clone())
    kind = torch.optim.AdamW if hyper.decoupled else torch.optim.Adam
    optimizer = kind([theirs], lr=hyper.lr, betas=(hyper.beta1, hyper.beta2), eps=hyper.eps,
                     weight_decay=hyper.weight_decay, maximize=hyper.maximize,
                     foreach=path == "foreach", fused=path == "fused")  # fmt: skip
    main, model = start.clone(), torch.empty(numel, dtype=torch.bfloat16, device="cuda")
    exp_avg, exp_avg_sq = torch.empty_like(main), torch.empty_like(main)
    source = gradients(numel)
    steps = 100 if hyper in (Hyper(), Hyper(decoupled=False)) else 25
    for step in range(1, steps + 1):
        grad = next(source)
        theirs.grad = grad.clone()
        if grad_scale is not None:
            optimizer.grad_scale = torch.tensor(grad_scale, device="cuda")
            optimizer.found_inf = torch.tensor(0.0, device="cuda")
        optimizer.step()
        update(NAMES[path], hyper, step, main, exp_avg, exp_avg_sq, grad, model,
               grad_scale=grad_scale or 1.0, fresh=step == 1,
               piece=256 if numel < 60_000 else 65_536)  # fmt: skip
    state = optimizer.state[theirs]
    found = {
        "parameter": differing_bits(main, theirs.detach()),
        "exp_avg": differing_bits(exp_avg, state["exp_avg"]),
        "exp_avg_sq": differing_bits(exp_avg_sq, state["exp_avg_sq"]),
        "model": differing_bits(model, theirs.detach().to(torch.bfloat16)),
    }
    assert found == dict.fromkeys(found, 0)


@pytest.mark.parametrize(
    "numel,lane_of", [(65_536, lambda i: i % 4), (65_543, lambda i: i // 512 % 4)]
)
def test_why_l2_of_the_fused_step_is_refused(numel, lane_of):
    """Of four elements that a thread of torch's kernel has, the first gets its weight decay rounded
    before it is added, the others do not; which is first depends on size and alignment."""
    generator = torch.Generator("cuda").manual_seed(2)
    start, grad = (torch.randn(numel, generator=generator, device="cuda") for _ in range(2))
    theirs = torch.nn.Parameter(start.clone())
    theirs.grad = grad * 1e-3
    optimizer = torch.optim.Adam([theirs], betas=(0.0, 0.9), weight_decay=0.1, fused=True)
    optimizer.step()
    # With beta1 = 0 the first moment is the gradient after weight decay.
    decayed = optimizer.state[theirs]["exp_avg"]
    fused = torch.addcmul(theirs.grad.double(), start.double(), torch.tensor(0.1).cuda().double())
    rounded = theirs.grad + start * 0.1
    first = lane_of(torch.arange(numel, device="cuda")) == 0
    assert differing_bits(decayed, torch.where(first, rounded, fused.float())) == 0
    assert differing_bits(rounded, fused.float()) > 0


def median_ms(work: Callable[[], object], repeats: int = 21) -> float:
    times = []
    for _ in range(repeats + 3):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        work()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times[3:])


def measure():
    numel = 256 << 20
    main, exp_avg, exp_avg_sq = (torch.rand(numel, device="cuda") for _ in range(3))
    grad = torch.randn(numel, device="cuda")
    model = torch.empty(numel, dtype=torch.bfloat16, device="cuda")
    total = numel * 30
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    arrays = [address(x) for x in (main, exp_avg, exp_avg_sq, grad, model)]

    def line(what, ms):
        print(f"{what:44s} {ms:8.3f} ms {total / ms * 1e-9:8.3f} TB/s", flush=True)

    line(
        "same bytes, no arithmetic",
        median_ms(lambda: LIBRARY.cuda_shim_touch(*arrays, ctypes.c_uint64(numel), stream)),
    )
    for name in [*NAMES.values(), "torch_cuda_fused/1", "te_fused_adam/1", "te_fused_adam_fast/1"]:
        for blocks in (0, 132, 264, 528):
            ms = median_ms(
                lambda n=name, b=blocks: update(
                    n, Hyper(), 10, main, exp_avg, exp_avg_sq, grad, model, piece=8 << 20, blocks=b
                )
            )
            line(f"{name} blocks {blocks or 'auto'}", ms)
    line(
        "same bytes, no arithmetic",
        median_ms(lambda: LIBRARY.cuda_shim_touch(*arrays, ctypes.c_uint64(numel), stream)),
    )
    theirs = torch.nn.Parameter(main)
    theirs.grad = grad
    optimizer = torch.optim.AdamW([theirs], fused=True)
    total = numel * 28
    line("torch fused AdamW (no 16-bit parameter)", median_ms(optimizer.step))


if __name__ == "__main__":
    print(torch.__version__, torch.cuda.get_device_name())
    measure()
