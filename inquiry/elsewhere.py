"""What is not found in the current project, and is of another of the person's own: it says so, and opens it there.

Of projects to which somebody does not belong nothing is told; what is theirs alone (an export, a query that is not
shared) is told to its owner only.
"""

from collections.abc import Callable
from typing import Any, Final, cast

from django.db.models import Model, QuerySet
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
_OF_ALL: Final[dict[str, type[Model]]] = {
    "artifact": Artifact,
    "effect": Effect,
    "exemption": Exemption,
    "gate": Gate,
    "imported_gate": ImportedGate,
    "incident": Incident,
    "session": Session,
    "task": Task,
}
_OF_SOME: Final[dict[str, Callable[[Membership], "QuerySet[Any]"]]] = {
    "export": exports.of,
    "saved_query": saved.visible,
}


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """404, or 409 where the thing is in another project of the person's, with a button that leads there."""
    match = request.resolver_match
    # Only a view for members reads who asks before it finds nothing.
    if match is not None and request.method in ("GET", "HEAD") and hasattr(request, "membership"):
        member = cast(MemberRequest, request)
        others = [one for one in member.memberships if one.project_id != member.membership.project_id]
        for name, identity in match.kwargs.items():
            kind = "imported_gate" if match.url_name == "imported_gate" else name
            home = next((one.project for one in others if _holds(one, kind, identity)), None)
            if home is not None:
                return elsewhere(member, home, kind.removeprefix("imported_").replace("_", " "))
    return errors.not_found(request, exception)


def _holds(one: Membership, kind: str, identity: object) -> bool:
    if kind in _OF_SOME:
        return _OF_SOME[kind](one).filter(id=identity).exists()
    return kind in _OF_ALL and _OF_ALL[kind]._default_manager.filter(id=identity, project=one.project_id).exists()
