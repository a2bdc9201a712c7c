"""Pages of proofs: how far the journal is sealed, and the proof of one entry."""

import base64
from typing import Any

import orjson
from django.conf import settings
from django.http import Http404, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from accounts.access import MemberRequest, has_role, member_required
from db.clock import now_us
from display.handles import parse_position
from display.keyset_pagination import MAX_POSITION
from proofs.anchors.anchors import AnchorState, load_anchor_states
from proofs.entry_proof import (
    EntryProof,
    build_entry_document,
    find_head_key,
    load_entry_proof,
)
from proofs.models import Anchor, TreeHead
from proofs.proof_overview import (
    HEAD_LATE_US,
    describe_receipt,
    load_anchors_of_head,
    load_head_rows,
    load_seal_overview,
)
from proofs.signed_note import format_verifier_key
from proofs.signing_keys import list_chain_ends, load_signing_keys, to_note_key


@require_safe
@member_required
def proofs_page(request: MemberRequest) -> HttpResponse:
    """Show how far the journal is sealed, keys, anchors and the history of heads."""
    before = parse_position(request.GET.get("before", ""))
    rows, older = load_head_rows(before)
    head = rows[0].head if rows and before is None else TreeHead.objects.order_by("-id").first()
    is_administrator = has_role(request.membership, "administrator")
    states = load_anchor_states()
    stored = load_signing_keys()
    keys = [(key, format_verifier_key(to_note_key(key))) for key in stored]
    seal = load_seal_overview()
    is_head_late = head is not None and now_us() - head.made_at_us > HEAD_LATE_US
    context = {
        "seal": seal,
        "style": "is-failed" if seal.is_late or is_head_late else "is-ack",
        "head": head,
        "root": base64.b64encode(bytes(head.root)).decode() if head else "",
        "is_head_late": is_head_late,
        "rows": rows,
        "older": older,
        "before": before,
        "anchors": [_show_anchor(state, with_place=is_administrator) for state in states],
        "held_up_to": max((row.last.tree_head_id for row in states if row.last), default=0),
        "keys": keys[::-1][:10],
        # One, unless a key was lost: then the earlier ones lead to no later key.
        "command_keys": [format_verifier_key(to_note_key(key)) for key in list_chain_ends(stored)],
        "address": settings.GATEBOOK_URL,
        "is_administrator": is_administrator,
    }
    return render(request, "proofs/proofs.html", context)


@require_safe
@member_required
def head_note(_request: MemberRequest, number: int) -> HttpResponse:
    """Download the signed note of a tree head, to keep outside."""
    head = TreeHead.objects.filter(id=number).first() if number <= MAX_POSITION else None
    if head is None:
        raise Http404
    response = HttpResponse(head.note, content_type="text/plain; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="head-{head.id}.txt"'
    return response


@require_safe
@member_required
def proof_page(request: MemberRequest, position: int) -> HttpResponse:
    """Show the proof of one entry: leaf, path, head and anchors."""
    proof = _load_proof_or_404(request, position)
    head = proof.inclusion.head if proof.inclusion is not None else None
    is_administrator = has_role(request.membership, "administrator")
    anchored = [
        (
            state.target,
            anchor,
            describe_receipt(anchor, with_place=is_administrator) if anchor is not None else "",
        )
        for state, anchor in (load_anchors_of_head(head.id) if head is not None else [])
    ]
    key = find_head_key(head) if head is not None else None
    context = {
        "proof": proof,
        "entry": proof.entry,
        "head": head,
        "root": base64.b64encode(bytes(head.root)).decode() if head else "",
        "leaf": proof.leaf.decode() if _may_read(request, proof) else "",
        "leaf_bytes": len(proof.leaf),
        "age_us": max(now_us() - proof.entry.received_us, 0),
        "anchored": anchored,
        "key": key,
        "key_text": format_verifier_key(to_note_key(key)) if key is not None else "",
        "file": f"entry-{position}.json",
        "address": settings.GATEBOOK_URL,
    }
    return render(request, "proofs/entry.html", context)


@require_safe
@member_required
def proof_file(request: MemberRequest, position: int) -> HttpResponse:
    """Download the proof of one entry for the verifier."""
    proof = _load_proof_or_404(request, position)
    if proof.inclusion is None or not _may_read(request, proof):
        raise Http404
    response = HttpResponse(
        orjson.dumps(build_entry_document(proof), option=orjson.OPT_INDENT_2) + b"\n",
        content_type="application/json",
    )
    response["Content-Disposition"] = f'attachment; filename="entry-{position}.json"'
    return response


def _load_proof_or_404(request: MemberRequest, position: int) -> EntryProof:
    project = request.membership.project
    proof = load_entry_proof(project, position) if position <= MAX_POSITION else None
    if proof is None:
        raise Http404
    return proof


def _may_read(request: MemberRequest, proof: EntryProof) -> bool:
    """Return whether the member may read the facts of the entry, as on the journal's page."""
    is_of_administrators = proof.entry.kind.startswith("admin.")
    return not is_of_administrators or has_role(request.membership, "administrator")


def _show_anchor(state: AnchorState, *, with_place: bool) -> dict[str, Any]:
    last: Anchor | None = state.last
    return {
        "target": state.target,
        "state": state,
        "place": state.target.address if with_place and state.target.kind != "webhook" else "",
        "receipt": describe_receipt(last, with_place=False) if last is not None else "",
        "error": (state.failure.error if with_place else "") if state.failure is not None else "",
    }
