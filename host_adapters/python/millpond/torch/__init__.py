"""Millpond for PyTorch: `torch.optim.AdamW` and `Adam` with their state on NVMe, the same bits.

optimizer = millpond.torch.AdamW(model.parameters(), lr=3e-4, scratch="/mnt/nvme/scratch")
millpond.torch.save(path, model, optimizer)  # weights and state as one
"""

from .adam import Adam, AdamW
from .checkpoint import async_save, load, save
from .plain_dcp import export_dcp, import_dcp

__all__ = ["Adam", "AdamW", "async_save", "export_dcp", "import_dcp", "load", "save"]
