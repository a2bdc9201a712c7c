"""Page access: a signed-in person, in one of their projects, with a role there.

Views fetch everything through `request.membership.project`, so objects of other projects are not
found. Rights are read at every request: a removed member loses access at once. A form acts only in
the project that its page showed.
"""

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, Final, ParamSpec, cast
from uuid import UUID

from django.contrib.auth.models import User
from django.contrib.auth.views import redirect_to_login
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import render
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme

from accounts.models import ROLES, Membership, Person, Project
from db.compiled_query import CompiledQuerySet

PROJECT_SESSION_KEY = "project"  # key in the login session: the project that a person last chose
PROJECT_PARAMETER: Final = "project"  # query parameter of links to lists: the project's name
PROJECT_FIELD: Final = "in_project"  # hidden field of forms: the id of the project of their page
# Form fields that the person did not type, or that must not be shown.
_UNTYPED_FIELDS: Final = {
    "csrfmiddlewaretoken",
    PROJECT_FIELD,
    "password",
    "code",
    "settled",
    "from",
    "list",
    "version",
    "scope",
    "subject",
    "gate",
    "member",
    "do",
    "answer",
    "insists",
    "hidden_seen",
    "all_read",
    "incident",
    "key",
}
P = ParamSpec("P")


class MemberRequest(HttpRequest):
    """A request that passed `member_required` or `role_required`."""

    user: User
    membership: Membership  # in the current project
    memberships: list[Membership]  # all of the person's, by project name
    person: Person
    read_to: int  # set by some views: a stable position of the journal, read before their rows


def attach_membership(request: HttpRequest) -> Membership | None:
    """Set `memberships`, `membership` and `person` on the request.

    `get_user` (accounts/auth_backend.py) has read the memberships with the user of the request;
    else one query reads them. Returns the membership in the current project; None, and sets
    nothing, for people without a project.
    """
    user = cast(User, request.user)
    memberships: list[Membership] | None = getattr(user, "memberships_read", None)
    if memberships is None:
        memberships = MEMBERSHIPS.rows(user=user.pk)
    if not memberships:
        return None
    chosen = request.session.get(PROJECT_SESSION_KEY)
    real = (membership for membership in memberships if not membership.project.is_sample)
    current = next(
        (membership for membership in memberships if str(membership.project_id) == chosen),
        next(real, memberships[0]),
    )
    attached = cast(MemberRequest, request)
    attached.membership, attached.memberships = current, memberships
    # A person without settings gets unsaved defaults.
    attached.person = getattr(current.user, "person", None) or Person(user=user)
    return current


def _query_memberships(user: int) -> "QuerySet[Membership]":
    memberships = Membership.objects.filter(user_id=user)
    return memberships.select_related("project", "user__person").order_by("project__name")


MEMBERSHIPS: Final = CompiledQuerySet(_query_memberships, user=int)


def choose_project(request: MemberRequest, project: UUID) -> Project | None:
    """Make `project` the current one of this sign-in, if the person belongs to it."""
    for membership in request.memberships:
        if membership.project_id == project:
            request.session[PROJECT_SESSION_KEY] = str(project)
            return membership.project
    return None


def has_role(membership: Membership, role: str) -> bool:
    """Return True when the member's role is `role` or higher."""
    return ROLES.index(membership.role) >= ROLES.index(role)


View = Callable[Concatenate[MemberRequest, P], HttpResponseBase]


def role_required(
    role: str,
) -> Callable[[View[P]], Callable[Concatenate[HttpRequest, P], HttpResponseBase]]:
    """Require `role` or higher in the current project to open a view.

    Anonymous users are sent to sign in. People without a project, with a lower role, or with a form
    of another project get a page that tells them what to do. Tests read `required_role` from the
    view.
    """
    if role not in ROLES:
        raise ValueError(f"{role!r} is not a role")

    def decorate(view: View[P]) -> Callable[Concatenate[HttpRequest, P], HttpResponseBase]:
        @wraps(view)
        def checked_view(
            request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs
        ) -> HttpResponseBase:
            if not request.user.is_authenticated:
                return redirect_to_sign_in(request)
            membership = attach_membership(request)
            if membership is None:
                return render(request, "accounts/no_project.html", status=403)
            if is_form_of_other_project(request, membership):
                return render_form_of_other_project(cast(MemberRequest, request))
            named = _project_of_link(request, membership)
            if named is not None:
                return render_link_of_other_project(cast(MemberRequest, request), named, "link")
            if not has_role(membership, role):
                return render(request, "accounts/lacks_role.html", {"role": role}, status=403)
            return view(cast(MemberRequest, request), *args, **kwargs)

        checked_view.required_role = role  # type: ignore[attr-defined]  # read by the role matrix of the tests
        return checked_view

    return decorate


def member_required(view: View[P]) -> Callable[Concatenate[HttpRequest, P], HttpResponseBase]:
    """Require membership in the current project to open a view."""
    return role_required("viewer")(view)


def is_form_of_other_project(request: HttpRequest, current: Membership) -> bool:
    """Return True for a form whose page showed another project than the current one.

    Any tab of the sign-in may switch projects. A POST that names no project is accepted: all our
    forms name one (a test checks the templates), so it comes from a program, which chose the
    project itself.
    """
    if request.method != "POST":
        return False
    return any(shown != str(current.project_id) for shown in request.POST.getlist(PROJECT_FIELD))


def _project_of_link(request: HttpRequest, current: Membership) -> Project | None:
    """Return the project that a link names, if it is not the current one.

    Raises Http404 for a project that the person does not belong to.
    """
    name = (
        request.GET.get(PROJECT_PARAMETER, current.project.name)
        if request.method in ("GET", "HEAD")
        else None
    )
    if name is None or name == current.project.name:
        return None
    for membership in cast(MemberRequest, request).memberships:
        if membership.project.name == name:
            return membership.project
    raise Http404


def render_link_of_other_project(
    request: MemberRequest, project: Project, what: str
) -> HttpResponse:
    """Return 409 for an address in another of the person's projects.

    The page offers a button that switches and opens it. `what` names the kind of address. Reading
    must not switch the project, because other tabs of the sign-in use the current one.
    """
    context = {"home": project, "what": what, "path": request.get_full_path()}
    return render(request, "pages/link_to_other_project.html", context, status=409)


def redirect_to_sign_in(request: HttpRequest) -> HttpResponse:
    """Redirect to the sign-in page, and back afterwards where the request only reads."""
    if request.method in ("GET", "HEAD"):
        return redirect_to_login(request.get_full_path())
    return redirect_to_login("/")


def render_form_of_other_project(request: MemberRequest) -> HttpResponse:
    """Return 409 for a form of another project: which one, and what was typed."""
    shown = request.POST.getlist(PROJECT_FIELD)
    others = (
        membership.project
        for membership in request.memberships
        if membership.project_id != request.membership.project_id
    )
    context = {
        "was": next((project for project in others if str(project.id) in shown), None),
        "typed": [
            (name.replace("_", " "), value)
            for name, values in request.POST.lists()
            if name not in _UNTYPED_FIELDS and not name.startswith("seen")
            for value in values
            if value.strip()
        ],
    }
    return render(request, "pages/form_of_other_project.html", context, status=409)


def safe_local_path(request: HttpRequest, path: str) -> str:
    """Return `path` if it stays on this site, else home."""
    if path.startswith("/") and url_has_allowed_host_and_scheme(
        path, {request.get_host()}, request.is_secure()
    ):
        return path
    return reverse("home")
