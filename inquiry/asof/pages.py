"""What the pages of an effect, a gate and a session show as of a cut. Everything was fetched through the wall."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple
from uuid import UUID

import orjson
from django.db.models import Case, CharField, Count, Q, Value, When

from approvals.models import Gate, Vote
from inquiry import effect_page, keyset, life, sentences, shown
from inquiry.asof import gates, replay, sessions
from inquiry.asof.cut import Cut
from inquiry.effect_page import Compared, Exchange, Facts
from inquiry.keyset import Window
from inquiry.life import Stage
from inquiry.sentences import Known
from inquiry.shown import shown_state
from journal import gists
from journal.models import Body, Entry, Erasure
from ledger import breaches, resolutions, same_calls
from ledger.models import Attempt, Effect
from ledger.resolutions import Said
from sessions.models import Artifact, Project, Session

SIZE: Final = 100  # effects on one page of a session
MOST_MOVED: Final = 5_000  # effects of a session that are made again for its counts
RELATED: Final = 20


class Row(NamedTuple):
    """An effect in a table: the word for its state then, and what it ran, or how it is related. Agent text."""

    effect: Any
    state: str
    gist: str | None = None
    how: str = ""


@dataclass(slots=True)
class EffectThen:
    """An effect as its page showed it."""

    effect: Effect
    state: str
    known: Known
    life: list[Stage]
    attempts: list[Attempt]
    attempts_in_all: int
    compared: Compared
    exchange: Exchange
    facts: Facts
    gates: list[Gate]
    breaches: list[str]
    said: list[Said]
    related: list[Row]
    artifacts: list[Artifact]
    lost: frozenset[str]
    erased_since: set[int] = field(default_factory=set)


def effect(project: Project, live: Effect, cut: Cut, window: Window) -> EffectThen | None:
    """What the page of `live` (see effect_page.effect) showed; None when nothing was known of it yet."""
    then = replay.whole(project.id, [live.id], cut).get(live.id)
    if then is None:
        return None
    one, tried = then.effect, _newest(then.attempts)
    held = gates.of_effect(project.id, one.id, cut)
    found = _breaches(one.id, cut)
    exchange = effect_page.exchange(one, tried)
    positions = [position for position in (one.plan_position, exchange.answer_position) if position is not None]
    at = min(cut.position, window.before - 1) if window.before is not None else cut.position
    facts = effect_page.facts(one, None, at)
    facts.at, facts.newer = None, facts.newer if window.before is not None else None
    return EffectThen(
        effect=one,
        state=shown_state(one, cut.at_us),
        known=sentences.known(one, tried, len(then.attempts), cut.at_us),
        life=life.stages(one, tried, cut.at_us),
        attempts=tried,
        attempts_in_all=len(then.attempts),
        compared=effect_page.compared(one, tried, held, found),
        exchange=exchange,
        facts=facts,
        gates=held,
        breaches=found,
        said=[one for one in resolutions.told(one) if one.position <= cut.position],
        related=_related(project.id, one, cut),
        artifacts=effect_page.artifacts(one, cut.position),
        lost=then.lost,
        erased_since=erased_since(project.id, positions, cut),
    )


def _newest(tried: Sequence[Attempt]) -> list[Attempt]:
    """The newest attempts, and the one whose answer stands, in order (see effect_page.attempts)."""
    found = list(tried[-effect_page.ATTEMPTS :])
    if not any(one.acknowledged_mark for one in found):
        found = [one for one in tried[: -effect_page.ATTEMPTS] if one.acknowledged_mark][-1:] + found
    return found


def _breaches(effect: UUID, cut: Cut) -> list[str]:
    """What had been found of it, in words."""
    told = Entry.objects.filter(effect=effect, kind="integrity.violation", lane="system")
    names = told.filter(position__lte=cut.position).order_by("position").values_list("facts", flat=True)
    found = [orjson.loads(facts)["violation"] for facts in names]
    return [breaches.WORDS.get(name, name) for name in found]


def _related(project: UUID, one: Effect, cut: Cut) -> list[Row]:
    undoing, children = effect_page.related(one, cut.position)
    how = dict.fromkeys((row.id for row in children), "its parent is this one")
    how |= dict.fromkeys((row.id for row in undoing), "compensates this one")
    how |= {one.compensates_id: "this one compensates it"} if one.compensates_id is not None else {}
    how |= {one.parent_effect_id: "this one’s parent"} if one.parent_effect_id is not None else {}
    links = {link.other.id: link for link in same_calls.of_effects([one.id], cut.position).get(one.id, [])}
    how |= {other: _ELSEWHERE[link.earlier] for other, link in links.items()}
    found = replay.effects(project, how, cut).values()
    return [
        Row(row, shown_state(row, cut.at_us), how=how[row.id])
        for row in sorted(found, key=lambda row: row.opened_position)[:RELATED]
        if row.id in links or _still_related(one, row)
    ]


_ELSEWHERE: Final = {
    True: "the same call in another session, of unknown outcome when this one was planned or begun",
    False: "the same call in another session, planned or begun while the outcome of this one was unknown",
}


def _still_related(one: Effect, row: Effect) -> bool:
    """True when the plans that stood then name each other."""
    return one.id in (row.compensates_id, row.parent_effect_id) or row.id in (one.compensates_id, one.parent_effect_id)


def erased_since(project: UUID, positions: Iterable[int], cut: Cut) -> set[int]:
    """Those of `positions` whose bodies were still there at the cut, and have been erased since."""
    erased = Erasure.objects.filter(project=project, entry_id__in=list(positions), erased_at_us__gt=cut.at_us)
    return set(erased.values_list("entry_id", flat=True))


@dataclass(slots=True)
class Cast:
    """A vote with its words; None where they were erased."""

    vote: Vote
    reason: str | None


@dataclass(slots=True)
class GateThen:
    """A gate as its page showed it. `yes` counts the votes for it."""

    gate: Gate
    effect: Effect
    state: str
    votes: list[Cast]
    yes: int
    exchange: Exchange
    erased_since: set[int]


def gate(project: Project, live: Gate, cut: Cut, _window: Window) -> GateThen | None:
    """What the page of `live` showed; None when nobody had been asked yet."""
    then = gates.whole(project.id, [live.id], cut).get(live.id)
    effect = replay.whole(project.id, [then.gate.effect_id], cut).get(then.gate.effect_id) if then else None
    if then is None or effect is None:
        return None
    positions = [then.gate.plan_position, *(vote.position for vote in then.votes)]
    texts = dict(Body.objects.filter(entry__in=positions).values_list("entry_id", "text"))
    asked = effect.effect
    asked.plan_position = then.gate.plan_position
    said = {position: gists.parsed(text).get("reason", "") for position, text in texts.items()}
    return GateThen(
        gate=then.gate,
        effect=asked,
        state=shown_state(asked, cut.at_us),
        votes=[Cast(vote, said.get(vote.position)) for vote in then.votes],
        yes=sum(vote.answer == "approve" for vote in then.votes),
        exchange=effect_page.exchange(asked, []),
        erased_since=erased_since(project.id, positions, cut),
    )


@dataclass(slots=True)
class SessionThen:
    """A session as its page showed it, with a page of its effects, newest first."""

    session: Session
    lease: sessions.Held | None
    lost: set[str]
    rows: list[Row]
    older: int | None
    newer: int | None
    by_state: list[tuple[str, int]]  # (word, number), those with any
    effects: int
    violations: int
    children: list[Session]
    artifacts: list[Artifact]


def session(project: Project, live: Session, cut: Cut, window: Window) -> SessionThen | None:
    """What the page of `live` showed; None when it was not open yet."""
    then = sessions.whole(project.id, [live.id], cut).get(live.id)
    if then is None:
        return None
    opened = Effect.objects.filter(session=live, opened_position__lte=cut.position)
    page = keyset.page(opened.only("id", "opened_position"), SIZE, window)
    since = moved(live.id, cut)
    countable = len(since) <= MOST_MOVED
    found = replay.effects(project.id, {row.id for row in page.rows} | (since if countable else set()), cut)
    shown_rows = [found[row.id] for row in page.rows if row.id in found]
    heads = _gists([row.plan_position for row in shown_rows if row.plan_position is not None])
    again = [row for key, row in found.items() if key in since]
    counts, violations = _counts(opened, again, since, cut) if countable else ({}, 0)
    under = Session.objects.filter(parent=live, opened_position__lte=cut.position).order_by("-opened_position")
    children = sessions.sessions(project.id, under.values_list("id", flat=True)[:RELATED], cut).values()
    made = Artifact.objects.filter(session=live, opened_position__lte=cut.position)
    return SessionThen(
        session=then.session,
        lease=then.lease,
        lost=then.lost,
        rows=[Row(row, shown_state(row, cut.at_us), heads.get(row.plan_position)) for row in shown_rows],
        older=page.older,
        newer=page.newer,
        by_state=[(word, counts[word]) for word in shown.STATES.values() if counts.get(word)],
        effects=sum(counts.values()) if countable else opened.count(),
        violations=violations,
        children=sorted(children, key=lambda row: row.opened_position, reverse=True),
        artifacts=list(made.order_by("-opened_position")[:RELATED]),
    )


def moved(session: UUID, cut: Cut) -> set[UUID]:
    """The effects of a session that are not any more what they were."""
    since = Entry.objects.filter(session=session, position__gt=cut.position, effect__isnull=False)
    moved = set(since.order_by().values_list("effect", flat=True).distinct())
    undone = Effect.objects.filter(session=session, compensates__isnull=False).values_list("id", "compensates")
    named = {effect: target for effect, target in undone if effect in moved}
    return {one for one in (*moved, *named.values()) if one is not None}


def _counts(opened: Any, again: Iterable[Effect], moved: set[UUID], cut: Cut) -> tuple[dict[str, int], int]:
    """How many effects stood in each shown state, and how many of them violated: the rest as it is stored."""
    arms = {word: shown.arms(key, cut.at_us) for key, word in shown.STATES.items()}
    whens = [When(condition, then=Value(word)) for word, conditions in arms.items() for condition in conditions]
    groups = (
        opened.exclude(id__in=moved)
        .annotate(shown=Case(*whens, output_field=CharField()))
        .values("shown")
        .annotate(number=Count("id"), breaching=Count("id", filter=Q(violates=True)))
        .order_by()
    )
    counts = {group["shown"]: group["number"] for group in groups}
    violations = sum(group["breaching"] for group in groups)
    for row in again:
        word = shown_state(row, cut.at_us)
        counts[word] = counts.get(word, 0) + 1
        violations += row.violates
    return counts, violations


def _gists(positions: list[int]) -> dict[int | None, str | None]:
    """What a call said in a line, by the position of its plan; erased ones are absent."""
    texts = Body.objects.filter(entry__in=positions).values_list("entry_id", "text")
    return {position: gists.gist(gists.arguments_in(text)) for position, text in texts}
