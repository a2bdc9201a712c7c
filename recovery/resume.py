"""Resume state of a session: whether it can resume safely, and what the next worker must know.

The API and the page load a `ResumeContext`, and `decide_resume` derives the `ResumeState`: open
effects with verdicts, completed effects, then messages and the working state. Every part is
bounded, so the cost is the same after a hundred effects and after a hundred thousand. Reads only.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple
from uuid import UUID

from journal.summaries import select_plan_heads, summarize_plan_head
from ledger import same_calls
from ledger import stops as ledger_stops
from ledger.models import Effect, Stop
from ledger.open_effects import select_effects_to_settle
from ledger.same_calls import SameCallLink
from ledger.verdicts import evaluate, table
from ledger.verdicts.evaluate import Evaluation
from recovery import detectors
from recovery.detectors import ControlFinding
from sessions import capacity, checkpoints, decisions, facts, handoffs, lease_queries, messages
from sessions.models import ENDED, Session, Task

MAX_EVALUATED_EFFECTS: Final = 500  # open effects with a verdict; with more the answer is "unknown"
MAX_SHOWN: Final = 30
MAX_DONE: Final = 15
MAX_SEARCHED: Final = 200  # newest effects searched for completed ones
MAX_TASKS: Final = 20
MAX_MESSAGES: Final = 10
MAX_DECISIONS: Final = 10
_OPEN_TASKS: Final = ("running", "blocked", "pending")


class OpenEffect(NamedTuple):
    """An effect that a restart must settle, with its verdict. `gist` is text of the agent."""

    effect: Any
    evaluation: Evaluation
    gist: str
    beneath: Evaluation  # the verdict without another worker's live lease
    elsewhere: Sequence[SameCallLink] = ()  # effects of other sessions with the same call

    @property
    def needs_person(self) -> bool:
        """Whether only a person can settle the effect."""
        # Those that escalate, and those that wait for a gate or are stopped.
        return not table.is_safe_to_continue(self.beneath.verdict)

    @property
    def waits_for_approval(self) -> bool:
        """Whether it waits for people to answer its request, and nothing else."""
        verdict = self.beneath.verdict
        return verdict.answer == "wait" and (verdict.beneath or verdict.reason) == "GATE_PENDING"

    @property
    def gate(self) -> UUID | None:
        """The request that its permission is about, if any."""
        reference = self.effect.permission_ref
        return UUID(reference) if self.waits_for_approval and len(reference) == 32 else None

    @property
    def verdict_sentence(self) -> str:
        """The verdict in one sentence."""
        return table.describe_verdict(self.evaluation.verdict, str(self.effect))

    @property
    def sentence(self) -> str:
        """The verdict in one sentence, plus one for the same call in another session."""
        text = self.verdict_sentence
        for link in self.elsewhere[:1]:
            when = "may have happened before" if link.earlier else "was made since"
            text += f" The same call {when}: {link.other} in {link.other.session}."
        return text


class CompletedEffect(NamedTuple):
    """A completed effect. `unheard` if nothing was begun after its outcome was known.

    The worker may then have ended before it received the outcome, and a new call with the same
    intent means this effect. `gist` is text of the agent.
    """

    effect: Effect
    gist: str
    unheard: bool

    @property
    def sentence(self) -> str:
        """The outcome in one sentence, and that the effect must not be repeated."""
        if self.effect.state == "compensated":
            return f"{self.effect}: completed, then compensated."
        if self.effect.outcome == "error":
            return f"{self.effect}: ran with an error; it is not retried automatically."
        return f"{self.effect}: completed; do not repeat it."


class WorkingState(NamedTuple):
    """What the next worker reads besides effects."""

    lease: Any = None
    decisions: Sequence[Any] = ()
    handoff: Any = None
    messages: Sequence[Any] = ()
    tasks: Sequence[Task] = ()
    checkpoint: Any = None
    capacity: Any = None
    facts: Sequence[Any] = ()
    controls: Sequence[ControlFinding] = ()


_EMPTY: Final = WorkingState()


@dataclass(frozen=True, slots=True)
class ResumeContext:
    """What decides whether a session can resume, as loaded."""

    session: Session
    now_us: int
    stops: Sequence[Stop]  # all in force in the project
    effects: Sequence[Any]  # to settle, newest first, at most MAX_EVALUATED_EFFECTS
    too_many: bool  # more effects are open
    evaluations: Mapping[UUID, Evaluation]
    unleased: Mapping[UUID, Evaluation]  # without another worker's live lease
    links: Mapping[UUID, Sequence[SameCallLink]]  # the same calls in other sessions
    completed: Sequence[Effect] = ()  # latest first
    plan_heads: Mapping[UUID, str | None] = field(default_factory=dict)  # of `completed`
    last_begun_us: int = 0  # when the newest effect with progress was received
    working_state: WorkingState = _EMPTY


@dataclass(frozen=True, slots=True)
class ResumeState:
    """The resume state. `because` are the open effects that need a person, most urgent first."""

    session: Session
    now_us: int
    open: Sequence[OpenEffect]
    done: Sequence[CompletedEffect]
    too_many: bool
    stopped: bool  # a stop is in force on the session, its agent or the project
    lease: Any
    decisions: Sequence[Any]
    handoff: Any
    messages: Sequence[Any]
    tasks: Sequence[Task]
    checkpoint: Any
    capacity: Any
    facts: Sequence[Any]
    controls: Sequence[ControlFinding]

    @property
    def ended(self) -> bool:
        """Whether the session has ended; its effects may still be open."""
        return self.session.status in ENDED

    @property
    def begun(self) -> list[OpenEffect]:
        """The open effects that were dispatched at least once."""
        return [item for item in self.open if item.effect.state != "planned"]

    @property
    def because(self) -> list[OpenEffect]:
        return [item for item in self.open if item.needs_person]

    @property
    def waiting(self) -> list[OpenEffect]:
        """The open effects that wait for approval, the first to expire first."""
        pending = [item for item in self.because if item.waits_for_approval]
        return sorted(pending, key=lambda item: item.beneath.verdict.until_us or 0)

    @property
    def doubtful(self) -> list[OpenEffect]:
        """Those of `because` that do not only wait for approval."""
        return [item for item in self.because if not item.waits_for_approval]

    @property
    def safe(self) -> bool:
        """Whether no effect needs a person and no stop is in force; wait and probe are safe."""
        return not self.because and not self.too_many and not self.stopped

    @property
    def until_us(self) -> int | None:
        """When the last waiting effect can be checked again; None without one."""
        waits = [
            item.evaluation.verdict
            for item in self.open
            if item.evaluation.verdict.answer == "wait"
        ]
        times = [item.until_us for item in waits if item.until_us is not None]
        return max(times) if times else None

    @property
    def by_verdict(self) -> list[tuple[str, int]]:
        """The number of open effects per verdict, in the order of the verdict table."""
        counted = Counter(item.evaluation.verdict.answer for item in self.open)
        return [(answer, counted[answer]) for answer in table.VERDICT_ANSWERS if counted[answer]]


def load_open_effects(
    session: Session,
    now_us: int,
    process: str | None = None,
    *,
    stops: Sequence[Stop] | None = None,
) -> ResumeContext:
    """Load the session's open effects with their verdicts. A few queries for any session.

    For a worker that names its `process`, the live lease of another process means wait; without a
    name leases are ignored. Pass `stops` if the stops in force are already loaded.
    """
    has_link = same_calls.has_same_call(**same_calls.OF_EFFECT)
    settling = select_effects_to_settle(session.id).annotate(
        plan_head=select_plan_heads(), has_link=has_link
    )
    rows = list(settling.order_by("-opened_position")[: MAX_EVALUATED_EFFECTS + 1])
    effects = rows[:MAX_EVALUATED_EFFECTS]
    stops = ledger_stops.load_stops(session.project_id) if stops is None else stops
    evaluations: Mapping[UUID, Evaluation] = {}
    if effects:
        evaluations = evaluate.evaluate_effects(
            session.project_id, effects, now_us, process, stops=stops
        )
    unleased = evaluations
    if any(case.verdict.reason == "LEASE_HELD" for case in evaluations.values()):
        unleased = evaluate.evaluate_effects(session.project_id, effects, now_us, None, stops=stops)
    links = same_calls.load_links_of_effects([row.id for row in effects if row.has_link])
    return ResumeContext(
        session,
        now_us,
        stops,
        effects,
        len(rows) > MAX_EVALUATED_EFFECTS,
        evaluations,
        unleased,
        links,
    )


def load_resume_context(
    session: Session, now_us: int, *, process: str | None = None, agent: UUID | None = None
) -> ResumeContext:
    """Load everything; messages are those of `agent`, by default the session's agent."""
    context = load_open_effects(session, now_us, process)
    # All positions are above 0. The condition names both columns of effect_by_session: without
    # statistics on a fresh session, PostgreSQL would use another index and sort all its rows.
    newest = Effect.objects.filter(session=session, opened_position__gt=0).order_by(
        "-opened_position"
    )
    completed, last_begun_us = _select_completed(newest.only(*_COMPLETED_COLUMNS)[:MAX_SEARCHED])
    with_heads = Effect.objects.filter(id__in=[row.id for row in completed]).annotate(
        head=select_plan_heads()
    )
    return replace(
        context,
        completed=completed,
        plan_heads=dict(with_heads.values_list("id", "head")) if completed else {},
        last_begun_us=last_begun_us,
        working_state=_load_working_state(session, now_us, agent or session.agent_id),
    )


