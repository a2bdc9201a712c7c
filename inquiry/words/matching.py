"""Asking for words: what a person typed as terms, and the condition that finds the effects that have all of them.

Words that few effects have are looked up in the index, and the condition lists the positions: whatever else is asked
goes by a key. Of words that many have the newest are listed, and older effects are looked at one by one, down to the
oldest that has the words.
"""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from django.db.models import Exists, OuterRef, Q

from inquiry.models_words import EffectWords
from inquiry.progress import Progress
from inquiry.words import indexing, keeping, reading
from inquiry.words.column import Asked, Oldest, Term
from inquiry.words.cutting import LONGEST, cut
from ledger.models import Effect

__all__ = ["Found", "Term", "condition", "find", "holds", "terms", "words_of"]
MOST_TERMS: Final = 32
SHORTEST: Final = 2  # letters of a beginning: of a single one every tenth word may be
LISTED: Final = 10_000  # effects that are found by their positions; older ones are asked one by one
FIRST: Final = 400  # of these that are looked at before the others


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


@dataclass(frozen=True, slots=True)
class Found:
    """`q` is the condition on ledger.Effect that all words are among an effect's.

    `falls` are conditions each of effects older than all those of the one before, which together are `q`: whoever wants
    the newest asks one after the other, until there are enough. `named` is how many there are or, where there are
    `more`, how many of the newest the index named; None where only the ledger can count them. `progress` says how far
    the index had read.
    """

    q: Q
    falls: tuple[Q, ...]
    named: int | None = None
    more: bool = False
    progress: Progress | None = None


def condition(project: UUID, asked: Sequence[Term]) -> Q:
    """The condition that all of `asked` (at least one) are among an effect's words."""
    return find(project, asked).q


def find(
    project: UUID,
    asked: Sequence[Term],
    between: tuple[int | None, int | None] = (None, None),
    upto: int | None = None,
) -> Found:
    """Where all of `asked` (at least one) are among an effect's words.

    Right as of now: it reads the index and what is newer, a few queries, and is to be used at once and by one search.
    With positions `between` which only effects are asked for (both exclusive), it says nothing of others. As of a
    position `upto`, what was said later is not looked at.
    """
    known = Asked(project, tuple(asked))
    fresh, progress = indexing.fresh(project, upto)
    newer = {one.position: holds(one.words, asked) for one in fresh}
    low, high = between
    found, floor = keeping.newest(
        known, LISTED + 1, None if low is None else low + 1, None if high is None else high - 1
    )
    here = [position for position, does in newer.items() if does]
    listed = found
    if newer:
        listed = sorted({*here, *(position for position in found if position not in newer)}, reverse=True)
    named = len(listed) if between == (None, None) and keeping.names_no_others(project) else None
    if not floor:
        return Found(_one_of(project, listed), tuple(_falls(project, listed)), named, progress=progress)
    stored = EffectWords.objects.filter(project=project, words__hold=known)
    q = Q(Exists(stored.filter(position=OuterRef("opened_position"))), opened_position__gte=Oldest(known))
    if found:
        q &= Q(opened_position__lte=found[0])
    gone = stored.filter(position__in=[position for position, does in newer.items() if not does])
    stale = list(gone.values_list("position", flat=True))
    if stale:
        q &= ~Q(opened_position__in=stale)
    older = q & Q(opened_position__lt=floor)
    if here:
        q |= _one_of(project, here)
    if any(position < floor for position in here):
        older |= _one_of(project, [position for position in here if position < floor])
    named_last = listed if listed is found else [position for position in listed if position >= floor]
    falls = (*_falls(project, named_last), older)
    return Found(q, falls, named, more=True, progress=progress)


def _falls(project: UUID, listed: list[int]) -> Iterator[Q]:
    """The newest by themselves: a page needs no more."""
    yield _one_of(project, listed[:FIRST])
    if len(listed) > FIRST:
        yield _one_of(project, listed[FIRST:])


def _one_of(project: UUID, positions: Sequence[int]) -> Q:
    return Q(project=project, opened_position__listed=array("q", positions))
