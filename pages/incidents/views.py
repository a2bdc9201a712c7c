"""Views of incidents: the list, one incident, and its forms."""

from collections.abc import Callable
from typing import Any, Final
from uuid import UUID

from django.contrib import messages
from django.http import Http404, HttpResponse, JsonResponse, QueryDict
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from accounts.access import MemberRequest, has_role, member_required, role_required
from accounts.models import Membership
from db import retry
from db.clock import now_us
from db.errors import ChangeRefused
from db.ids import new_uuid7
from display import handles, references
from display.page_params import parse_number, parse_page_place
from display.references import Reference
from display.time_limit import limit_view
from investigation.incidents import incidents
from investigation.incidents.incidents import IncidentConflictError
from investigation.models import INCIDENT_STATES, Incident
from investigation.saved_queries import builtin_questions
from pages.incidents import data
from pages.incidents.data import IncidentDetails
from pages.timeline import multi_session, timeline_page

MAX_FIELD: Final = (
    incidents.MAX_NOTE + 1
)  # of a field: one too many, so that the service rejects it
FIELDS: Final = ("title", "state", "owner", "reason", "text", "thing", "key", "version")


@require_safe
@member_required
@limit_view
def incidents_page(request: MemberRequest) -> HttpResponse:
    """List the incidents of the project, newest first, optionally of one state."""
    place = parse_page_place(request.GET, ("state",))
    state = request.GET.get("state", "")
    if state and state not in INCIDENT_STATES:
        place.errors.append(
            f"Unknown state “{state[:20]}”. Choose one of {', '.join(INCIDENT_STATES)}."
        )
    page = data.list_incidents(request.membership.project, state, place.window)
    context = {
        "page": page,
        "place": place,
        "state": state,
        "states": INCIDENT_STATES,
        "may_act": _may_act(request),
    }
    return render(
        request,
        "pages/incidents/list.html",
        context | {"beginnings": builtin_questions.STARTING_POINTS},
    )


@require_safe
@member_required
@limit_view
def incident_page(request: MemberRequest, incident: UUID) -> HttpResponse:
    """Show one incident: state, members, their timeline, and history."""
    return _render_incident(request, _get_incident(request, incident))


@require_http_methods(["GET", "HEAD", "POST"])
@role_required("reviewer")
def open_incident_page(request: MemberRequest) -> HttpResponse:
    """Show the form and open an incident, optionally with a first item (`thing`) and reason."""
    sent = _form_values(request)
    error = ""
    if request.method == "POST":
        try:
            first = _find_item(request, sent["thing"]) if sent["thing"].strip() else None
            opened = retry.run_with_retry(
                lambda: incidents.open_incident(
                    request.membership.project,
                    sent["title"],
                    request.user,
                    key=sent["key"] or new_uuid7().hex,
                    first=first,
                    why=sent["reason"],
                )
            )
        except ChangeRefused as refusal:
            error = str(refusal)
        else:
            messages.success(request, f"{opened} is open.")
            return redirect("incident", incident=opened.id)
    context = {"sent": sent, "error": error, "key": sent["key"] or new_uuid7().hex}
    return render(request, "pages/incidents/open.html", context, status=422 if error else 200)


@require_http_methods(["GET", "HEAD", "POST"])
@role_required("reviewer")
def add_to_incident_page(request: MemberRequest) -> HttpResponse:
    """Ask for an incident and a reason, then add an item (`thing`) to it."""
    sent = _form_values(request) | {"incident": request.POST.get("incident", "")[:36]}
    error = ""
    if request.method == "POST":
        chosen = handles.parse_uuid(sent["incident"])
        if chosen is None:
            error = "No incident is selected. Choose one, or open a new one."
        else:
            incident_row = _get_incident(request, chosen)
            error = _run_action(request, lambda: _add_member(request, incident_row, sent))
            if not error:
                return redirect("incident", incident=incident_row.id)
    context = {
        "sent": sent,
        "error": error,
        "choices": data.list_open_incidents(request.membership.project),
    }
    return render(request, "pages/incidents/add.html", context, status=422 if error else 200)


@require_POST
@role_required("reviewer")
def add_member_page(request: MemberRequest, incident: UUID) -> HttpResponse:
    """Add the item that `thing` names by handle, id, key, position or URL."""
    incident_row, sent = _get_incident(request, incident), _form_values(request)
    return _respond(
        request, incident_row, "member", lambda: _add_member(request, incident_row, sent)
    )


@require_POST
@role_required("reviewer")
def note_incident_page(request: MemberRequest, incident: UUID) -> HttpResponse:
    """Add a note."""
    incident_row, sent = _get_incident(request, incident), _form_values(request)

    def note() -> str:
        key = sent["key"] or new_uuid7().hex
        retry.run_with_retry(
            lambda: incidents.add_note(incident_row, sent["text"], request.user, key=key)
        )
        return "Note added."

    return _respond(request, incident_row, "note", note)