def _load_working_state(session: Session, now_us: int, agent: UUID) -> WorkingState:
    open_decisions = decisions.load_open_decisions(session, MAX_DECISIONS)
    handoff = handoffs.load_unaccepted_handoff(session)
    unread, _more = messages.load_unread_messages(
        session.project_id, agent, session.id, MAX_MESSAGES
    )
    open_tasks = Task.objects.filter(session=session, state__in=_OPEN_TASKS)
    fresh_facts = facts.load_fresh_facts(session, now_us)
    return WorkingState(
        lease=lease_queries.load_session_leases([session.id]).get(session.id),
        decisions=open_decisions,
        handoff=handoff,
        messages=unread,
        tasks=list(open_tasks.order_by("-priority", "opened_position")[:MAX_TASKS]),
        checkpoint=checkpoints.load_latest_checkpoint(session),
        capacity=capacity.load_capacity(agent, session.id),
        facts=fresh_facts,
        controls=detectors.active_findings(session, now_us, handoff, fresh_facts),
    )


def _select_completed(newest: Iterable[Effect]) -> tuple[list[Effect], int]:
    """Select completed effects, latest first, and when an effect was last begun.

    Read-only calls may repeat: excluded.
    """
    rows = list(newest)
    happened = [
        row
        for row in rows
        if row.state == "compensated" or (row.state, row.outcome) in _HAPPENED_STATES
    ]
    over = {row.intent_digest for row in happened}
    begun = [
        row
        for row in rows
        if row.state != "superseded" and (row.attempt_count or _shows_progress(row, over))
    ]
    declarations = (
        evaluate.load_call_declarations(happened[0].project_id, happened) if happened else {}
    )
    completed = [row for row in happened if declarations[row.id].tool_class != "read_only"]
    completed = sorted(completed, key=lambda row: row.changed_us, reverse=True)[:MAX_DONE]
    return completed, max((row.received_us for row in begun), default=0)


