"""Checks of members, agents, teams, tokens and repositories: who may do what, which refs count."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

from django.db.models import QuerySet

from accounts import agents, invitations, people, repositories, teams, tokens
from accounts.models import (
    Agent,
    AgentToken,
    Invitation,
    Membership,
    Repository,
    Team,
    TeamMember,
)
from approvals import review_settings
from approvals.models import ReviewSettings
from db.ids import new_uuid7
from journal.entries import keyed_digest
from journal.models import Entry
from rebuild.past_voters import MEMBER_KINDS, TEAM_MEMBER_KINDS
from rebuild.project_journal import (
    EARLIER_VERSION,
    ERASED,
    NO_PERSON,
    ProjectEntry,
    is_archive,
    load_installation_entries,
    load_project_entries,
)
from rebuild.project_names import ProjectNames, load_project_names
from rebuild.registry import Fault, FoldedRow, RebuildBatch, RowCheck, register_row_check

_TEAMS: Final = ("admin.team_created", "admin.team_removed")
_AGENTS: Final = (
    "admin.agent_created",
    "admin.agent_changed",
    "admin.agent_team_changed",
    "admin.agent_chartered",
)
_INVITATIONS: Final = (
    "admin.member_invited",
    "admin.invitation_declined",
    "admin.invitation_withdrawn",
    "admin.member_added",
)
_REVIEWING: Final = ("admin.absence_changed", "admin.digest_changed")
_TOKENS: Final = ("admin.token_issued", "admin.token_revoked")
_CREATED: Final = {"created_at": "the clock of the row, which no entry repeats"}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NO_SECRET: Final = b""  # what a token gets that the journal does not know: it opens nothing


def _fold_members(batch: RebuildBatch) -> dict[UUID, ProjectEntry]:
    """Return the last entry about each present member."""
    members: dict[UUID, ProjectEntry] = {}
    for entry in load_project_entries(batch, MEMBER_KINDS, of_archives=True):
        if entry.subject is None:
            continue
        if entry.kind == "admin.member_removed":
            members.pop(entry.subject, None)
        else:
            members[entry.subject] = entry
    return members


def _fold_member_rows(batch: RebuildBatch) -> Iterator[FoldedRow]:
    names = load_project_names(batch)
    stored = dict(_select_members(batch).values_list("id", "user_id"))
    accounts = {
        entry.facts["person"]: entry.facts["account"]
        for entry in load_project_entries(batch, MEMBER_KINDS, of_archives=True)
        if "account" in entry.facts
    }
    for identity, entry in _fold_members(batch).items():
        person = entry.facts["person"]
        user = names.find_person(person)
        values = {
            "id": identity,
            "project_id": batch.project,
            "user_id": user,
            "role": entry.facts["role"],
        }
        row = FoldedRow((identity,), values, entry.position)
        if user is None:
            _find_member_account(row, person, accounts.get(person), stored.get(identity))
        yield row


def _find_member_account(
    row: FoldedRow, person: str, recorded: str | None, stored: int | None
) -> None:
    """Compare a member's account with its digest, where the pseudonym stands for none any more."""
    if stored is None:
        row.unknown["user_id"] = NO_PERSON
        row.is_lost = True
    elif recorded is None:
        row.unknown["user_id"] = NO_PERSON
    elif people.digest_account(person, stored) == recorded:
        row.values["user_id"] = stored
    else:
        del row.values["user_id"]
        row.faults["user_id"] = "altered"


def _fold_teams(batch: RebuildBatch) -> Iterator[FoldedRow]:
    entries: dict[UUID, ProjectEntry] = {}
    for entry in load_project_entries(batch, _TEAMS, of_archives=True):
        if entry.subject is not None and entry.kind == "admin.team_created":
            entries[entry.subject] = entry
        elif entry.subject is not None:
            entries.pop(entry.subject, None)
    for identity, entry in entries.items():
        unknown: dict[str, str] = {}
        values = {
            "id": identity,
            "project_id": batch.project,
            "name": entry.read("name", unknown),
        }
        yield FoldedRow((identity,), values, entry.position, unknown)


