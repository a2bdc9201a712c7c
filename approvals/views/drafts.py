"""Drafts of votes on a gate page: the kept reason, the ticks that still hold, the list's filters.

A draft without an `answer` has no confirm page.
"""

from typing import Final, NamedTuple
from urllib.parse import urlencode, urlsplit

from django.http import HttpRequest, QueryDict

from accounts.access import MemberRequest
from approvals.models import Gate
from approvals.review import form_token
from approvals.review.card import Card
from approvals.review.form_token import TICK_NAMES, VOTE_FORM

FILTER_NAMES: Final = ("state", "risk", "repo")


class AnswerDraft(NamedTuple):
    """Initial values of a gate form: the reason and the ticks that are still valid."""

    reason: str
    ticked: frozenset[str]


def keep_reason(request: MemberRequest, gate: Gate, reason: str) -> None:
    """Keep only the reason of a refused answer; an empty reason removes the draft."""
    VOTE_FORM.discard_draft(request, gate.id)
    if reason.strip():
        draft = dict.fromkeys(VOTE_FORM.fields, "") | {"reason": reason}
        VOTE_FORM.store_draft(request, gate.id, draft)


def kept_reason(request: MemberRequest, gate: Gate) -> str:
    """Return the kept reason."""
    return (VOTE_FORM.load_draft(request, gate.id) or {}).get("reason", "")


def load_initial_values(request: MemberRequest, gate: Gate, card: Card) -> AnswerDraft:
    """Return the kept draft. Ticks count only for the card they were made on."""
    draft = VOTE_FORM.load_draft(request, gate.id)
    if draft is None:
        return AnswerDraft("", frozenset())
    shown = form_token.verify_gate_snapshot(draft["seen"], gate, request.membership)
    same = shown is not None and shown.shown.card_sha256 == card.sha256
    return AnswerDraft(
        draft["reason"], frozenset(name for name in TICK_NAMES if same and draft[name])
    )


def list_filters_of(request: HttpRequest) -> str:
    """Return the filters of the list next to a pane, as a query string.

    A fetched pane names its page in HX-Current-URL.
    """
    try:
        url = urlsplit(request.headers.get("HX-Current-URL") or request.get_full_path())
    except ValueError:  # no browser sends this
        return ""
    return parse_filters(url.query)


def parse_filters(query: str) -> str:
    """Return only the filters of a query string from a request."""
    params = QueryDict(query[:1000])
    pairs = [(name, params.get(name, "").replace("\0", "")[:200]) for name in FILTER_NAMES]
    return urlencode([(name, value) for name, value in pairs if value])
