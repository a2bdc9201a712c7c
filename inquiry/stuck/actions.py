"""Actions of people on a stuck item: assign, snooze, end a snooze, release a lease.

Every action needs a reason and is recorded under the person's name.
"""

from collections.abc import Mapping
from typing import Final
from uuid import UUID

from django.contrib.auth.models import User

from approvals.models import Gate
from inquiry.stuck import transitions
from inquiry.stuck.board import Row
from inquiry.stuck.transitions import Seen
from journal import again
from journal.clock import now_us
from ledger.models import Effect
from sessions import leases
from sessions.models import Agent, Membership, Project, Session
from sessions.models_state import Handoff
from sessions.refused import RefusedError

VERBS: Final = ("assign", "snooze", "unfold", "release")
ENDS_S: Final = {"1h": 3600, "8h": 8 * 3600, "1d": 86_400, "7d": 7 * 86_400}


def people(project: Project) -> list[str]:
    """List the user names of people who can own a stuck item, in order."""
    members = (
        Membership.objects.filter(project=project).exclude(role="viewer").order_by("user__username")
    )
    return list(members.values_list("user__username", flat=True))


def is_of(project: Project, subject: UUID) -> bool:
    """Return whether the project contains an object with the id `subject`, stuck or not."""
    homes = (Session, Effect, Gate, Handoff, Agent)
    return any(home._default_manager.filter(project=project, id=subject).exists() for home in homes)


def act(do: str, row: Row, held: Seen, sent: Mapping[str, str], membership: Membership) -> str:
    """Carry out the action of a form and return the message to show.

    Raises RefusedError without changing anything.
    """
    by, reason = membership.user, sent.get("reason", "")
    if do == "release":
        return _release(row, held, reason, by)
    if do == "assign":
        name = sent.get("person", "")
        chosen = User.objects.filter(username=name, memberships__project=membership.project).first()
        if name and chosen is None:
            raise RefusedError("Unknown owner. Choose a member of this project, or nobody.")
        again.durably(lambda: transitions.assign(held, chosen, reason, by))
        return f"Assigned to {name}." if name else "Owner removed."
    if do == "unfold":
        again.durably(lambda: transitions.snooze(held, None, reason, by))
        return "Snooze ended. The row is on the board again."
    length = ENDS_S.get(sent.get("end", ""))
    if length is None:
        raise RefusedError("No snooze length is selected. Choose one.")
    again.durably(lambda: transitions.snooze(held, now_us() + length * 1_000_000, reason, by))
    return "Snoozed. Deadlines keep running."


def _release(row: Row, held: Seen, reason: str, by: User) -> str:
    """Release the lease if it still has the epoch that the page showed."""
    words = reason.strip()
    if not transitions.LEAST_REASON <= len(words) <= transitions.MOST_REASON:
        raise RefusedError(
            f"Enter a reason of {transitions.LEAST_REASON} to {transitions.MOST_REASON} characters."
        )
    project, epoch, subject = held.project, row.reason.epoch, row.reason.subject
    if not again.durably(lambda: leases.let_go(project, subject, epoch, words, by)):
        raise RefusedError("The lease has a new holder or was released. Reload the board.")
    return "Lease released. Any worker can take over. Late reports are kept separately."
