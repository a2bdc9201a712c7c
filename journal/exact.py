"""JSON with whole numbers of any size, digit for digit.

orjson is fast and knows 64 bits: what is longer it reads as a float, and does not write. Agents send such numbers
(ids of chats and of blocks), and what is shown, compared or sent on must be what they sent.
"""

import json
import re
from typing import Any, Final

import orjson

_LONG: Final = re.compile(r"[0-9]{19}")


def loads(text: str) -> Any:
    """The value of JSON that was strictly read on arrival. Raises ValueError for anything else."""
    return json.loads(text) if _LONG.search(text) else orjson.loads(text)


def dumps(value: Any, option: int = 0) -> bytes:
    """`value` as orjson writes it; where a number is long, OPT_SORT_KEYS and OPT_INDENT_2 of `option` count."""
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
