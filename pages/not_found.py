"""404 handler: offer to switch project if another project has the object.

Objects of projects without membership stay hidden. Private objects (exports, unshared queries) are
offered to their owner only.
"""

from collections.abc import Callable
from typing import Any, Final, cast

from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse

from accounts.access import MemberRequest, render_link_of_other_project
from accounts.models import Membership
from accounts.views import errors
from approvals.models import Exemption, Gate
from investigation.exports import exports
from investigation.models import ImportedGate, Incident
from investigation.saved_queries import saved_queries
from ledger.models import Effect
from sessions.models import Artifact, Session, Task

# By the parameter name in URLs. Settings and forms are left out: nobody is redirected to them.
_MODEL_OF_PARAMETER: Final[dict[str, type[Model]]] = {
    "artifact": Artifact,
    "effect": Effect,
    "exemption": Exemption,
    "gate": Gate,
    "imported_gate": ImportedGate,
    "incident": Incident,
    "session": Session,
    "task": Task,
}
_PRIVATE_ROWS_OF_PARAMETER: Final[dict[str, Callable[[Membership], "QuerySet[Any]"]]] = {
    "export": exports.list_visible_exports,
    "saved_query": saved_queries.visible_saved_queries,
}


def render_not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Return 404, or 409 with a button if another project of the user has the object."""
    match = request.resolver_match
    # Only views for members read the membership before they raise 404.
    if match is not None and request.method in ("GET", "HEAD") and hasattr(request, "membership"):
        member = cast(MemberRequest, request)
        other_memberships = [
            membership
            for membership in member.memberships
            if membership.project_id != member.membership.project_id
        ]
        for name, identity in match.kwargs.items():
            kind = "imported_gate" if match.url_name == "imported_gate" else name
            home = next(
                (
                    membership.project
                    for membership in other_memberships
                    if _project_has(membership, kind, identity)
                ),
                None,
            )
            if home is not None:
                return render_link_of_other_project(
                    member, home, kind.removeprefix("imported_").replace("_", " ")
                )
    return errors.not_found_page(request, exception)


def _project_has(membership: Membership, kind: str, identity: object) -> bool:
    if kind in _PRIVATE_ROWS_OF_PARAMETER:
        return _PRIVATE_ROWS_OF_PARAMETER[kind](membership).filter(id=identity).exists()
    return (
        kind in _MODEL_OF_PARAMETER
        and _MODEL_OF_PARAMETER[kind]
        ._default_manager.filter(id=identity, project=membership.project_id)
        .exists()
    )
