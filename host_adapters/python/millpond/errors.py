"""A status that is not OK, as an exception with the plugin's own words."""

from __future__ import annotations

from dataclasses import dataclass

from . import abi

ABSENT = 2**64 - 1  # offset, wanted and got that mean nothing


@dataclass(frozen=True)
class Refusal:
    """Why the guard refused a bind: one of possibly several."""

    code: str
    subject: str
    reason: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.subject}: {self.reason} {self.remedy} [{self.code}]"


class MillpondError(RuntimeError):
    """Any failure of Millpond. `code` is MILLPOND_E_*; offset, wanted and got are None where they
    mean nothing; `native` is the errno or CUDA's code."""

    def __init__(
        self,
        message: str,
        *,
        code: int = abi.E_ARGUMENT,
        field: str = "",
        native: int = 0,
        flags: int = 0,
        offset: int | None = None,
        wanted: int | None = None,
        got: int | None = None,
    ):
        super().__init__(message)
        self.code, self.field, self.native, self.flags = code, field, native, flags
        self.offset, self.wanted, self.got = offset, wanted, got

    @property
    def poisoned(self) -> bool:
        """The store is half done: load a checkpoint, or make a new optimizer."""
        return bool(self.flags & abi.STATUS_POISONED)


class OptionError(MillpondError, ValueError):
    """An unknown option or a bad value; the message suggests the nearest known one."""


class RefusedError(MillpondError):
    """The guard refused to bind. `refusals` has every reason."""

    refusals: tuple[Refusal, ...] = ()


class NoSpaceError(MillpondError):
    """A full disk or quota; wanted and got are bytes."""


class PoisonedError(MillpondError):
    """An earlier failure left the store half done."""


class CheckpointError(MillpondError):
    """A checkpoint is absent, damaged, or of another model."""


class CancelledError(MillpondError):
    """Cancelled by Ctrl-C, or by the host."""


class ForkedError(MillpondError):
    """Called in a forked child; only the process that made the optimizer may."""


class StateError(MillpondError):
    """Not legal in the present state."""


_KINDS: dict[int, type[MillpondError]] = {
    abi.E_OPTION: OptionError,
    abi.E_STATE: StateError,
    abi.E_REFUSED: RefusedError,
    abi.E_NO_SPACE: NoSpaceError,
    abi.E_CORRUPT: CheckpointError,
    abi.E_MISSING: CheckpointError,
    abi.E_MISMATCH: CheckpointError,
    abi.E_POISONED: PoisonedError,
    abi.E_CANCELLED: CancelledError,
    abi.E_FORKED: ForkedError,
}


def error_of(status: abi.Status) -> MillpondError:
    """The exception that a failed status stands for."""

    def number(value: int) -> int | None:
        return None if value == ABSENT else value

    return _KINDS.get(status.code, MillpondError)(
        status.message.decode(errors="replace"),
        code=status.code,
        field=status.field.decode(errors="replace"),
        native=status.native,
        flags=status.flags,
        offset=number(status.offset),
        wanted=number(status.wanted),
        got=number(status.got),
    )


def refused(refusals: list[Refusal]) -> RefusedError:
    """A refusal that this side already knows, before the plugin could judge."""
    lines = "\n".join(f"- {refusal}" for refusal in refusals)
    error = RefusedError(f"Millpond cannot stream these parameters:\n{lines}", code=abi.E_REFUSED)
    error.refusals = tuple(refusals)
    return error
