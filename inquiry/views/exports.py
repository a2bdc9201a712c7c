"""Taking what a query finds out of the book: at once as a stream, or made in the background and fetched."""

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

AT_ONCE: Final = 2  # downloads of one person in this process
_under_way: Counter[int] = Counter()
_counting = threading.Lock()


@require_http_methods(["GET", "HEAD", "POST"])
@member
def export(request: MemberRequest) -> HttpResponseBase:
    """What would be exported, and the choice how; a POST begins it, `do` now or later."""
    sent = request.POST if request.method == "POST" else request.GET
    text, form = sent.get("q", "").strip(), sent.get("format", "csv")
    context: dict[str, Any] = {"text": text, "format": form, "formats": FORMATS}
    try:
        if form not in FORMATS:
            raise RefusedError(f"A format is one of {', '.join(FORMATS)}.")
        if request.method == "POST":
            return (
                _now(request, text, form)
                if sent.get("do") == "now"
                else _later(request, text, form)
            )
        asked = asking.understand(text, request.membership.project, now_us())
        context["entity"], context["notes"] = asked.entity, asked.context.notes
        context["count"], context["more"] = _count(request, asked)
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
    """How far an export is; polled as a fragment until it has ended."""
    found = _one(request, export)
    template = (
        "inquiry/_export.html"
        if request.headers.get("HX-Request") == "true"
        else "inquiry/export_job.html"
    )
    ended = found.state in ("done", "failed", "gone")
    notes = [] if ended else exports.waits_for(found)
    context = {"export": found, "format": FORMATS[found.format], "ended": ended, "notes": notes}
    return render(request, template, context)


@require_safe
@member
def export_file(request: MemberRequest, export: UUID) -> HttpResponseBase:
    """The file of a finished export."""
    found = _one(request, export)
    try:
        file = exports.path(found).open("rb") if found.state == "done" else None
    except OSError as error:
        raise Http404 from error
    if file is None:
        raise Http404
    name = _name(found.position, found.format)
    return FileResponse(
        file, as_attachment=True, filename=name, content_type=exporting.TYPES[found.format]
    )


def _one(request: MemberRequest, identity: UUID) -> Export:
    found = exports.of(request.membership).filter(id=identity).first()
    if found is None:
        raise Http404
    return found


def _count(request: MemberRequest, asked: asking.Asked) -> tuple[int | None, bool]:
    """How many rows at once, and whether there are more; None where counting takes too long."""
    if asked.query.grouping is not None:
        return None, False
    try:
        with patience.limit(request.user.pk):
            return asking.count(asked)
    except patience.Overran:
        return None, True


def _now(request: MemberRequest, text: str, form: str) -> HttpResponseBase:
    wanted = exports.wanted_by(request.membership, text, form)
    if (
        wanted.late
    ):  # a download cannot wait for an index, and must not leave out what it has not read
        return _later(request, text, form)
    # A stream that breaks off is seen to break off: its last piece never comes.
    stream = _Stream(request.user.pk, exporting.pieces(wanted, limit=patience.in_time))
    exports.note(request.membership, wanted, uuid7())
    response = StreamingHttpResponse(stream)
    response["Content-Type"] = exporting.TYPES[form]
    response["Content-Disposition"] = f'attachment; filename="{_name(wanted.position, form)}"'
    return response


class _Stream:
    """Pieces on their way to a person, of whom AT_ONCE are under way at most. Raises RefusedError."""

    def __init__(self, person: int, pieces: Iterator[bytes]) -> None:
        with _counting:
            if _under_way[person] >= AT_ONCE:
                words = f"{AT_ONCE} downloads of yours are under way already. Let one end, or make it in the background."
                raise RefusedError(words)
            _under_way[person] += 1
        self._person: int | None = person
        self._pieces = pieces

    def __iter__(self) -> Iterator[bytes]:
        return self._pieces

    def close(self) -> None:
        """Called once the answer was sent, or whoever took it went away."""
        with _counting:
            if self._person is not None:
                _under_way[self._person] -= 1
                self._person = None


def _later(request: MemberRequest, text: str, form: str) -> HttpResponse:
    return redirect("export_job", exports.ask(request.membership, text, form).id)


def _name(position: int, form: str) -> str:
    return f"gatebook-{position}.{exporting.ENDINGS[form]}"
