"""Facts of an agent, for verbs called without an endpoint."""

from itertools import count
from typing import Any, Final
from uuid import UUID

from accounts.models import Agent
from journal.entries import Origin
from sessions import lookup, sessions
from sessions.models import Session

NOW_US: Final = 1_800_000_000_000_000
_numbers = count(1)


def origin(agent: Agent, key: str | None = None, **more: Any) -> Origin:
    """Return a command of `agent` under `key` or a new key; `more` are columns of its envelope."""
    number = next(_numbers)
    return Origin(
        **{
            "project": agent.project_id,
            "agent": agent.id,
            "source": agent.name,
            "actor": f"agent:{agent.id.hex}",
            "lane": "command",
            "key": key or f"key {number}",
            "text": f'{{"n":{number}}}' if key is None else f'{{"key":"{key}"}}',
            "received_us": NOW_US + number,
            **more,
        }
    )


def report(agent: Agent, key: str, **more: Any) -> Origin:
    """Return a reported fact, like `origin`."""
    return origin(agent, key, lane="evidence", **more)


def opened(agent: Agent, key: str = "s", **values: Any) -> Session:
    """Open a session by command."""
    session, *_more = sessions.open_session(origin(agent), {"key": key, **values})
    return session


def touched(agent: Agent, key: str = "s") -> UUID:
    """Make a session that was only mentioned in a report; return its id."""
    identity = lookup.derive_session_id(agent.project_id, key)
    sessions.touch_sessions(report(agent, "touch"), {identity: key}, 1)
    return identity
