"""The formats against torch and ml_dtypes: every 16-bit and 8-bit code, a million fp32 values."""

import numpy as np
import pytest

ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed for this Python")
torch = pytest.importorskip("torch", reason="torch is not installed for this Python")

from kernels_shim import (  # noqa: E402
    AVX2,
    AVX512,
    BF16,
    FP16,
    GROUP,
    PORTABLE,
    S_BF16,
    S_E4M3,
    S_E5M2,
    S_FP16,
    Kernels,
)

MILLION = 1 << 20
SCALED = {
    S_FP16: np.dtype(np.float16),
    S_E4M3: np.dtype(ml_dtypes.float8_e4m3fn),
    S_E5M2: np.dtype(ml_dtypes.float8_e5m2),
}
LARGEST = {S_FP16: 65504.0, S_E4M3: 448.0, S_E5M2: 57344.0}


@pytest.fixture(params=[PORTABLE, AVX2, AVX512], ids=["portable", "avx2", "avx512"])
def kernels(request):
    return Kernels(request.param)


def bits(values: np.ndarray) -> np.ndarray:
    return values.view({4: np.uint32, 2: np.uint16, 1: np.uint8}[values.dtype.itemsize])


def expect_same(got: np.ndarray, wanted: np.ndarray):
    """Bits, but that any NaN equals any other."""
    is_nan = np.isnan(wanted.astype(np.float32))
    assert np.array_equal(np.isnan(got.astype(np.float32)), is_nan)
    differ = (bits(got) != bits(wanted)) & ~is_nan
    assert not differ.any(), (np.flatnonzero(differ)[:5], got[differ][:5], wanted[differ][:5])


def fp32_values(narrow: np.dtype) -> np.ndarray:
    """A million random fp32 bit patterns, and around each of the format's values and of the points
    between two of them: the value itself and its neighbours."""
    rng = np.random.default_rng(1)
    random = rng.integers(0, 1 << 32, MILLION, dtype=np.uint32).view(np.float32)
    edge_bits = np.array(
        [
            0,
            1,
            2,
            0x007FFFFF,
            0x00800000,
            0x7F7FFFFF,
            0x7F800000,
            0x7F800001,
            0x7FC00000,
            0x7FFFFFFF,
        ],
        np.uint32,
    )
    codes = (
        np.arange(1 << 8 * narrow.itemsize, dtype=np.uint16 if narrow.itemsize == 2 else np.uint8)
        .view(narrow)
        .astype(np.float32)
    )
    codes = np.unique(codes[np.isfinite(codes)])
    middles = ((codes[1:].astype(np.float64) + codes[:-1]) / 2).astype(np.float32)
    top = codes[-1] + (codes[-1].astype(np.float64) - codes[-2]) / 2
    points = np.concatenate([codes, middles, [np.float32(top), -np.float32(top)]])
    points = points.astype(np.float32)
    with np.errstate(over="ignore"):
        around = [
            points,
            np.nextafter(points, np.float32(np.inf)),
            np.nextafter(points, np.float32(-np.inf)),
        ]
    return np.concatenate(
        [random, edge_bits.view(np.float32), (edge_bits | 0x80000000).view(np.float32), *around]
    )


@pytest.mark.parametrize(
    "element,dtype,other",
    [(BF16, torch.bfloat16, ml_dtypes.bfloat16), (FP16, torch.float16, np.float16)],
)
def test_every_16_bit_code_widens(kernels, element, dtype, other):
    codes = np.arange(1 << 16, dtype=np.uint16)
    got = kernels.widen(codes, element)
    expect_same(got, codes.view(other).astype(np.float32))
    expect_same(got, torch.from_numpy(codes.view(np.int16)).view(dtype).float().numpy())


@pytest.mark.parametrize(
    "element,dtype,other",
    [(BF16, torch.bfloat16, ml_dtypes.bfloat16), (FP16, torch.float16, np.float16)],
)
def test_a_million_fp32_values_narrow(kernels, element, dtype, other):
    values = fp32_values(np.dtype(other))
    got = kernels.narrow(values, element).view(other)
    with np.errstate(over="ignore", invalid="ignore"):
        expect_same(got, values.astype(other))
    theirs = torch.from_numpy(values).to(dtype).view(torch.int16).numpy().view(other)
    expect_same(got, theirs)


def test_every_16_bit_code_comes_back(kernels):
    codes = np.arange(1 << 16, dtype=np.uint16)
    for element, other in ((BF16, ml_dtypes.bfloat16), (FP16, np.float16)):
        back = kernels.narrow(kernels.widen(codes, element), element)
        expect_same(back.view(other), codes.view(other))
    stored, _ = kernels.encode(kernels.widen(codes, BF16), S_BF16, False)
    expect_same(stored.view(ml_dtypes.bfloat16), codes.view(ml_dtypes.bfloat16))


