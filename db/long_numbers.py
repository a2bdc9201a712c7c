"""JSON with integers of any size, digit for digit.

orjson is fast but limited to 64 bits: it reads longer integers as floats, and cannot write them.
Agents send such numbers (ids of chats and blocks), and every copy must equal what they sent.
"""

import json
import re
from typing import Any, Final

import orjson

_LONG: Final = re.compile(r"[0-9]{19}")


def parse_json(text: str) -> Any:
    """Parse JSON that was strictly validated on arrival. Raises ValueError otherwise."""
    return json.loads(text) if _LONG.search(text) else orjson.loads(text)


def to_json_bytes(value: Any, option: int = 0) -> bytes:
    """Serialize like orjson; long integers limit options to sort and indent."""
    try:
        return orjson.dumps(value, option=option)
    except TypeError:
        indent = 2 if option & orjson.OPT_INDENT_2 else None
        separators = (",", ": ") if indent else (",", ":")
        sorts = bool(option & orjson.OPT_SORT_KEYS)
        return json.dumps(
            value,
            ensure_ascii=False,
            allow_nan=False,
            sort_keys=sorts,
            indent=indent,
            separators=separators,
        ).encode()
