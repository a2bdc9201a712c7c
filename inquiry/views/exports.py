"""Views of exports: a direct download as a stream, or a background export to fetch later."""

import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final
from uuid import UUID

from django.http import FileResponse, Http404, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_safe
from django.views.decorators.vary import vary_on_headers

from inquiry import exporting, exports, patience
from inquiry.models_exports import FORMATS, Export
from inquiry.query import asking
from inquiry.query.tree import Fault
from journal.clock import now_us
from journal.ids import uuid7
from sessions.access import MemberRequest, member
from sessions.refused import RefusedError

AT_ONCE: Final = 2  # concurrent downloads per person and process
_under_way: Counter[int] = Counter()
_counting = threading.Lock()


@require_http_methods(["GET", "HEAD", "POST"])
@member
def export(request: MemberRequest) -> HttpResponseBase:
    """Show what would be exported; a POST starts it, `do` now or later."""
    sent = request.POST if request.method == "POST" else request.GET
    text, form = sent.get("q", "").strip(), sent.get("format", "csv")
    context: dict[str, Any] = {"text": text, "format": form, "formats": FORMATS}
    try:
        if form not in FORMATS:
            raise RefusedError(f"Unknown format. Choose one of {', '.join(FORMATS)}.")
        if request.method == "POST":
            return (
                _now(request, text, form)
                if sent.get("do") == "now"
                else _later(request, text, form)
            )
        search = asking.understand(text, request.membership.project, now_us())
        context["entity"], context["notes"] = search.entity, search.context.notes
        context["count"], context["more"] = _count(request, search)
    except Fault as fault:
        context["error"] = fault.sentence
    except RefusedError as refusal:
        context["error"] = str(refusal)
    context["rows"] = list(exports.of(request.membership)[:20])
    return render(
        request, "inquiry/export.html", context, status=422 if "error" in context else 200
    )


@require_safe
@member
@vary_on_headers("HX-Request")
def export_job(request: MemberRequest, export: UUID) -> HttpResponse:
    """Show the progress of an export; polled as a fragment until it ends."""
    job = _one(request, export)
    template = (
        "inquiry/_export.html"
        if request.headers.get("HX-Request") == "true"
        else "inquiry/export_job.html"
    )
    ended = job.state in ("done", "failed", "gone")
    notes = [] if ended else exports.waits_for(job)
    context = {"export": job, "format": FORMATS[job.format], "ended": ended, "notes": notes}
    return render(request, template, context)


@require_safe
@member
def export_file(request: MemberRequest, export: UUID) -> HttpResponseBase:
    """Download the file of a finished export."""
    job = _one(request, export)
    try:
        file = exports.path(job).open("rb") if job.state == "done" else None
    except OSError as error:
        raise Http404 from error
    if file is None:
        raise Http404
    name = _name(job.position, job.format)
    return FileResponse(
        file, as_attachment=True, filename=name, content_type=exporting.TYPES[job.format]
    )


def _one(request: MemberRequest, identity: UUID) -> Export:
    job = exports.of(request.membership).filter(id=identity).first()
    if job is None:
        raise Http404
    return job


def _count(request: MemberRequest, search: asking.Asked) -> tuple[int | None, bool]:
    """Count the rows and tell whether there are more; None if counting takes too long."""
    if search.query.grouping is not None:
        return None, False
    try:
        with patience.limit(request.user.pk):
            return asking.count(search)
    except patience.Overran:
        return None, True


def _now(request: MemberRequest, text: str, form: str) -> HttpResponseBase:
    wanted = exports.wanted_by(request.membership, text, form)
    if wanted.late:  # a download cannot wait for an index and must not omit rows
        return _later(request, text, form)
    # Clients notice a broken stream: its last chunk never arrives.
    stream = _Stream(request.user.pk, exporting.pieces(wanted, limit=patience.in_time))
    exports.note(request.membership, wanted, uuid7())
    response = StreamingHttpResponse(stream)
    response["Content-Type"] = exporting.TYPES[form]
    response["Content-Disposition"] = f'attachment; filename="{_name(wanted.position, form)}"'
    return response


class _Stream:
    """A download stream; at most AT_ONCE per person. Raises RefusedError."""

    def __init__(self, person: int, pieces: Iterator[bytes]) -> None:
        with _counting:
            if _under_way[person] >= AT_ONCE:
                words = (
                    f"You already have {AT_ONCE} downloads."
                    " Wait for one, or export in the background."
                )
                raise RefusedError(words)
            _under_way[person] += 1
        self._person: int | None = person
        self._pieces = pieces

    def __iter__(self) -> Iterator[bytes]:
        return self._pieces

    def close(self) -> None:
        """Free the person's slot; called after the response or a disconnect."""
        with _counting:
            if self._person is not None:
                _under_way[self._person] -= 1
                self._person = None


def _later(request: MemberRequest, text: str, form: str) -> HttpResponse:
    return redirect("export_job", exports.ask(request.membership, text, form).id)


def _name(position: int, form: str) -> str:
    return f"gatebook-{position}.{exporting.ENDINGS[form]}"
