"""Who may see which page: a signed-in person, in one of their projects, with a role there.

Views start from `request.membership.project` to fetch anything, so an object of another project is simply not found.
Rights are read at every request: a removed member is out at the next click. A form acts in the project that its page
showed, or not at all.
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

from journal.compiled import Compiled
from sessions.models import ROLES, Membership, Person, Project

PROJECT = "project"  # key in the login session: the project a person last chose
OF_PROJECT: Final = "project"  # in the query of a link that leads to no single thing: the name of the project it is of
IN_PROJECT: Final = "in_project"  # hidden in every form that acts in a project: the id of the one its page showed
_NOBODYS_WORDS: Final = {  # what a form sends that nobody typed, or that is shown to nobody
    *("csrfmiddlewaretoken", IN_PROJECT, "password", "code", "settled", "from", "list", "version", "scope", "subject"),
    *("gate", "member", "do", "answer", "insists", "hidden_seen", "all_read", "incident", "key"),
}
P = ParamSpec("P")


class MemberRequest(HttpRequest):
    """A request that passed `member` or `requires`."""

    user: User
    membership: Membership  # in the current project
    memberships: list[Membership]  # all of the person's, by project name
    person: Person
    read_to: int  # set by a view that asked: the last position of the journal before it read its rows


def attach(request: HttpRequest) -> Membership | None:
    """Put `memberships`, `membership` and `person` on the request of a signed-in person; no query more than their own.

    Returns None, and attaches nothing, for people who belong to no project.
    """
    user = cast(User, request.user)
    # Read a moment ago with the user, for this request alone (signed_in.py).
    memberships: list[Membership] | None = getattr(user, "memberships_read", None)
    if memberships is None:
        memberships = MEMBERSHIPS.rows(user=user.pk)
    if not memberships:
        return None
    chosen = request.session.get(PROJECT)
    current = next((one for one in memberships if str(one.project_id) == chosen), memberships[0])
    attached = cast(MemberRequest, request)
    attached.membership, attached.memberships = current, memberships
    attached.person = getattr(current.user, "person", None) or Person(user=user)  # defaults, unsaved
    return current


def _of_person(user: int) -> "QuerySet[Membership]":
    found = Membership.objects.filter(user_id=user)
    return found.select_related("project", "user__person").order_by("project__name")


MEMBERSHIPS: Final = Compiled(_of_person, user=int)


def choose(request: MemberRequest, project: UUID) -> Project | None:
    """Make `project` the current one for this sign-in, if the person belongs to it."""
    for membership in request.memberships:
        if membership.project_id == project:
            request.session[PROJECT] = str(project)
            return membership.project
    return None


def may(membership: Membership, role: str) -> bool:
    """True when the member's role is `role` or above it."""
    return ROLES.index(membership.role) >= ROLES.index(role)


View = Callable[Concatenate[MemberRequest, P], HttpResponseBase]


def requires(role: str) -> Callable[[View[P]], Callable[Concatenate[HttpRequest, P], HttpResponseBase]]:
    """Let only people with `role` or above in the current project into a view; `required_role` on it says so to tests.

    Strangers are sent to sign in; people without a project, or with a lesser role, get a page that says what to do, and
    so does whoever sends a form that was opened in another project.
    """
    if role not in ROLES:
        raise ValueError(f"{role!r} is no role")

    def decorate(view: View[P]) -> Callable[Concatenate[HttpRequest, P], HttpResponseBase]:
        @wraps(view)
        def guarded(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponseBase:
            if not request.user.is_authenticated:
                return sign_in_first(request)
            membership = attach(request)
            if membership is None:
                return render(request, "sessions/no_project.html", status=403)
            if shown_elsewhere(request, membership):
                return other_project(cast(MemberRequest, request))
            named = _named_by_link(request, membership)
            if named is not None:
                return elsewhere(cast(MemberRequest, request), named, "link")
            if not may(membership, role):
                return lacks_role(request, role)
            return view(cast(MemberRequest, request), *args, **kwargs)

        guarded.required_role = role  # type: ignore[attr-defined]  # read by the role matrix of the tests
        return guarded

    return decorate


def member(view: View[P]) -> Callable[Concatenate[HttpRequest, P], HttpResponseBase]:
    """Let every member of the current project into a view."""
    return requires("viewer")(view)


def shown_elsewhere(request: HttpRequest, current: Membership) -> bool:
    """True for a form whose page showed another project than the current one, which any tab of the sign-in may change.

    A POST that names no project is let through: every form of ours names one (a test walks the templates), so it came
    from no page, and what a program sends by hand is meant for the project that it chose itself.
    """
    if request.method != "POST":
        return False
    return any(shown != str(current.project_id) for shown in request.POST.getlist(IN_PROJECT))


def _named_by_link(request: HttpRequest, current: Membership) -> Project | None:
    """The project, not the current one, that a link names; raises Http404 where it is none of the person's own."""
    name = request.GET.get(OF_PROJECT, current.project.name) if request.method in ("GET", "HEAD") else None
    if name is None or name == current.project.name:
        return None
    for membership in cast(MemberRequest, request).memberships:
        if membership.project.name == name:
            return membership.project
    raise Http404


def elsewhere(request: MemberRequest, project: Project, what: str) -> HttpResponse:
    """409 for an address of another of the person's projects, of `what` it is, with a button that opens it there.

    Reading changes nothing, so the switch is the person's: other tabs of the sign-in are in the current project.
    """
    context = {"home": project, "what": what, "path": request.get_full_path()}
    return render(request, "sessions/elsewhere.html", context, status=409)


def sign_in_first(request: HttpRequest) -> HttpResponse:
    """Send a stranger to the sign-in page, and back afterwards when they were only reading."""
    if request.method in ("GET", "HEAD"):
        return redirect_to_login(request.get_full_path())
    return redirect_to_login("/")


def lacks_role(request: HttpRequest, role: str) -> HttpResponse:
    """The page for members whose role is not enough."""
    return render(request, "sessions/lacks_role.html", {"role": role}, status=403)


def other_project(request: MemberRequest) -> HttpResponse:
    """409 for a form of another project: which one, that nothing was recorded, and what was typed."""
    shown = request.POST.getlist(IN_PROJECT)
    others = (one.project for one in request.memberships if one.project_id != request.membership.project_id)
    context = {
        "was": next((project for project in others if str(project.id) in shown), None),
        "typed": [
            (name.replace("_", " "), value)
            for name, values in request.POST.lists()
            if name not in _NOBODYS_WORDS and not name.startswith("seen")
            for value in values
            if value.strip()
        ],
    }
    return render(request, "sessions/other_project.html", context, status=409)
