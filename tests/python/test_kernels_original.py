"""Variants of frameworks that are not installed, against the frameworks' own kernels, bit by bit.

MILLPOND_TE_ORIGINAL: tests/kernels/te_original.cu, built against a checkout of Transformer Engine.
MILLPOND_TORCH26_ADAMW, MILLPOND_TORCH26_ADAM: the sm_90 code of torch 2.6's fused_adamw_impl.cu
and fused_adam_impl.cu, taken out of its libtorch_cuda.so by `cuobjdump -arch sm_90 -xelf all`: the
files that name FusedAdamMathFunctor with ADAM_MODE 1 and 0, without amsgrad.
"""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed for this Python")
if not torch.cuda.is_available():
    pytest.skip("no CUDA device here", allow_module_level=True)
if not os.environ.get("MILLPOND_CUDA_SHIM"):
    pytest.skip("MILLPOND_CUDA_SHIM names no library", allow_module_level=True)

from kernels_shim import Hyper, address  # noqa: E402
from test_kernels_cuda import differing_bits, gradients, update  # noqa: E402

SIZES = [7, 65_543, 1_048_576]
State = dict[str, "torch.Tensor"]  # main, exp_avg, exp_avg_sq, model


def start(numel: int) -> State:
    generator = torch.Generator("cuda").manual_seed(1)
    main = torch.randn(numel, generator=generator, device="cuda")
    return {
        "main": main, "exp_avg": torch.zeros_like(main), "exp_avg_sq": torch.zeros_like(main),
        "model": torch.zeros(numel, dtype=torch.bfloat16, device="cuda"),
    }  # fmt: skip


def run_beside(
    name: str, hyper: Hyper, numel: int, original: Callable[[State, torch.Tensor, int], None],
    steps: int = 100, grad_scale: float = 1.0,
) -> dict[str, int]:  # fmt: skip
    """Differing elements after the steps."""
    ours, theirs = start(numel), start(numel)
    source = gradients(numel)
    for step in range(1, steps + 1):
        grad = next(source)
        original(theirs, grad.clone(), step)
        update(name, hyper, step, ours["main"], ours["exp_avg"], ours["exp_avg_sq"], grad,
               ours["model"], fresh=step == 1, grad_scale=grad_scale,
               piece=256 if numel < 60_000 else 65_536)  # fmt: skip
    return {key: differing_bits(ours[key], theirs[key]) for key in ours}


def te_original(hyper: Hyper) -> Callable[[State, torch.Tensor, int], None]:
    path = os.environ.get("MILLPOND_TE_ORIGINAL")
    if not path:
        pytest.skip("MILLPOND_TE_ORIGINAL names no build of Transformer Engine's kernel")
    library = ctypes.CDLL(path, mode=os.RTLD_LAZY)  # its other functions are never called
    f32 = ctypes.c_float

    def run(state: State, grad: torch.Tensor, step: int) -> None:
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        tensors = (state["model"], state["main"], state["exp_avg"], state["exp_avg_sq"], grad)
        error = library.te_original(
            *[address(t) for t in tensors], ctypes.c_uint64(grad.numel()), f32(hyper.lr),
            f32(hyper.beta1), f32(hyper.beta2), f32(hyper.eps), f32(hyper.weight_decay),
            ctypes.c_int(step), stream,
        )  # fmt: skip
        assert error == 0, error

    return run


@pytest.mark.parametrize("numel", SIZES)
@pytest.mark.parametrize(
    "hyper", [Hyper(), Hyper(weight_decay=0.0), Hyper(beta1=0.3, beta2=0.9, lr=0.02)], ids=str
)
def test_transformer_engines_own_kernel(hyper: Hyper, numel: int) -> None:
    found = run_beside("te_fused_adam_fast/1", hyper, numel, te_original(hyper))
    assert found == dict.fromkeys(found, 0)


def test_without_fast_math_the_formula_is_another() -> None:
    """Says how far it is from what Transformer Engine's own build does."""
    numel = 1_048_576
    hyper = Hyper()
    found = run_beside("te_fused_adam/1", hyper, numel, te_original(hyper), steps=1)
    print(f"te_fused_adam/1 after 1 step, of {numel}: {found}")
    assert found["main"] > 0


