"""Drafts of answers, kept in the session until they are recorded or refused.

A draft holds the fields of the form (`FIELDS`), so that they survive the confirm page and an
extension of the deadline. A draft without an `answer` has no confirm page.
"""

import hashlib
from typing import Final, NamedTuple
from urllib.parse import urlencode, urlsplit

import orjson
from django.http import HttpRequest, QueryDict

from approvals import seen
from approvals.card import Card
from approvals.models import Gate
from sessions.access import MemberRequest

TICKS: Final = ("hidden_seen", "all_read")
FIELDS: Final = ("answer", "reason", "seen", *TICKS, "from", "list")
FILTERS: Final = ("state", "risk", "repo")


class Kept(NamedTuple):
    """Initial values of a gate form: the reason and the ticks that are still valid."""

    reason: str
    ticked: frozenset[str]


def key(gate: Gate) -> str:
    """Return the session key of the draft for `gate`."""
    return f"answer:{gate.id.hex}"


def keep(request: MemberRequest, gate: Gate, reason: str) -> None:
    """Keep only the reason of a refused answer; an empty reason removes the draft."""
    request.session.pop(key(gate), None)
    if reason.strip():
        request.session[key(gate)] = dict.fromkeys(FIELDS, "") | {"reason": reason}


def reason(request: MemberRequest, gate: Gate) -> str:
    """Return the kept reason."""
    draft: dict[str, str] = request.session.get(key(gate)) or {}
    return draft.get("reason", "")


def digest(draft: dict[str, str]) -> str:
    """Hash an answer, to tell it from others on the same gate, as 64 hex characters."""
    return hashlib.sha256(
        orjson.dumps([draft[name] for name in ("answer", "reason", "seen", *TICKS)])
    ).hexdigest()


def kept(request: MemberRequest, gate: Gate, card: Card) -> Kept:
    """Return the kept draft. Ticks count only for the card they were made on."""
    draft = request.session.get(key(gate))
    if draft is None:
        return Kept("", frozenset())
    shown = seen.read(draft["seen"], gate, request.membership)
    same = shown is not None and shown.shown.card_sha256 == card.sha256
    return Kept(draft["reason"], frozenset(name for name in TICKS if same and draft[name]))


def list_of(request: HttpRequest) -> str:
    """Return the filters of the list next to a pane, as a query string.

    A fetched pane names its page in HX-Current-URL.
    """
    try:
        url = urlsplit(request.headers.get("HX-Current-URL") or request.get_full_path())
    except ValueError:  # no browser sends this
        return ""
    return filters(url.query)


def filters(query: str) -> str:
    """Return only the filters of a query string from a request."""
    params = QueryDict(query[:1000])
    pairs = [(name, params.get(name, "").replace("\0", "")[:200]) for name in FILTERS]
    return urlencode([(name, value) for name, value in pairs if value])
