"""The one writer of AgentToken: issue, authenticate and revoke bearer tokens.

A token is `gbk_<8 characters>_<43 characters>`: a public id to find the row by, and 32 random bytes
of which only an HMAC under the installation's pepper is stored. The plaintext is returned once, to
the caller that issued the token.
"""

import hashlib
import hmac
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from accounts import projects
from accounts.audit_log import record_admin_entry
from accounts.models import SCOPES, Agent, AgentToken
from db import raw_sql
from db.raw_sql import read_uuid
from db.row_changes import RowChange, write_row_changes

# A token anywhere in a text, for redaction.
TOKEN_PATTERN = re.compile(r"gbk_[a-z0-9]{8}_[A-Za-z0-9_-]{43}", re.ASCII)
_HEADER = re.compile(r"[Bb]earer gbk_([a-z0-9]{8})_([A-Za-z0-9_-]{43})", re.ASCII)
_PUBLIC_ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789"
_USED_PRECISION = timedelta(minutes=1)
_LIFETIME = re.compile(r"([1-9][0-9]{0,4})([hdw])", re.ASCII)
_UNIT = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}


def parse_lifetime(text: str) -> timedelta | None:
    """Parse "12h", "90d" or "2w"; "never" is None. Raises ValueError with a sentence."""
    if text == "never":
        return None
    match = _LIFETIME.fullmatch(text)
    if match is None:
        raise ValueError(
            f"{text!r} is not a lifetime. Write hours, days or weeks as 12h, 90d or 2w, or never."
        )
    return int(match[1]) * _UNIT[match[2]]


@transaction.atomic(savepoint=False)
def issue_token(
    agent: Agent, *, scope: str = "agent", expires_in: timedelta | None, actor: str
) -> str:
    """Issue a token for `agent` and return its plaintext, which is not stored.

    `expires_in` None means that the token never expires. Raises ChangeRefused in an archive.
    """
    if scope not in SCOPES:
        raise ValueError(f"There is no scope {scope!r}. Choose one of {', '.join(SCOPES)}.")
    projects.require_active_project(agent.project)
    secret = secrets.token_urlsafe(32)
    now = timezone.now()
    token = AgentToken(
        project_id=agent.project_id,
        agent=agent,
        public_id="".join(secrets.choice(_PUBLIC_ALPHABET) for _ in range(8)),
        digest=_digest(secret),
        scope=scope,
        expires_at=None if expires_in is None else now + expires_in,
    )
    facts = {
        "agent": str(agent.id),
        "scope": scope,
        "expires_us": None
        if token.expires_at is None
        else int(token.expires_at.timestamp() * 1_000_000),
    }
    words = {"agent": agent.name, "public_id": token.public_id, **facts}
    record_admin_entry(
        agent.project_id,
        "admin.token_issued",
        actor=actor,
        subject=token.id,
        # The digest binds the row's secret, which nobody can find from it.
        facts={**facts, "digest": token.digest.hex()[:32]},
        words=words,
    )
    token.save(force_insert=True)
    return f"gbk_{token.public_id}_{secret}"


@dataclass(slots=True, frozen=True)
class TokenIdentity:
    """What a valid token identifies: every request of an agent is bound to it."""

    token: UUID
    project: UUID
    redacts: bool
    agent: UUID
    agent_name: str
    scope: str
    team: str = ""  # of the agent; empty for none


_BEARER = """SELECT token.id, token.project_id, project.redacts, token.agent_id, agent.name,
  token.scope, token.digest, token.expires_at, token.revoked_at, token.used_at, agent.team
FROM accounts_agenttoken token JOIN accounts_agent agent ON agent.id = token.agent_id
JOIN accounts_project project ON project.id = token.project_id WHERE token.public_id = %s"""


def authenticate_token(header: str | None) -> TokenIdentity | None:
    """Return the identity in an Authorization header, or None when it is not valid.

    One query (plain SQL, since every request runs it), and per token at most one write of `used_at`
    a minute. An unknown id costs the same comparison as a known one.
    """
    match = _HEADER.fullmatch(header or "")
    if match is None:
        return None
    public_id, secret = match.groups()
    row = next(iter(raw_sql.fetch_rows(_BEARER, [public_id])), None)
    if (
        not hmac.compare_digest(_digest(secret), bytes(32) if row is None else bytes(row[6]))
        or row is None
    ):
        return None
    token, project, redacts, agent, agent_name, scope = row[:6]
    expires_at, revoked_at, used_at = (_parse_timestamp(value) for value in row[7:10])
    now = timezone.now()
    if revoked_at is not None or (expires_at is not None and expires_at <= now):
        return None
    bearer = TokenIdentity(
        read_uuid(token),
        read_uuid(project),
        bool(redacts),
        read_uuid(agent),
        agent_name,
        scope,
        row[10],
    )
    if used_at is None or now - used_at >= _USED_PRECISION:
        AgentToken.objects.filter(pk=bearer.token).update(used_at=now)
    return bearer


def _parse_timestamp(value: datetime | str | None) -> datetime | None:
    """Return a timestamp of raw SQL: aware on PostgreSQL, UTC text or naive on SQLite."""
    if value is None:
        return None
    moment = value if isinstance(value, datetime) else datetime.fromisoformat(value)
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


@transaction.atomic(savepoint=False)
def revoke_agent_token(token: AgentToken, *, actor: str) -> None:
    """Revoke a token permanently. Revoking it again changes nothing."""
    unrevoked = AgentToken.objects.filter(pk=token.pk, revoked_at=None)
    if unrevoked.select_for_update().first() is None:
        return
    token.revoked_at = timezone.now()
    facts = {"agent": str(token.agent_id)}
    words = {"agent": token.agent.name, "public_id": token.public_id}
    record_admin_entry(
        token.project_id,
        "admin.token_revoked",
        actor=actor,
        subject=token.id,
        facts=facts,
        words=words,
    )
    unrevoked.update(revoked_at=token.revoked_at)


def restore_tokens(changes: Sequence[RowChange]) -> None:
    """Restore tokens to what the journal gives (manage.py rebuild)."""
    write_row_changes(AgentToken, changes)


def _digest(secret: str) -> bytes:
    return hmac.new(settings.GATEBOOK_PEPPER, secret.encode(), hashlib.sha256).digest()
