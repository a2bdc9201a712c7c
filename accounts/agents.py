"""The one writer of Agent."""

import re
from collections.abc import Sequence
from uuid import UUID

from django.contrib.auth.models import User
from django.db import IntegrityError, transaction

from accounts.audit_log import record_admin_entry
from accounts.models import Agent, Membership, Project
from accounts.people import ensure_pseudonym
from db.errors import ChangeRefused
from db.row_changes import RowChange, write_row_changes
from journal.entries import SYSTEM_SOURCE

MAX_CHARTER_CHARACTERS = 20_000
_TEAM = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")


@transaction.atomic(savepoint=False)
def ensure_agent(
    project: Project, name: str, owner: User | None = None, *, actor: str = SYSTEM_SOURCE
) -> Agent:
    """Return the agent called `name` in `project`, created if missing.

    An agent without an owner gets `owner`. An agent with another owner is refused, because its
    owner decides who may approve for it. An owner must belong to the project. Raises ChangeRefused.
    """
    if not name or len(name) > 64 or not name.isprintable() or name != name.strip():
        raise ChangeRefused(
            "An agent's name has 1 to 64 printable characters, without spaces at its ends."
        )
    # An entry's source is the agent's name, one of these separators, and the agent's own part.
    if "/" in name or ":" in name or name == SYSTEM_SOURCE:
        raise ChangeRefused(
            f"An agent's name cannot contain / or :, or be {SYSTEM_SOURCE}. Choose another."
        )
    if owner is not None and not Membership.objects.filter(project=project, user=owner).exists():
        raise ChangeRefused(
            f"{owner.get_username()} does not belong to {project.name}. Invite them first,"
            " or choose another owner."
        )
    agent = _find_or_create(project, name, owner, actor)
    if owner is not None and agent.owner_id != owner.pk:
        if agent.owner is not None:
            raise ChangeRefused(
                f"The agent {name} belongs to {agent.owner.get_username()}. Choose another name."
            )
        agent.owner = owner
        # The entry comes first: guards refuse an owner without one (account_guards.py).
        _record(agent, "admin.agent_changed", actor)
        agent.save(update_fields=["owner"])
    return agent


def _find_or_create(project: Project, name: str, owner: User | None, actor: str) -> Agent:
    stored = Agent.objects.select_related("owner").filter(project=project, name=name)
    agent = stored.first()
    if agent is not None:
        return agent
    agent = Agent(project=project, name=name, owner=owner)
    try:
        with transaction.atomic():
            _record(agent, "admin.agent_created", actor)
            agent.save(force_insert=True)
    except IntegrityError:  # another process created it first
        return stored.get()
    return agent


@transaction.atomic(savepoint=False)
def set_agent_charter(agent: Agent, charter: str, *, version: int, actor: str) -> None:
    """Store an agent's charter as the version after `version`, if it differs.

    The charter holds what the agent is for, and its standing orders. Raises ChangeRefused when the
    charter is no longer at `version`, has more than MAX_CHARTER_CHARACTERS or a NUL.
    """
    charter = charter.replace("\r\n", "\n").strip()
    if len(charter) > MAX_CHARTER_CHARACTERS or "\0" in charter:
        raise ChangeRefused(
            f"A charter has at most {MAX_CHARTER_CHARACTERS} characters and no NUL. Shorten it."
        )
    stored = Agent.objects.select_for_update().get(pk=agent.pk)
    if stored.charter_version != version:
        raise ChangeRefused(
            "Another person changed the agent's charter since you opened it. Reload and compare."
        )
    if stored.charter == charter:
        return
    agent.charter, agent.charter_version = charter, version + 1
    agent.save(update_fields=["charter", "charter_version"])
    record_admin_entry(
        agent.project_id,
        "admin.agent_chartered",
        actor=actor,
        subject=agent.id,
        facts={"agent": str(agent.id), "charter_version": agent.charter_version},
        words={"agent": agent.name, "charter": charter},
    )


@transaction.atomic(savepoint=False)
def set_agent_team(agent: Agent, team: str, *, actor: str = SYSTEM_SOURCE) -> None:
    """Put an agent into a team, or out of its team for an empty name.

    The same team changes nothing. Agents of one team may write for each other's sessions. Raises
    ChangeRefused.
    """
    if team and not _TEAM.fullmatch(team):
        raise ChangeRefused(
            "An agent team's name has 1 to 64 characters of a-z, 0-9 and hyphen. Choose another."
        )
    stored = Agent.objects.select_for_update().get(pk=agent.pk)
    if stored.team == team:
        return
    agent.team = team
    record_admin_entry(
        agent.project_id,
        "admin.agent_team_changed",
        actor=actor,
        subject=agent.id,
        facts={"agent": str(agent.id), "team": team},
        words={"agent": agent.name, "team": team, "before": stored.team},
    )
    agent.save(update_fields=["team"])


def load_agent(project: UUID, agent: UUID) -> Agent | None:
    """Return an agent of a project with its project, or None."""
    return Agent.objects.select_related("project").filter(project_id=project, pk=agent).first()


def import_agent(project: Project, name: str, charter: str, version: int) -> Agent:
    """Return an archive's agent, stored with its charter where it is missing."""
    defaults = {"charter": charter, "charter_version": version}
    return Agent.objects.get_or_create(project=project, name=name, defaults=defaults)[0]


def _record(agent: Agent, kind: str, actor: str) -> None:
    owner = agent.owner.get_username() if agent.owner else ""
    record_admin_entry(
        agent.project_id,
        kind,
        actor=actor,
        subject=agent.id,
        facts={
            "agent": str(agent.id),
            "owner": ensure_pseudonym(agent.owner) if agent.owner else "",
            "team": agent.team,
        },
        words={"agent": agent.name, "owner": owner},
    )


def restore_agents(changes: Sequence[RowChange]) -> None:
    """Restore agents to what the journal gives (manage.py rebuild)."""
    write_row_changes(Agent, changes)
