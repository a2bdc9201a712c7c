"""Effects as of a cut: unchanged ones as stored, changed ones rebuilt from the journal."""

import copy
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from uuid import UUID

import orjson

from approvals.models import Exemption, Gate
from investigation.history import effect_text, past_exemptions
from investigation.history import past_entries as history_entries
from investigation.history.effect_text import EffectTexts
from investigation.history.moment import TOO_LONG_AGO, CutError, JournalCut
from investigation.history.past_gate_states import rebuild_gates as rebuild_gates
from investigation.history.past_sessions import rebuild_sessions as rebuild_sessions
from investigation.history.rebuild_effects import EffectRebuilder, RebuiltEffect
from journal import running_writers
from journal.models import Entry
from ledger.models import Attempt, Effect
from ledger.partial_indexes import IS_OF_A_RARE_KIND
from ledger.store import effect_rows
from ledger.store.effect_rows import AttemptRow, EffectRow
from ledger.store.writer import REPLANNED
from ledger.tools import cache
from ledger.tools.registry import tool_name_digest
from sessions.models import Session

US: Final = 1_000_000
# Most entries after a cut, of all projects, that a search walks; a search also has a time limit.
MAX_ENTRIES_SINCE: Final = 2_000_000
MAX_CHANGED_ROWS: Final = 5_000  # Most rows of one kind that are rebuilt.


class EffectAsOf(NamedTuple):
    """An effect as of a cut (not saved), its attempts in order, and the columns erased since."""

    effect: Effect
    attempts: list[Attempt]
    lost: frozenset[str] = frozenset()


def rebuild_effects(project: UUID, ids: Iterable[UUID], cut: JournalCut) -> dict[UUID, Effect]:
    """Return the effects of `ids` as of `cut`, not saved. Later ones are absent."""
    return {
        identity: past.effect
        for identity, past in rebuild_effects_with_attempts(project, ids, cut).items()
    }


def rebuild_effects_with_attempts(
    project: UUID, ids: Iterable[UUID], cut: JournalCut
) -> dict[UUID, EffectAsOf]:
    """Return the effects with their attempts.

    A constant number of queries; the work grows with the number of facts to fold.
    """
    effect_ids = set(ids)
    stored = {
        key: row for key, row in _load_rows(project, "id", effect_ids).items() if _existed(row, cut)
    }
    # Later compensations count, too: what they compensate changed with them.
    undoing = _load_compensations(project, stored)
    changed_ids = history_entries.find_effects_with_entries_since({*stored, *undoing}, cut.position)
    # Acknowledging a compensation adds no entry to the effect that it compensates.
    replaced = history_entries.load_replaced_plans(changed_ids)
    changed_ids |= {
        row.compensates_id
        for key, row in (stored | undoing).items()
        if key in changed_ids and row.compensates_id
    }
    changed_ids |= {
        UUID(folded_effect["compensates_id"])
        for erasable_text in replaced.values()
        for folded_effect in erasable_text
        if folded_effect.get("compensates_id")
    }
    changed_ids -= {
        key for key, row in stored.items() if row.imported
    }  # Imported rows never change.
    changed = {identity: row for identity, row in stored.items() if identity in changed_ids}
    with_undoing = changed | {
        key: row
        for key, row in (stored | undoing).items()
        if _existed(row, cut) and _may_compensate(row, changed, replaced)
    }
    attempts_by_id = _load_attempts({*stored, *with_undoing})
    past_effects = {
        identity: EffectAsOf(row, list(attempts_by_id.get(identity, {}).values()))
        for identity, row in stored.items()
        if identity not in changed_ids
    }
    if changed:
        folding = EffectRebuilder(
            with_undoing,
            attempts_by_id,
            replaced | history_entries.load_replaced_plans(with_undoing.keys() - changed_ids),
        )
        folding.tell(history_entries.load_effect_entries(with_undoing, cut.position))
        folded = {
            identity: folding.folded[identity] for identity in changed if identity in folding.folded
        }
        erasable_text = effect_text.load_past_texts_of_effects(
            project, folded, changed, attempts_by_id
        )
        deadlines = (
            ToolDeadlines(project, min(folded_effect.settled for folded_effect in folded.values()))
            if folded
            else None
        )
        for identity, folded_effect in folded.items():
            folded_effect.row.tool = erasable_text[identity].effect["tool"]
            if deadlines is not None:
                folded_effect.row.deadline_us = deadlines.of(folded_effect)
            columns = (
                folding.said_of_plan(identity, cut.position)
                if folded_effect.plan is not None
                else {}
            )
            past_effects[identity] = _rebuild_effect(
                changed[identity],
                folded_effect,
                columns,
                attempts_by_id.get(identity, {}),
                erasable_text[identity],
            )
    return past_effects