def _fold_team_members(batch: RebuildBatch) -> Iterator[FoldedRow]:
    members = {entry.facts["person"]: key for key, entry in _fold_members(batch).items()}
    listed: dict[tuple[UUID, str], ProjectEntry] = {}
    for entry in load_project_entries(batch, TEAM_MEMBER_KINDS, of_archives=True):
        if entry.subject is None:
            continue
        key = (entry.subject, entry.facts["person"])
        if entry.kind == "admin.team_member_added":
            listed[key] = entry
        else:
            listed.pop(key, None)
    for (team, person), entry in listed.items():
        membership = members.get(person)
        if membership is not None:
            values = {
                "project_id": batch.project,
                "team_id": team,
                "membership_id": membership,
            }
            yield FoldedRow((team, membership), values, entry.position)


def _fold_tokens(batch: RebuildBatch) -> Iterator[FoldedRow]:
    issued: dict[UUID, ProjectEntry] = {}
    revoked: dict[UUID, ProjectEntry] = {}
    for entry in load_project_entries(batch, _TOKENS):
        if entry.subject is not None:
            (issued if entry.kind == "admin.token_issued" else revoked)[entry.subject] = entry
    columns = ("id", "digest", "expires_at", "revoked_at")
    rows = AgentToken.objects.filter(project=batch.project)
    stored = {row["id"]: row for row in rows.values(*columns)}
    for identity, entry in issued.items():
        yield _fold_token(batch, entry, revoked.get(identity), stored.get(identity, {}))


def _fold_token(
    batch: RebuildBatch, entry: ProjectEntry, revoked: ProjectEntry | None, stored: dict[str, Any]
) -> FoldedRow:
    """Return a token. The entry has a part of its digest, and the end in microseconds."""
    facts, unknown = entry.facts, dict[str, str]()
    digest = stored.get("digest", _NO_SECRET)
    if "digest" not in facts:
        unknown["digest"] = EARLIER_VERSION
    elif not isinstance(digest, bytes) or digest.hex()[:32] != facts["digest"]:
        digest = _NO_SECRET  # SQLite stores a text in this column too
    ends, stored_end = facts["expires_us"], stored.get("expires_at")
    if ends is not None and (stored_end is None or int(stored_end.timestamp() * 1_000_000) != ends):
        stored_end = _EPOCH + timedelta(microseconds=ends)
    revoked_at = None
    if revoked is not None:  # the row's clock is a moment before that of its entry
        revoked_at = stored.get("revoked_at") or _EPOCH + timedelta(
            microseconds=revoked.received_us
        )
    values = {
        "id": entry.subject,
        "project_id": batch.project,
        "agent_id": UUID(facts["agent"]),
        "public_id": entry.read("public_id", unknown),
        "digest": digest,
        "scope": facts["scope"],
        "expires_at": None if ends is None else stored_end,
        "revoked_at": revoked_at,
    }
    position = (revoked or entry).position
    return FoldedRow((entry.subject,), values, position, unknown)


def _fold_agents(batch: RebuildBatch) -> Iterator[FoldedRow]:
    """Yield the agents whose creation the journal has, with owner, team and charter."""
    names = load_project_names(batch)
    rows: dict[UUID, FoldedRow] = {}
    for entry in load_project_entries(batch, _AGENTS):
        key, facts = entry.subject, entry.facts
        if key is None or (entry.kind != "admin.agent_created" and key not in rows):
            continue
        if entry.kind == "admin.agent_created":
            values = {"id": key, "project_id": batch.project, "charter": "", "charter_version": 0}
            rows[key] = FoldedRow((key,), values)
            values["name"] = entry.read("agent", rows[key].unknown, "name")
        values, unknown = rows[key].values, rows[key].unknown
        if entry.kind == "admin.agent_chartered":
            unknown.pop("charter", None)
            values["charter"] = entry.read("charter", unknown)
            values["charter_version"] = facts["charter_version"]
        if entry.kind == "admin.agent_created":
            values["team"] = ""
        if entry.kind in ("admin.agent_created", "admin.agent_changed"):
            unknown.pop("owner_id", None)
            values["owner_id"] = names.find_person(facts["owner"]) if facts.get("owner") else None
            if "owner" not in facts:
                unknown["owner_id"] = EARLIER_VERSION
            elif facts["owner"] and values["owner_id"] is None:
                unknown["owner_id"] = NO_PERSON
        if entry.kind == "admin.agent_team_changed":
            unknown.pop("team", None)
            values["team"] = facts["team"] if "team" in facts else entry.read("team", unknown)
        rows[key].position = entry.position
    yield from rows.values()


