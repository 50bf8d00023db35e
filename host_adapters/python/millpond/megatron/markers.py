"""What of streamed state stands in Megatron's own checkpoint: for each rank and chain member a
small ShardedObject with the save's id, the groups and the step. The bytes are in the store's save.

Plain values would not do: rank 0's reach every rank. Keys name rank and member, so that each rank
gets its own back; `retarget` chooses another rank's where the checkpoint has fewer ranks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from .. import abi
from ..errors import CheckpointError

_KEY = re.compile(
    r"^(?P<before>.*optimizer\.millpond\.)(?P<rank>rank\d{5})(?P<member>\.opt\d+_\d+)$"
)
ENTRY = "millpond"  # in the optimizer's part of a state dict


def marker_of(uid: str, data: dict[str, Any]) -> Any:
    """The ShardedObject of the store `uid` ("rank00001/opt0_0"). `data` is filled in until it is
    saved."""
    from megatron.core.dist_checkpointing.mapping import ShardedObject

    key = "optimizer.millpond." + uid.replace("/", ".")
    return ShardedObject(key, data, (1,), (0,), replica_id=0)


def markers_in(state: Any) -> Iterator[Any]:
    """All markers of a state dict, however deep."""
    if isinstance(state, dict):
        for value in state.values():
            yield from markers_in(value)
    elif isinstance(state, list | tuple):
        for value in state:
            yield from markers_in(value)
    elif _KEY.match(str(getattr(state, "key", ""))) and hasattr(state, "replica_id"):
        yield state


def entries_in(state: Any) -> Iterator[dict[str, Any]]:
    """What markers have become in a loaded state dict."""
    if isinstance(state, dict):
        if isinstance(state.get(ENTRY), dict) and "save" in state[ENTRY]:
            yield state[ENTRY]
        else:
            for value in state.values():
                yield from entries_in(value)
    elif isinstance(state, list | tuple):
        for value in state:
            yield from entries_in(value)


def retarget(markers: list[Any], present: set[str]) -> list[str]:
    """Makes each marker ask for a key that the checkpoint has: its own, else the first rank's with
    that member, under the prefix that the checkpoint uses. Returns the keys that it lacks. Several
    ranks may then ask for one key: `share`."""
    missing = []
    by_member: dict[str, list[str]] = {}
    for key in sorted(present):
        if match := _KEY.match(key):
            by_member.setdefault(match["member"], []).append(key)
    for marker in markers:
        match = _KEY.match(marker.key)
        assert match is not None
        candidates = by_member.get(match["member"], [])
        own = [key for key in candidates if f".{match['rank']}." in key]
        if not candidates:
            missing.append(marker.key)
        else:
            marker.key = (own or candidates)[0]
    return missing


def share(markers: list[Any], asked: list[list[str]], rank: int) -> None:
    """`asked`: every rank's keys. Megatron wants one owner of each object: the first rank that asks
    for it; the others read it as replicas."""
    for marker in markers:
        first = next(number for number, keys in enumerate(asked) if marker.key in keys)
        marker.replica_id = 0 if first == rank else rank + 1


def unclaimed(present: set[str], asked: list[list[str]]) -> dict[str, Any]:
    """Markers of the checkpoint that no rank asks for, since there are fewer: Megatron's strict
    loads want all of it asked for. By key."""
    from megatron.core.dist_checkpointing.mapping import ShardedObject

    claimed = {key for keys in asked for key in keys}
    return {
        key: ShardedObject(key, None, (1,), (0,), replica_id=0) for key in sorted(present - claimed)
    }


def keys_in_checkpoint(directory: str) -> set[str]:
    """Keys of the markers that a torch_dist checkpoint has. Reads its metadata."""
    from megatron.core.dist_checkpointing.serialization import load_sharded_metadata

    metadata = load_sharded_metadata(directory)
    keys = {getattr(value, "key", "") for value in metadata.values()}
    return {key for key in keys if _KEY.match(key)}


def save_id_of(entries: list[dict[str, Any]], directory: str) -> str:
    """The one save that all entries name."""
    found = {entry["save"] for entry in entries}
    if len(found) != 1 or not all(found):
        raise CheckpointError(
            f"{directory}: the markers of streamed optimizer state name the saves "
            f"{sorted(map(str, found))}, one was expected: the checkpoint was put together from "
            "several. Load another one, or --no-load-optim.",
            code=abi.E_CORRUPT,
        )
    return str(found.pop())
