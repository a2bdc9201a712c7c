"""What a person could decide at a past entry: roles, teams, names and accounts by the entries."""

from collections.abc import Collection, Iterable
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from accounts.models import ROLES
from accounts.people import ACCOUNT_KINDS
from approvals.policies.engine import Requirement
from rebuild.project_journal import (
    ProjectEntry,
    load_installation_entries,
    load_project_entries,
)
from rebuild.registry import RebuildBatch

MEMBER_KINDS: Final = ("admin.member_added", "admin.member_changed", "admin.member_removed")
TEAM_MEMBER_KINDS: Final = ("admin.team_member_added", "admin.team_member_removed")
# A transaction that takes a role or a team may write its entry before a vote that still counts.
LATENESS_US: Final = 60_000_000


class _Change(NamedTuple):
    """From which entry on a person has a role, is of a team, or may sign in; empty: no longer."""

    position: int
    received_us: int
    role: str


class Moment(Protocol):
    """An entry, as sessions or projects read it."""

    @property
    def position(self) -> int: ...
    @property
    def received_us(self) -> int: ...


class PastVoters:
    """The people of one project, at any of its entries."""

    def __init__(self, batch: RebuildBatch) -> None:
        # By pseudonym, and by team; None for the role in the project.
        self._changes: dict[str, dict[UUID | None, list[_Change]]] = {}
        self._usernames: dict[str, str] = {}
        for entry in load_project_entries(batch, MEMBER_KINDS, of_archives=True):
            self._add_change(entry, None, entry.facts.get("role", ""))
            if username := (entry.body or {}).get("username"):
                self._usernames[entry.facts["person"]] = username
        # A person may have belonged to other projects only when the account was closed or opened.
        self._accounts: dict[str, list[_Change]] = {}
        for entry in load_installation_entries(ACCOUNT_KINDS):
            is_opened = entry.kind == "admin.account_opened"
            self._accounts.setdefault(entry.facts["person"], [_OPEN_AT_FIRST]).append(
                _Change(entry.position, entry.received_us, _OPEN if is_opened else "")
            )
        for entry in load_project_entries(batch, TEAM_MEMBER_KINDS):
            is_added = entry.kind == "admin.team_member_added"
            self._add_change(entry, entry.subject, _IN_TEAM if is_added else "")
        self._team_names = {
            entry.subject: (entry.body or {}).get("name")
            for entry in load_project_entries(batch, ("admin.team_created",))
        }

    def _add_change(self, entry: ProjectEntry, team: UUID | None, role: str) -> None:
        changes = self._changes.setdefault(entry.facts["person"], {}).setdefault(team, [])
        changes.append(_Change(entry.position, entry.received_us, role))

    def had_account(self, person: str, entry: Moment) -> bool:
        """Return True if the account of a pseudonym was open at an entry."""
        return _held_at(self._accounts.get(person, (_OPEN_AT_FIRST,)), (_OPEN,), entry)

    def had_role(self, person: str, roles: Collection[str], entry: Moment) -> bool:
        """Return True if a pseudonym had one of these roles at an entry, and an open account."""
        held = _held_at(self._changes.get(person, {}).get(None, ()), roles, entry)
        return held and self.had_account(person, entry)

    def could_vote(self, person: str, requirement: Requirement | None, entry: Moment) -> bool:
        """Return True if a pseudonym had the role at an entry, and was asked by the requirement.

        A name or team whose words are erased, and a requirement that is, count for the person.
        """
        if not self.had_role(person, _VOTING_ROLES, entry):
            return False
        if requirement is None or not (requirement.teams or requirement.people):
            return True
        if requirement.people and self._usernames.get(person) in (None, *requirement.people):
            return True
        return bool(requirement.teams) and any(
            self._team_names.get(team) in (None, *requirement.teams)
            and _held_at(changes, (_IN_TEAM,), entry)
            for team, changes in self._changes[person].items()
            if team is not None
        )


_VOTING_ROLES: Final = ROLES[ROLES.index("reviewer") :]
_IN_TEAM: Final = "member"
_OPEN: Final = "open"
_OPEN_AT_FIRST: Final = _Change(0, 0, _OPEN)


def _held_at(changes: Iterable[_Change], roles: Collection[str], entry: Moment) -> bool:
    """Return True if a change gave one of these roles at an entry, or until a moment before."""
    before, lately = False, False
    for change in changes:
        if change.position > entry.position:
            break
        if change.received_us <= entry.received_us - LATENESS_US:
            before = change.role in roles
        else:
            lately |= change.role in roles
    return before or lately


def load_past_voters(batch: RebuildBatch) -> PastVoters:
    """Return the people of the batch's project, read once for all its checks."""
    if "voters" not in batch.cache:
        batch.cache["voters"] = PastVoters(batch)
    voters: PastVoters = batch.cache["voters"]
    return voters
