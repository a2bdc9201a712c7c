"""What makes two calls the same: tool and arguments, blanks aside, without what only names or explains the request.

An agent that does a thing again rarely says it letter for letter: a line end more, an id of the request of its own,
other words about why.
"""

import hashlib
from collections.abc import Collection
from functools import lru_cache
from typing import Any, Final
from uuid import UUID

from django.conf import settings

from journal import gists

# Arguments that name a request and not what it does, as they are called without signs and in small letters.
_OF_THE_REQUEST: Final = frozenset(
    {
        *("requestid", "xrequestid", "clientrequestid", "requesttoken", "clientmutationid", "clienttoken"),
        *("idempotencykey", "idempotencytoken", "nonce", "attempt", "retry", "retrycount"),
        *("traceid", "spanid", "correlationid", "callid", "toolcallid", "tooluseid", "invocationid"),
    }
)
_AIMS: Final = frozenset({"query", "url", "file_path", "path"})  # whose description may be what is written there
_COMMANDS: Final = frozenset(gists.RUNS) - _AIMS
_BESIDE_AIMS: Final = tuple(name for name in gists.TALK if name != "description")


def meant(arguments: Any, free: Collection[str] = ()) -> Any:
    """The arguments without those that name the request, that the agent left out of its intent, or that are its words
    about a command or path. The very same object where nothing is left out.

    A name of the request beside which nothing is left but talk is what the call is about: a request that is approved.
    """
    if not isinstance(arguments, dict):
        return arguments
    talk: Collection[str] = ()
    if not _COMMANDS.isdisjoint(arguments):
        talk = gists.TALK
    elif not _AIMS.isdisjoint(arguments):
        talk = _BESIDE_AIMS
    said = {name: value for name, value in arguments.items() if name not in talk and name not in free}
    left = {name: value for name, value in said.items() if not _is_of_the_request(name)}
    left = said if all(name in gists.TALK for name in left) else left
    return left if len(left) < len(arguments) else arguments


def digest(project: str, tool: str, said: str) -> int:
    """64 bits with a sign for a call whose arguments that count say this as text."""
    return of_text(project, "call", tool, _levelled(said))


def _levelled(said: str) -> str:
    """The text with a blank for each run of them; where lines are indented, by lines and with that: it is meant so."""
    if "\n " in said or "\n\t" in said:
        lines = [(line, line.split()) for line in said.splitlines()]
        if any(words and line[0].isspace() for line, words in lines):
            return "\n".join(line[: len(line) - len(line.lstrip())] + " ".join(words) for line, words in lines if words)
    return " ".join(said.split())


def of_text(project: str, *parts: str) -> int:
    """64 bits with a sign, under the installation's pepper: what a column of either database holds.

    `project` is its id, as plain SQL gives it as text.
    """
    text = "\0".join(parts).encode("utf-8", "surrogatepass")
    whole = hashlib.blake2b(_bytes(project) + text, digest_size=8, key=settings.GATEBOOK_PEPPER[:64]).digest()
    return int.from_bytes(whole, "big", signed=True)


@lru_cache(maxsize=64)
def _bytes(project: str) -> bytes:
    return UUID(project).bytes


@lru_cache(maxsize=4096)
def _is_of_the_request(name: str) -> bool:
    return name.replace("_", "").replace("-", "").lower() in _OF_THE_REQUEST
