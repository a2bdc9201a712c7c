"""Views of exports: a direct download as a stream, or a background export to fetch later."""

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final
from uuid import UUID

from django.http import FileResponse, Http404, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_safe

from accounts.access import MemberRequest, member_required
from db.clock import now_us
from db.errors import ChangeRefused
from db.ids import new_uuid7
from display import time_limit
from investigation.exports import export_writer, exports
from investigation.models import FORMATS, Export
from investigation.query import execute, result_columns
from investigation.query.column_types import Column, Reader
from investigation.query.parser.ast import QueryError

MAX_DOWNLOADS: Final = 2  # concurrent downloads per person and process
_downloads: Counter[int] = Counter()
_downloads_lock = threading.Lock()


@require_http_methods(["GET", "HEAD", "POST"])
@member_required
def export(request: MemberRequest) -> HttpResponseBase:
    """Show what would be exported; a POST starts it, `do` now or later."""
    sent = request.POST if request.method == "POST" else request.GET
    text, form = sent.get("q", "").strip(), sent.get("format", "csv")
    columns = list(filter(None, sent.get("cols", "")[:600].split(",")))
    context: dict[str, Any] = {"text": text, "format": form, "formats": FORMATS}
    try:
        if form not in FORMATS:
            raise ChangeRefused(f"Unknown format. Choose one of {', '.join(FORMATS)}.")
        search = execute.compile_query(text, request.membership.project, now_us())
        chosen = _list_columns(search, columns)
        context["columns"] = [column.label for column in chosen]
        context["column_names"] = ",".join(column.name for column in chosen)
        if request.method == "POST":
            return (
                _download(request, text, form, columns)
                if sent.get("do") == "now"
                else _export_in_background(request, text, form, columns)
            )
        context["entity"], context["notes"] = search.entity, search.notes
        context["count"], context["more"] = _count_rows(request, search)
    except QueryError as fault:
        context["error"] = fault.sentence
    except ChangeRefused as refusal:
        context["error"] = str(refusal)
    context["rows"] = list(exports.list_visible_exports(request.membership)[:20])
    return render(
        request, "pages/search/export.html", context, status=422 if "error" in context else 200
    )


@require_safe
@member_required
def export_job(request: MemberRequest, export: UUID) -> HttpResponse:
    """Show the progress of an export; the page loads itself again until it ends."""
    job = _get_export(request, export)
    ended = job.state in ("done", "failed", "gone")
    notes = [] if ended else exports.index_notes(job)
    context = {"export": job, "format": FORMATS[job.format], "ended": ended, "notes": notes}
    return render(request, "pages/search/export_job.html", context)


@require_safe
@member_required
def export_file(request: MemberRequest, export: UUID) -> HttpResponseBase:
    """Download the file of a finished export."""
    job = _get_export(request, export)
    try:
        file = exports.export_path(job).open("rb") if job.state == "done" else None
    except OSError as error:
        raise Http404 from error
    if file is None:
        raise Http404
    name = _file_name(job.position, job.format)
    return FileResponse(
        file, as_attachment=True, filename=name, content_type=export_writer.TYPES[job.format]
    )


def _get_export(request: MemberRequest, identity: UUID) -> Export:
    job = exports.list_visible_exports(request.membership).filter(id=identity).first()
    if job is None:
        raise Http404
    return job


def _list_columns(search: execute.CompiledQuery, names: Sequence[str]) -> list[Column]:
    """Return the columns that an export is limited to; empty for all."""
    if search.query.grouping is not None:
        return []
    reader = Reader.of_context(search.context)
    columns = result_columns.visible_columns(search.entity.name, reader)
    return [column for column in columns if column.name in names]


def _count_rows(request: MemberRequest, search: execute.CompiledQuery) -> tuple[int | None, bool]:
    """Count the rows and tell whether there are more; None if counting takes too long."""
    if search.query.grouping is not None:
        return None, False
    try:
        with time_limit.limit_search(request.user.pk):
            return execute.count_matches(search)
    except time_limit.QueryTimeout:
        return None, True


def _download(
    request: MemberRequest, text: str, form: str, columns: Sequence[str]
) -> HttpResponseBase:
    wanted = exports.plan_member_export(request.membership, text, form, columns)
    if wanted.late:  # a download cannot wait for an index and must not omit rows
        return _export_in_background(request, text, form, columns)
    # Clients notice a broken stream: its last chunk never arrives.
    stream = _DownloadStream(
        request.user.pk, export_writer.export_pieces(wanted, limit=time_limit.limit_time)
    )
    exports.record_export(request.membership, wanted, new_uuid7())
    response = StreamingHttpResponse(stream)
    response["Content-Type"] = export_writer.TYPES[form]
    response["Content-Disposition"] = f'attachment; filename="{_file_name(wanted.position, form)}"'
    return response


class _DownloadStream:
    """A download stream; at most MAX_DOWNLOADS per person. Raises ChangeRefused."""

    def __init__(self, person: int, pieces: Iterator[bytes]) -> None:
        with _downloads_lock:
            if _downloads[person] >= MAX_DOWNLOADS:
                words = (
                    f"You already have {MAX_DOWNLOADS} downloads."
                    " Wait for one, or export in the background."
                )
                raise ChangeRefused(words)
            _downloads[person] += 1
        self._person: int | None = person
        self._pieces = pieces

    def __iter__(self) -> Iterator[bytes]:
        return self._pieces

    def close(self) -> None:
        """Free the person's slot; called after the response or a disconnect."""
        with _downloads_lock:
            if self._person is not None:
                _downloads[self._person] -= 1
                self._person = None


def _export_in_background(
    request: MemberRequest, text: str, form: str, columns: Sequence[str]
) -> HttpResponse:
    made = exports.request_export(request.membership, text, form, columns)
    return redirect("export_job", made.id)


def _file_name(position: int, form: str) -> str:
    return f"gatebook-{position}.{export_writer.ENDINGS[form]}"
