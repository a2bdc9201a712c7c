"""The searchable texts of an effect as of a cut, without texts erased since."""

from collections.abc import Iterable
from uuid import UUID

from accounts.models import Repository
from investigation.fulltext import extract
from investigation.history import past_effects as history_effects
from investigation.history import past_entries, past_rows
from investigation.history.moment import JournalCut

_AT_ONCE = 100  # Effects whose bodies are in memory together.


def load_past_texts(
    project: UUID, effects: Iterable[UUID], cut: JournalCut
) -> dict[UUID, list[tuple[str, str]]]:
    """Return pairs of label and agent text by effect id; later effects are absent."""
    texts_by_id: dict[UUID, list[tuple[str, str]]] = {}
    for part in past_entries.split_ids(effects):
        past_effects = history_effects.rebuild_effects_with_attempts(project, part, cut)
        names = past_rows.load_column(
            Repository,
            (past_effect.effect.repository_id for past_effect in past_effects.values()),
            "name",
        )
        searchable = {
            pk: extract.build_searchable(
                past_effect.effect,
                past_effect.attempts,
                names.get(past_effect.effect.repository_id, ""),
            )
            for pk, past_effect in past_effects.items()
        }
        ids = list(searchable)
        for start in range(0, len(ids), _AT_ONCE):
            texts_by_id |= extract.load_effect_texts(
                {pk: searchable[pk] for pk in ids[start : start + _AT_ONCE]}
            )
    return texts_by_id
