"""Trainers that write checkpoints of their own: a marker is in them and no bytes, so that a resume
without the bytes is an error. Part of the campaign, which installs them (torch_versions)."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import millpond
import millpond.torch
import pytest
import torch
from twins import differing

pytestmark = pytest.mark.filterwarnings("ignore")


def model_of(seed: int) -> torch.nn.Module:
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(9, 40), torch.nn.Tanh(), torch.nn.Linear(40, 1))


def batch(step: int) -> torch.Tensor:
    return torch.randn(6, 9, generator=torch.Generator().manual_seed(step))


def same(one: torch.nn.Module, other: torch.nn.Module) -> None:
    for a, b in zip(one.parameters(), other.parameters(), strict=True):
        assert differing(a, b) == 0


def plain_after(steps: int, decay: float = 1.0) -> torch.nn.Module:
    """Plain AdamW's weights after as many steps. decay: of the rate after every step."""
    model = model_of(1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for step in range(steps):
        optimizer.zero_grad()
        model(batch(step)).square().mean().backward()
        optimizer.step()
        optimizer.param_groups[0]["lr"] *= decay
    return model


def test_accelerate(scratch, tmp_path) -> None:
    accelerate = pytest.importorskip("accelerate", reason="accelerate is not installed")
    accelerator = accelerate.Accelerator(cpu=True)

    def prepared(seed: int) -> tuple[Any, Any, Any]:
        model = model_of(seed)
        optimizer = millpond.torch.AdamW(model.parameters(), lr=1e-2, scratch=str(scratch))
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
        return accelerator.prepare(model, optimizer, scheduler)

    def train(model: Any, optimizer: Any, scheduler: Any, steps: range) -> None:
        for step in steps:
            optimizer.zero_grad()
            accelerator.backward(model(batch(step)).square().mean())
            optimizer.step()
            scheduler.step()

    first = prepared(1)
    train(*first, range(3))
    accelerator.save_state(str(tmp_path / "theirs"))
    first[1].optimizer.save(tmp_path / "bytes")
    train(*first, range(3, 6))
    same(first[0], plain_after(6, 0.5))
    accelerator.free_memory()
    again = prepared(2)
    accelerator.load_state(str(tmp_path / "theirs"))
    weights = copy.deepcopy(again[0].state_dict())
    with pytest.raises(millpond.StateError, match="of step 3 and holds no moments"):
        train(*again, range(3, 4))
    for name, value in again[0].state_dict().items():
        assert torch.equal(value, weights[name])
    again[1].optimizer.load(tmp_path / "bytes")
    train(*again, range(3, 6))
    same(again[0], first[0])


def lightning_module(lightning: Any, scratch: Path, seed: int, bytes_at: Path | None) -> Any:
    class Module(lightning.LightningModule):  # type: ignore[name-defined,misc]
        def __init__(self) -> None:
            super().__init__()
            self.net = model_of(seed)

        def training_step(self, x: torch.Tensor, _: int) -> torch.Tensor:
            return self.net(x).square().mean()

        def configure_optimizers(self) -> Any:
            return millpond.torch.AdamW(self.parameters(), lr=1e-2, scratch=str(scratch))

        def on_train_start(self) -> None:
            if bytes_at is not None:
                self.optimizers().optimizer.load(bytes_at)

    return Module()


def test_lightning(scratch, tmp_path) -> None:
    lightning = pytest.importorskip("pytorch_lightning", reason="Lightning is not installed")

    def fit(module: Any, epochs: int, **named: Any) -> Any:
        """Three steps an epoch, each with its own batch."""
        trainer = lightning.Trainer(
            max_epochs=epochs, accelerator="cpu", devices=1, logger=False,
            enable_progress_bar=False, enable_checkpointing=False, enable_model_summary=False,
            default_root_dir=tmp_path, reload_dataloaders_every_n_epochs=1,
        )  # fmt: skip
        loader = Batches(trainer)
        trainer.fit(module, loader, **named)
        return trainer

    first = lightning_module(lightning, scratch, 1, None)
    trainer = fit(first, 1)
    trainer.save_checkpoint(tmp_path / "theirs.ckpt")
    first.optimizers().optimizer.save(tmp_path / "bytes")
    same(first.net, plain_after(3))
    resumed = lightning_module(lightning, scratch, 2, None)
    with pytest.raises(millpond.StateError, match="of step 3 and holds no moments"):
        fit(resumed, 2, ckpt_path=tmp_path / "theirs.ckpt")
    resumed = lightning_module(lightning, scratch, 2, tmp_path / "bytes")
    fit(resumed, 2, ckpt_path=tmp_path / "theirs.ckpt")
    same(resumed.net, plain_after(6))


class Batches:
    """The three batches of the trainer's present epoch."""

    def __init__(self, trainer: Any):
        self._trainer = trainer

    def __iter__(self) -> Any:
        first = 3 * self._trainer.current_epoch
        return iter([batch(step) for step in range(first, first + 3)])

    def __len__(self) -> int:
        return 3
