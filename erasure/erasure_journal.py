"""The erasure journal: a file outside of the database that repeats erasures after a restore.

Append-only, one JSON object a line, flushed to disk before anything goes. It holds ids, positions
and digests keyed with the pepper, never a word. GATEBOOK_ERASURE_JOURNAL names the file.
"""

import fcntl
import hashlib
import hmac
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import orjson
from django.conf import settings

JOURNAL_VERSION: Final = 1


def journal_path() -> Path:
    """Return the path of the file; it need not exist."""
    return Path(settings.GATEBOOK_ERASURE_JOURNAL)


def append_line(kind: str, request: UUID | None, **values: Any) -> None:
    """Append a line and flush it to disk; a single body has no request. Raises OSError."""
    path = journal_path()
    is_new = not path.exists()
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    line = orjson.dumps(
        {
            "v": JOURNAL_VERSION,
            "line": kind,
            **({"request": request.hex} if request is not None else {}),
            **values,
        },
        option=orjson.OPT_SORT_KEYS,
    )
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        size = os.fstat(handle).st_size
        is_torn = size > 0 and os.pread(handle, 1, size - 1) != b"\n"
        os.write(handle, (b"\n" if is_torn else b"") + line + b"\n")
        os.fsync(handle)
    finally:
        os.close(handle)
    if is_new:
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def read_lines() -> Iterator[dict[str, Any]]:
    """Yield the lines in order. A line that a crash cut is skipped."""
    path = journal_path()
    if not path.exists():
        return
    with path.open("rb") as file:
        for text in file:
            try:
                line = orjson.loads(text)
            except orjson.JSONDecodeError:
                continue
            if isinstance(line, dict) and line.get("v") == JOURNAL_VERSION:
                yield line


def shorten_commitment(commitment: Any) -> str:
    """Return the first 16 digits of a body's commitment, which tell entries apart."""
    return bytes(commitment or b"").hex()[:16]


def digest_artifact(project: UUID, sha256: str) -> str:
    """Return the keyed digest that stands for stored bytes: their own hash may be guessed."""
    message = f"erasure-artifact\0{project.hex}\0{sha256}".encode()
    return hmac.digest(settings.GATEBOOK_PEPPER, message, hashlib.sha256).hex()


def digest_pepper() -> str:
    """Return a fingerprint of the pepper, which the digests of a line need."""
    return hmac.digest(settings.GATEBOOK_PEPPER, b"erasure-pepper", hashlib.sha256).hex()[:16]
