"""Can it resume safely? What the next worker of a session must know, in the order in which it matters.

`read` puts it together once, for the API and for the page, from the same functions: the verdicts of what a restart must
settle, then unread messages, the working state, and where the history is. Everything is bounded, so that it costs the
same after a hundred effects and after a hundred thousand. It reads, and changes nothing.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple
from uuid import UUID

from inquiry import controls
from inquiry.controls import Finding
from journal.gists import gist_of, plan_heads
from ledger import cases, declared, holds, same_calls, verdicts
from ledger.cases import Judged
from ledger.models import Effect
from ledger.models_holds import Hold
from ledger.same_calls import Link
from sessions import capacity, checkpoints, decisions, facts, handoffs, holders, messages
from sessions.models import ENDED, Session, Task

MOST_JUDGED: Final = (
    500  # open effects that are judged; with more than these nobody can say that all is well
)
MOST_SHOWN: Final = 30
MOST_DONE: Final = 15
LOOKED_BACK: Final = 200  # effects, from the newest, among which what is done is looked for
MOST_TASKS: Final = 20
MOST_MESSAGES: Final = 10
MOST_DECISIONS: Final = 10
_OPEN_TASKS: Final = ("running", "blocked", "pending")


class Open(NamedTuple):
    """An effect that a restart must settle, with its verdict. `gist` is the agent's own text."""

    effect: Any
    judged: Judged
    gist: str
    beneath: Judged  # the same, were nobody else at work: what remains when the lease of whoever is now ends
    elsewhere: Sequence[Link] = ()  # effects of other sessions with the same call

    @property
    def needs_person(self) -> bool:
        """True when nothing but a person's word lets it go on, whoever works on it now."""
        return not verdicts.is_safe(self.beneath.verdict)

    @property
    def verdict_sentence(self) -> str:
        """The verdict in one sentence."""
        return verdicts.sentence(self.judged.verdict, str(self.effect))

    @property
    def sentence(self) -> str:
        """The verdict in one sentence, and one more for the same call in another session."""
        said = self.verdict_sentence
        for link in self.elsewhere[:1]:
            when = "may have happened before" if link.earlier else "was made since"
            said += f" The same call {when}: {link.other} in {link.other.session}."
        return said


class Done(NamedTuple):
    """An effect that is done. `unheard` when nothing was begun after it was known to be.

    Whoever did it may then have ended before it heard, and a call that asks for the same asks for this one. `gist` is
    the agent's own text.
    """

    effect: Effect
    gist: str
    unheard: bool

    @property
    def sentence(self) -> str:
        """What is known, and that it is not to be done again."""
        if self.effect.state == "compensated":
            return f"{self.effect}: it was done, and taken back."
        if self.effect.outcome == "error":
            return f"{self.effect}: it ran, and went wrong; it is not tried again by itself."
        return f"{self.effect}: it is done; do not do it again."


@dataclass(slots=True)
class Resume:
    """What is known. `because` are the open effects that need a person, the most pressing first."""

    session: Session
    now_us: int
    open: list[Open] = field(default_factory=list)
    done: list[Done] = field(default_factory=list)
    too_many: bool = False
    stopped: bool = False  # a STOP stands on the session, its agent or the project
    lease: Any = None
    decisions: list[Any] = field(default_factory=list)
    handoff: Any = None
    messages: list[Any] = field(default_factory=list)
    tasks: list[Task] = field(default_factory=list)
    checkpoint: Any = None
    capacity: Any = None
    facts: list[Any] = field(default_factory=list)
    controls: list[Finding] = field(default_factory=list)

    @property
    def ended(self) -> bool:
        """True when nobody is to resume it; what it began may be open all the same."""
        return self.session.status in ENDED

    @property
    def begun(self) -> list[Open]:
        """Those of the open effects that were begun."""
        return [one for one in self.open if one.effect.state != "planned"]

    @property
    def because(self) -> list[Open]:
        return [one for one in self.open if one.needs_person]

    @property
    def safe(self) -> bool:
        """True when no open effect's verdict needs a person, and no STOP stands: wait and probe are safe."""
        return not self.because and not self.too_many and not self.stopped

    @property
    def until_us(self) -> int | None:
        """When the last of what must be waited for may be asked again; None when nothing has to be waited for."""
        waits = [one.judged.verdict for one in self.open if one.judged.verdict.answer == "wait"]
        known = [one.until_us for one in waits if one.until_us is not None]
        return max(known) if known else None

    @property
    def by_verdict(self) -> list[tuple[str, int]]:
        """How many open effects have each verdict, in the order of the table's answers."""
        counted = Counter(one.judged.verdict.answer for one in self.open)
        return [(answer, counted[answer]) for answer in verdicts.ANSWERS if counted[answer]]


def judge(
    session: Session,
    now_us: int,
    process: str | None = None,
    *,
    stops: Sequence[Hold] | None = None,
) -> Resume:
    """The answer itself: the session's open effects with their verdicts. The same few queries for any session.

    To a worker that names its `process` another's live lease says wait; without a name no lease is looked at. `stops`
    are those in force in the project, for whoever has them already.
    """
    found = Resume(session, now_us)
    named = same_calls.is_named(**same_calls.OF_EFFECT)
    settling = cases.to_settle(session.id).annotate(plan_head=plan_heads(), named=named)
    rows = list(settling.order_by("-opened_position")[: MOST_JUDGED + 1])
    found.too_many = len(rows) > MOST_JUDGED
    stops = holds.live(session.project_id) if stops is None else stops
    if rows:
        looked = rows[:MOST_JUDGED]
        alone = judged = cases.judge(session.project_id, looked, now_us, process, stops=stops)
        if any(one.verdict.reason == "LEASE_HELD" for one in judged.values()):
            alone = cases.judge(session.project_id, looked, now_us, None, stops=stops)
        links = same_calls.of_effects([row.id for row in looked if row.named])
        ordered = [
            Open(
                row,
                judged[row.id],
                gist_of(row.plan_head) or "",
                alone[row.id],
                links.get(row.id, []),
            )
            for row in looked
        ]
        found.open = sorted(ordered, key=_pressing)
    found.stopped = bool(holds.covering(stops, session.id, session.agent_id, "", None))
    return found


