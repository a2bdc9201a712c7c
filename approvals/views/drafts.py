"""Drafts of votes on a gate page: the kept reason, the ticks that still hold, the list's filters.

A draft without an `answer` has no confirm page.
"""

from datetime import UTC, datetime
from typing import Final, NamedTuple
from urllib.parse import urlencode, urlsplit
from uuid import UUID

from django.http import HttpRequest, QueryDict
from django.urls import reverse

from accounts.access import MemberRequest
from approvals.gates.statuses import RISKS, US
from approvals.inbox.inbox_queries import ListFilters
from approvals.models import Gate
from approvals.review import form_token
from approvals.review.card import Card
from approvals.review.form_token import TICK_NAMES, VOTE_FORM

# Where a form was opened: in the pane next to the list, or on a page that the list led to.
FROM_PANE: Final = "inbox"
FROM_LIST: Final = "list"


class AnswerDraft(NamedTuple):
    """Initial values of a gate form: the reason and the ticks that are still valid.

    `stored_at` is when the draft was kept; None without one.
    """

    reason: str
    ticked: frozenset[str]
    stored_at: datetime | None = None


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
    stored_us = draft.get("stored_us", "")
    return AnswerDraft(
        draft["reason"],
        frozenset(name for name in TICK_NAMES if same and draft[name]),
        datetime.fromtimestamp(int(stored_us) / US, UTC) if stored_us else None,
    )


def find_origin(request: HttpRequest, *, in_pane: bool) -> str:
    """Return where a gate form was opened: FROM_PANE, FROM_LIST or empty."""
    if in_pane:
        return FROM_PANE
    params = QueryDict(_find_page_query(request)[:1000])
    return FROM_LIST if FROM_LIST in (request.POST.get("from"), params.get("from")) else ""


def read_list_filters(request: HttpRequest) -> str:
    """Return the filters of the list that a form was opened from, as a query string."""
    return format_filters(parse_filters(request.POST.get("list", "") or _find_page_query(request)))


def _find_page_query(request: HttpRequest) -> str:
    """Return the query of the page; a fetched part names its page in HX-Current-URL."""
    try:
        return urlsplit(request.headers.get("HX-Current-URL") or request.get_full_path()).query
    except ValueError:  # no browser sends this
        return ""


def build_form_url(gate: UUID, origin: str, filters: str) -> str:
    """Return the URL of a gate form, where it was opened: in the pane, or on a page."""
    query = format_filters(parse_filters(filters))
    query = f"{query}&" if query else ""
    if origin == FROM_PANE:
        return f"{reverse('inbox')}?{query}open={gate}"
    page = reverse("gate", args=[gate])
    return f"{page}?{query}from={FROM_LIST}" if origin == FROM_LIST else page


def parse_filters(query: str) -> ListFilters:
    """Return the list that a query string from a request names."""
    return read_filters(QueryDict(query[:1000]))


def read_filters(params: QueryDict) -> ListFilters:
    """Return the list that the parameters of a request name; an unknown risk is left out."""
    names = ListFilters._fields
    filters = ListFilters(*(params.get(name, "").replace("\0", "")[:200] for name in names))
    if params.get("queue") == "me":
        filters = filters._replace(state="mine")
    return filters if filters.risk in RISKS else filters._replace(risk="")


def format_filters(filters: ListFilters) -> str:
    """Return the query string of a list."""
    return urlencode([(name, value) for name, value in filters._asdict().items() if value])
