"""Drafts of answers, kept in the session until they are recorded or refused.

A draft holds the fields of the form (`FIELD_NAMES`), so that they survive the confirm page and an
extension of the deadline. A draft without an `answer` has no confirm page.
"""

import hashlib
from typing import Final, NamedTuple
from urllib.parse import urlencode, urlsplit

import orjson
from django.http import HttpRequest, QueryDict

from accounts.access import MemberRequest
from approvals.models import Gate
from approvals.review import form_token
from approvals.review.card import Card

TICK_NAMES: Final = ("hidden_seen", "all_read")
FIELD_NAMES: Final = ("answer", "reason", "seen", *TICK_NAMES, "from", "list")
FILTER_NAMES: Final = ("state", "risk", "repo")


class AnswerDraft(NamedTuple):
    """Initial values of a gate form: the reason and the ticks that are still valid."""

    reason: str
    ticked: frozenset[str]


def draft_key(gate: Gate) -> str:
    """Return the session key of the draft for `gate`."""
    return f"answer:{gate.id.hex}"


def keep_reason(request: MemberRequest, gate: Gate, reason: str) -> None:
    """Keep only the reason of a refused answer; an empty reason removes the draft."""
    request.session.pop(draft_key(gate), None)
    if reason.strip():
        request.session[draft_key(gate)] = dict.fromkeys(FIELD_NAMES, "") | {"reason": reason}


def kept_reason(request: MemberRequest, gate: Gate) -> str:
    """Return the kept reason."""
    draft: dict[str, str] = request.session.get(draft_key(gate)) or {}
    return draft.get("reason", "")


def draft_digest(draft: dict[str, str]) -> str:
    """Hash an answer, to tell it from others on the same gate, as 64 hex characters."""
    return hashlib.sha256(
        orjson.dumps([draft[name] for name in ("answer", "reason", "seen", *TICK_NAMES)])
    ).hexdigest()


def load_draft(request: MemberRequest, gate: Gate, card: Card) -> AnswerDraft:
    """Return the kept draft. Ticks count only for the card they were made on."""
    draft = request.session.get(draft_key(gate))
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
