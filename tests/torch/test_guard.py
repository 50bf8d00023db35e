"""What cannot be streamed is refused, with a name, a reason and what to do."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import millpond
import millpond.torch
import pytest
import torch
from millpond.torch import AdamW


@pytest.mark.parametrize("flag", ["amsgrad", "capturable", "differentiable"])
def test_flags(scratch, flag: str) -> None:
    p = torch.nn.Parameter(torch.zeros(3))
    with pytest.raises(millpond.MillpondError, match=flag):
        AdamW([p], scratch=str(scratch), **{flag: True})
    with pytest.raises(millpond.MillpondError, match=flag):
        AdamW([{"params": [p], flag: True}], scratch=str(scratch))


@pytest.mark.parametrize("flag", ["amsgrad", "capturable", "differentiable"])
def test_flags_that_come_later(scratch, flag: str) -> None:
    """Groups are live: a refused flag that somebody sets between steps stops the next one."""
    p = torch.nn.Parameter(torch.zeros(3))
    optimizer = AdamW([p], scratch=str(scratch), exact="off")
    p.grad = torch.ones(3)
    optimizer.step()
    before = p.detach().clone()
    optimizer.param_groups[0][flag] = True
    with pytest.raises(millpond.MillpondError, match=f"group 0 has {flag}"):
        optimizer.step()
    assert torch.equal(p, before) and int(optimizer.state[p]["step"]) == 1
    optimizer.param_groups[0][flag] = False
    optimizer.step()
    assert int(optimizer.state[p]["step"]) == 2


def test_exact_is_one_of_three(scratch) -> None:
    with pytest.raises(millpond.MillpondError, match="none of require, prefer, off"):
        AdamW([torch.nn.Parameter(torch.zeros(3))], scratch=str(scratch), exact="maybe")


def test_values_are_judged_by_torch(scratch) -> None:
    p = torch.nn.Parameter(torch.zeros(3))
    with pytest.raises(ValueError, match="Invalid learning rate"):
        AdamW([p], lr=-1.0, scratch=str(scratch))
    with pytest.raises(RuntimeError, match="fused"):
        AdamW([p], fused=True, foreach=True, scratch=str(scratch))


def test_scratch_is_asked_for(monkeypatch) -> None:
    monkeypatch.delenv("MILLPOND_SCRATCH", raising=False)
    with pytest.raises(millpond.MillpondError, match="scratch"):
        AdamW([torch.nn.Parameter(torch.zeros(3))])


def test_options_are_the_plugins(scratch) -> None:
    optimizer = AdamW(
        [torch.nn.Parameter(torch.zeros(3))], scratch=str(scratch), options={"queue_dept": 4}
    )
    with pytest.raises(millpond.OptionError, match="queue_depth"):
        optimizer.bind()


def test_a_parameter_twice(scratch) -> None:
    p = torch.nn.Parameter(torch.zeros(3))
    with pytest.raises(ValueError, match="twice in one group"):
        AdamW([p, p], scratch=str(scratch))
    with pytest.raises(ValueError, match="more than one parameter group"):
        AdamW([{"params": [p]}, {"params": [p]}], scratch=str(scratch))


class Quantised(torch.Tensor):
    """fp8 bytes behind a nominal bf16, as quantisation libraries make them."""

    _data: torch.Tensor

    @staticmethod
    def __new__(cls, data: torch.Tensor) -> Any:
        made = torch.Tensor._make_wrapper_subclass(cls, data.shape, dtype=torch.bfloat16)
        made._data = data
        return made

    @classmethod
    def __torch_dispatch__(
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if function is torch.ops.aten.detach.default:
            return type(args[0])(args[0]._data)
        raise NotImplementedError(str(function))


class Packed(Quantised):
    """Says which of its members are tensors."""

    def __tensor_flatten__(self) -> Any:
        return ["_data"], None


class Named(torch.nn.Parameter):
    pass


def refusal_of(scratch: Any, parameter: Any) -> millpond.Refusal:
    optimizer = AdamW([parameter], scratch=str(scratch))
    with pytest.raises(millpond.RefusedError) as caught:
        optimizer.bind()
    (refusal,) = caught.value.refusals
    assert refusal.reason in str(caught.value) and refusal.remedy in str(caught.value)
    return refusal


REFUSED = {
    "storage_quantized": lambda: torch.nn.Parameter(
        Quantised(torch.zeros(4, dtype=torch.float8_e4m3fn)), requires_grad=True
    ),
    "tensor_subclass": lambda: Named(torch.zeros(4)),
    "meta": lambda: torch.nn.Parameter(torch.zeros(4, device="meta")),
    "layout": lambda: torch.nn.Parameter(torch.zeros(4, 4).as_strided((3, 3), (4, 1))),
    "dtype_unsupported": lambda: torch.nn.Parameter(torch.zeros(4, dtype=torch.float64)),
}


@pytest.mark.parametrize("code", REFUSED)
def test_parameters(scratch, code: str) -> None:
    assert refusal_of(scratch, REFUSED[code]()).code == code


@pytest.mark.parametrize("kind", ["plain", "flattened"])
def test_quantised_in_any_class(scratch, kind: str) -> None:
    data = torch.zeros(4, dtype=torch.float8_e4m3fn)
    parameter = torch.nn.Parameter(data if kind == "plain" else Packed(data))
    refusal = refusal_of(scratch, parameter)
    assert refusal.code == "storage_quantized" and "float8_e4m3fn" in refusal.reason


PLACED = {
    "columns": ((1,), lambda t: [t.Shard(1)]),
    "partial": ((1,), lambda t: [t.Partial()]),
    "twice": ((1, 1), lambda t: [t.Shard(0), t.Shard(0)]),
    "replicate": ((1,), lambda t: [t.Replicate()]),
    "rows": ((1,), lambda t: [t.Shard(0)]),
    "replicas_of_rows": ((1, 1), lambda t: [t.Replicate(), t.Shard(0)]),
}


@pytest.mark.parametrize("name", PLACED)
def test_placements(scratch, lone_group, name: str) -> None:
    """Replicate, and Shard(0) on one dimension of the mesh, are streamed; all else is refused."""
    import torch.distributed.tensor as placing
    from torch.distributed.device_mesh import init_device_mesh

    lone_group("gloo")
    shape, placements = PLACED[name]
    mesh = init_device_mesh("cpu", shape)
    local = torch.zeros(4, 3)
    parameter = torch.nn.Parameter(
        placing.DTensor.from_local(local, mesh, placements(placing), run_check=False)
    )
    if name in ("columns", "partial", "twice"):
        assert refusal_of(scratch, parameter).code == "placement"
        return
    parameter.grad = torch.ones_like(parameter)
    AdamW([parameter], lr=0.5, weight_decay=0.0, scratch=str(scratch)).step()
    assert torch.allclose(parameter.to_local(), torch.full((4, 3), -0.5))


def test_complex_parameters(scratch) -> None:
    parameter = torch.nn.Parameter(torch.zeros(4, dtype=torch.complex64))
    assert refusal_of(scratch, parameter).code == "dtype_unsupported"


def test_an_expanded_parameter(scratch) -> None:
    parameter = torch.nn.Parameter(torch.zeros(1).expand(5))
    assert refusal_of(scratch, parameter).code == "layout"


def test_sparse_gradients(scratch) -> None:
    embedding = torch.nn.Embedding(10, 4, sparse=True)
    optimizer = AdamW(embedding.parameters(), scratch=str(scratch))
    embedding(torch.tensor([1, 2])).sum().backward()
    before = embedding.weight.detach().clone()
    with pytest.raises(millpond.MillpondError, match="sparse_coo"):
        optimizer.step()
    assert torch.equal(embedding.weight, before)


def test_copies_and_pickles(scratch) -> None:
    optimizer = AdamW([torch.nn.Parameter(torch.zeros(3))], scratch=str(scratch))
    for copying in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="state_dict"):
            copying(optimizer)


def test_replaced_parameters(scratch) -> None:
    """load_state_dict(assign=True) leaves the optimizer with parameters that nobody uses."""
    model = torch.nn.Linear(4, 3)
    optimizer = AdamW(model.parameters(), scratch=str(scratch))
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    model.load_state_dict({k: v.clone() for k, v in model.state_dict().items()}, assign=True)
    model(torch.ones(2, 4)).sum().backward()
    with pytest.raises(millpond.StateError, match="left their module"):
        optimizer.step()


def test_unused_parameters_are_no_error(scratch) -> None:
    model = torch.nn.ModuleList([torch.nn.Linear(4, 3), torch.nn.Linear(4, 3)])
    optimizer = AdamW(model.parameters(), scratch=str(scratch))
    for _ in range(4):
        model[0](torch.ones(2, 4)).sum().backward()
        optimizer.step()
    lone = torch.nn.Parameter(torch.zeros(3))  # of no module, and never with a gradient
    AdamW([lone], scratch=str(scratch)).step()


STRIDES = {
    "expanded": lambda: torch.ones(()).expand(300, 7),
    "transposed": lambda: torch.randn(7, 300).t(),
    "every_other": lambda: torch.randn(300, 14)[:, ::2],
}


@pytest.mark.parametrize("name", STRIDES)
def test_gradient_strides(scratch, name: str) -> None:
    """A gradient that lies otherwise in memory than its parameter."""
    start, gradient = torch.randn(300, 7), STRIDES[name]()
    mine, theirs = (torch.nn.Parameter(start.clone()) for _ in "12")
    mine.grad, theirs.grad = gradient, gradient.clone(memory_format=torch.contiguous_format)
    AdamW([mine], scratch=str(scratch)).step()
    torch.optim.AdamW([theirs]).step()
    assert torch.equal(mine, theirs)


def test_gradient_dtypes(scratch) -> None:
    """A gradient of another dtype is widened like any other (torch 2.11 allows it)."""
    parameter = torch.nn.Parameter(torch.ones(300))
    if not hasattr(parameter, "grad_dtype"):
        pytest.skip("this torch holds gradients to the parameter's dtype")
    twin = torch.nn.Parameter(torch.ones(300))
    gradient = torch.randn(300).bfloat16()
    parameter.grad_dtype = torch.bfloat16
    parameter.grad, twin.grad = gradient, gradient.float()
    AdamW([parameter], scratch=str(scratch)).step()
    torch.optim.AdamW([twin]).step()
    assert torch.equal(parameter, twin)
