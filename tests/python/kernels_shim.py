"""ctypes over tests/kernels/kernels_shim.cc: kernels by processor, on numpy and torch memory."""

import ctypes
import os
from dataclasses import dataclass

import numpy as np
import pytest

PORTABLE, AVX2, AVX512 = 0, 1, 2
FP32, BF16, FP16 = 0, 1, 2  # kernels::Element
S_FP32, S_BF16, S_FP16, S_E4M3, S_E5M2 = range(5)  # kernels::Storage
GROUP = 256


class Step(ctypes.Structure):
    _fields_ = [
        ("lr", ctypes.c_double),
        ("beta1", ctypes.c_double),
        ("beta2", ctypes.c_double),
        ("eps", ctypes.c_double),
        ("weight_decay", ctypes.c_double),
        ("step", ctypes.c_uint64),
        ("grad_scale", ctypes.c_float),
        ("variant", ctypes.c_int32),
        ("decoupled", ctypes.c_int32),
        ("maximize", ctypes.c_int32),
        ("fresh", ctypes.c_int32),
    ]


@dataclass(frozen=True)
class Hyper:
    lr: float = 1e-3
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 0.1
    decoupled: bool = True
    maximize: bool = False


def load() -> ctypes.CDLL:
    path = os.environ.get("MILLPOND_KERNELS_SHIM")
    if not path:
        pytest.skip("MILLPOND_KERNELS_SHIM does not name the kernels' test library", True)
    return ctypes.CDLL(path)


def address(array) -> ctypes.c_void_p:
    if array is None:
        return ctypes.c_void_p(None)
    if isinstance(array, np.ndarray):
        return ctypes.c_void_p(array.ctypes.data)
    return ctypes.c_void_p(array.data_ptr())


class Kernels:
    def __init__(self, processor: int):
        self.lib = load()
        self.processor = processor
        if not self.lib.shim_processor_runs(processor):
            pytest.skip(f"this processor cannot run kernel table {processor}")

    def variant(self, name: str) -> int:
        number = self.lib.shim_variant(name.encode(), ctypes.c_uint64(len(name)))
        if number < 0:
            pytest.skip(f"this processor cannot run {name}")
        return number

    def update(
        self,
        name,
        hyper,
        step,
        main,
        exp_avg,
        exp_avg_sq,
        grad,
        *,
        grad_element=FP32,
        model=None,
        model_element=BF16,
        numel=None,
        run=4096,
        grad_scale=1.0,
        fresh=False,
    ):
        s = Step(
            hyper.lr,
            hyper.beta1,
            hyper.beta2,
            hyper.eps,
            hyper.weight_decay,
            step,
            grad_scale,
            self.variant(name),
            hyper.decoupled,
            hyper.maximize,
            fresh,
        )
        if numel is None:
            numel = main.numel() if hasattr(main, "numel") else main.size
        self.lib.shim_update(
            self.processor,
            ctypes.byref(s),
            address(main),
            address(exp_avg),
            address(exp_avg_sq),
            address(grad),
            grad_element,
            address(model),
            model_element,
            ctypes.c_uint64(numel),
            ctypes.c_uint64(run),
        )

    def widen(self, codes: np.ndarray, element: int) -> np.ndarray:
        out = np.empty(codes.size, np.float32)
        self.lib.shim_widen(
            self.processor, address(codes), element, address(out), ctypes.c_uint64(codes.size)
        )
        return out

    def narrow(self, values: np.ndarray, element: int) -> np.ndarray:
        out = np.empty(values.size, np.float32 if element == FP32 else np.uint16)
        self.lib.shim_narrow(
            self.processor, address(values), address(out), element, ctypes.c_uint64(values.size)
        )
        return out

    def encode(self, values: np.ndarray, storage: int, keep_nonzero: bool):
        """Codes and scales of whole groups."""
        groups = -(-values.size // GROUP)
        kind = [np.float32, np.uint16, np.uint16, np.uint8, np.uint8][storage]
        codes = np.full(groups * GROUP, 0x55, kind)
        scales = np.full(groups, np.nan, np.float32)
        self.lib.shim_encode(
            self.processor,
            address(values),
            address(codes),
            address(scales),
            storage,
            ctypes.c_uint64(values.size),
            int(keep_nonzero),
        )
        return codes, scales

    def decode(self, codes: np.ndarray, scales: np.ndarray, storage: int, count: int):
        out = np.empty(count, np.float32)
        self.lib.shim_decode(
            self.processor,
            address(codes),
            address(scales),
            storage,
            address(out),
            ctypes.c_uint64(count),
        )
        return out
