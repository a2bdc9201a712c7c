"""Actions of people on a stuck item: assign, snooze, end a snooze, release a lease.

Every action needs a reason and is recorded under the person's name.
"""

from collections.abc import Mapping
from typing import Final
from uuid import UUID

from django.contrib.auth.models import User

from accounts.models import Agent, Membership, Project
from approvals.models import Gate
from db import retry
from db.clock import now_us
from db.errors import ChangeRefused
from ledger.models import Effect
from monitoring.stuck import episodes
from monitoring.stuck.board import StuckRow
from monitoring.stuck.episodes import ActiveRule
from sessions import leases
from sessions.models import Handoff, Session

VERBS: Final = ("assign", "snooze", "unfold", "release")
LEAST_REASON: Final = 3
MOST_REASON: Final = 2000
ENDS_S: Final = {"1h": 3600, "8h": 8 * 3600, "1d": 86_400, "7d": 7 * 86_400}


def list_assignable_people(project: Project) -> list[str]:
    """List the user names of people who can own a stuck item, in order."""
    members = (
        Membership.objects.filter(project=project).exclude(role="viewer").order_by("user__username")
    )
    return list(members.values_list("user__username", flat=True))


def is_subject_of_project(project: Project, subject: UUID) -> bool:
    """Return whether the project contains an object with the id `subject`, stuck or not."""
    homes = (Session, Effect, Gate, Handoff, Agent)
    return any(home._default_manager.filter(project=project, id=subject).exists() for home in homes)


def run_action(
    do: str, row: StuckRow, active_rule: ActiveRule, sent: Mapping[str, str], membership: Membership
) -> str:
    """Run a form's action; return its message. Raises ChangeRefused, changing nothing."""
    by, reason = membership.user, _check_reason(sent.get("reason", ""))
    if do == "release":
        return _release_lease(row, active_rule, reason, by)
    if do == "assign":
        name = sent.get("person", "")
        chosen = User.objects.filter(username=name, memberships__project=membership.project).first()
        if name and chosen is None:
            raise ChangeRefused("Unknown owner. Choose a member of this project, or nobody.")
        retry.run_with_retry(lambda: episodes.assign_owner(active_rule, chosen, reason, by))
        return f"Assigned to {name}." if name else "Owner removed."
    if do == "unfold":
        retry.run_with_retry(lambda: episodes.snooze_episode(active_rule, None, reason, by))
        return "Snooze ended. The row is on the board again."
    length = ENDS_S.get(sent.get("end", ""))
    if length is None:
        raise ChangeRefused("No snooze length is selected. Choose one.")
    retry.run_with_retry(
        lambda: episodes.snooze_episode(active_rule, now_us() + length * 1_000_000, reason, by)
    )
    return "Snoozed. Deadlines keep running."


def _check_reason(reason: str) -> str:
    words = reason.strip()
    if not LEAST_REASON <= len(words) <= MOST_REASON:
        raise ChangeRefused(f"Enter a reason of {LEAST_REASON} to {MOST_REASON} characters.")
    return words


def _release_lease(row: StuckRow, active_rule: ActiveRule, reason: str, by: User) -> str:
    """Release the lease if it still has the epoch that the page showed."""
    project, epoch, subject = active_rule.project, row.reason.epoch, row.reason.subject
    if not retry.run_with_retry(
        lambda: leases.release_lease_for_person(project, subject, epoch, reason, by)
    ):
        raise ChangeRefused("The lease has a new holder or was released. Reload the board.")
    return "Lease released. Any worker can take over. Late reports are kept separately."
