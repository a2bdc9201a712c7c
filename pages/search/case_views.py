"""Views of case files: choose what goes in, then print the document or download the zip."""

import io
from typing import Any, Final

from django.contrib.staticfiles import finders
from django.http import FileResponse, Http404, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.template.loader import render_to_string
from django.views.decorators.http import require_http_methods

from accounts.access import MemberRequest, role_required
from accounts.models import Project
from accounts.people import ensure_pseudonym
from db.clock import now_us
from db.ids import new_uuid7
from display import handles
from display.time_limit import limit_view
from investigation.case_files import case_selection, case_writer
from investigation.case_files.case_contents import CaseFile
from investigation.case_files.case_selection import CaseSelection
from investigation.models import Incident
from investigation.query.parser.ast import QueryError
from investigation.query.permalink import load_pinned_position

MAX_TITLE: Final = 120
STYLESHEET: Final = "case_file.css"
_LINK: Final = '<link rel="stylesheet" href="'


@require_http_methods(["GET", "HEAD", "POST"])
@role_required("reviewer")
@limit_view
def case_file_page(request: MemberRequest) -> HttpResponseBase:
    """Show what a case file of `q`, `incident` or `session` contains; a POST makes it.

    `do` is print, for the document as a page, or zip.
    """
    sent = request.POST if request.method == "POST" else request.GET
    given = {name: sent.get(name, "").strip()[:2000] for name in ("q", "incident", "session")}
    title = sent.get("title", "").strip()[:MAX_TITLE]
    context: dict[str, Any] = {"given": given, "title": title}
    made_us = now_us()
    try:
        selection = _select(request.membership.project, given, made_us)
        position = load_pinned_position()
    except QueryError as fault:
        context["error"] = fault.sentence
        return render(request, "pages/search/case.html", context, status=422)
    case = CaseFile(
        request.membership.project,
        selection,
        title or selection.label[:MAX_TITLE],
        request.user.get_username(),
        ensure_pseudonym(request.user),
        made_us,
        position,
    )
    if request.method == "POST":
        return _make(case, "zip" if sent.get("do") == "zip" else "html")
    return render(request, "pages/search/case.html", context | {"case": case})


def _select(project: Project, given: dict[str, str], at_us: int) -> CaseSelection:
    """Select by the first origin that is given. Raises QueryError, Http404."""
    if given["incident"]:
        identity = handles.parse_uuid(given["incident"])
        incidents = Incident.objects.filter(project=project)
        incident = incidents.filter(id=identity).first() if identity is not None else None
        if incident is None:
            raise Http404
        return case_selection.select_by_incident(project, incident)
    if given["session"]:
        session = handles.find_session(project, given["session"].replace("\0", ""))
        if session is None:
            raise Http404
        return case_selection.select_by_session(project, session)
    return case_selection.select_by_query(project, given["q"].replace("\0", "") or "effect", at_us)


def _make(case: CaseFile, form: str) -> HttpResponseBase:
    """Render the document, record its making, and return it."""
    sections = {table.name: table for table in case.tables}
    document = render_to_string(
        "pages/search/case_document.html",
        {"case": case, "about": case_writer.describe_case(case), **sections},
    )
    name = f"case-{case.position}"
    if form == "zip":
        target = case_writer.write_case_zip(case, _enclose_styles(document).encode())
        case_writer.record_case_file(case, form, target, new_uuid7())
        return FileResponse(
            target, as_attachment=True, filename=f"{name}.zip", content_type="application/zip"
        )
    page = document.encode()
    case_writer.record_case_file(case, form, io.BytesIO(page), new_uuid7())
    return HttpResponse(page)


def _enclose_styles(document: str) -> str:
    """Replace the link to the stylesheet by its text: the file is read without a server."""
    before, _, rest = document.partition(_LINK)
    path = finders.find(STYLESHEET)
    assert path is not None  # noqa: S101 - shipped with the product
    with open(path, encoding="utf-8") as file:  # noqa: PTH123 - finders give a text
        styles = file.read()
    return f"{before}<style>{styles}</style>{rest.partition('>')[2]}"
