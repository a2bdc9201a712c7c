"""The `meta` of sessions and effects: what an agent sends along, shown and never compared.

It is kept in the bodies of the entries that brought it and nowhere else, so that erasing a body
removes it, and exports and bundles carry it. Later sends add keys and replace values.
"""

from collections.abc import Iterable
from typing import Any, Final
from uuid import UUID

import orjson
from django.db.models import BooleanField, F, Func, QuerySet

from db import long_numbers
from db.compiled_query import CompiledQuerySet
from journal.models import Body

META_BYTES: Final = 16_384  # of one send, and of all that is shown
MAX_SENDS: Final = 100  # the newest sends, which are read
DESCRIPTION_KIND: Final = "session.described"
# The condition of the index entry_of_description, spelled as in the schema.
_DESCRIBES_SESSION: Final = Func(
    F("entry__kind"),
    template="%(expressions)s IN ('session.started', 'session.described')",
    output_field=BooleanField(),
)


def is_meta_too_large(meta: dict[str, Any]) -> bool:
    """Return whether one send has more than META_BYTES of JSON."""
    return len(long_numbers.to_json_bytes(meta)) > META_BYTES


def load_session_meta(session: UUID, *, until: int | None = None) -> dict[str, Any]:
    """Return the meta of a session, up to the journal position `until`. One query."""
    return _load_meta(Body.objects.filter(_DESCRIBES_SESSION, entry__session=session), until)


def load_effect_meta(effect: UUID, *, until: int | None = None) -> dict[str, Any]:
    """Return the meta of an effect, up to the journal position `until`. One query."""
    if until is None:
        return _merge_texts(_OF_EFFECT.rows(effect=effect))
    return _load_meta(_select_plans(effect), until)


def _select_plans(effect: UUID) -> "QuerySet[Body]":
    return Body.objects.filter(entry__effect=effect, entry__kind="effect.planned")


def _load_meta(bodies: "QuerySet[Body]", until: int | None) -> dict[str, Any]:
    return _merge_texts(_select_texts(bodies if until is None else bodies.filter(entry__lte=until)))


def _select_texts(bodies: "QuerySet[Body]") -> "QuerySet[Any]":
    # Claims of agents that may not report on it do not count.
    rows = bodies.exclude(entry__lane="claim").filter(text__contains='"meta":')
    return rows.order_by("-entry").values_list("text", flat=True)[:MAX_SENDS]


_OF_EFFECT: Final = CompiledQuerySet(
    lambda effect: _select_texts(_select_plans(effect)), effect=UUID
)


def _merge_texts(texts: Iterable[str]) -> dict[str, Any]:
    """Merge what was sent, given newest first."""
    return merge_sends(_read_meta(text) for text in reversed(list(texts)))


def _read_meta(text: str) -> dict[str, Any]:
    body = long_numbers.parse_json(text)
    meta = body.get("meta") if isinstance(body, dict) else None
    return meta if isinstance(meta, dict) else {}


def format_meta(meta: dict[str, Any]) -> str:
    """Return meta as indented JSON for a page; empty without any."""
    if not meta:
        return ""
    return long_numbers.to_json_bytes(meta, orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS).decode()


def merge_sends(sends: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Merge sends, oldest first: later ones add keys and replace values. Pure.

    If all together exceed META_BYTES, the keys that were sent longest ago are left out.
    """
    merged: dict[str, Any] = {}
    for send in sends:
        for name, value in send.items():
            merged.pop(name, None)  # the keys stay in the order in which they were last sent
            merged[name] = value
    while merged and is_meta_too_large(merged):
        merged.pop(next(iter(merged)))
    return dict(sorted(merged.items()))
