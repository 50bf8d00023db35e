"""Reads checkpoints with nothing but checkpoint/FORMAT.md, numpy and xxhash: the other program that
the C++ code is held against. It checks every digest and every sum, and shares no code with it.

    read_checkpoint.py verify BASE [SAVE_ID]           prints what is in it as JSON
    read_checkpoint.py mains-are-bf16 BASE DIRECTORY   mains equal DIRECTORY/<shard>.bf16 widened
    read_checkpoint.py segments BASE DIRECTORY         writes DIRECTORY/<shard>.<segment>.f32
    read_checkpoint.py page FORMAT.md                  the page's worked example
"""

import json
import re
import struct
import sys
import tempfile
from pathlib import Path

import numpy as np
import xxhash

SEGMENTS = ("main", "exp_avg", "exp_avg_sq")
ITEM_BYTES = {"fp32": 4, "bf16": 2, "fp16_s256": 2, "fp8_e4m3_s256": 1, "fp8_e5m2_s256": 1}


class Damaged(Exception):
    pass


def require(condition, message):
    if not condition:
        raise Damaged(message)


def digest(data: bytes) -> str:
    return xxhash.xxh3_128_hexdigest(data)


def block_sum(uid: str, bucket: int, segment: int, block: int, data: bytes) -> int:
    place = struct.pack("<QIIQ", xxhash.xxh3_64_intdigest(uid.encode()), bucket, segment, block)
    return xxhash.xxh3_64_intdigest(data, seed=xxhash.xxh3_64_intdigest(place))


def small_float(byte: int, exponent_bits: int, finite_only: bool) -> float:
    mantissa_bits = 7 - exponent_bits
    bias = (1 << (exponent_bits - 1)) - 1
    sign = -1.0 if byte & 0x80 else 1.0
    exponent = byte >> mantissa_bits & ((1 << exponent_bits) - 1)
    mantissa = byte & ((1 << mantissa_bits) - 1)
    top = (1 << exponent_bits) - 1
    if finite_only and exponent == top and mantissa == (1 << mantissa_bits) - 1:
        return float("nan")
    if not finite_only and exponent == top:
        return float("nan") if mantissa else sign * float("inf")
    if exponent == 0:
        return sign * mantissa * 2.0 ** (1 - bias - mantissa_bits)
    return sign * (1 + mantissa / (1 << mantissa_bits)) * 2.0 ** (exponent - bias)


TABLES = {
    "fp8_e4m3_s256": np.array([small_float(b, 4, True) for b in range(256)], np.float32),
    "fp8_e5m2_s256": np.array([small_float(b, 5, False) for b in range(256)], np.float32),
}


