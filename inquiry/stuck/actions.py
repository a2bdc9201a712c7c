"""What a person may do about one stuck thing, each with a reason and recorded under their name."""

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
    """Who can look after something here, by name."""
    members = Membership.objects.filter(project=project).exclude(role="viewer").order_by("user__username")
    return list(members.values_list("user__username", flat=True))


def is_of(project: Project, subject: UUID) -> bool:
    """True when the project has what `subject` names; whether it is stuck is another matter."""
    homes = (Session, Effect, Gate, Handoff, Agent)
    return any(home._default_manager.filter(project=project, id=subject).exists() for home in homes)


def act(do: str, row: Row, held: Seen, sent: Mapping[str, str], membership: Membership) -> str:
    """Do what a form asks for and return what to say of it. Raises RefusedError, and then nothing was done."""
    by, reason = membership.user, sent.get("reason", "")
    if do == "release":
        return _release(row, held, reason, by)
    if do == "assign":
        name = sent.get("person", "")
        chosen = User.objects.filter(username=name, memberships__project=membership.project).first()
        if name and chosen is None:
            raise RefusedError("Choose one of the people of this project, or nobody.")
        again.durably(lambda: transitions.assign(held, chosen, reason, by))
        return f"{name} looks after it." if name else "Nobody looks after it now."
    if do == "unfold":
        again.durably(lambda: transitions.snooze(held, None, reason, by))
        return "It is on the board again."
    length = ENDS_S.get(sent.get("end", ""))
    if length is None:
        raise RefusedError("Choose when it is to be shown again.")
    again.durably(lambda: transitions.snooze(held, now_us() + length * 1_000_000, reason, by))
    return "Folded away until then. What it waits for goes on."


def _release(row: Row, held: Seen, reason: str, by: User) -> str:
    """Let go of the lease of the very epoch that was shown."""
    words = reason.strip()
    if not transitions.LEAST_REASON <= len(words) <= transitions.MOST_REASON:
        raise RefusedError(f"Say why, in {transitions.LEAST_REASON} to {transitions.MOST_REASON} characters.")
    project, epoch, subject = held.project, row.reason.epoch, row.reason.subject
    if not again.durably(lambda: leases.let_go(project, subject, epoch, words, by)):
        raise RefusedError("The lease has changed hands or was given up since: look again.")
    return "Released. Any worker may take the session; what the old one still writes is kept apart."
