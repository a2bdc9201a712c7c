"""The one writer of AgentIdentity: logins and addresses under which agents act on code hosts."""

import re
from collections.abc import Collection, Sequence
from typing import Final
from uuid import UUID

from django.db import transaction
from django.db.models import Q

from accounts.audit_log import record_admin_entry
from accounts.models import Agent
from db.clock import now_us
from db.errors import ChangeRefused
from db.row_changes import RowChange, write_row_changes
from hooks.models import AgentIdentity
from journal import entries
from ledger.states import CODE_HOSTS

MAX_IDENTITIES: Final = 50  # of an agent
_LOGIN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.\[\]-]{0,99}")
_EMAIL: Final = re.compile(r"[^@\s]{1,100}@[^@\s]{1,99}")


@transaction.atomic(savepoint=False)
def add_identity(agent: Agent, host: str, value: str, *, actor: str) -> AgentIdentity:
    """List a login or an e-mail address of `agent` on `host`. Raises ChangeRefused.

    Several agents may share one.
    """
    text = value.strip().removeprefix("@").lower()
    kind = "email" if "@" in text else "login"
    if host not in CODE_HOSTS:
        raise ChangeRefused(f"{host} is not a known code host. Use {' or '.join(CODE_HOSTS)}.")
    if not (_EMAIL if kind == "email" else _LOGIN).fullmatch(text):
        raise ChangeRefused(
            "This is not a login or an e-mail address. Enter one such as release-bot,"
            " my-app[bot] or bot@example.org."
        )
    listed = AgentIdentity.objects.filter(agent=agent)
    if listed.filter(host=host, kind=kind, value=text).exists():
        raise ChangeRefused(f"{text} is already listed for {agent.name}.")
    if listed.count() >= MAX_IDENTITIES:
        raise ChangeRefused(f"An agent has at most {MAX_IDENTITIES} identities. Remove one first.")
    identity = AgentIdentity(
        project_id=agent.project_id,
        agent=agent,
        host=host,
        kind=kind,
        value=text,
        created_by=actor,
        created_at_us=now_us(),
    )
    # The entry comes first: guards refuse an identity without one (setting_guards.py).
    _record_identity_entry(identity, "admin.identity_added", actor)
    identity.save(force_insert=True)
    return identity


@transaction.atomic(savepoint=False)
def remove_identity(identity: AgentIdentity, *, actor: str) -> None:
    """Remove an identity from the list; events that it matched stay as they are."""
    _record_identity_entry(identity, "admin.identity_removed", actor)
    identity.delete()


def find_agents_of_sender(
    project: UUID, host: str, sender: str, email_digests: Collection[str]
) -> set[UUID]:
    """Return the agents of which the sender of an event is an identity. One query."""
    is_sender = Q(kind="login", value=sender.lower())
    listed = AgentIdentity.objects.filter(
        is_sender | Q(kind="email") if email_digests else is_sender, project=project, host=host
    )
    return {
        agent
        for agent, kind, value in listed.values_list("agent", "kind", "value")[:5_000]
        if (kind == "login" and value == sender.lower())
        or (kind == "email" and digest_address(value) in email_digests)
    }


def digest_address(address: str) -> str:
    """Return a keyed digest of an e-mail address, as events keep it."""
    return entries.keyed_digest("address", address.strip().lower())


def digest_identity(value: str) -> str:
    """Return what an entry says of an identity's value."""
    return entries.keyed_digest("identity", value)


def restore_identities(changes: Sequence[RowChange]) -> None:
    """Restore identities to what the journal gives (manage.py rebuild)."""
    write_row_changes(AgentIdentity, changes)


def _record_identity_entry(identity: AgentIdentity, kind: str, actor: str) -> None:
    record_admin_entry(
        identity.project_id,
        kind,
        actor=actor,
        subject=identity.agent_id,
        facts={
            "identity": identity.id.hex,
            "host": identity.host,
            "identity_kind": identity.kind,
            "value": digest_identity(identity.value),
        },
        words={"host": identity.host, "identity": identity.value},
    )
