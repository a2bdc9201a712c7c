"""Artifacts of a session, and the download of one."""

import re
from typing import Final
from uuid import UUID

from django.http import FileResponse, Http404, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.views.decorators.http import require_safe

from accounts.access import MemberRequest, member_required
from display import access_log, keyset_pagination
from display.page_params import parse_page_place
from pages.sessions.data import load_session_or_404
from sessions.artifacts import ChangedContent, open_content

PAGE_SIZE: Final = 50


@require_safe
@member_required
def session_artifacts(request: MemberRequest, session: UUID) -> HttpResponse:
    """List every artifact of a session, newest first."""
    row = load_session_or_404(request, session)
    place = parse_page_place(request.GET, ())
    page = keyset_pagination.load_keyset_page(row.artifacts.all(), PAGE_SIZE, place.window)
    return render(
        request,
        "pages/artifacts/artifacts.html",
        {"agent_session": row, "page": page, "place": place},
    )


@require_safe
@member_required
def artifact_file(request: MemberRequest, artifact: UUID) -> HttpResponseBase:
    """Download the stored bytes of an artifact; 404 if they are not there, or were changed."""
    row = request.membership.project.artifacts.filter(
        id=artifact, stored_at_us__isnull=False
    ).first()
    if row is None:
        raise Http404
    try:
        file = open_content(row.project_id, row.sha256)
    except ChangedContent:
        return render(request, "pages/artifacts/changed.html", {"artifact": row}, status=404)
    except OSError as error:
        raise Http404 from error
    of = (row.session_id, row.effect, row.id)
    access_log.record_view(
        row.project_id, access_log.access_actor(request), "artifact", row.opened_position, of
    )
    name = re.sub(r"[^A-Za-z0-9._-]+", "_", row.name).strip("._")[-80:]
    response = FileResponse(
        file, as_attachment=True, filename=f"{row}-{name}" if name else str(row)
    )
    response["Content-Type"] = "application/octet-stream"
    return response
