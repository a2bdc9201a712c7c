"""Who is asked about a request: its assignee, and the comments on it."""

from typing import Final, NamedTuple

from accounts.models import Membership, Person
from approvals.gates import comments
from approvals.models import Addressee, Gate
from approvals.review_settings import list_reviewers, load_absences

MAX_LISTED: Final = 100  # members to choose from


class ShownComment(NamedTuple):
    """A comment with the name of its author."""

    name: str
    at_us: int
    position: int
    text: str | None  # None once erased


class GatePeople(NamedTuple):
    """What a page shows of the people around a request."""

    assignee: str  # a username, or empty
    absence: str  # that the assignee is away, or empty
    comments: list[ShownComment]
    is_mentioned: bool  # the reader
    reviewers: list[str]  # to choose from; empty if the reader cannot assign


def load_gate_people(gate: Gate, reader: Membership, *, may_rule: bool) -> GatePeople:
    """Load the assignee, the comments and the members to choose from. At most seven queries."""
    addressed = list(
        Addressee.objects.filter(gate=gate).values_list("relation", "user", "user__username")
    )
    listed = comments.load_comments([gate]).get(gate.id, [])
    names = (
        dict(
            Person.objects.filter(pseudonym__in={comment.actor for comment in listed}).values_list(
                "pseudonym", "user__username"
            )
        )
        if listed
        else {}
    )
    can_assign = may_rule and gate.status == "pending"
    members = list_reviewers(gate.project_id).order_by("user__username")
    assigned = next((row[1:] for row in addressed if row[0] == "assigned"), None)
    absences = load_absences(gate.project_id) if assigned else {}
    return GatePeople(
        assigned[1] if assigned else "",
        str(absences[assigned[0]]) if assigned and assigned[0] in absences else "",
        [
            ShownComment(
                names.get(comment.actor, "Somebody"), comment.at_us, comment.position, comment.text
            )
            for comment in listed
        ],
        any(relation == "mentioned" and user == reader.user_id for relation, user, _ in addressed),
        list(members.values_list("user__username", flat=True)[:MAX_LISTED]) if can_assign else [],
    )
