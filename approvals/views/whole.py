"""Full arguments of a request: a page with numbered lines, and text files."""

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
    """Show every argument, diff and commit at full length; record access.viewed."""
    gate_row = gate_of(request, gate)
    seen.note(gate_row, request.membership)
    return render(
        request,
        "approvals/whole.html",
        {"gate": gate_row, "effect": gate_row.effect, "card": card.of(gate_row)},
    )


@require_safe
@member
def argument(request: MemberRequest, gate: UUID, number: int) -> HttpResponse:
    """Download one argument as plain text.

    `number` counts from 0 in the order of the card.
    """
    gate_row = gate_of(request, gate)
    pieces = card.of(gate_row).pieces
    if number >= len(pieces):
        raise Http404
    piece = pieces[number]
    name = re.sub(r"[^A-Za-z0-9._-]+", "_", piece.name).strip("._")[:60] or "arguments"
    response = HttpResponse(
        piece.text.encode("utf-8", "surrogatepass"), content_type="text/plain; charset=utf-8"
    )
    response["Content-Disposition"] = f'attachment; filename="{gate_row}-{name}.txt"'
    return response