@dataclass(frozen=True, slots=True)
class ChangeRange:
    """Where to look for changes since a cut: above position `after`, for at most `most` rows."""

    after: int
    most: int = MAX_CHANGED_ROWS

    @classmethod
    def of(cls, cut: JournalCut) -> "ChangeRange":
        """Return the range of everything since the cut."""
        return cls(cut.position)


def find_changed_effects_since(
    project: UUID, cut: JournalCut, since_range: ChangeRange | None = None
) -> frozenset[UUID]:
    """Return the effects that existed and have later entries.

    Effects that such an effect compensates are included.
    """
    since_range = since_range or ChangeRange.of(cut)
    changed_rows = _entries_since(since_range).filter(effect__isnull=False).values("effect")
    changed_effects = Effect.objects.filter(id__in=changed_rows)
    changed_ids = _select_existing(project, changed_effects, cut, since_range)
    compensated = Effect.objects.filter(
        id__in=changed_effects.filter(compensates__isnull=False).values("compensates")
    )
    changed_ids |= _select_existing(project, compensated, cut, since_range)
    for plan_list in history_entries.load_replaced_plans(changed_ids).values():
        changed_ids |= {
            UUID(plan["compensates_id"]) for plan in plan_list if plan.get("compensates_id")
        }
    return frozenset(changed_ids)


def find_changed_sessions(
    project: UUID, cut: JournalCut, news: ChangeRange | None = None
) -> frozenset[UUID]:
    """Return the sessions that existed and have later entries."""
    news = news or ChangeRange.of(cut)
    since = _entries_since(news).filter(session__isnull=False).values("session")
    return frozenset(_select_existing(project, Session.objects.filter(id__in=since), cut, news))


def find_changed_gates(
    project: UUID, cut: JournalCut, news: ChangeRange | None = None
) -> frozenset[UUID]:
    """Return the gates that existed and whose effects have later entries."""
    news = news or ChangeRange.of(cut)
    since = _entries_since(news).filter(effect__isnull=False).values("effect")
    return frozenset(_select_existing(project, Gate.objects.filter(effect__in=since), cut, news))


def find_changed_exemptions(
    project: UUID, cut: JournalCut, news: ChangeRange | None = None
) -> frozenset[UUID]:
    """Return the exemptions that existed and have later entries."""
    news = news or ChangeRange.of(cut)
    since = (
        _entries_since(news)
        .filter(IS_OF_A_RARE_KIND, project=project, kind__in=past_exemptions.EXEMPTION_KINDS)
        .values("subject")
    )
    return frozenset(_select_existing(project, Exemption.objects.filter(id__in=since), cut, news))


def _entries_since(news: ChangeRange) -> Any:
    if running_writers.load_last_position() - news.after > MAX_ENTRIES_SINCE:
        raise CutError(TOO_LONG_AGO)
    return (
        Entry.objects.filter(position__gt=news.after).exclude(kind__startswith="access.").order_by()
    )


def _select_existing(project: UUID, rows: Any, cut: JournalCut, news: ChangeRange) -> set[UUID]:
    """Return the ids of `rows` that existed at the cut. Later rows are not rebuilt."""
    existing = set()
    # Select from all projects and then filter: with a project condition, SQLite reads all of the
    # project's rows.
    for identity, row_project, opened in (
        rows.order_by().values_list("id", "project", "opened_position").iterator(2_000)
    ):
        if row_project == project and opened <= cut.position:
            existing.add(identity)
            if len(existing) > news.most:
                raise CutError(TOO_LONG_AGO)
    return existing


def _existed(row: Effect, cut: JournalCut) -> bool:
    return row.opened_position <= cut.position


def _load_rows(project: UUID, column: str, ids: Iterable[UUID]) -> dict[UUID, Effect]:
    """Return the project's effects, selected by ids alone."""
    rows_by_id: dict[UUID, Effect] = {}
    for part in history_entries.split_ids(ids):
        for row in Effect.objects.filter(**{f"{column}__in": part}):
            if row.project_id == project:
                rows_by_id[row.id] = row
    return rows_by_id


