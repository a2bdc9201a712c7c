"""Views of session bundles: download, and the contents of an imported one."""

import shlex
from typing import Final
from uuid import UUID

from django.contrib import messages
from django.http import FileResponse, Http404
from django.http.response import HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST, require_safe

from accounts.access import MemberRequest, member_required, role_required
from accounts.people import ensure_pseudonym
from db.errors import ChangeRefused
from display import entry_bodies
from investigation.bundles import export, imported_gates
from pages.effects import data
from sessions.models import Session

MEDIA_TYPE: Final = "application/zip"
MAX_EFFECTS: Final = 10_000  # effects of a session that one request may export


@require_POST
@role_required("operator")
def export_bundle(request: MemberRequest, session: UUID) -> HttpResponseBase:
    """Download a session as a bundle; the person is recorded before the first byte is sent."""
    session_row = _get_session(request, session)
    if session_row.effect_count > MAX_EFFECTS:
        project = shlex.quote(session_row.project.name)
        command = f"manage.py export_bundle {session_row} --project {project}"
        text = f"{session_row} has {session_row.effect_count:,} effects, too many for a download."
        messages.error(request, f"{text} An operator can export it on the server with {command}.")
        return redirect("session", session=session_row.id)
    try:
        taken = export.export_session(session_row, actor=ensure_pseudonym(request.user))
    except ChangeRefused as refusal:
        messages.error(request, str(refusal))
        return redirect("session", session=session_row.id)
    file = taken.path.open("rb")
    taken.path.unlink()  # an open file stays readable
    return FileResponse(
        file, as_attachment=True, filename=taken.name(session_row), content_type=MEDIA_TYPE
    )


@require_safe
@member_required
def session_bundle(request: MemberRequest, session: UUID) -> HttpResponse:
    """Show the origin of an imported session and bundle contents without a page of their own."""
    session_row = _get_session(request, session)
    bundle = imported_gates.bundle_of_session(session_row)
    if bundle is None:
        raise Http404
    return render(
        request,
        "pages/bundles/bundle.html",
        {
            "agent_session": session_row,
            "bundle": bundle,
            "exemptions": imported_gates.list_imported_exemptions(bundle),
        },
    )


@require_safe
@member_required
def imported_gate(request: MemberRequest, gate: UUID) -> HttpResponse:
    """Show an imported gate with its votes, read-only."""
    gate_row = imported_gates.load_imported_gate(request.membership.project.id, gate)
    if gate_row is None:
        raise Http404
    position = gate_row.document["plan_position"]
    plan = data.load_plan_at(gate_row.effect, position)
    context = {
        "effect": gate_row.effect,
        "details": imported_gates.load_gate_details(gate_row),
        "plan_position": position,
        "arguments": entry_bodies.split_arguments(plan.get("arguments"))
        if plan is not None
        else [],
        "plan_erased": plan is None,
        "bundle": imported_gates.bundle_of_session(gate_row.effect.session),
        "there": gate_row.document["handle"],
    }
    return render(request, "pages/bundles/imported_gate.html", context)


def _get_session(request: MemberRequest, session: UUID) -> Session:
    session_row = request.membership.project.sessions.filter(id=session).first()
    if session_row is None:
        raise Http404
    return session_row
