"""Changes inputs at random: bytes anywhere, JSON values, and the values and tensors of messages."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from random import Random
from typing import Any

from consort.core.limits import Limits, read_json
from consort.errors import Refused

Mutator = Callable[[bytes, Random], bytes]
NUMBERS = [0, -1, 1, 2**31, 2**63, -(2**63) - 1, 10**17, 10**40, 1e308, -1e308, 5e-324, 0.5]
ODD: list[Any] = [
    *NUMBERS, float("nan"), float("inf"), True, False, None, "", "x" * 300, "\ud800", "../x", "\0",
    [], {}, [[]], {"tensor": 0}, {"tensor": -1}, {"tensor": True}, {"params": []}, {"map": []},
    {"params": [["w", 0]]}, {"params": [[0, 0]]}, {"tuple": []}, {"record": "Server", "fields": {}},
    "F8_E5M2", "F16", "F64", "C64", "BOOL", "train", "test", "secure.keys", "examples", "model",
]  # fmt: skip
_SPECIAL = [struct.pack("<I", n) for n in (0x7FC00000, 0x7F800000, 0xFF800000, 0x7F7FFFFF, 0)]
"""NaN, infinities, the largest number and 0 in single precision."""
_UNREADABLE = (
    Refused,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    RecursionError,
    struct.error,
)


def mutate_bytes(data: bytes, random: Random) -> bytes:
    """Flips, overwrites, inserts, removes or repeats some bytes."""
    found = bytearray(data)
    for _ in range(random.choice((1, 1, 2, 4, 16))):
        place = random.randrange(len(found) + 1)
        length = random.choice((1, 1, 2, 4, 8, 64))
        match random.randrange(6):
            case 0 if place < len(found):
                found[place] ^= 1 << random.randrange(8)
            case 1:
                found[place : place + 1] = bytes([random.randrange(256)])
            case 2:
                found[place:place] = random.randbytes(length)
            case 3:
                del found[place : place + length]
            case 4:
                found[place:place] = found[place : place + length] * random.choice((1, 2, 50))
            case _:
                number = struct.pack("<Q", random.choice((0, 1, 2**32, 2**63, 2**64 - 1)))
                found[place : place + 8] = number
    return bytes(found)


def mutate_json(value: Any, random: Random) -> Any:
    """Replaces, removes, repeats, wraps or moves a part of JSON values."""
    if isinstance(value, dict | list) and value and random.random() < 0.85:
        keys: list[Any] = list(value) if isinstance(value, dict) else list(range(len(value)))
        key = random.choice(keys)
        changed: Any = dict(value) if isinstance(value, dict) else list(value)
        match random.randrange(8):
            case 0:
                del changed[key]
            case 1 if isinstance(changed, dict):
                changed[str(random.choice(ODD))[:300]] = changed.pop(key)
            case 1 | 2 if isinstance(changed, list):
                changed.insert(random.randrange(len(changed) + 1), changed[key])
            case 3 if isinstance(changed, list):
                random.shuffle(changed)
            case _:
                changed[key] = mutate_json(changed[key], random)
        return changed
    match random.randrange(5):
        case 0:
            return [value] * random.choice((1, 2, 40))
        case 1:
            for _ in range(random.choice((1, 40, 2000))):
                value = [value]
            return value
        case _:
            return random.choice(ODD)


def mutate_text(data: bytes, random: Random) -> bytes:
    """Changes JSON: its values, or else its bytes."""
    try:
        value = read_json(data, Limits())
        return json.dumps(mutate_json(value, random)).encode()
    except (Refused, ValueError, RecursionError):
        return mutate_bytes(data, random)


def mutate_message(data: bytes, random: Random) -> bytes:
    """Changes a message: its values, its table of tensors, its numbers, or any of its bytes."""
    choice = random.random()
    if choice < 0.2:
        return mutate_bytes(data, random)
    try:
        (length,) = struct.unpack_from("<Q", data)
        table = read_json(data[8 : 8 + length], Limits())
        rest = data[8 + length :]
        if choice < 0.35:
            table = mutate_json(table, random)
        elif choice < 0.5 and rest:
            place = 4 * random.randrange(max(len(rest) // 4, 1))
            number = random.choice(_SPECIAL) if random.random() < 0.7 else random.randbytes(4)
            rest = rest[:place] + number + rest[place + 4 :]
        else:
            values = read_json(table["__metadata__"]["consort"].encode(), Limits())
            for _ in range(random.choice((1, 1, 1, 2, 3))):
                values = mutate_json(values, random)
            table["__metadata__"]["consort"] = json.dumps(values)
        header = json.dumps(table).encode()
    except _UNREADABLE:
        return mutate_bytes(data, random)
    return struct.pack("<Q", len(header)) + header + rest