def _excuse_agent(batch: RebuildBatch, stored: Mapping[str, Any]) -> str:
    """Excuse an agent of a version that recorded no creation, without owner and team.

    Once the journal has the creation of an agent, it has that of each later one.
    """
    if stored["owner_id"] is not None or stored["team"]:
        return ""
    charter, version = "", 0
    for entry in load_project_entries(batch, ("admin.agent_chartered",)):
        if entry.subject == stored["id"]:
            version = entry.facts["charter_version"]
            charter = entry.read("charter", {})
    if version != stored["charter_version"] or charter not in (None, stored["charter"]):
        return ""
    return EARLIER_VERSION if _was_used_earlier(batch, stored["id"]) else ""


def _was_used_earlier(batch: RebuildBatch, agent: UUID) -> bool:
    """Return True if an agent acted, or got a token, before the journal had any creation."""
    if "first agent" not in batch.cache:
        created = load_installation_entries(("admin.agent_created",))
        batch.cache["first agent"] = created[0].position if created else 2**63
    first: int = batch.cache["first agent"]
    issued = load_project_entries(batch, ("admin.token_issued",))
    acted = Entry.objects.filter(
        project__in=[batch.project], actor=f"agent:{agent.hex}", position__lt=first
    )
    return (
        first == 2**63
        or any(e.position < first and UUID(e.facts["agent"]) == agent for e in issued)
        or acted.exists()
    )


def _fold_invitations(batch: RebuildBatch) -> Iterator[FoldedRow]:
    """Yield the open invitations."""
    names, opened = load_project_names(batch), dict[UUID, ProjectEntry]()
    stored = dict(_select_invitations(batch).values_list("pk", "user_id"))
    for entry in load_project_entries(batch, _INVITATIONS, of_archives=True):
        if entry.kind == "admin.member_added":
            _end_invitations(opened, entry, stored)
        elif entry.subject is not None and entry.kind == "admin.member_invited":
            opened[entry.subject] = entry
        elif entry.subject is not None:
            opened.pop(entry.subject, None)
    for key, entry in opened.items():
        values = {
            "id": key,
            "project_id": batch.project,
            "role": entry.facts["role"],
            "invited_by": entry.actor,
        }
        row = FoldedRow((key,), values, entry.position)
        _find_invited_account(row, entry, names, stored.get(key))
        yield row


def _find_invited_account(
    row: FoldedRow, entry: ProjectEntry, names: ProjectNames, stored: int | None
) -> None:
    """Set the invited account, which a digest names; earlier versions recorded the name only."""
    invitation, digest = row.key[0], entry.facts.get("account")
    username = entry.read("username", row.unknown, "user_id")
    named = None if username is None else names.find_user(username)
    if digest is not None:
        row.unknown.clear()
        for user in (stored, named):
            if user and invitations.digest_invited_account(invitation, user) == digest:
                row.values["user_id"] = user
                return
        if stored is not None:
            row.faults["user_id"] = "altered"
    elif named is not None:
        row.values["user_id"] = named
        return
    else:
        row.unknown.setdefault("user_id", NO_PERSON)
    row.is_lost = stored is None


def _end_invitations(
    opened: dict[UUID, ProjectEntry], added: ProjectEntry, stored: Mapping[UUID, int]
) -> None:
    """Remove the invitation that a new member accepted; earlier versions do not name it."""
    if "invitation" in added.facts:
        opened.pop(UUID(added.facts["invitation"]), None)
        return
    username = (added.body or {}).get("username")
    for key, entry in list(opened.items()):
        if key not in stored and (entry.body or {}).get("username") == username:
            del opened[key]


