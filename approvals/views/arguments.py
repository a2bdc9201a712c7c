"""Full arguments of a request: a page with numbered lines, and text files."""

import re
from uuid import UUID

from django.http import Http404, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from accounts.access import MemberRequest, member_required
from approvals.review import card, form_token
from approvals.views.gate import load_gate_of_request


@require_safe
@member_required
def arguments_page(request: MemberRequest, gate: UUID) -> HttpResponse:
    """Show every argument, diff and commit at full length; record access.viewed."""
    gate_row = load_gate_of_request(request, gate)
    form_token.record_gate_view(gate_row, request.membership)
    return render(
        request,
        "approvals/gate/arguments.html",
        {"gate": gate_row, "effect": gate_row.effect, "card": card.build_card(gate_row)},
    )


@require_safe
@member_required
def download_argument(request: MemberRequest, gate: UUID, number: int) -> HttpResponse:
    """Download one argument as plain text; `number` counts from 0 as on the card."""
    gate_row = load_gate_of_request(request, gate)
    pieces = card.build_card(gate_row).pieces
    if number >= len(pieces):
        raise Http404
    piece = pieces[number]
    name = re.sub(r"[^A-Za-z0-9._-]+", "_", piece.name).strip("._")[:60] or "arguments"
    response = HttpResponse(
        piece.text.encode("utf-8", "surrogatepass"), content_type="text/plain; charset=utf-8"
    )
    response["Content-Disposition"] = f'attachment; filename="{gate_row}-{name}.txt"'
    return response
