"""What of an effect is searched for words, as of a cut: its texts of then, as far as nobody erased them since."""

from collections.abc import Iterable
from uuid import UUID

from inquiry.asof import replay, rows, told
from inquiry.asof.cut import Cut
from inquiry.words import reading
from inquiry.words.reading import Searched
from sessions.models import Repository

_AT_ONCE = 100  # effects whose bodies are in memory together


def of_effects(project: UUID, effects: Iterable[UUID], cut: Cut) -> dict[UUID, list[tuple[str, str]]]:
    """By id pairs of a word of ours that says what it is, and agents' text; effects that were not there are absent."""
    found: dict[UUID, list[tuple[str, str]]] = {}
    for part in told.parts(effects):
        then = replay.whole(project, part, cut)
        names = rows.shown_of(Repository, (one.effect.repository_id for one in then.values()), "name")
        known = {pk: _searched(one, names.get(one.effect.repository_id, "")) for pk, one in then.items()}
        ids = list(known)
        for start in range(0, len(ids), _AT_ONCE):
            found |= reading.texts_of({pk: known[pk] for pk in ids[start : start + _AT_ONCE]})
    return found


def _searched(then: replay.Then, repository: str) -> Searched:
    effect = then.effect
    named = {name: getattr(effect, name) for name in ("tool", "ref", "environment", "resource", "external_reference")}
    newest = sorted(then.attempts, key=lambda one: -one.number)[: reading.ATTEMPTS]
    return Searched(
        {"id": effect.id, "plan_position": effect.plan_position, "repository": repository, **named},
        [one.external_reference for one in newest],
        [one.answer_position for one in newest if one.answer_position is not None],
    )
