"""What was so of rows that belong to others as of a past moment: conditions for the database, while it is read.

What changed since the moment is made again and judged in plain Python; what changes while rows are read, in each look.
"""

from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from django.db.models import Q

from inquiry.asof.cut import Cut, UnfitError
from inquiry.asof.replay import MOST_CHANGED, News
from inquiry.query import past
from inquiry.query.entities import ENTITIES
from inquiry.query.fields import Context, Test
from inquiry.query.tree import Fault
from journal import horizon

MOST_IN_A_FILE: Final = 20_000  # rows of a kind that are made again while all matches are read


@dataclass(slots=True)
class _Made:
    """The rows of a kind that changed up to a position, as they stood."""

    known_to: int
    then: dict[UUID, Any] = field(default_factory=dict)


class Others:
    """What a test of rows of an entity (by its name) was at a cut, as a condition: see Context.as_of.

    It is exact of rows as they stand when it is asked or looked for news. `whole`: for a file, in which no note could
    say that something is told as it stands now.
    """

    def __init__(self, context: Context, cut: Cut, *, whole: bool) -> None:
        self._context, self._cut, self._whole = context, cut, whole
        self._most = MOST_IN_A_FILE if whole else MOST_CHANGED
        self._made: dict[str, _Made | None] = {}

    def __call__(self, name: str, test: Test) -> Q | None:
        """None where too much has changed to be made again. Raises Fault where that is of a file."""
        entity = ENTITIES[name]
        if name not in past.CHANGED:
            return test.q
        if name not in self._made:
            self._made[name] = self._first(name)
        made = self._made[name]
        if made is None or not made.then:
            return None if made is None else test.q
        met = past.matching(made.then, entity, self._context, [test])
        return (test.q & ~Q(pk__listed=list(made.then))) | Q(pk__listed=met)

    def look(self) -> bool:
        """Take in what changed since the last look; True where anything did, of which one must ask anew. Raises Fault.

        To be called after rows were read, as past.changed_meanwhile.
        """
        made = [(name, one) for name, one in self._made.items() if one is not None]
        if not made or not past.is_news(min(one.known_to for _, one in made)):
            return False
        last = horizon.last_position()
        took = [self._take_in(name, one, last) for name, one in made]  # in all of them
        return any(took)

    def _first(self, name: str) -> _Made | None:
        made = _Made(self._cut.position)
        try:
            self._read(name, made, horizon.last_position())
        except UnfitError:
            if self._whole:
                raise Fault(0, 0, past.TOO_MUCH) from None
            return None
        return made

    def _take_in(self, name: str, made: _Made, last: int) -> bool:
        try:
            return self._read(name, made, last)
        except UnfitError:
            raise Fault(0, 0, past.TOO_MUCH) from None

    def _read(self, name: str, made: _Made, last: int) -> bool:
        project = self._context.project.id
        ids = past.CHANGED[name](project, self._cut, News(made.known_to, self._most)) - made.then.keys()
        if len(made.then) + len(ids) > self._most:
            raise UnfitError(past.TOO_MUCH)
        if ids:
            made.then |= past.again(ENTITIES[name], project, ids, self._cut)
        made.known_to = last  # above it something may yet be committed: the next look begins there
        return bool(ids)


__all__ = ["MOST_IN_A_FILE", "Others"]