@require_POST
@role_required("reviewer")
def change_incident_page(request: MemberRequest, incident: UUID) -> HttpResponse:
    """Set title, state and owner; answer 409 with the current values if they changed since."""
    incident_row, sent = _get_incident(request, incident), _form_values(request)

    def change() -> str:
        version = parse_number(sent["version"], 9)
        if version is None:
            raise IncidentConflictError(
                "The form has no version. Nothing was saved; check the current values below."
            )
        owner = _find_owner(request, sent["owner"])
        title, state, why = sent["title"], sent["state"], sent["reason"]
        changed = retry.run_with_retry(
            lambda: incidents.change_incident(
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

    return _respond(request, incident_row, "change", change)


@require_http_methods(["GET", "HEAD", "POST"])
@role_required("reviewer")
def remove_member_page(request: MemberRequest, incident: UUID, member: UUID) -> HttpResponse:
    """Ask for a reason, then remove a member; the history keeps it."""
    incident_row, sent = _get_incident(request, incident), _form_values(request)
    member_row = data.load_member(incident_row, member)
    if member_row is None:
        raise Http404
    error = ""
    if request.method == "POST":

        def remove() -> str:
            taken = retry.run_with_retry(
                lambda: incidents.remove_member(incident_row, member, sent["reason"], request.user)
            )
            return "Removed." if taken else "The item was already removed."

        error = _run_action(request, remove)
        if not error:
            return redirect("incident", incident=incident_row.id)
    name = references.reference_handle(member_row.kind, member_row.number)
    context = {
        "incident": incident_row,
        "member": member_row,
        "name": name,
        "sent": sent,
        "error": error,
    }
    return render(request, "pages/incidents/remove.html", context, status=422 if error else 200)


def _add_member(request: MemberRequest, incident_row: Incident, sent: dict[str, str]) -> str:
    thing = _find_item(request, sent["thing"])
    added = retry.run_with_retry(
        lambda: incidents.add_member(incident_row, thing, sent["reason"], request.user)
    )
    return (
        f"Added {thing} to {incident_row}." if added else f"{thing} is already in {incident_row}."
    )


def _run_action(request: MemberRequest, act: Callable[[], str]) -> str:
    """Run the action and queue its message; return the error text, or ""."""
    try:
        messages.success(request, act())
    except ChangeRefused as refusal:
        return str(refusal)
    return ""


def _respond(
    request: MemberRequest, incident_row: Incident, form: str, act: Callable[[], str]
) -> HttpResponse:
    """Redirect to the incident, or show it with the error and the entered values."""
    try:
        messages.success(request, act())
    except IncidentConflictError as changed:
        return _render_incident(
            request, _get_incident(request, incident_row.id), form, str(changed), 409
        )
    except ChangeRefused as refusal:
        return _render_incident(request, incident_row, form, str(refusal), 422)
    return redirect("incident", incident=incident_row.id)


def _render_incident(
    request: MemberRequest, incident_row: Any, form: str = "", error: str = "", status: int = 200
) -> HttpResponse:
    """Render the incident; after an error without the timeline, whose links need its own URL."""
    query, now = request.GET, now_us()
    before = handles.parse_position(query.get("history_before", ""))
    details = data.load_details(request.membership.project, incident_row, now, before)
    shown = {} if form else _timeline_context(query, details, now)
    if not form and shown["view"] == "json":
        answer = _incident_to_json(incident_row, details) | timeline_page.timeline_to_json(
            shown["lanes"]
        )
        return JsonResponse(answer, json_dumps_params={"ensure_ascii": False})
    sent = _form_values(request)
    context = {
        "incident": incident_row,
        "details": details,
        "states": INCIDENT_STATES,
        "owners": data.list_owners(request.membership.project) if _may_act(request) else [],
        "may_act": _may_act(request),
        "refused": form,
        "error": error,
        "overtaken": status == 409,
        "member_form": sent if form == "member" else {},
        "note_form": sent if form == "note" else {"key": new_uuid7().hex},
        "change_form": sent if form == "change" else _current_values(incident_row),
        "paged": before is not None,
        **shown,
    }
    return render(request, "pages/incidents/incident.html", context, status=status)


def _timeline_context(query: QueryDict, details: IncidentDetails, now: int) -> dict[str, Any]:
    """Return the template context of the timeline of all members."""
    view = timeline_page.parse_view(query, "compact")
    view_query = timeline_page.parse_timeline_params(query, view, ("history_before",))
    timeline = multi_session.load_multi_session_window(
        details.sessions,
        details.effects,
        view_query.filters,
        view_query.place.window,
        now,
        size=view_query.size,
        clock=query.get("clock", ""),
        three=view in ("json", "table"),
    )
    return timeline_page.timeline_context(query, view_query, timeline, running=False)


def _current_values(incident_row: Any) -> dict[str, str]:
    owner = incident_row.owner.get_username() if incident_row.owner is not None else ""
    return {"title": incident_row.title or "", "state": incident_row.state, "owner": owner}


def _incident_to_json(incident_row: Any, details: IncidentDetails) -> dict[str, Any]:
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
            for item in details.members
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
            for item in details.history
        ],
    }


def _form_values(request: MemberRequest) -> dict[str, str]:
    params = request.POST if request.method == "POST" else request.GET
    return {name: params.get(name, "").replace("\0", "")[:MAX_FIELD] for name in FIELDS}


def _find_item(request: MemberRequest, text: str) -> Reference:
    return references.find_reference(request.membership.project, text)


def _find_owner(request: MemberRequest, name: str) -> Membership | None:
    if not name:
        return None
    owners = data.list_owners(request.membership.project)
    membership = next(
        (candidate for candidate in owners if candidate.user.get_username() == name), None
    )
    if membership is None:
        raise ChangeRefused(
            "Unknown owner. Choose a member of this project who is not a viewer, or nobody."
        )
    return membership


def _get_incident(request: MemberRequest, identity: UUID) -> Any:
    incident_row = data.load_incident(request.membership.project, identity)
    if incident_row is None:
        raise Http404
    return incident_row


def _may_act(request: MemberRequest) -> bool:
    return has_role(request.membership, "reviewer")
