"""Taking a session away as a bundle, and what an imported one brought with it."""

import shlex
from typing import Final
from uuid import UUID

from django.contrib import messages
from django.http import FileResponse, Http404
from django.http.response import HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST, require_safe

from inquiry import bodies, effect_page
from inquiry.bundles import exporting, history
from sessions.access import MemberRequest, member, requires
from sessions.models import Session
from sessions.people import pseudonym_of
from sessions.refused import RefusedError

MEDIA_TYPE: Final = "application/zip"
MOST: Final = 10_000  # effects of a session that a request may take the time for


@require_POST
@requires("operator")
def export_bundle(request: MemberRequest, session: UUID) -> HttpResponseBase:
    """The bundle of a session as a download; who took it is recorded before its first byte is sent."""
    found = _session(request, session)
    if found.effect_count > MOST:
        command = f"manage.py export_bundle {found} --project {shlex.quote(found.project.name)}"
        text = f"{found} has {found.effect_count:,} effects, too many to wait for here: whoever runs Gatebook can"
        messages.error(request, f"{text} export it with {command}.")
        return redirect("session", session=found.id)
    try:
        taken = exporting.export(found, actor=pseudonym_of(request.user))
    except RefusedError as refusal:
        messages.error(request, str(refusal))
        return redirect("session", session=found.id)
    file = taken.path.open("rb")
    taken.path.unlink()  # what is open is read to its end
    return FileResponse(
        file, as_attachment=True, filename=taken.name(found), content_type=MEDIA_TYPE
    )


@require_safe
@member
def session_bundle(request: MemberRequest, session: UUID) -> HttpResponse:
    """Where an imported session comes from, and what the bundle says that no other page shows."""
    found = _session(request, session)
    bundle = history.of_session(found)
    if bundle is None:
        raise Http404
    return render(
        request,
        "inquiry/bundle.html",
        {"agent_session": found, "bundle": bundle, "exemptions": history.exemptions_of(bundle)},
    )


@require_safe
@member
def imported_gate(request: MemberRequest, gate: UUID) -> HttpResponse:
    """A gate of another book: what was asked of people there, and what they said. Nothing can be answered here."""
    one = history.gate(request.membership.project.id, gate)
    if one is None:
        raise Http404
    position = one.told["plan_position"]
    plan = effect_page.plan_at(one.effect, position)
    context = {
        "effect": one.effect,
        "told": history.told_of(one),
        "plan_position": position,
        "arguments": bodies.arguments(plan.get("arguments")) if plan is not None else [],
        "plan_erased": plan is None,
        "bundle": history.of_session(one.effect.session),
        "there": one.told["handle"],
    }
    return render(request, "inquiry/imported_gate.html", context)


def _session(request: MemberRequest, session: UUID) -> Session:
    found = request.membership.project.sessions.filter(id=session).first()
    if found is None:
        raise Http404
    return found