def _fold_review_settings(batch: RebuildBatch) -> Iterator[FoldedRow]:
    """Yield each member's absence and digest, which they change themselves."""
    names, rows = load_project_names(batch), dict[str, FoldedRow]()
    stored = set(_select_review_settings(batch).values_list("user", flat=True))
    for entry in load_project_entries(batch, _REVIEWING):
        facts, user = entry.facts, names.find_person(entry.actor)
        if user is None:
            continue
        empty = dict.fromkeys(("away_from_us", "away_until_us", "stand_in_id", "digest_hour"))
        values = {"project_id": batch.project, "user_id": user, **empty, "digest_address": ""}
        row = rows.setdefault(entry.actor, FoldedRow((user,), values))
        row.position = entry.position
        if entry.kind == "admin.absence_changed":
            row.unknown.pop("stand_in_id", None)
            person = names.find_person(facts["stand_in"]) if "stand_in" in facts else None
            if "stand_in" in facts and person is None:
                row.unknown["stand_in_id"] = NO_PERSON
            row.values |= {
                "away_from_us": facts.get("from_us"),
                "away_until_us": facts.get("until_us"),
                "stand_in_id": person,
            }
        else:
            row.unknown.pop("digest_address", None)
            row.values["digest_hour"] = facts.get("hour")
            row.values["digest_address"] = entry.read("address", row.unknown, "digest_address")
    # The erasure of an address takes the row with it.
    yield from (
        row for row in rows.values() if row.key[0] in stored or "digest_address" not in row.unknown
    )


def _excuse_review_settings(batch: RebuildBatch, stored: Mapping[str, Any]) -> str:
    """Return why settings may be there that no entry gives."""
    empty = _select_review_settings(batch).filter(
        user=stored["user_id"], away_from_us=None, stand_in=None, digest_hour=None
    )
    return "settings in which nothing is set" if empty.exists() else ""


def _select_review_settings(batch: RebuildBatch) -> "QuerySet[Any]":
    return ReviewSettings.objects.filter(project=batch.project)


def _fold_repositories(batch: RebuildBatch) -> Iterator[FoldedRow]:
    """Yield every repository. Reports create them, so the stored ids count as given."""
    changes: dict[UUID, list[ProjectEntry]] = {}
    for change in load_project_entries(batch, ("admin.repository_changed",)):
        if change.subject is not None:
            changes.setdefault(change.subject, []).append(change)
    usual = Repository()
    for row in _select_repositories(batch):
        entries = changes.pop(row.id, [])
        entry, unknown = entries[-1] if entries else None, dict[str, str]()
        faults: dict[str, Fault] = {}
        patterns = (usual.production_refs, usual.protected_refs, usual.patterns_version)
        if entry is not None:
            patterns = (
                _read_patterns(entry, "production", row.production_refs, unknown, faults),
                _read_patterns(entry, "protected", row.protected_refs, unknown, faults),
                entry.facts["patterns_version"],
            )
        values: dict[str, Any] = dict(
            zip(("production_refs", "protected_refs", "patterns_version"), patterns, strict=True)
        )
        position = 0 if entry is None else entry.position
        repository = FoldedRow((row.id,), values, position, unknown, faults)
        values["project_id"] = batch.project
        if entries:
            _compare_repository_name(repository, entries, row.name)
        yield repository
    if changes:
        yield from _fold_missing_repositories(batch, changes)


def _compare_repository_name(row: FoldedRow, entries: Sequence[ProjectEntry], stored: str) -> None:
    """Compare the name, which never changes, with any entry that has it or its digest."""
    for entry in entries:
        if name := entry.read("repository", {}):
            row.values["name"] = name
            return
    digests = {entry.facts["repository"] for entry in entries if "repository" in entry.facts}
    if not digests:
        row.unknown["name"] = ERASED
    elif digests != {repositories.digest_repository_name(stored)}:
        row.faults["name"] = "altered"