def block_bytes(form: str, elements: int) -> int:
    size = elements * ITEM_BYTES[form] + (elements // 256 * 4 if form.endswith("_s256") else 0)
    return -(-size // 4096) * 4096


def values_of_block(form: str, data: bytes, elements: int) -> np.ndarray:
    items = data[: elements * ITEM_BYTES[form]]
    if form == "fp32":
        return np.frombuffer(items, "<f4")
    if form == "bf16":
        return (np.frombuffer(items, "<u2").astype("<u4") << 16).view("<f4")
    if form == "fp16_s256":
        values = np.frombuffer(items, "<f2").astype(np.float32)
    else:
        values = TABLES[form][np.frombuffer(items, np.uint8)]
    scales = np.frombuffer(data[len(items) : len(items) + elements // 256 * 4], "<f4")
    return (values.reshape(-1, 256) * scales[:, None]).reshape(-1)


class Store:
    def __init__(self, directory: Path, record: dict):
        text = (directory / "manifest.json").read_bytes()
        require(len(text) == record["manifest_bytes"], f"{directory}: size of the manifest")
        require(digest(text) == record["manifest"], f"{directory}: digest of the manifest")
        require(text.startswith(b'{"format": "millpond-manifest", "version": 1,'), "format")
        self.directory = directory
        self.manifest = json.loads(text)
        require(self.manifest["uid"] == record["uid"], f"{directory}: uid")
        self.blocks_checked = 0
        self.segments = [self._bucket(b) for b in range(len(self.manifest["buckets"]))]

    def _bucket(self, number: int) -> dict:
        """Values of every segment that is in the file, by segment index; all sums checked."""
        bucket = self.manifest["buckets"][number]
        data = (self.directory / f"bucket{number:05d}.bin").read_bytes()
        raw_sums = (self.directory / f"bucket{number:05d}.sums").read_bytes()
        require(digest(raw_sums) == bucket["sums"], f"digest of the sums of bucket {number}")
        present = [] if bucket["kind"] == "moments_only" else [0]
        present += [1, 2] if bucket["moments_present"] else []
        size, elements = self.manifest["block_elements"], bucket["elements"]
        lengths = [min(size, elements - at) for at in range(0, elements, size)]
        sums = struct.unpack(f"<{len(present) * len(lengths)}Q", raw_sums)
        values, offset, index = {}, 0, 0
        for place, segment in enumerate(present):
            require(bucket["segment_offsets"][place] == offset, "offset of a segment")
            form = self.manifest[SEGMENTS[segment]]
            parts = []
            for block, count in enumerate(lengths):
                stored = data[offset : offset + block_bytes(form, count)]
                require(len(stored) == block_bytes(form, count), "the file is too short")
                found = block_sum(self.manifest["uid"], number, segment, block, stored)
                require(found == sums[index], f"bucket {number} {SEGMENTS[segment]} block {block}")
                parts.append(values_of_block(form, stored, count))
                offset += len(stored)
                index += 1
            values[segment] = np.concatenate(parts)
        require(offset == len(data) == bucket["bytes"], f"size of bucket {number}")
        self.blocks_checked += index
        return values

    def shard(self, number: int, segment: int) -> np.ndarray | None:
        """None: the shard has no such segment. Moments that are not there are zeros."""
        shard = self.manifest["shards"][number]
        count = shard["flat_range"][1] - shard["flat_range"][0]
        if segment == 0 and shard["kind"] == "moments_only":
            return None
        if count == 0 or segment not in self.segments[shard["bucket"]]:
            return np.zeros(count, np.float32)
        return self.segments[shard["bucket"]][segment][shard["offset"] : shard["offset"] + count]


def read_commit(directory: Path) -> dict:
    text = (directory / "COMMIT.json").read_bytes()
    require(text.startswith(b'{"format": "millpond-commit", "version": 1,'), "format of the commit")
    end = b',\n"digest": "' + digest(text[:-48]).encode() + b'"}\n'
    require(text[-48:] == end, f"{directory}: digest of the commit")
    commit = json.loads(text)
    require(commit["save_id"] == directory.name, f"{directory}: save id")
    return commit


def read(base: Path, save_id: str | None = None) -> tuple[dict, list[Store]]:
    saves = [d for d in base.iterdir() if re.fullmatch("[0-9a-f]{32}", d.name)]
    commits = [read_commit(d) for d in saves if (d / "COMMIT.json").exists()]
    if save_id is not None:
        commits = [c for c in commits if c["save_id"] == save_id]
    require(commits, f"{base}: no committed save")
    commit = max(commits, key=lambda c: c["sequence"])
    return commit, [Store(base / commit["save_id"] / r["uid"], r) for r in commit["stores"]]


def verify(base: str, save_id: str | None = None) -> dict:
    commit, stores = read(Path(base), save_id)
    return {
        "save_id": commit["save_id"],
        "sequence": commit["sequence"],
        "blocks_checked": sum(s.blocks_checked for s in stores),
        "steps": {s.manifest["uid"]: s.manifest["step"] for s in stores},
        "shards": sum(len(s.manifest["shards"]) for s in stores),
    }


def mains_are_bf16(base: str, directory: str) -> dict:
    result = verify(base)
    elements = 0
    for store in read(Path(base))[1]:
        for number, shard in enumerate(store.manifest["shards"]):
            main = store.shard(number, 0)
            if main is None:
                continue
            model = np.frombuffer((Path(directory) / f"{number}.bf16").read_bytes(), "<u2")
            widened = model.astype("<u4") << 16
            require(len(widened) == len(main), f"{shard['key']}: number of elements")
            differ = np.flatnonzero(widened != main.view("<u4"))
            require(len(differ) == 0, f"{shard['key']}: element {differ[:1]} differs")
            elements += len(main)
    return result | {"elements_compared": elements}


def segments(base: str, directory: str) -> dict:
    for store in read(Path(base))[1]:
        for number in range(len(store.manifest["shards"])):
            for index, name in enumerate(SEGMENTS):
                values = store.shard(number, index)
                if values is not None:
                    path = Path(directory) / f"{number}.{name}.f32"
                    path.write_bytes(np.ascontiguousarray(values, "<f4").tobytes())
    return verify(base)


def page(path: str) -> dict:
    blocks = re.findall(r"^```(\w+) (\S+)\n(.*?)^```", Path(path).read_text(), re.M | re.S)
    require(len(blocks) == 4, "the page has four files")
    with tempfile.TemporaryDirectory() as base:
        save = next(json.loads(t)["save_id"] for _, name, t in blocks if name == "COMMIT.json")
        store = Path(base) / save / "rank00000/opt0_0"
        store.mkdir(parents=True)
        for language, name, text in blocks:
            data = text.encode()
            if language == "hex":
                data = b""
                for words in (line.split() for line in text.splitlines()):
                    offset = int(words[1] if words[0] == "end" else words[0], 16)
                    data = data.ljust(offset, b"\0")
                    if words[0] != "end":
                        data += bytes(int(word, 16) for word in words[1:])
            (store.parent.parent / name if name == "COMMIT.json" else store / name).write_bytes(
                data
            )
        (example,) = read(Path(base))[1]
        require(example.shard(0, 0).tolist() == [1, -2, 0.5], "mains of the example")
        require(example.shard(0, 1).tolist() == [0.25, 0, -1], "exp_avg of the example")
        require(example.shard(0, 2).tolist() == [0.5, 0, 2], "exp_avg_sq of the example")
        return verify(base)


COMMANDS = {
    "verify": verify,
    "mains-are-bf16": mains_are_bf16,
    "segments": segments,
    "page": page,
}

if __name__ == "__main__":
    if len(sys.argv) < 3 or sys.argv[1] not in COMMANDS:
        sys.exit(__doc__)
    try:
        print(json.dumps(COMMANDS[sys.argv[1]](*sys.argv[2:])))
    except Damaged as problem:
        sys.exit(f"damaged: {problem}")
