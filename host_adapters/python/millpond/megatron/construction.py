"""Where Megatron builds its optimizers: classes are wrapped, not functions, since callers import
`get_megatron_optimizer` by name before anybody can replace it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ..errors import Refusal, refused
from .deferred import deferred_mains
from .session import Session


class Wrapped:
    """The wrappers of a session, until `restore`."""

    def __init__(self, session: Session):
        from megatron.core.optimizer import distrib_optimizer, optimizer

        self._session = session
        self._originals: list[tuple[Any, str, Any]] = []
        distributed = distrib_optimizer.DistributedOptimizer
        self._replace(distributed, "__init__", self._build)
        self._replace(optimizer.ChainedOptimizer, "__init__", self._chain)
        for name in ("Float16OptimizerWithFloat16Params", "FP32Optimizer"):
            self._replace(getattr(optimizer, name), "__init__", self._refuse)
        builder = distributed.__dict__["_build_model_and_main_param_groups"]
        self._originals.append((distributed, "_build_model_and_main_param_groups", builder))
        distributed._build_model_and_main_param_groups = classmethod(_deferring(builder.__func__))

    def _replace(self, kind: Any, name: str, replacement: Callable[..., None]) -> None:
        original = kind.__dict__[name]
        self._originals.append((kind, name, original))

        @functools.wraps(original)
        def wrapper(made: Any, *args: Any, **kwargs: Any) -> None:
            replacement(original, made, *args, **kwargs)

        setattr(kind, name, wrapper)

    def restore(self) -> None:
        """Megatron's own classes again; optimizers that were built stay streamed."""
        while self._originals:
            kind, name, original = self._originals.pop()
            setattr(kind, name, original)

    def _build(self, original: Any, made: Any, *args: Any, **kwargs: Any) -> None:
        original(made, *args, **kwargs)
        self._session.adopt(made)

    def _chain(self, original: Any, made: Any, *args: Any, **kwargs: Any) -> None:
        original(made, *args, **kwargs)
        self._session.close_chain(made)

    def _refuse(self, _original: Any, made: Any, *_: Any, **__: Any) -> None:
        raise refused(
            [
                Refusal(
                    "feature_active",
                    "optimizer.non_distributed",
                    f"Megatron builds a {type(made).__name__}: its state is not sharded.",
                    "Add --use-distributed-optimizer.",
                )
            ]
        )


def _deferring(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def build(cls: Any, *args: Any, **kwargs: Any) -> Any:
        with deferred_mains():
            return original(cls, *args, **kwargs)

    return build
