"""Views of incidents: the list, one incident, and its forms."""

from collections.abc import Callable
from typing import Any, Final
from uuid import UUID

from django.contrib import messages
from django.http import Http404, HttpResponse, JsonResponse, QueryDict
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from inquiry import gathered, handles, incident_page, incidents, lanes, shipped, things
from inquiry.incident_page import Held
from inquiry.incidents import ChangedError
from inquiry.models_incidents import STATES, Incident
from inquiry.patience import patient
from inquiry.things import Thing
from inquiry.views import timeline as views
from inquiry.views.place import place_of
from journal import again
from journal.clock import now_us
from journal.ids import uuid7
from sessions.access import MemberRequest, may, member, requires
from sessions.models import Membership
from sessions.refused import RefusedError

LONGEST: Final = incidents.MOST_NOTE + 1  # of a field: one too many, so that the service rejects it
FIELDS: Final = ("title", "state", "owner", "reason", "text", "thing", "key", "version")


@require_safe
@member
@patient
def incidents_page(request: MemberRequest) -> HttpResponse:
    """List the incidents of the project, newest first, optionally of one state."""
    place = place_of(request.GET, ("state",))
    state = request.GET.get("state", "")
    if state and state not in STATES:
        place.errors.append(f"Unknown state “{state[:20]}”. Choose one of {', '.join(STATES)}.")
    page = incident_page.incidents(request.membership.project, state, place.window)
    context = {
        "page": page,
        "place": place,
        "state": state,
        "states": STATES,
        "may_act": _may_act(request),
    }
    return render(
        request, "inquiry/incidents/list.html", context | {"beginnings": shipped.BEGINNINGS}
    )


@require_safe
@member
@patient
def incident(request: MemberRequest, incident: UUID) -> HttpResponse:
    """Show one incident: state, members, their timeline, and history."""
    return _page(request, _incident(request, incident))


@require_http_methods(["GET", "HEAD", "POST"])
@requires("reviewer")
def open_incident(request: MemberRequest) -> HttpResponse:
    """Show the form and open an incident, optionally with a first item (`thing`) and reason."""
    sent = _sent(request)
    error = ""
    if request.method == "POST":
        try:
            first = _thing(request, sent["thing"]) if sent["thing"].strip() else None
            opened = again.durably(
                lambda: incidents.open_(
                    request.membership.project,
                    sent["title"],
                    request.user,
                    key=sent["key"] or uuid7().hex,
                    first=first,
                    why=sent["reason"],
                )
            )
        except RefusedError as refusal:
            error = str(refusal)
        else:
            messages.success(request, f"{opened} is open.")
            return redirect("incident", incident=opened.id)
    context = {"sent": sent, "error": error, "key": sent["key"] or uuid7().hex}
    return render(request, "inquiry/incidents/open.html", context, status=422 if error else 200)


@require_http_methods(["GET", "HEAD", "POST"])
@requires("reviewer")
def add_to_incident(request: MemberRequest) -> HttpResponse:
    """Ask for an incident and a reason, then add an item (`thing`) to it."""
    sent = _sent(request) | {"incident": request.POST.get("incident", "")[:36]}
    error = ""
    if request.method == "POST":
        chosen = handles.as_uuid(sent["incident"])
        if chosen is None:
            error = "No incident is selected. Choose one, or open a new one."
        else:
            incident_row = _incident(request, chosen)
            error = _try(request, lambda: _add(request, incident_row, sent))
            if not error:
                return redirect("incident", incident=incident_row.id)
    context = {
        "sent": sent,
        "error": error,
        "choices": incident_page.choices(request.membership.project),
    }
    return render(request, "inquiry/incidents/add.html", context, status=422 if error else 200)


@require_POST
@requires("reviewer")
def add_member(request: MemberRequest, incident: UUID) -> HttpResponse:
    """Add the item that `thing` names by handle, id, key, position or URL."""
    incident_row, sent = _incident(request, incident), _sent(request)
    return _answer(request, incident_row, "member", lambda: _add(request, incident_row, sent))


@require_POST
@requires("reviewer")
def note_incident(request: MemberRequest, incident: UUID) -> HttpResponse:
    """Add a note."""
    incident_row, sent = _incident(request, incident), _sent(request)

    def note() -> str:
        key = sent["key"] or uuid7().hex
        again.durably(lambda: incidents.note(incident_row, sent["text"], request.user, key=key))
        return "Note added."

    return _answer(request, incident_row, "note", note)


@require_POST
@requires("reviewer")
def change_incident(request: MemberRequest, incident: UUID) -> HttpResponse:
    """Set title, state and owner; answer 409 with the current values if they changed since."""
    incident_row, sent = _incident(request, incident), _sent(request)

    def change() -> str:
        if not (
            sent["version"].isascii() and sent["version"].isdigit() and len(sent["version"]) < 10
        ):
            raise ChangedError(
                "The form has no version. Nothing was saved; check the current values below."
            )
        version, owner = int(sent["version"]), _owner(request, sent["owner"])
        title, state, why = sent["title"], sent["state"], sent["reason"]
        changed = again.durably(
            lambda: incidents.change(
                incident_row,
                request.user,
                version=version,
                title=title,
                state=state,
                owner=owner,
                why=why,
            )
        )
        return "Changes saved." if changed else "Nothing changed."

    return _answer(request, incident_row, "change", change)


