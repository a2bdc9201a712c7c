"""An answer on its way: what was typed and ticked waits in the sign-in's session until it is given or refused.

It holds the fields of the form (`FIELDS`), so that who goes back from the confirm page, or gives everybody more time,
finds them as they were. Without an `answer` it is only kept: no confirm page asks about it.
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
    """What the form of a gate begins with: the reason, and the names of the ticks that still say what they said."""

    reason: str
    ticked: frozenset[str]


def key(gate: Gate) -> str:
    """Where the draft of an answer on `gate` lies in the session."""
    return f"answer:{gate.id.hex}"


def keep(request: MemberRequest, gate: Gate, reason: str) -> None:
    """Keep the words of a refused answer, and nothing else of it; without words there is nothing to keep."""
    request.session.pop(key(gate), None)
    if reason.strip():
        request.session[key(gate)] = dict.fromkeys(FIELDS, "") | {"reason": reason}


def reason(request: MemberRequest, gate: Gate) -> str:
    """The words that were kept."""
    draft: dict[str, str] = request.session.get(key(gate)) or {}
    return draft.get("reason", "")


def digest(draft: dict[str, str]) -> str:
    """What tells this answer from any other on the same gate, as 64 hex characters."""
    return hashlib.sha256(orjson.dumps([draft[name] for name in ("answer", "reason", "seen", *TICKS)])).hexdigest()


def kept(request: MemberRequest, gate: Gate, card: Card) -> Kept:
    """What was typed before. Ticks are of what was shown then: of another card they say nothing."""
    draft = request.session.get(key(gate))
    if draft is None:
        return Kept("", frozenset())
    shown = seen.read(draft["seen"], gate, request.membership)
    same = shown is not None and shown.shown.card_sha256 == card.sha256
    return Kept(draft["reason"], frozenset(name for name in TICKS if same and draft[name]))


def list_of(request: HttpRequest) -> str:
    """The filters of the list that a pane stands beside, as a query; a pane that was fetched says where it is."""
    try:
        here = urlsplit(request.headers.get("HX-Current-URL") or request.get_full_path())
    except ValueError:  # what a browser never sends
        return ""
    return filters(here.query)


def filters(query: str) -> str:
    """Of a query from outside the filters alone."""
    asked = QueryDict(query[:1000])
    found = [(name, asked.get(name, "").replace("\0", "")[:200]) for name in FILTERS]
    return urlencode([(name, value) for name, value in found if value])
