"""Asking for words: what a person typed as terms, and the condition that finds the effects that have all of them.

Words that few effects have are looked up in the index, and the condition lists the positions: whatever else is asked
goes by a key. Words of many effects are looked for in each row that is read, between the newest and the oldest that has
them: there fifty are soon found.
"""

from array import array
from collections.abc import Iterable, Sequence
from typing import Final
from uuid import UUID

from django.db.models import Exists, OuterRef, Q

from inquiry.models_words import EffectWords
from inquiry.words import indexing, keeping, reading
from inquiry.words.column import Asked, Term
from inquiry.words.cutting import LONGEST, cut
from ledger.models import Effect

__all__ = ["Term", "condition", "holds", "terms", "words_of"]
MOST_TERMS: Final = 32
SHORTEST: Final = 2  # letters of a beginning: of a single one every tenth word may be
LISTED: Final = 10_000  # effects that are found by their positions; of more, each row is asked


def terms(text: str) -> list[Term]:
    """What is asked for by `text`, a run of text as somebody typed it: its words, each once.

    A `*` at its end makes the last word a beginning. Raises ValueError, with a sentence for whoever typed it, when no
    word is in it, a beginning is too short, or there are more than MOST_TERMS.
    """
    stem = text.rstrip()
    words = cut(stem)
    if not words:
        raise ValueError("There is no word in this text: words are made of letters and digits.")
    # Whether the star stands at the last word, or behind what divides words.
    begins = stem.endswith("*") and cut(f"{stem.rstrip('*')}x")[-1] == f"{words[-1]}x"[:LONGEST]
    asked = dict.fromkeys(Term(word) for word in (words[:-1] if begins else words))
    if begins:
        if len(words[-1]) < SHORTEST:
            raise ValueError(f"A beginning has at least {SHORTEST} letters before its *.")
        asked[Term(words[-1], prefix=True)] = None
    if len(asked) > MOST_TERMS:
        raise ValueError(f"These are {len(asked)} words; at most {MOST_TERMS} are looked for at once.")
    return list(asked)


def holds(words: frozenset[str], asked: Iterable[Term]) -> bool:
    """Whether all that is asked is among `words`, in plain Python; the databases answer the same."""
    return all(
        term.word in words or (term.prefix and any(word.startswith(term.word) for word in words)) for term in asked
    )


def words_of(effect: Effect) -> frozenset[str]:
    """The words by which `effect` is found, read from the ledger and the journal as they are now."""
    return reading.words([effect.id])[0].words


def condition(project: UUID, asked: Sequence[Term]) -> Q:
    """The condition on ledger.Effect that all of `asked` (at least one) are among an effect's words.

    Right as of now: it reads the index and what is newer, a few queries, and is to be used at once and by one search.
    """
    known = Asked(project, tuple(asked))
    newer = {one.position: holds(one.words, asked) for one in indexing.fresh(project)}
    found = keeping.positions(known, LISTED)
    here = [position for position, does in newer.items() if does]
    if found is not None:
        positions = sorted({*here, *(position for position in found if position not in newer)})
        return Q(project=project, opened_position__listed=array("q", positions))
    stored = EffectWords.objects.filter(project=project, words__hold=known)
    condition = Q(Exists(stored.filter(position=OuterRef("opened_position"))))
    gone = stored.filter(position__in=[position for position, does in newer.items() if not does])
    stale = list(gone.values_list("position", flat=True))
    if stale:
        condition &= ~Q(opened_position__in=stale)
    if here:
        condition |= Q(project=project, opened_position__in=here)
    span = keeping.span(known)
    if span is not None:
        low, high = min([span[0], *here]), max([span[1], *here])
        condition &= Q(opened_position__gte=low, opened_position__lte=high)
    return condition