def _shows_progress(planned: Effect, over: set[str]) -> bool:
    """Return whether a permitted plan shows progress: repeating a completed intent does not."""
    return bool(planned.permission_basis) and planned.intent_digest not in over


_HAPPENED_STATES: Final = (("acknowledged", "ok"), ("acknowledged", "error"))
_COMPLETED_COLUMNS: Final = (
    "project_id",
    "session_id",
    "opened_position",
    "effect_key",
    "tool",
    "plan_position",
    "intent_digest",
    "state",
    "outcome",
    "attempt_count",
    "permission",
    "permission_basis",
    "external_reference",
    "received_us",
    "changed_us",
)


def _urgency(item: OpenEffect) -> tuple[int, int]:
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
    return (1 if item.needs_person else 10) * 10 + order.get(
        item.evaluation.verdict.answer, 9
    ), item.effect.opened_position


def decide_resume(context: ResumeContext) -> ResumeState:
    """Derive the resume state. Pure."""
    session = context.session
    open_effects = [
        OpenEffect(
            row,
            context.evaluations[row.id],
            summarize_plan_head(row.plan_head) or "",
            context.unleased[row.id],
            context.links.get(row.id, ()),
        )
        for row in context.effects
    ]
    # The worker of a completed session knew every outcome.
    has_unheard = session.status != "completed"
    done = [
        CompletedEffect(
            row,
            summarize_plan_head(context.plan_heads.get(row.id)) or "",
            has_unheard and row.changed_us > context.last_begun_us,
        )
        for row in context.completed
    ]
    stop = ledger_stops.find_covering_stop(context.stops, session.id, session.agent_id, "", None)
    return ResumeState(
        session=session,
        now_us=context.now_us,
        open=sorted(open_effects, key=_urgency),
        done=done,
        too_many=context.too_many,
        stopped=stop is not None,
        **context.working_state._asdict(),
    )


def resume_sentence(state: ResumeState) -> str:
    """Return the answer in words: "Yes." or "No, because of e_9f2.", and what to do.

    For an ended session: how it ended, and what is still open.
    """
    if state.ended:
        return f"The session has ended ({state.session.status}). {open_sentence(state)}"
    return (
        f"{_resume_answer(state)} Do not repeat the effects listed as done."
        if state.done
        else _resume_answer(state)
    )


def _resume_answer(state: ResumeState) -> str:
    if state.stopped:
        return "No, a person stopped it. Lift the stop first."
    if state.too_many:
        most = MAX_EVALUATED_EFFECTS
        return f"Unknown: more than {most} effects are open. Settle some, then ask again."
    blocking = [str(item.effect) for item in state.because]
    if blocking:
        named = ", ".join(blocking[:3]) + (
            f" and {len(blocking) - 3} more" if len(blocking) > 3 else ""
        )
        return f"No, because of {named}."
    if not state.open:
        return "Yes. No effect is open."
    return "Yes. The open effects can be settled without a person."


def open_sentence(state: ResumeState) -> str:
    """Return what an ended session left open, in words."""
    never = len(state.open) - len(state.begun)
    planned = f" {never} planned but never dispatched." if never else ""
    if state.too_many:
        return f"More than {MAX_EVALUATED_EFFECTS} of its effects are open."
    people = [str(item.effect) for item in state.begun if item.needs_person]
    settleable = len(state.begun) - len(people)
    parts = [f"for a person {', '.join(people[:3])}"] if people else []
    parts += [f"{len(people) - 3} more for a person"] if len(people) > 3 else []
    parts += [f"{settleable} that can be settled without a person"] if settleable else []
    return (
        f"Still open: {', '.join(parts)}." if parts else "No dispatched effect is open."
    ) + planned
