"""Tokens for the command `gatebook connect`: granted on a page, fetched by the command.

The command knows a secret; the page's address contains only the secret's SHA-256, the code. An
administrator grants a token for that code. The command fetches it with the secret, once: only then
is the token issued, so that no token is ever stored. What waits is kept as a row of Django's login
sessions, which nobody is signed in to and which expires by itself.
"""

import hashlib
import re
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from django.contrib.sessions.backends.db import SessionStore
from django.contrib.sessions.models import Session as LoginSession
from django.db import transaction
from django.utils import timezone

from accounts import agents, projects, tokens
from accounts.models import Project

GRANT_LIFETIME_S: Final = 600
_CODE: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)
_SECRET: Final = re.compile(r"[A-Za-z0-9_-]{43}", re.ASCII)
_FIELD: Final = "connect_grant"


@dataclass(frozen=True, slots=True)
class ConnectedAgent:
    """The token that a command fetched, and whose it is."""

    token: str
    agent: str
    project: str


def is_connect_code(code: str) -> bool:
    """Return True for the form of a code."""
    return _CODE.fullmatch(code) is not None


def format_check_code(code: str) -> str:
    """Return the part of a code that a person compares with the terminal."""
    return f"{code[:4]}-{code[4:8]}-{code[8:12]}".upper()


def _store_key(code: str) -> str:
    """Return the key of the stored grant; it differs from the code, which is in an address."""
    return hashlib.sha256(f"gatebook connect {code}".encode()).hexdigest()[:40]


@transaction.atomic(savepoint=False)
def grant_token(project: Project, code: str, agent: str, *, expires: str, actor: str) -> None:
    """Let the command with the secret of `code` fetch a token for an agent, for ten minutes.

    The agent is created if it is missing. A second grant for the code replaces the first one.
    Raises ChangeRefused.
    """
    projects.require_active_project(project)
    stored = agents.ensure_agent(project, agent, actor=actor)
    tokens.parse_lifetime(expires)
    grant = {
        "project": str(project.id),
        "agent": str(stored.id),
        "expires": expires,
        "actor": actor,
    }
    LoginSession.objects.update_or_create(
        session_key=_store_key(code),
        defaults={
            "session_data": SessionStore().encode({_FIELD: grant}),
            "expire_date": timezone.now() + timedelta(seconds=GRANT_LIFETIME_S),
        },
    )


def has_grant(secret: str) -> bool:
    """Return whether a token is granted for a secret. Needs no transaction.

    Anybody may ask, again and again, so the answer takes one read at most.
    """
    return (
        _SECRET.fullmatch(secret) is not None
        and LoginSession.objects.filter(**_match_grant(secret)).exists()
    )


def _match_grant(secret: str) -> dict[str, Any]:
    key = _store_key(hashlib.sha256(secret.encode()).hexdigest())
    return {"session_key": key, "expire_date__gt": timezone.now()}


@transaction.atomic(savepoint=False)
def claim_token(secret: str) -> ConnectedAgent | None:
    """Issue the token that was granted for a secret, and return it; None if none is.

    Each grant is used once, also by two requests at a time. Raises ChangeRefused.
    """
    if _SECRET.fullmatch(secret) is None:
        return None
    waiting = _match_grant(secret)
    row = LoginSession.objects.filter(**waiting).select_for_update().first()
    grant: dict[str, Any] | None = None if row is None else row.get_decoded().get(_FIELD)
    if grant is None or not LoginSession.objects.filter(**waiting).delete()[0]:
        return None
    agent = agents.load_agent(UUID(grant["project"]), UUID(grant["agent"]))
    if agent is None:
        return None
    token = tokens.issue_token(
        agent, expires_in=tokens.parse_lifetime(grant["expires"]), actor=grant["actor"]
    )
    return ConnectedAgent(token, agent.name, agent.project.name)
