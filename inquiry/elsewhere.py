"""What is not found in the current project, and is of another of the person's own: it says so, and opens it there.

Of projects to which somebody does not belong nothing is told; what is theirs alone (an export, a query that is not
shared) is told to its owner only.
"""

from collections.abc import Callable
from typing import Any, Final, cast

from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse

from approvals.models import Exemption, Gate
from inquiry import exports, saved
from inquiry.models_bundle import ImportedGate
from inquiry.models_incidents import Incident
from ledger.models import Effect
from sessions.access import MemberRequest, elsewhere
from sessions.models import Artifact, Membership, Session, Task
from sessions.views import errors

# By the name that a thing's id has in addresses. Settings and forms are not among them: nobody is sent to those.
_THINGS: Final[dict[str, tuple[str, Callable[[Membership], "QuerySet[Any]"]]]] = {
    "effect": ("effect", lambda one: Effect.objects.filter(project=one.project_id)),
    "gate": ("gate", lambda one: Gate.objects.filter(project=one.project_id)),
    "imported_gate": ("gate", lambda one: ImportedGate.objects.filter(project=one.project_id)),
    "incident": ("incident", lambda one: Incident.objects.filter(project=one.project_id)),
    "task": ("task", lambda one: Task.objects.filter(project=one.project_id)),
    "artifact": ("artifact", lambda one: Artifact.objects.filter(project=one.project_id)),
    "exemption": ("exemption", lambda one: Exemption.objects.filter(project=one.project_id)),
    "saved_query": ("saved query", saved.visible),
    "export": ("export", exports.of),
    "session": ("session", lambda one: Session.objects.filter(project=one.project_id)),
}


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """404, or 409 where the thing is in another project of the person's, with a button that leads there."""
    match = request.resolver_match
    # Only a view for members reads who asks before it finds nothing.
    if match is not None and request.method in ("GET", "HEAD") and hasattr(request, "membership"):
        member = cast(MemberRequest, request)
        others = [one for one in member.memberships if one.project_id != member.membership.project_id]
        for name, identity in match.kwargs.items() if others else ():
            what, look = _THINGS.get("imported_gate" if match.url_name == "imported_gate" else name, ("", None))
            home = look and next((one.project for one in others if look(one).filter(id=identity).exists()), None)
            if home is not None:
                return elsewhere(member, home, what)
    return errors.not_found(request, exception)
