"""Incidents: the list, one with its members, history and timeline, and the forms by which people keep it."""

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

LONGEST: Final = (
    incidents.MOST_NOTE + 1
)  # of a field: one more than is accepted, so that the verb says so
FIELDS: Final = ("title", "state", "owner", "reason", "text", "thing", "key", "version")


@require_safe
@member
@patient
def incidents_page(request: MemberRequest) -> HttpResponse:
    """The incidents of the project, newest first, of one state when it is named."""
    place = place_of(request.GET, ("state",))
    state = request.GET.get("state", "")
    if state and state not in STATES:
        place.errors.append(f"An incident is {', '.join(STATES)}; “{state[:20]}” is none of them.")
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
    """One incident: how it stands, its members across sessions, the timeline of all of them, and what people said."""
    return _page(request, _incident(request, incident))


@require_http_methods(["GET", "HEAD", "POST"])
@requires("reviewer")
def open_incident(request: MemberRequest) -> HttpResponse:
    """Ask for a title and, where something is to belong to it (`thing`), why; then open an incident."""
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
    """Ask to which incident something (`thing`) is to be added, and why; then add it."""
    sent = _sent(request) | {"incident": request.POST.get("incident", "")[:36]}
    error = ""
    if request.method == "POST":
        chosen = handles.as_uuid(sent["incident"])
        if chosen is None:
            error = "Choose one of the incidents, or open a new one."
        else:
            found = _incident(request, chosen)
            error = _try(request, lambda: _add(request, found, sent))
            if not error:
                return redirect("incident", incident=found.id)
    context = {
        "sent": sent,
        "error": error,
        "choices": incident_page.choices(request.membership.project),
    }
    return render(request, "inquiry/incidents/add.html", context, status=422 if error else 200)


@require_POST
@requires("reviewer")
def add_member(request: MemberRequest, incident: UUID) -> HttpResponse:
    """Add what `thing` names, by handle, id, key, position or address."""
    found, sent = _incident(request, incident), _sent(request)
    return _answer(request, found, "member", lambda: _add(request, found, sent))


@require_POST
@requires("reviewer")
def note_incident(request: MemberRequest, incident: UUID) -> HttpResponse:
    """Write a note."""
    found, sent = _incident(request, incident), _sent(request)

    def note() -> str:
        key = sent["key"] or uuid7().hex
        again.durably(lambda: incidents.note(found, sent["text"], request.user, key=key))
        return "Your note is recorded."

    return _answer(request, found, "note", note)


@require_POST
@requires("reviewer")
def change_incident(request: MemberRequest, incident: UUID) -> HttpResponse:
    """Set title, state and owner; 409 with what stands when somebody else did so since the page was made."""
    found, sent = _incident(request, incident), _sent(request)

    def change() -> str:
        if not (
            sent["version"].isascii() and sent["version"].isdigit() and len(sent["version"]) < 10
        ):
            raise ChangedError(
                "Your page did not say what it showed, so nothing was recorded. Below stands what it is now."
            )
        version, owner = int(sent["version"]), _owner(request, sent["owner"])
        title, state, why = sent["title"], sent["state"], sent["reason"]
        changed = again.durably(
            lambda: incidents.change(
                found, request.user, version=version, title=title, state=state, owner=owner, why=why
            )
        )
        return (
            "The change is recorded."
            if changed
            else "Nothing is different, so nothing was recorded."
        )

    return _answer(request, found, "change", change)


@require_http_methods(["GET", "HEAD", "POST"])
@requires("reviewer")
def remove_member(request: MemberRequest, incident: UUID, member: UUID) -> HttpResponse:
    """Ask why, then take a member out; that it was in stays in the history."""
    found, sent = _incident(request, incident), _sent(request)
    there = incident_page.member(found, member)
    if there is None:
        raise Http404
    error = ""
    if request.method == "POST":

        def remove() -> str:
            taken = again.durably(
                lambda: incidents.remove(found, member, sent["reason"], request.user)
            )
            return "It is taken out." if taken else "Somebody else took it out before."

        error = _try(request, remove)
        if not error:
            return redirect("incident", incident=found.id)
    name = things.name(there.kind, there.number)
    context = {"incident": found, "member": there, "name": name, "sent": sent, "error": error}
    return render(request, "inquiry/incidents/remove.html", context, status=422 if error else 200)