def _load_compensations(project: UUID, stored: Mapping[UUID, Effect]) -> dict[UUID, Effect]:
    """Return the effects that compensate any of `stored`, by their current or a replaced plan."""
    compensations = _load_rows(project, "compensates", stored)
    former_ids: set[UUID] = set()
    for part in history_entries.split_ids({row.session_id for row in stored.values()}):
        replaced = Entry.objects.filter(
            IS_OF_A_RARE_KIND, project=project, kind=REPLANNED, lane="system"
        )
        undoing = replaced.filter(session__in=part, facts__contains="compensates_id")
        for effect, facts in undoing.values_list("effect", "facts"):
            if effect is not None and UUID(orjson.loads(facts)["compensates_id"]) in stored:
                former_ids.add(effect)
    return compensations | _load_rows(
        project, "id", former_ids - compensations.keys() - stored.keys()
    )


def _may_compensate(
    row: Effect, changed: Mapping[UUID, Effect], replaced: Mapping[UUID, list[dict[str, Any]]]
) -> bool:
    targets = {row.compensates_id} if row.compensates_id is not None else set()
    targets |= {
        UUID(target["compensates_id"])
        for target in replaced.get(row.id, ())
        if target.get("compensates_id")
    }
    return any(target in changed for target in targets)


def _load_attempts(ids: Iterable[UUID]) -> dict[UUID, dict[int, Attempt]]:
    attempts_by_id: dict[UUID, dict[int, Attempt]] = {}
    for part in history_entries.split_ids(ids):
        for row in Attempt.objects.filter(effect__in=part).order_by("number"):
            attempts_by_id.setdefault(row.effect_id, {})[row.number] = row
    return attempts_by_id


class ToolDeadlines:
    """The time limits of tools, as declared when an effect last changed."""

    def __init__(
        self,
        project: UUID,
        since: int,
        read_facts: Callable[[int, str], Mapping[str, Any]] = lambda _at, text: orjson.loads(text),
    ) -> None:
        self._project = project
        loaded = Entry.objects.filter(
            IS_OF_A_RARE_KIND, project=project, kind="admin.tools_loaded", position__gt=since
        )
        entries = loaded.order_by("position").values_list("position", "facts")
        self._before = [
            (position, read_facts(position, text).get("before", {})) for position, text in entries
        ]

    def of(self, folded: RebuiltEffect) -> int | None:
        """Return the deadline of an effect in progress, in microseconds."""
        last = folded.attempts.get(folded.row.attempt_count)
        if folded.row.state != "dispatched" or last is None or last.received_us is None:
            return None
        return last.received_us + self._seconds(folded.row.tool, folded.settled) * US

    def _seconds(self, tool: str, position: int) -> int:
        name = tool_name_digest(tool)
        declared_s = next(
            (
                before_values[name]
                for at, before_values in self._before
                if at > position and name in before_values
            ),
            None,
        )
        return (
            int(declared_s)
            if declared_s is not None
            else cache.load_tool(self._project, tool).deadline_s
        )


_EFFECT_COLUMNS: Final = effect_rows.row_columns(EffectRow)
_ATTEMPT_COLUMNS: Final = effect_rows.row_columns(AttemptRow)


def _rebuild_effect(
    stored: Effect,
    folded: RebuiltEffect,
    plan: dict[str, Any],
    tried: Mapping[int, Attempt],
    texts: EffectTexts,
) -> EffectAsOf:
    """Return the effect as it was. `version`, which counts writes, keeps its current value."""
    effect = copy.copy(stored)
    columns = {name: getattr(folded.row, name) for name in _EFFECT_COLUMNS if name != "version"}
    for name, value in (columns | plan | texts.effect | {"violates": folded.violates}).items():
        setattr(effect, name, value)
    attempts = []
    for number, row in sorted(folded.attempts.items()):
        attempt = copy.copy(tried[number])
        fixed = {"remote_key": attempt.remote_key}
        values = (
            {name: getattr(row, name) for name in _ATTEMPT_COLUMNS} | fixed | texts.attempts[number]
        )
        for name, value in values.items():
            setattr(attempt, name, value)
        attempts.append(attempt)
    return EffectAsOf(effect, attempts, frozenset(texts.lost))