@pytest.mark.parametrize("storage", [S_E4M3, S_E5M2])
def test_every_8_bit_code_decodes(kernels, storage):
    codes = np.arange(256, dtype=np.uint8)
    for scale in (1.0, 2.0**-20, 2.0**60):
        scales = np.array([scale], np.float32)
        got = kernels.decode(codes, scales, storage, 256)
        expect_same(got, codes.view(SCALED[storage]).astype(np.float32) * np.float32(scale))


@pytest.mark.parametrize("storage", [S_FP16, S_E4M3, S_E5M2])
def test_every_code_comes_back_from_its_value(kernels, storage):
    narrow = SCALED[storage]
    kind = np.uint16 if narrow.itemsize == 2 else np.uint8
    codes = np.arange(1 << 8 * narrow.itemsize, dtype=kind)
    values = codes.view(narrow).astype(np.float32)
    codes, values = codes[np.isfinite(values)], values[np.isfinite(values)]
    # One largest value in each group makes the scale 1.
    per = GROUP - 1
    groups = -(-values.size // per)
    padded = np.zeros((groups, GROUP), np.float32)
    padded[:, per] = LARGEST[storage]
    flat = np.zeros(groups * per, np.float32)
    flat[: values.size] = values
    padded[:, :per] = flat.reshape(groups, per)
    stored, scales = kernels.encode(padded.reshape(-1), storage, False)
    assert (scales == 1).all()
    got = stored.reshape(groups, GROUP)[:, :per].reshape(-1)[: codes.size]
    assert np.array_equal(got, codes)


@pytest.mark.parametrize("storage", [S_FP16, S_E4M3, S_E5M2])
def test_a_million_fp32_values_in_groups_of_scale_1(kernels, storage):
    """A NaN in each group makes its scale 1: then the codes are the other library's."""
    narrow = SCALED[storage]
    values = fp32_values(narrow)
    per = GROUP - 1
    values = values[: values.size - values.size % per].reshape(-1, per)
    padded = np.full((values.shape[0], GROUP), np.nan, np.float32)
    padded[:, :per] = values
    stored, scales = kernels.encode(padded.reshape(-1), storage, False)
    assert (scales == 1).all()
    got = stored.reshape(-1, GROUP)[:, :per].reshape(-1).view(narrow)
    with np.errstate(over="ignore", invalid="ignore"):
        expect_same(got, values.reshape(-1).astype(narrow))


@pytest.mark.parametrize("storage", [S_FP16, S_E4M3, S_E5M2])
@pytest.mark.parametrize("keep_nonzero", [False, True])
def test_a_million_fp32_values_scaled(kernels, storage, keep_nonzero):
    """Scales by numpy's frexp, codes by the other library."""
    narrow = SCALED[storage]
    rng = np.random.default_rng(2)
    exponents = rng.integers(-149, 128, MILLION // GROUP)[:, None]
    spread = rng.integers(-30, 1, (MILLION // GROUP, GROUP))
    with np.errstate(over="ignore", under="ignore"):
        values = np.ldexp(rng.uniform(-2, 2, spread.shape), exponents + spread).astype(np.float32)
    values[~np.isfinite(values)] = np.float32(3.4e38)
    stored, scales = kernels.encode(values.reshape(-1), storage, keep_nonzero)
    largest = np.abs(values).max(axis=1).astype(np.float64)
    mantissa, exponent = np.frexp(largest / LARGEST[storage])
    wanted = np.ldexp(1.0, np.maximum(np.where(mantissa == 0.5, exponent - 1, exponent), -126))
    wanted[largest == 0] = 1.0
    assert np.array_equal(scales, wanted.astype(np.float32))
    # |value / scale| below 2^-126 is zero in every format: flushing it loses nothing.
    ratio = (values / wanted[:, None]).astype(np.float32).reshape(-1)
    codes = ratio.astype(narrow)
    if keep_nonzero:
        lost = (codes.astype(np.float32) == 0) & (values.reshape(-1) != 0)
        smallest = np.array([1], bits(codes).dtype).view(narrow)[0].astype(np.float32)
        codes[lost] = np.copysign(smallest, values.reshape(-1)[lost]).astype(narrow)
        assert lost.any()
    expect_same(stored.view(narrow), codes)
    back = kernels.decode(stored, scales, storage, MILLION)
    with np.errstate(over="ignore"):  # next to fp32's largest a code may round up to infinity
        wanted_back = (codes.astype(np.float64) * np.repeat(wanted, GROUP)).astype(np.float32)
    expect_same(back, wanted_back)