def _fold_missing_repositories(
    batch: RebuildBatch, changes: Mapping[UUID, Sequence[ProjectEntry]]
) -> Iterator[FoldedRow]:
    """Yield repositories that entries name and the project lacks: none is ever deleted."""
    elsewhere = set(Repository.objects.filter(pk__in=changes).values_list("pk", flat=True))
    for identity, entries in changes.items():
        last, unknown = entries[-1], dict[str, str]()
        values: dict[str, Any] = {
            "id": identity,
            "project_id": batch.project,
            "name": last.read("repository", unknown),
            "production_refs": last.read("production", unknown),
            "protected_refs": last.read("protected", unknown),
            "patterns_version": last.facts["patterns_version"],
        }
        is_lost = bool(unknown) or identity in elsewhere
        yield FoldedRow((identity,), values, last.position, unknown, is_lost=is_lost)


def _read_patterns(
    entry: ProjectEntry,
    fact: str,
    stored: str,
    unknown: dict[str, str],
    faults: dict[str, Fault],
) -> Any:
    """Return the patterns of an entry; where they are erased, its digest knows the stored ones."""
    patterns = entry.read(fact, {})
    if patterns is None:
        if fact not in entry.facts:
            unknown[f"{fact}_refs"] = ERASED
        elif entry.facts[fact] != keyed_digest("ref patterns", stored):
            faults[f"{fact}_refs"] = "altered"
        return stored
    return patterns


def _select_agents(batch: RebuildBatch) -> "QuerySet[Any]":
    if is_archive(batch):
        return Agent.objects.none()
    return Agent.objects.filter(project=batch.project)


def _select_invitations(batch: RebuildBatch) -> "QuerySet[Any]":
    return Invitation.objects.filter(project=batch.project)


def _select_members(batch: RebuildBatch) -> "QuerySet[Any]":
    return Membership.objects.filter(project=batch.project)


def _select_teams(batch: RebuildBatch) -> "QuerySet[Any]":
    return Team.objects.filter(project=batch.project)


def _select_team_members(batch: RebuildBatch) -> "QuerySet[Any]":
    return TeamMember.objects.filter(team__project=batch.project)


def _select_tokens(batch: RebuildBatch) -> "QuerySet[Any]":
    return AgentToken.objects.filter(project=batch.project)


def _select_repositories(batch: RebuildBatch) -> "QuerySet[Any]":
    if is_archive(batch):
        return Repository.objects.none()
    return Repository.objects.filter(project=batch.project)


def register_account_checks() -> None:
    """Register the checks of members, agents, teams, tokens and repositories."""
    checks = (
        RowCheck(
            Membership,
            ("id",),
            "project",
            _fold_member_rows,
            _select_members,
            people.restore_members,
            _CREATED,
        ),
        RowCheck(
            Invitation,
            ("id",),
            "project",
            _fold_invitations,
            _select_invitations,
            invitations.restore_invitations,
            _CREATED,
        ),
        RowCheck(
            Agent,
            ("id",),
            "project",
            _fold_agents,
            _select_agents,
            agents.restore_agents,
            _CREATED,
            excuse=_excuse_agent,
        ),
        RowCheck(
            ReviewSettings,
            ("user_id",),
            "project",
            _fold_review_settings,
            _select_review_settings,
            review_settings.restore_review_settings,
            {
                "id": "a number of the table, to which nothing refers",
                "digest_sent_us": "the clock of the last digest, which no entry has",
            },
            lambda _row: {"id": new_uuid7()},
            excuse=_excuse_review_settings,
        ),
        RowCheck(
            Team, ("id",), "project", _fold_teams, _select_teams, teams.restore_teams, _CREATED
        ),
        RowCheck(
            TeamMember,
            ("team_id", "membership_id"),
            "project",
            _fold_team_members,
            _select_team_members,
            teams.restore_team_members,
            {"id": "a number of the table, to which nothing refers"},
            lambda _row: {"id": new_uuid7()},
        ),
        RowCheck(
            AgentToken,
            ("id",),
            "project",
            _fold_tokens,
            _select_tokens,
            tokens.restore_tokens,
            {**_CREATED, "used_at": "the clock of the last request"},
        ),
        RowCheck(
            Repository,
            ("id",),
            "project",
            _fold_repositories,
            _select_repositories,
            repositories.restore_repositories,
            _CREATED,
        ),
    )
    for check in checks:
        register_row_check(check.table, check)