def _add(request: MemberRequest, found: Incident, sent: dict[str, str]) -> str:
    thing = _thing(request, sent["thing"])
    added = again.durably(lambda: incidents.add(found, thing, sent["reason"], request.user))
    return f"{thing} belongs to {found} now." if added else f"{thing} belongs to {found} already."


def _try(request: MemberRequest, act: Callable[[], str]) -> str:
    """Do it and say so on the next page; the refusal's sentence, or "" where there was none."""
    try:
        messages.success(request, act())
    except RefusedError as refusal:
        return str(refusal)
    return ""


def _answer(
    request: MemberRequest, found: Incident, form: str, act: Callable[[], str]
) -> HttpResponse:
    """Go back to the incident, or show it as it is now with what was refused and what was typed."""
    try:
        messages.success(request, act())
    except ChangedError as changed:
        return _page(request, _incident(request, found.id), form, str(changed), 409)
    except RefusedError as refusal:
        return _page(request, found, form, str(refusal), 422)
    return redirect("incident", incident=found.id)


def _page(
    request: MemberRequest, found: Any, form: str = "", error: str = "", status: int = 200
) -> HttpResponse:
    """The page; after a refusal without the timeline, whose links lead on from where it stands."""
    query, now = request.GET, now_us()
    before = handles.as_position(query.get("said_before", ""))
    held = incident_page.held(request.membership.project, found, now, before)
    shown = {} if form else _timeline(query, held, now)
    if not form and shown["view"] == "json":
        answer = _as_json(found, held) | views.as_json(shown["lanes"])
        return JsonResponse(answer, json_dumps_params={"ensure_ascii": False})
    sent = _sent(request)
    context = {
        "incident": found,
        "held": held,
        "states": STATES,
        "owners": incident_page.owners(request.membership.project) if _may_act(request) else [],
        "may_act": _may_act(request),
        "refused": form,
        "error": error,
        "overtaken": status == 409,
        "member_form": sent if form == "member" else {},
        "note_form": sent if form == "note" else {"key": uuid7().hex},
        "change_form": sent if form == "change" else _as_it_stands(found),
        "paged": before is not None,
        **shown,
    }
    return render(request, "inquiry/incidents/incident.html", context, status=status)


def _timeline(query: QueryDict, held: Held, now: int) -> dict[str, Any]:
    """What the timeline of all members shows."""
    view = views.view_of(query, "compact")
    asked = views.asked_of(query, view, ("said_before",))
    found = gathered.read(
        held.sessions,
        held.effects,
        asked.filters,
        asked.place.window,
        now,
        size=asked.size,
        clock=lanes.clock_of(query),
        three=view in ("json", "table"),
    )
    return views.context_of(query, asked, found, running=False)


def _as_it_stands(found: Any) -> dict[str, str]:
    owner = found.owner.get_username() if found.owner is not None else ""
    return {"title": found.title or "", "state": found.state, "owner": owner}


def _as_json(found: Any, held: Held) -> dict[str, Any]:
    return {
        "incident": str(found),
        "id": str(found.id),
        "title": found.title,
        "state": found.state,
        "owner": found.owner.get_username() if found.owner is not None else None,
        "version": found.version,
        "opened_at_us": found.opened_at_us,
        "members": [
            {
                "kind": one.row.kind,
                "name": one.name,
                "page": one.url,
                "why": one.why,
                "added_by": one.who,
            }
            for one in held.members
        ],
        "history": [
            {
                "position": one.position,
                "kind": one.kind,
                "who": one.who,
                "at_us": one.at_us,
                "facts": one.facts,
                "text": one.text,
                "title": one.title,
                "erased": one.erased,
            }
            for one in held.history
        ],
    }


def _sent(request: MemberRequest) -> dict[str, str]:
    asked = request.POST if request.method == "POST" else request.GET
    return {name: asked.get(name, "").replace("\0", "")[:LONGEST] for name in FIELDS}


def _thing(request: MemberRequest, text: str) -> Thing:
    return things.find(request.membership.project, text)


def _owner(request: MemberRequest, name: str) -> Membership | None:
    if not name:
        return None
    owners = incident_page.owners(request.membership.project)
    found = next((one for one in owners if one.user.get_username() == name), None)
    if found is None:
        raise RefusedError(
            "Choose one of the people of this project who may change things, or nobody."
        )
    return found


def _incident(request: MemberRequest, identity: UUID) -> Any:
    found = incident_page.incident(request.membership.project, identity)
    if found is None:
        raise Http404
    return found


def _may_act(request: MemberRequest) -> bool:
    return may(request.membership, "reviewer")