class TorchList(ctypes.Structure):
    """FusedOptimizerTensorListMetadata<4> of torch 2.6."""

    _fields_ = [
        ("addresses", ctypes.c_void_p * 36 * 4), ("numel", ctypes.c_int64 * 36),
        ("steps", ctypes.c_void_p * 36), ("block_to_tensor", ctypes.c_ubyte * 320),
        ("block_to_chunk", ctypes.c_int * 320), ("start_tensor", ctypes.c_int),
    ]  # fmt: skip


class Torch26:
    """The fused step of torch 2.6 for one fp32 tensor."""

    CHUNK = 65_536

    def __init__(self, path: str):
        self.driver = ctypes.CDLL("libcuda.so.1")
        with open(path, "rb") as file:
            code = file.read()
        # The functor over float: of its names the one that is a function.
        pattern = rb"\0(_ZN2at6native[^\0]*FusedAdamMathFunctorIfLi4E[^\0]*)\0"
        name = next(n for n in re.findall(pattern, code) if b"$" not in n)
        module, self.function = ctypes.c_void_p(), ctypes.c_void_p()
        torch.zeros(1, device="cuda")  # the context is torch's
        self.call("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(code))
        self.call("cuModuleGetFunction", ctypes.byref(self.function), module, name)

    def call(self, name: str, *arguments: object) -> None:
        error = getattr(self.driver, name)(*arguments)
        assert error == 0, f"{name}: {error}"

    def step(
        self, state: State, grad: torch.Tensor, step: int, hyper: Hyper, grad_scale: float
    ) -> None:
        numel = grad.numel()
        counter = torch.tensor(float(step), device="cuda")
        scale = torch.tensor(grad_scale, device="cuda")
        inf = torch.tensor(0.0, device="cuda")
        tensors = TorchList()
        for i, t in enumerate((state["main"], grad, state["exp_avg"], state["exp_avg_sq"])):
            tensors.addresses[i][0] = t.data_ptr()
        tensors.numel[0] = numel
        tensors.steps[0] = counter.data_ptr()
        chunks = (numel + self.CHUNK - 1) // self.CHUNK
        for i in range(chunks):
            tensors.block_to_chunk[i] = i
        scaled = grad_scale != 1.0
        doubles = (hyper.lr, hyper.beta1, hyper.beta2, hyper.weight_decay, hyper.eps)
        arguments = [
            tensors, ctypes.c_ubyte(0), ctypes.c_void_p(None), *map(ctypes.c_double, doubles),
            ctypes.c_bool(hyper.maximize), ctypes.c_void_p(scale.data_ptr() if scaled else None),
            ctypes.c_void_p(inf.data_ptr() if scaled else None),
        ]  # fmt: skip
        pointers = (ctypes.c_void_p * len(arguments))(*map(ctypes.addressof, arguments))
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        self.call(
            "cuLaunchKernel", self.function, chunks, 1, 1, 512, 1, 1, 0, stream, pointers, None
        )
        torch.cuda.synchronize()  # counter, scale and inf live until here
        state["model"].copy_(state["main"])


@pytest.mark.parametrize("numel", SIZES)
@pytest.mark.parametrize("grad_scale", [1.0, 3.0, 65536.0])
@pytest.mark.parametrize(
    "hyper",
    [
        Hyper(), Hyper(maximize=True), Hyper(weight_decay=0.0), Hyper(decoupled=False),
        Hyper(decoupled=False, maximize=True), Hyper(beta1=0.3, beta2=0.9, lr=0.02),
    ],
    ids=str,
)  # fmt: skip
def test_the_fused_step_of_torch_2_6(hyper: Hyper, grad_scale: float, numel: int) -> None:
    name = "MILLPOND_TORCH26_ADAMW" if hyper.decoupled else "MILLPOND_TORCH26_ADAM"
    path = os.environ.get(name)
    if not path:
        pytest.skip(f"{name} names no code of torch 2.6's kernel")
    theirs = Torch26(path)
    found = run_beside(
        "torch_cuda_fused/1", hyper, numel,
        lambda state, grad, step: theirs.step(state, grad, step, hyper, grad_scale),
        steps=100 if numel > 1_000_000 else 25, grad_scale=grad_scale,
    )  # fmt: skip
    assert found == dict.fromkeys(found, 0)