@require_http_methods(["GET", "HEAD", "POST"])
@requires("reviewer")
def remove_member(request: MemberRequest, incident: UUID, member: UUID) -> HttpResponse:
    """Ask for a reason, then remove a member; the history keeps it."""
    incident_row, sent = _incident(request, incident), _sent(request)
    member_row = incident_page.member(incident_row, member)
    if member_row is None:
        raise Http404
    error = ""
    if request.method == "POST":

        def remove() -> str:
            taken = again.durably(
                lambda: incidents.remove(incident_row, member, sent["reason"], request.user)
            )
            return "Removed." if taken else "The item was already removed."

        error = _try(request, remove)
        if not error:
            return redirect("incident", incident=incident_row.id)
    name = things.name(member_row.kind, member_row.number)
    context = {
        "incident": incident_row,
        "member": member_row,
        "name": name,
        "sent": sent,
        "error": error,
    }
    return render(request, "inquiry/incidents/remove.html", context, status=422 if error else 200)


def _add(request: MemberRequest, incident_row: Incident, sent: dict[str, str]) -> str:
    thing = _thing(request, sent["thing"])
    added = again.durably(lambda: incidents.add(incident_row, thing, sent["reason"], request.user))
    return (
        f"Added {thing} to {incident_row}." if added else f"{thing} is already in {incident_row}."
    )


def _try(request: MemberRequest, act: Callable[[], str]) -> str:
    """Run the action and queue its message; return the error text, or ""."""
    try:
        messages.success(request, act())
    except RefusedError as refusal:
        return str(refusal)
    return ""


def _answer(
    request: MemberRequest, incident_row: Incident, form: str, act: Callable[[], str]
) -> HttpResponse:
    """Redirect to the incident, or show it with the error and the entered values."""
    try:
        messages.success(request, act())
    except ChangedError as changed:
        return _page(request, _incident(request, incident_row.id), form, str(changed), 409)
    except RefusedError as refusal:
        return _page(request, incident_row, form, str(refusal), 422)
    return redirect("incident", incident=incident_row.id)


def _page(
    request: MemberRequest, incident_row: Any, form: str = "", error: str = "", status: int = 200
) -> HttpResponse:
    """Render the incident; after an error without the timeline, whose links need its own URL."""
    query, now = request.GET, now_us()
    before = handles.as_position(query.get("said_before", ""))
    held = incident_page.held(request.membership.project, incident_row, now, before)
    shown = {} if form else _timeline(query, held, now)
    if not form and shown["view"] == "json":
        answer = _as_json(incident_row, held) | views.as_json(shown["lanes"])
        return JsonResponse(answer, json_dumps_params={"ensure_ascii": False})
    sent = _sent(request)
    context = {
        "incident": incident_row,
        "held": held,
        "states": STATES,
        "owners": incident_page.owners(request.membership.project) if _may_act(request) else [],
        "may_act": _may_act(request),
        "refused": form,
        "error": error,
        "overtaken": status == 409,
        "member_form": sent if form == "member" else {},
        "note_form": sent if form == "note" else {"key": uuid7().hex},
        "change_form": sent if form == "change" else _as_it_stands(incident_row),
        "paged": before is not None,
        **shown,
    }
    return render(request, "inquiry/incidents/incident.html", context, status=status)


def _timeline(query: QueryDict, held: Held, now: int) -> dict[str, Any]:
    """Return the template context of the timeline of all members."""
    view = views.view_of(query, "compact")
    view_query = views.asked_of(query, view, ("said_before",))
    timeline = gathered.read(
        held.sessions,
        held.effects,
        view_query.filters,
        view_query.place.window,
        now,
        size=view_query.size,
        clock=lanes.clock_of(query),
        three=view in ("json", "table"),
    )
    return views.context_of(query, view_query, timeline, running=False)


def _as_it_stands(incident_row: Any) -> dict[str, str]:
    owner = incident_row.owner.get_username() if incident_row.owner is not None else ""
    return {"title": incident_row.title or "", "state": incident_row.state, "owner": owner}


def _as_json(incident_row: Any, held: Held) -> dict[str, Any]:
    return {
        "incident": str(incident_row),
        "id": str(incident_row.id),
        "title": incident_row.title,
        "state": incident_row.state,
        "owner": incident_row.owner.get_username() if incident_row.owner is not None else None,
        "version": incident_row.version,
        "opened_at_us": incident_row.opened_at_us,
        "members": [
            {
                "kind": item.row.kind,
                "name": item.name,
                "page": item.url,
                "why": item.why,
                "added_by": item.who,
            }
            for item in held.members
        ],
        "history": [
            {
                "position": item.position,
                "kind": item.kind,
                "who": item.who,
                "at_us": item.at_us,
                "facts": item.facts,
                "text": item.text,
                "title": item.title,
                "erased": item.erased,
            }
            for item in held.history
        ],
    }


def _sent(request: MemberRequest) -> dict[str, str]:
    params = request.POST if request.method == "POST" else request.GET
    return {name: params.get(name, "").replace("\0", "")[:LONGEST] for name in FIELDS}


def _thing(request: MemberRequest, text: str) -> Thing:
    return things.find(request.membership.project, text)


def _owner(request: MemberRequest, name: str) -> Membership | None:
    if not name:
        return None
    owners = incident_page.owners(request.membership.project)
    membership = next(
        (candidate for candidate in owners if candidate.user.get_username() == name), None
    )
    if membership is None:
        raise RefusedError(
            "Unknown owner. Choose a member of this project who is not a viewer, or nobody."
        )
    return membership


def _incident(request: MemberRequest, identity: UUID) -> Any:
    incident_row = incident_page.incident(request.membership.project, identity)
    if incident_row is None:
        raise Http404
    return incident_row


def _may_act(request: MemberRequest) -> bool:
    return may(request.membership, "reviewer")
