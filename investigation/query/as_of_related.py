"""Conditions on related rows as of a past moment.

Rows that changed since the moment are rebuilt and tested in plain Python. Rows that change during
the read are rebuilt by each call of `rebuild_changed`.
"""

from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from django.db.models import Q

from accounts.models import Project
from investigation.history.moment import CutError, JournalCut
from investigation.history.past_effects import MAX_CHANGED_ROWS, ChangeRange
from investigation.query import as_of
from investigation.query.entity_registry import ENTITIES
from investigation.query.fields.row_tests import RowTest
from investigation.query.parser.ast import QueryError

# Most rows of an entity that are rebuilt while all matches are read.
MAX_REBUILT_IN_FILE: Final = 20_000


@dataclass(slots=True)
class _Rebuilt:
    """The rebuilt rows of an entity that changed up to a position."""

    known_to: int
    then: dict[UUID, Any] = field(default_factory=dict)


class PastRelatedRows:
    """Compiles tests of related rows as of a moment; see CompileContext.as_of.

    A condition is exact for rows as they were when it was compiled or last checked with
    `rebuild_changed`. `whole` is for files, which cannot carry a note that a value is current.
    """

    def __init__(self, project: Project, cut: JournalCut, *, whole: bool) -> None:
        self._project, self._cut, self._whole = project, cut, whole
        self._most = MAX_REBUILT_IN_FILE if whole else MAX_CHANGED_ROWS
        self._made: dict[str, _Rebuilt | None] = {}

    def __call__(self, name: str, test: RowTest) -> Q | None:
        """Return the condition, or None if too much has changed. Raises QueryError for files."""
        entity = ENTITIES[name]
        if name not in as_of.FIND_CHANGED:
            return test.q
        if name not in self._made:
            self._made[name] = self._first(name)
        rebuilt = self._made[name]
        if rebuilt is None or not rebuilt.then:
            return None if rebuilt is None else test.q
        matching_ids = as_of.select_matching_ids(
            rebuilt.then, entity, self._project, self._cut, [test]
        )
        return (test.q & ~Q(pk__listed=list(rebuilt.then))) | Q(pk__listed=matching_ids)

    def rebuild_changed(self) -> bool:
        """Rebuild what changed since the last call. Return True if anything did.

        Call it after rows were read, like as_of.find_changed_during_read. The conditions must then
        be compiled again. Raises QueryError.
        """
        rebuilt_rows = [(name, rows) for name, rows in self._made.items() if rows is not None]
        if not rebuilt_rows or not as_of.has_entries_after(
            min(rows.known_to for _, rows in rebuilt_rows)
        ):
            return False
        last = as_of.load_known_position(self._cut)
        are_changed = [
            self._take_in(name, rows, last) for name, rows in rebuilt_rows
        ]  # All entities are updated.
        return any(are_changed)

    def _first(self, name: str) -> _Rebuilt | None:
        rebuilt = _Rebuilt(self._cut.position)
        try:
            self._read(name, rebuilt, as_of.load_known_position(self._cut))
        except CutError:
            if self._whole:
                raise QueryError(0, 0, as_of.TOO_MANY_CHANGES) from None
            return None
        return rebuilt

    def _take_in(self, name: str, rebuilt: _Rebuilt, last: int) -> bool:
        try:
            return self._read(name, rebuilt, last)
        except CutError:
            raise QueryError(0, 0, as_of.TOO_MANY_CHANGES) from None

    def _read(self, name: str, rebuilt: _Rebuilt, last: int) -> bool:
        project = self._project.id
        ids = (
            as_of.FIND_CHANGED[name](project, self._cut, ChangeRange(rebuilt.known_to, self._most))
            - rebuilt.then.keys()
        )
        if len(rebuilt.then) + len(ids) > self._most:
            raise CutError(as_of.TOO_MANY_CHANGES)
        if ids:
            rebuilt.then |= as_of.rebuild_rows(ENTITIES[name], project, ids, self._cut)
        rebuilt.known_to = (
            last  # Later positions may still be committed: the next call starts there.
        )
        return bool(ids)


__all__ = ["MAX_REBUILT_IN_FILE", "PastRelatedRows"]
