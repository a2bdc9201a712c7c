"""Whether a text was due when it expired: the set in force, its class, and its time, by entries.

The role that writes entries can write `retention.expired` for any text, and delete that text with
it. Then no plan is left that gives the rows of its effect.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

from db import raw_sql
from journal.summaries import parse_body
from rebuild.past_voters import LATENESS_US
from rebuild.project_journal import ProjectEntry, load_project_entries
from rebuild.registry import FoldedRow, RebuildBatch
from retention.retention_yaml import compute_cutoff_us, find_class, list_finite_classes

_EXPIRED: Final = (
    "SELECT entry.position, entry.kind, entry.received_us, CAST(entry.effect AS text) FROM"
    " {wanted} CROSS JOIN journal_entry entry WHERE entry.position = wanted.key"
)
_PLANS: Final = (
    "SELECT DISTINCT CAST(plan.effect AS text), plan.position, body.text, effect.tool"
    " FROM {wanted} CROSS JOIN journal_entry expired"
    " JOIN journal_entry plan ON plan.effect = expired.effect AND plan.kind = 'effect.planned'"
    " AND plan.lane IN ('command', 'evidence')"
    " LEFT JOIN journal_body body ON body.entry_id = plan.position"
    " LEFT JOIN ledger_effect effect ON effect.id = plan.effect"
    " WHERE expired.position = wanted.key"
)


class _Activation(NamedTuple):
    """From which entry on a set is in force; `rules` are None where they are erased."""

    position: int
    received_us: int
    identity: UUID
    rules: dict[str, Any] | None


class PastExpiries:
    """The retention sets of one project, at any of its entries."""

    def __init__(self, batch: RebuildBatch, sets: Mapping[UUID, FoldedRow]) -> None:
        activated = load_project_entries(batch, ("retention.activated",), of_archives=True)
        self._activations = [
            _Activation(
                entry.position,
                entry.received_us,
                entry.subject,
                _read_rules(sets.get(entry.subject)),
            )
            for entry in activated
            if entry.subject is not None
        ]
        self._positions = [activation.position for activation in self._activations]

    def mark_unfounded(self, rows: Sequence[tuple[FoldedRow, ProjectEntry]]) -> None:
        """Mark the rows of these erased bodies that the set in force did not let expire."""
        expired = {row.key[0]: (row, entry) for row, entry in rows if entry.kind == _KIND}
        if not expired:
            return
        wanted = raw_sql.wanted_table("bigint")
        positions = raw_sql.to_array_parameter(expired)
        tools = _read_tools(raw_sql.fetch_rows(_PLANS.format(wanted=wanted), [positions]))
        described = {
            int(position): (kind, int(received_us), tools.get(effect or ""))
            for position, kind, received_us, effect in raw_sql.fetch_rows(
                _EXPIRED.format(wanted=wanted), [positions]
            )
        }
        for position, (row, entry) in expired.items():
            if position not in described or not self._was_due(entry, *described[position]):
                row.faults["expired_by"] = "unfounded"

    def _was_due(
        self, entry: ProjectEntry, kind: str, received_us: int, tools: set[str] | None
    ) -> bool:
        """Return True if a text was of the class of the entry, and its time was over.

        `tools` are those that its effect may have had, None where no plan says it.
        """
        identity, name = UUID(entry.facts["set"]), entry.facts["class"]
        in_force = {activation.identity: activation for activation in self._list_in_force(entry)}
        if identity not in in_force:
            return False
        rules = in_force[identity].rules
        if rules is None:
            return True
        keep = list_finite_classes(rules).get(name)
        if keep is None or received_us > compute_cutoff_us(keep, entry.received_us):
            return False
        return name in set(_list_classes(rules, kind, tools))

    def _list_in_force(self, entry: ProjectEntry) -> Iterator[_Activation]:
        """Yield the set in force at an entry, and the one that it replaced a moment before."""
        number = bisect_left(self._positions, entry.position)
        for activation in reversed(self._activations[:number]):
            yield activation
            if activation.received_us <= entry.received_us - LATENESS_US:
                return


_KIND: Final = "retention.expired"


def _read_tools(plans: Iterable[tuple[Any, ...]]) -> dict[str, set[str] | None]:
    """Return the tools of each effect by its plans; None where several lack their bodies.

    The row says what a single plan without a body named: no other plan can have changed it.
    """
    texts, rows = dict[str, list[str | None]](), dict[str, str | None]()
    for effect, _position, text, stored in plans:
        texts.setdefault(effect, []).append(text)
        rows[effect] = stored
    tools = dict[str, set[str] | None]()
    for effect, of_effect in texts.items():
        named = [text for text in of_effect if text is not None]
        tool = rows[effect]
        if len(named) == len(of_effect):
            tools[effect] = {parse_body(text).get("tool") or "" for text in named}
        else:
            tools[effect] = {tool} if len(of_effect) == 1 and tool is not None else None
    return tools


def _list_classes(rules: dict[str, Any], kind: str, tools: set[str] | None) -> Iterator[str]:
    """Yield the classes that a text may have: any of its tools where no plan names one."""
    if tools:
        yield from (find_class(rules, kind, tool) for tool in tools)
        return
    yield find_class(rules, kind, None)
    for pattern in filter(None, (rule["tool"] for rule in rules["rules"])):
        yield find_class(rules, kind, pattern.removesuffix("*"))
        yield find_class(rules, kind, pattern.replace("*", "~"))  # no shorter rule names it


def _read_rules(row: FoldedRow | None) -> dict[str, Any] | None:
    if row is None or "rules" in row.unknown:
        return None
    rules: dict[str, Any] = row.values["rules"]
    return rules
