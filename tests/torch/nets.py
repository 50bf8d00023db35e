"""A net with what loops meet: tied, frozen and late layers, and one that is not always used."""

from __future__ import annotations

import torch


class Net(torch.nn.Module):
    """Tied weights, a frozen layer, one that some steps leave out, and one that comes late."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(11)
        self.embed = torch.nn.Embedding(51, 24)
        self.frozen = torch.nn.Linear(24, 24)
        self.sometimes = torch.nn.Linear(24, 24)
        self.late = torch.nn.Linear(24, 24)
        self.head = torch.nn.Linear(24, 51, bias=False)
        self.head.weight = self.embed.weight
        self.frozen.requires_grad_(False)

    def forward(self, x: torch.Tensor, extra: bool) -> torch.Tensor:
        hidden = torch.tanh(self.late(self.frozen(self.embed(x))))
        return self.head(hidden + self.sometimes(hidden) if extra else hidden)
