"""Normalise a call and hash it, to detect duplicates.

A repeated call is rarely identical letter for letter: blanks, request ids and explanations differ.
"""

import hashlib
from collections.abc import Collection
from functools import lru_cache
from typing import Any, Final
from uuid import UUID

from django.conf import settings

from journal import summaries

# Arguments that identify the request, in lower case without signs.
_REQUEST_ARGUMENTS: Final = frozenset(
    {
        "attempt",
        "callid",
        "clientmutationid",
        "clientrequestid",
        "clienttoken",
        "correlationid",
        "idempotencykey",
        "idempotencytoken",
        "invocationid",
        "nonce",
        "requestid",
        "requesttoken",
        "retry",
        "retrycount",
        "spanid",
        "toolcallid",
        "tooluseid",
        "traceid",
        "xrequestid",
    }
)
# With these arguments, a description may be the content that is written.
_TARGET_ARGUMENTS: Final = frozenset({"query", "url", "file_path", "path"})
_COMMAND_ARGUMENTS: Final = frozenset(summaries.COMMAND_ARGUMENTS) - _TARGET_ARGUMENTS
_TARGET_REMARKS: Final = tuple(
    name for name in summaries.COMMENT_ARGUMENTS if name != "description"
)


def defining_arguments(arguments: Any, free: Collection[str] = ()) -> Any:
    """Return the arguments that define the call.

    Leaves out request ids, arguments that the agent excluded from its intent, and its remarks about
    a command or path. Returns the same object if nothing is left out. A request id whose only
    company is remarks defines the call: for example, a request that is approved.
    """
    if not isinstance(arguments, dict):
        return arguments
    remarks: Collection[str] = ()
    if not _COMMAND_ARGUMENTS.isdisjoint(arguments):
        remarks = summaries.COMMENT_ARGUMENTS
    elif not _TARGET_ARGUMENTS.isdisjoint(arguments):
        remarks = _TARGET_REMARKS
    relevant = {
        name: value for name, value in arguments.items() if name not in remarks and name not in free
    }
    remaining = {name: value for name, value in relevant.items() if not _is_request_argument(name)}
    remaining = (
        relevant if all(name in summaries.COMMENT_ARGUMENTS for name in remaining) else remaining
    )
    return remaining if len(remaining) < len(arguments) else arguments


def hash_call(project: str, tool: str, arguments_text: str) -> int:
    """Return a signed 64-bit digest of a call with these arguments as text."""
    return hash_text(project, "call", tool, _normalize_blanks(arguments_text))


def _normalize_blanks(text: str) -> str:
    """Collapse runs of blanks; in indented text, keep lines and their indentation."""
    if "\n " in text or "\n\t" in text:
        lines = [(line, line.split()) for line in text.splitlines()]
        if any(words and line[0].isspace() for line, words in lines):
            return "\n".join(
                line[: len(line) - len(line.lstrip())] + " ".join(words)
                for line, words in lines
                if words
            )
    return " ".join(text.split())


def hash_text(project: str, *parts: str) -> int:
    """Return a signed 64-bit digest, keyed by the installation's pepper; fits a database column.

    `project` is its id as text, as plain SQL returns it.
    """
    text = "\0".join(parts).encode("utf-8", "surrogatepass")
    digest_bytes = hashlib.blake2b(
        _bytes(project) + text, digest_size=8, key=settings.GATEBOOK_PEPPER[:64]
    ).digest()
    return int.from_bytes(digest_bytes, "big", signed=True)


@lru_cache(maxsize=64)
def _bytes(project: str) -> bytes:
    return UUID(project).bytes


@lru_cache(maxsize=4096)
def _is_request_argument(name: str) -> bool:
    return name.replace("_", "").replace("-", "").lower() in _REQUEST_ARGUMENTS
