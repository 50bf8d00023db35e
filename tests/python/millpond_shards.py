"""What a host says of its parameters: their memory, and their part of the profile."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from millpond import abi as c

FEATURES = Path(__file__).resolve().parents[2] / "abi" / "layout.golden"


def known_features(minor: int = 0) -> list[str]:
    """Every feature that a host of this minor lists, by the golden layout's feature lines."""
    lines = [
        line.split() for line in FEATURES.read_text().splitlines() if line.startswith("feature ")
    ]
    return [name for _, since, _, name in lines if int(since) <= minor]


@dataclass
class Memory:
    """A flat run of elements somewhere in memory; `owner` keeps it alive."""

    address: int
    numel: int
    dtype: int
    owner: Any = None
    device_type: int = c.DEVICE_CPU
    device_id: int = 0

    @staticmethod
    def of_torch(tensor: Any) -> Memory:
        import torch

        dtype = {torch.float32: c.FP32, torch.float16: c.FP16, torch.bfloat16: c.BF16}[tensor.dtype]
        assert tensor.is_contiguous()
        cuda = tensor.device.type == "cuda"
        return Memory(
            tensor.data_ptr() if tensor.numel() else 0, tensor.numel(), dtype, tensor,
            c.DEVICE_CUDA if cuda else c.DEVICE_CPU, tensor.device.index if cuda else 0,
        )  # fmt: skip

    @staticmethod
    def of_numpy(array: Any, dtype: int | None = None) -> Memory:
        dtype = (
            dtype or {"float32": c.FP32, "float16": c.FP16, "bfloat16": c.BF16}[array.dtype.name]
        )
        return Memory(array.ctypes.data if array.size else 0, array.size, dtype, array)

    def tensor(self) -> c.Tensor:
        return c.Tensor(
            self.address, 0, self.numel, self.device_type, self.device_id, self.dtype, 0
        )


NO_TENSOR = c.Tensor(None, 0, 0, c.DEVICE_CPU, 0, 0, 0)


@dataclass
class Shard:
    id: int
    key: str
    model: Memory | None
    grad: Memory | None
    group: int = 0
    main: Memory | None = None
    host_bucket: int = 0
    own_main: bool | None = None  # None: yes where the parameter is fp32
    numel: int | None = None
    edits: dict[str, Any] = field(default_factory=dict)  # fields of the message, set last

    def message(self, kind: type) -> Any:
        memory = self.model or self.grad
        numel = self.numel if self.numel is not None else memory.numel
        model_dtype = self.model.dtype if self.model else c.BF16
        own_main = self.own_main if self.own_main is not None else model_dtype == c.FP32
        shard = kind(
            id=self.id, key=self.key, global_shape=[numel], box_offset=[0], box_shape=[numel],
            flat_begin=0, flat_end=numel, group_id=self.group, host_bucket=self.host_bucket,
            kind=2 if own_main else 1, model_dtype=model_dtype,
            grad_dtype=self.grad.dtype if self.grad else c.FP32,
            model_storage=1, grad_storage=1,
            device_type=memory.device_type if memory else c.DEVICE_CPU,
            device_id=memory.device_id if memory else 0,
        )  # fmt: skip
        for name, value in self.edits.items():
            if isinstance(value, list):
                del getattr(shard, name)[:]
                getattr(shard, name).extend(value)
            else:
                setattr(shard, name, value)
        return shard

    def pointers(self) -> c.ShardPointers:
        def tensor_of(memory: Memory | None) -> c.Tensor:
            return memory.tensor() if memory else NO_TENSOR

        return c.ShardPointers(
            self.id, tensor_of(self.model), tensor_of(self.grad), tensor_of(self.main)
        )
