"""The searchable texts of an effect as of a cut, without texts erased since."""

from collections.abc import Iterable
from uuid import UUID

from inquiry.asof import replay, rows, told
from inquiry.asof.cut import Cut
from inquiry.words import reading
from inquiry.words.reading import Searched
from sessions.models import Repository

_AT_ONCE = 100  # Effects whose bodies are in memory together.


def of_effects(
    project: UUID, effects: Iterable[UUID], cut: Cut
) -> dict[UUID, list[tuple[str, str]]]:
    """Return pairs of label and agent text by effect id; later effects are absent."""
    texts_by_id: dict[UUID, list[tuple[str, str]]] = {}
    for part in told.parts(effects):
        past_effects = replay.whole(project, part, cut)
        names = rows.shown_of(
            Repository,
            (past_effect.effect.repository_id for past_effect in past_effects.values()),
            "name",
        )
        searchable = {
            pk: _to_searchable(past_effect, names.get(past_effect.effect.repository_id, ""))
            for pk, past_effect in past_effects.items()
        }
        ids = list(searchable)
        for start in range(0, len(ids), _AT_ONCE):
            texts_by_id |= reading.texts_of(
                {pk: searchable[pk] for pk in ids[start : start + _AT_ONCE]}
            )
    return texts_by_id


def _to_searchable(past_effect: replay.Then, repository: str) -> Searched:
    effect = past_effect.effect
    named = {
        name: getattr(effect, name)
        for name in ("tool", "ref", "environment", "resource", "external_reference")
    }
    newest = sorted(past_effect.attempts, key=lambda attempt: -attempt.number)[: reading.ATTEMPTS]
    return Searched(
        {"id": effect.id, "plan_position": effect.plan_position, "repository": repository, **named},
        [attempt.external_reference for attempt in newest],
        [attempt.answer_position for attempt in newest if attempt.answer_position is not None],
    )
