"""Millpond for PyTorch: `torch.optim.AdamW` and `Adam` with their state on NVMe, the same bits.

optimizer = millpond.torch.AdamW(model.parameters(), lr=3e-4, scratch="/mnt/nvme/scratch")
"""

from .optimizer import Adam, AdamW

__all__ = ["Adam", "AdamW"]
