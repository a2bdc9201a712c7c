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
from rebuild.unreadable_entries import (
    EntryFacts,
    UnreadableEntry,
    is_left_out,
    read_entry_facts,
)

_PASSWORD: Final = ("person", "account", "salt", "password")
# What every entry of a kind has, of every version: a text.
ALWAYS_FACTS: Final[Mapping[str, tuple[str, ...]]] = {
    "admin.account_closed": ("person", "account"),
    "admin.account_opened": ("person", "account"),
    "admin.member_added": ("person", "role"),
    "admin.member_changed": ("person", "role"),
    "admin.member_removed": ("person",),
    "admin.password_changed": ("person",),
    "admin.password_given": ("person",),
    "admin.password_rehashed": ("person",),
    "admin.password_reset": ("person",),
}
# What every entry of a kind has that this version writes, and not that of every earlier one.
FULL_FACTS: Final[Mapping[str, tuple[str, ...]]] = {
    "admin.agent_changed": ("owner",),
    "admin.agent_created": ("owner",),
    "admin.agent_team_changed": ("team",),
    "admin.bundle_imported": ("row_digests",),
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
    "admin.project_renamed": ("name",),
    "admin.repository_changed": ("repository", "production", "protected"),
    "admin.source_added": ("created_at_us",),
    "admin.token_issued": ("digest",),
    "erasure.hold_set": ("words",),
    "erasure.requested": ("project", "terms"),
}


# Many checks read them: one that is no JSON is named once, and the checks go on without it.
_NAMED_KINDS: Final = frozenset({*ALWAYS_FACTS, "admin.bundle_imported"})
_NULLABLE: Final = (("erasure.requested", "project"),)


class FullForms:
    """From which entries on each kind has each of its facts."""

    def __init__(self) -> None:
        self._first: dict[tuple[str, str], int] = {}

    def find_lacking_fact(self, position: int, kind: str, facts: Mapping[str, Any]) -> str:
        """Return a fact that an entry lacks and an earlier one of its kind has; empty if none."""
        for name in ALWAYS_FACTS.get(kind, ()):
            if not isinstance(facts.get(name), str):
                return name
        for name in FULL_FACTS.get(kind, ()):
            is_null = name in facts and facts[name] is None and (kind, name) not in _NULLABLE
            # A digest or a name of a person is a text in every version.
            is_other = name in _PASSWORD and not isinstance(facts.get(name, ""), str)
            if is_null or is_other:
                return name
            if name not in facts and self._find_first(kind, name) < position:
                return name
        return ""

    def read_full_facts(self, position: int, kind: str, text: str) -> EntryFacts | None:
        """Return the facts of an entry, None where it is left out or named by this module.

        Raises UnreadableEntry.
        """
        if is_left_out(position):
            return None
        try:
            facts = read_entry_facts(position, text)
        except UnreadableEntry:
            if kind in _NAMED_KINDS:
                return None
            raise
        return None if self.find_lacking_fact(position, kind, facts) else facts

    def _find_first(self, kind: str, name: str) -> int:
        if (kind, name) not in self._first:
            full = _select_own_entries().filter(kind=kind, facts__contains=f'"{name}":')
            first = full.order_by("position").values_list("position", flat=True).first()
            self._first[kind, name] = 2**63 if first is None else first
        return self._first[kind, name]


def find_short_entries(project: UUID | None) -> Iterator[RowDifference]:
    """Yield each entry (of one project) that lacks a fact which earlier ones of its kind have."""
    forms = FullForms()
    rows = _select_own_entries().filter(kind__in=[*{**FULL_FACTS, **ALWAYS_FACTS}])
    if project is not None:
        rows = rows.filter(project=project)
    columns = rows.order_by("position").values_list("position", "project", "kind", "facts")
    for position, of_project, kind, text in columns.iterator(2_000):
        try:
            name = forms.find_lacking_fact(position, kind, read_entry_facts(position, text))
        except UnreadableEntry as error:
            if kind not in _NAMED_KINDS:  # named by the check of what it is about
                continue
            name, words = "facts", error.words
        else:
            words = f"its facts lack {name}, which other entries of the kind {kind} have"
        if name:
            yield RowDifference(
                *("unreadable", "journal_entry", of_project, None),
                *({"position": position}, position, "facts", words),
            )


def _select_own_entries() -> Any:
    return Entry.objects.filter(IS_OF_A_RARE_KIND, lane="system", source=SYSTEM_SOURCE)
