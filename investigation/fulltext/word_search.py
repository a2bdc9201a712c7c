"""Turn typed words into search terms, and terms into a condition on effects.

For rare words, the condition lists the positions from the index, so all other conditions use a key.
For frequent words, the newest positions are listed, and older effects are tested one by one, down
to the oldest that has the words.
"""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from django.db.models import Exists, OuterRef, Q

from display.index_progress import IndexProgress
from investigation.fulltext import indexer, store
from investigation.fulltext.sql import OldestPosition, ProjectTerms, SearchTerm
from investigation.fulltext.tokenizer import MAX_WORD_CHARACTERS, tokenize
from investigation.models import EffectText

__all__ = [
    "SearchTerm",
    "WordMatches",
    "find_words",
    "has_all_terms",
    "parse_terms",
]
MAX_TERMS: Final = 32
MIN_PREFIX_LETTERS: Final = 2  # Letters; a single letter would match every tenth word.
MAX_LISTED_EFFECTS: Final = (
    10_000  # Effects that are listed by position; older ones are tested one by one.
)
FIRST_LISTED: Final = 400  # Listed effects that are read first.


def parse_terms(text: str) -> list[SearchTerm]:
    """Return the distinct search terms in a text that a person typed.

    A `*` at the end makes the last word a prefix. Raises ValueError with a message for the user if
    the text has no word, a prefix is too short, or there are more than MAX_TERMS terms.
    """
    stem = text.rstrip()
    words = tokenize(stem)
    if not words:
        raise ValueError("The text contains no word. Use letters and digits.")
    # Check whether the star follows the last word or a separator.
    is_prefix = (
        stem.endswith("*")
        and tokenize(f"{stem.rstrip('*')}x")[-1] == f"{words[-1]}x"[:MAX_WORD_CHARACTERS]
    )
    search_terms = dict.fromkeys(SearchTerm(word) for word in (words[:-1] if is_prefix else words))
    if is_prefix:
        if len(words[-1]) < MIN_PREFIX_LETTERS:
            raise ValueError(f"A prefix needs at least {MIN_PREFIX_LETTERS} letters before “*”.")
        search_terms[SearchTerm(words[-1], prefix=True)] = None
    if len(search_terms) > MAX_TERMS:
        raise ValueError(f"The text has {len(search_terms)} words. Use at most {MAX_TERMS}.")
    return list(search_terms)


def has_all_terms(words: frozenset[str], terms: Iterable[SearchTerm]) -> bool:
    """Return True if all terms are among `words`. The databases return the same."""
    return all(
        term.word in words or (term.prefix and any(word.startswith(term.word) for word in words))
        for term in terms
    )


@dataclass(frozen=True, slots=True)
class WordMatches:
    """The condition on ledger.Effect for a set of words, and facts about its matches.

    `q` is the condition. `by_age` are disjoint conditions whose union is `q`, each matching older
    effects than the one before: for the newest matches, use them in order. `named` is the number of
    matches or, if `more`, the number of newest ones that the index listed; None if only the ledger
    can count them. `progress` is the index's position.
    """

    q: Q
    by_age: tuple[Q, ...]
    named: int | None = None
    more: bool = False
    progress: IndexProgress | None = None


def find_words(
    project: UUID,
    terms: Sequence[SearchTerm],
    between: tuple[int | None, int | None] = (None, None),
    upto: int | None = None,
) -> WordMatches:
    """Find the effects that have all of the terms (at least one).

    The result is current: use it at once and in one search. It takes a few queries to the index and
    to newer entries. With positions `between` (both exclusive), it is valid only for effects in
    that range. With a position `upto`, later entries are ignored.
    """
    project_terms = ProjectTerms(project, tuple(terms))
    fresh, progress = indexer.load_unindexed_words(project, upto)
    matches_by_position = {
        effect_words.position: has_all_terms(effect_words.words, terms) for effect_words in fresh
    }
    low, high = between
    stored_positions, complete_from = store.find_newest_positions(
        project_terms,
        MAX_LISTED_EFFECTS + 1,
        None if low is None else low + 1,
        None if high is None else high - 1,
    )
    matching_newer = [position for position, matches in matches_by_position.items() if matches]
    listed = stored_positions
    if matches_by_position:
        listed = sorted(
            {
                *matching_newer,
                *(position for position in stored_positions if position not in matches_by_position),
            },
            reverse=True,
        )
    named = len(listed) if between == (None, None) and store.has_unique_token(project) else None
    if not complete_from:
        return WordMatches(
            _in_positions(project, listed),
            tuple(_newest_first(project, listed)),
            named,
            progress=progress,
        )
    stored = EffectText.objects.filter(project=project, words__hold=project_terms)
    q = Q(
        Exists(stored.filter(position=OuterRef("opened_position"))),
        opened_position__gte=OldestPosition(project_terms),
    )
    if stored_positions:
        q &= Q(opened_position__lte=stored_positions[0])
    no_longer = stored.filter(
        position__in=[position for position, matches in matches_by_position.items() if not matches]
    )
    stale = list(no_longer.values_list("position", flat=True))
    if stale:
        q &= ~Q(opened_position__in=stale)
    older = q & Q(opened_position__lt=complete_from)
    if matching_newer:
        q |= _in_positions(project, matching_newer)
    if any(position < complete_from for position in matching_newer):
        older |= _in_positions(
            project, [position for position in matching_newer if position < complete_from]
        )
    newest_listed = (
        listed
        if listed is stored_positions
        else [position for position in listed if position >= complete_from]
    )
    by_age = (*_newest_first(project, newest_listed), older)
    return WordMatches(q, by_age, named, more=True, progress=progress)


def _newest_first(project: UUID, listed: list[int]) -> Iterator[Q]:
    """Yield the newest separately: a page needs no more."""
    yield _in_positions(project, listed[:FIRST_LISTED])
    if len(listed) > FIRST_LISTED:
        yield _in_positions(project, listed[FIRST_LISTED:])


def _in_positions(project: UUID, positions: Sequence[int]) -> Q:
    return Q(project=project, opened_position__listed=array("q", positions))
