"""Who could vote at a past entry: the roles, teams and names of people, as entries give them."""

from collections.abc import Iterable
from typing import Final, NamedTuple
from uuid import UUID

from accounts.models import ROLES
from approvals.policies.engine import Requirement
from investigation.history.past_entries import PastEntry
from rebuild.project_journal import ProjectEntry, load_project_entries
from rebuild.registry import RebuildBatch

MEMBER_KINDS: Final = ("admin.member_added", "admin.member_changed", "admin.member_removed")
TEAM_MEMBER_KINDS: Final = ("admin.team_member_added", "admin.team_member_removed")
# A transaction that takes a role or a team may write its entry before a vote that still counts.
LATENESS_US: Final = 60_000_000


class _Change(NamedTuple):
    """From which entry on a person has something, or lacks it."""

    position: int
    received_us: int
    has_it: bool


class PastVoters:
    """The people of one project, at any of its entries."""

    def __init__(self, batch: RebuildBatch) -> None:
        # By pseudonym, and by team; None for a role with which one votes.
        self._changes: dict[str, dict[UUID | None, list[_Change]]] = {}
        self._usernames: dict[str, str] = {}
        for entry in load_project_entries(batch, MEMBER_KINDS):
            self._add_change(entry, None, has_it=entry.facts.get("role") in _VOTING_ROLES)
            if username := (entry.body or {}).get("username"):
                self._usernames[entry.facts["person"]] = username
        for entry in load_project_entries(batch, TEAM_MEMBER_KINDS):
            has_it = entry.kind == "admin.team_member_added"
            self._add_change(entry, entry.subject, has_it=has_it)
        self._team_names = {
            entry.subject: (entry.body or {}).get("name")
            for entry in load_project_entries(batch, ("admin.team_created",))
        }

    def _add_change(self, entry: ProjectEntry, team: UUID | None, *, has_it: bool) -> None:
        changes = self._changes.setdefault(entry.facts["person"], {}).setdefault(team, [])
        changes.append(_Change(entry.position, entry.received_us, has_it))

    def could_vote(self, person: str, requirement: Requirement | None, entry: PastEntry) -> bool:
        """Return True if a pseudonym had the role at an entry, and was asked by the requirement.

        A name or team whose words are erased, and a requirement that is, count for the person.
        """
        changes = self._changes.get(person, {})
        if not _held_at(changes.get(None, ()), entry):
            return False
        if requirement is None or not (requirement.teams or requirement.people):
            return True
        if requirement.people and self._usernames.get(person) in (None, *requirement.people):
            return True
        return bool(requirement.teams) and any(
            self._team_names.get(team) in (None, *requirement.teams) and _held_at(history, entry)
            for team, history in changes.items()
            if team is not None
        )


_VOTING_ROLES: Final = ROLES[ROLES.index("reviewer") :]


def _held_at(changes: Iterable[_Change], entry: PastEntry) -> bool:
    """Return True if the last change before an entry gave it, or one took it a moment before."""
    before, lately = False, False
    for change in changes:
        if change.position > entry.position:
            break
        if change.received_us <= entry.received_us - LATENESS_US:
            before = change.has_it
        else:
            lately |= change.has_it
    return before or lately


def load_past_voters(batch: RebuildBatch) -> PastVoters:
    """Return the people of the batch's project, read once for all its checks."""
    if "voters" not in batch.cache:
        batch.cache["voters"] = PastVoters(batch)
    voters: PastVoters = batch.cache["voters"]
    return voters