def read(
    session: Session, now_us: int, *, process: str | None = None, agent: UUID | None = None
) -> Resume:
    """All of it. `agent` is whoever asks: the messages are theirs; of a page, the session's own agent's."""
    found = judge(session, now_us, process)
    asking = agent or session.agent_id
    found.done = _done(session)
    found.decisions = decisions.open_ones(session, MOST_DECISIONS)
    found.handoff = handoffs.unaccepted(session)
    found.messages = messages.unread(session.project_id, asking, session.id, MOST_MESSAGES)[0]
    found.tasks = list(
        Task.objects.filter(session=session, state__in=_OPEN_TASKS).order_by(
            "-priority", "opened_position"
        )[:MOST_TASKS]
    )
    found.checkpoint = checkpoints.latest(session)
    found.lease = holders.standing([session.id]).get(session.id)
    found.capacity = capacity.of(asking, session.id)
    found.facts = facts.fresh(session, now_us)
    found.controls = controls.standing(session, now_us, found.handoff, found.facts)
    return found


def _done(session: Session) -> list[Done]:
    """What the session did last, the latest known first; what only reads may be repeated, and is not told."""
    # All positions lie above 0. The condition names both columns of effect_by_session: of a session that grew a moment
    # ago PostgreSQL has no statistics yet, and would take another index of sessions and sort a hundred thousand rows.
    newest = Effect.objects.filter(session=session, opened_position__gt=0).order_by(
        "-opened_position"
    )
    rows = list(newest.only(*_TOLD)[:LOOKED_BACK])
    happened = [
        row for row in rows if row.state == "compensated" or (row.state, row.outcome) in _HAPPENED
    ]
    over = {row.intent_digest for row in happened}
    begun = [
        row
        for row in rows
        if row.state != "superseded" and (row.attempt_count or _is_new(row, over))
    ]
    last_us = max((row.received_us for row in begun), default=0)
    happened = [
        row
        for row in happened
        if declared.tool(row.project_id, row.tool).means.tool_class != "read_only"
    ]
    happened = sorted(happened, key=lambda row: row.changed_us, reverse=True)[:MOST_DONE]
    named = (
        Effect.objects.filter(id__in=[row.id for row in happened])
        if happened
        else Effect.objects.none()
    )
    heads = dict(named.annotate(head=plan_heads()).values_list("id", "head"))
    heard = session.status == "completed"  # whoever says so had heard of all of it
    return [
        Done(row, gist_of(heads.get(row.id)) or "", not heard and row.changed_us > last_us)
        for row in happened
    ]


def _is_new(planned: Effect, over: set[str]) -> bool:
    """Whether a plan with leave shows that its worker got on: to ask for what is over once more does not."""
    return bool(planned.leave_basis) and planned.intent_digest not in over


_HAPPENED: Final = (("acknowledged", "ok"), ("acknowledged", "error"))
_TOLD: Final = (
    *(
        "project_id",
        "session_id",
        "opened_position",
        "effect_key",
        "tool",
        "intent_digest",
        "state",
        "outcome",
    ),
    *("attempt_count", "leave", "leave_basis", "external_reference", "received_us", "changed_us"),
)


def _pressing(one: Open) -> tuple[int, int]:
    order = {
        "escalate": 0,
        "wait": 3,
        "probe": 2,
        "compensate": 2,
        "ask": 4,
        "replay": 5,
        "execute": 6,
        "skip": 7,
    }
    return (1 if one.needs_person else 10) * 10 + order.get(
        one.judged.verdict.answer, 9
    ), one.effect.opened_position


def sentence(found: Resume) -> str:
    """The answer in words: "Yes.", or "No, because of e_9f2.", and what that means for whoever goes on.

    Of a session that has ended: how, and what of it is open.
    """
    if found.ended:
        return f"It has ended ({found.session.status}). {left(found)}"
    return (
        f"{_answer(found)} Do not do again what is listed as done."
        if found.done
        else _answer(found)
    )


def _answer(found: Resume) -> str:
    if found.stopped:
        return "No, because a person stopped it; lift the STOP first."
    if found.too_many:
        return f"Nobody can say: more than {MOST_JUDGED} effects are open. Settle some of them, then ask again."
    blocking = [str(one.effect) for one in found.because]
    if blocking:
        named = ", ".join(blocking[:3]) + (
            f" and {len(blocking) - 3} more" if len(blocking) > 3 else ""
        )
        return f"No, because of {named}."
    if not found.open:
        return "Yes. Nothing is open."
    return "Yes. What is open can be settled without a person."


def left(found: Resume) -> str:
    """What a session that has ended left open: it is not asked whether it can be resumed."""
    never = len(found.open) - len(found.begun)
    planned = f" {never} planned and never begun." if never else ""
    if found.too_many:
        return f"More than {MOST_JUDGED} of its effects are open."
    people = [str(one.effect) for one in found.begun if one.needs_person]
    others = len(found.begun) - len(people)
    parts = [f"for a person {', '.join(people[:3])}"] if people else []
    parts += [f"{len(people) - 3} more of that kind"] if len(people) > 3 else []
    parts += [f"{others} that can be settled without a person"] if others else []
    return (
        f"Still open: {', '.join(parts)}." if parts else "Nothing that it began is open."
    ) + planned
