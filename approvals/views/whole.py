"""What would run, unbounded: a page with every line numbered, and each argument as a file of plain text."""

import re
from uuid import UUID

from django.http import Http404, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from approvals import card, seen
from approvals.views.desk import gate_of
from sessions.access import MemberRequest, member


@require_safe
@member
def whole_page(request: MemberRequest, gate: UUID) -> HttpResponse:
    """Every argument, diff and commit of a request at its full length. The look is recorded as that of its page is."""
    found = gate_of(request, gate)
    seen.note(found, request.membership)
    return render(request, "approvals/whole.html", {"gate": found, "effect": found.effect, "card": card.of(found)})


@require_safe
@member
def argument(request: MemberRequest, gate: UUID, number: int) -> HttpResponse:
    """One argument as plain text, a download that no browser will run; counted from 0 as the card has them."""
    found = gate_of(request, gate)
    pieces = card.of(found).pieces
    if number >= len(pieces):
        raise Http404
    piece = pieces[number]
    name = re.sub(r"[^A-Za-z0-9._-]+", "_", piece.name).strip("._")[:60] or "arguments"
    response = HttpResponse(piece.text.encode("utf-8", "surrogatepass"), content_type="text/plain; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="{found}-{name}.txt"'
    return response
