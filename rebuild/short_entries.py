"""Entries without facts that earlier entries of the same kind have.

Versions before 0.1.0 recorded less, so a fact that is absent leaves a value unknown. After the
first entry with the fact, Gatebook writes no other: an entry without it would end a comparison.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final
from uuid import UUID

from journal.entries import SYSTEM_SOURCE
from journal.models import Entry
from ledger.partial_indexes import IS_OF_A_RARE_KIND
from rebuild.row_comparison import RowDifference
from rebuild.unreadable_entries import UnreadableEntry, read_entry_facts

_PASSWORD: Final = ("person", "account", "salt", "password")
# What every entry of a kind has that this version writes, and not that of every earlier one.
FULL_FACTS: Final[Mapping[str, tuple[str, ...]]] = {
    "admin.agent_changed": ("owner",),
    "admin.agent_created": ("owner",),
    "admin.agent_team_changed": ("team",),
    "admin.channel_added": ("target", "at_us"),
    "admin.channel_removed": ("removed_at_us",),
    "admin.identity_added": ("identity",),
    "admin.identity_removed": ("identity",),
    "admin.member_added": ("account", "active"),
    "admin.member_invited": ("account", "password"),
    "admin.password_changed": _PASSWORD,
    "admin.password_given": _PASSWORD,
    "admin.password_rehashed": _PASSWORD,
    "admin.password_reset": _PASSWORD,
    "admin.project_created": ("redacts", "name"),
    "admin.repository_changed": ("repository", "production", "protected"),
    "admin.source_added": ("created_at_us",),
    "admin.token_issued": ("digest",),
    "erasure.hold_set": ("words",),
    "erasure.requested": ("project", "terms"),
}


class FullForms:
    """From which entries on each kind has each of its facts."""

    def __init__(self) -> None:
        self._first: dict[tuple[str, str], int] = {}

    def find_lacking_fact(self, position: int, kind: str, facts: Mapping[str, Any]) -> str:
        """Return a fact that an entry lacks and an earlier one of its kind has; empty if none."""
        for name in FULL_FACTS.get(kind, ()):
            if name not in facts and self._find_first(kind, name) < position:
                return name
        return ""

    def _find_first(self, kind: str, name: str) -> int:
        if (kind, name) not in self._first:
            full = _select_own_entries().filter(kind=kind, facts__contains=f'"{name}":')
            first = full.order_by("position").values_list("position", flat=True).first()
            self._first[kind, name] = 2**63 if first is None else first
        return self._first[kind, name]


def find_short_entries(project: UUID | None) -> Iterator[RowDifference]:
    """Yield each entry (of one project) that lacks a fact which earlier ones of its kind have."""
    forms = FullForms()
    rows = _select_own_entries().filter(kind__in=list(FULL_FACTS))
    if project is not None:
        rows = rows.filter(project=project)
    columns = rows.order_by("position").values_list("position", "project", "kind", "facts")
    for position, of_project, kind, text in columns.iterator(2_000):
        try:
            name = forms.find_lacking_fact(position, kind, read_entry_facts(position, text))
        except UnreadableEntry:  # named by the check of what it is about
            continue
        if name:
            words = f"its facts lack {name}, which earlier entries of the kind {kind} have"
            yield RowDifference(
                *("unreadable", "journal_entry", of_project, None),
                *({"position": position}, position, "facts", words),
            )


def _select_own_entries() -> Any:
    return Entry.objects.filter(IS_OF_A_RARE_KIND, lane="system", source=SYSTEM_SOURCE)
