"""Replays a draft over the recorded effects of the last days and tells which outcomes it would have changed.

Recorded effects are judged twice: by what is in force now, and by the draft. Both go by today's declarations of tools,
and neither by exemptions. Nothing is written.
"""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple
from uuid import UUID

from approvals import document, policies
from approvals.answerable import how_many, unanswerable, who_may_answer
from approvals.counting import counter
from approvals.matching import (
    DEFAULT,
    SAME_CALL,
    Compiled,
    Counted,
    Judgement,
    Wish,
    compile_rules,
    judge,
)
from approvals.reading import Asked, wish_of
from approvals.requirement import PARTIES
from journal.clock import now_us
from journal.models import Body
from ledger import same_calls
from ledger.models import Effect
from sessions import openings
from sessions.models import Agent, Project, Session

PAGE: Final = 500  # effects read at a time, each page in a statement of its own
DAY_US: Final = 86_400_000_000
IMPOSSIBLE: Final = (
    "impossible"  # it asks more people than could answer: nothing but expiry can come of it
)
_COLUMNS: Final = (
    *(
        "id",
        "opened_position",
        "received_us",
        "tool",
        "repository__name",
        "ref",
        "moved_refs",
        "ref_class",
    ),
    *(
        "environment",
        "resource",
        "plan_position",
        "agent_id",
        "agent__name",
        "session_id",
        "session__opened_position",
    ),
)


@dataclass(frozen=True, slots=True)
class Change:
    """An effect whose outcome would be another. Rules are "house@3/push", or "house@3/" where none speaks of it."""

    effect: UUID
    handle: str
    session: str
    tool: str
    target: str
    received_us: int
    before: str
    before_rule: str
    after: str
    after_rule: str
    error: str


class _Row(NamedTuple):
    id: UUID
    opened_position: int
    received_us: int
    tool: str
    repository: str | None
    ref: str
    moved_refs: str
    ref_class: str
    environment: str
    resource: str
    plan_position: int | None
    agent_id: UUID
    agent: str
    session_id: UUID
    session_position: int


@dataclass(slots=True)
class Rehearsal:
    """A replay under way: iterate over it for the changes, newest first; the counts stand once that is done.

    `outcomes` counts (before, after). `unplanned` effects have no plan yet and `erased` ones no arguments any more: the
    first are left out, the second judged without arguments. `cut_at_us` is how far it looked where it stopped early.
    """

    project: Project
    draft: Compiled
    draft_name: str
    mode: str
    since_us: int
    most: int | None = None
    looked: int = 0
    unplanned: int = 0
    erased: int = 0
    asked_otherwise: int = 0
    cut_at_us: int | None = None
    outcomes: Counter[tuple[str, str]] = field(default_factory=Counter)
    warnings: list[tuple[str, str]] = field(
        default_factory=list
    )  # rules of the draft that ask who is not there
    _able: dict[str, set[str]] = field(default_factory=dict)
    _known: dict[tuple[UUID, UUID], tuple[str | None, ...]] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Change]:
        force = policies.in_force(self.project.id)
        for row, arguments in self._effects():
            asked = Asked(arguments, row.repository or "")
            wish = wish_of(
                self.project.id, row.session_id, row.agent, row.tool, row._asdict(), asked
            )
            counted = self._counter(row)
            before = force.judge(wish, counted) if force else Judgement("allow", "", None)
            after = judge(self.draft, wish, self.mode, counted)
            was, becomes = self._outcome(before, wish, row), self._outcome(after, wish, row)
            self.outcomes[was, becomes] += 1
            if was == becomes:
                self.asked_otherwise += before.requirement != after.requirement
                continue
            yield Change(
                effect=row.id,
                handle=f"e_{row.opened_position}",
                session=f"s_{row.session_position}",
                tool=row.tool,
                target=" ".join(
                    filter(None, (row.repository, row.ref, row.environment, row.resource))
                ),
                received_us=row.received_us,
                before=was,
                before_rule=f"{force.name}/{before.rule}" if force else "",
                after=becomes,
                after_rule=f"{self.draft_name}/{after.rule}",
                error=after.error,
            )

    def _counter(self, row: _Row) -> Counted:
        """As rates would have counted. Whether the same call was unknown elsewhere is what was kept of it then."""
        counted = counter(
            self.project.id,
            row.agent_id,
            row.session_id,
            row.tool,
            row.received_us,
            row.opened_position,
            intent="",
        )
        return lambda rate: same_calls.was_unknown(row.id) if rate == SAME_CALL else counted(rate)

    def _outcome(self, judged: Judgement, wish: Wish, row: _Row) -> str:
        """What a judgement comes to: to ask people who are not there is to let it expire."""
        if judged.outcome != "ask":
            return judged.outcome
        needed = (judged.requirement or DEFAULT).strengthened(wish.reversibility, wish.risk)
        parties = self._parties(row.session_id, row.agent_id)
        away = {
            name
            for party, name in zip(PARTIES, parties, strict=True)
            if name and party in needed.kept_away
        }
        return "ask" if how_many(needed, self._able, away) >= needed.minimum else IMPOSSIBLE

    def _parties(self, session: UUID, agent: UUID) -> tuple[str | None, ...]:
        """Who has a part in what an agent asks for in a session, by user name, in the order of PARTIES."""
        known = self._known.get((session, agent))
        if known is None:
            session_owner = Session.objects.values_list("owner__username", flat=True).get(
                id=session
            )
            agent_owner = Agent.objects.values_list("owner__username", flat=True).get(id=agent)
            known = self._known[session, agent] = (
                openings.requester(session),
                session_owner,
                agent_owner,
            )
        return known

    def _effects(self) -> Iterator[tuple[_Row, Any]]:
        """Each planned effect since `since_us` with its arguments, newest first."""
        below: int | None = None
        while True:
            rows = Effect.objects.filter(project=self.project)
            if below is not None:
                rows = rows.filter(opened_position__lt=below)
            page = [
                _Row(*values)
                for values in rows.order_by("-opened_position").values_list(*_COLUMNS)[:PAGE]
            ]
            bodies = _bodies([row.plan_position for row in page if row.plan_position is not None])
            for row in page:
                if row.received_us < self.since_us:
                    return
                if self.most is not None and self.looked >= self.most:
                    self.cut_at_us = row.received_us
                    return
                self.looked += 1
                if not row.tool or row.plan_position is None:
                    self.unplanned += 1
                    continue
                text = bodies.get(row.plan_position)
                self.erased += text is None
                yield row, None if text is None else _arguments(text)
            if len(page) < PAGE:
                return
            below = page[-1].opened_position


def rehearse(
    project: Project, text: str, *, days: int = 14, mode: str = "enforce", most: int | None = None
) -> Rehearsal:
    """Prepare the replay of a draft `text` in `mode` over the last `days`, the newest `most` effects of them.

    Raises DocumentError.
    """
    rules = document.read(text)
    known = policies.stored(project, text)
    name = str(known) if known else f"{rules['name']}, draft"
    replay = Rehearsal(project, compile_rules(rules), name, mode, now_us() - days * DAY_US, most)
    replay.warnings = unanswerable(project, rules)
    replay._able = who_may_answer(project)
    return replay


def _bodies(positions: list[int]) -> dict[int, str]:
    return dict(Body.objects.filter(entry_id__in=positions).values_list("entry_id", "text"))


def _arguments(text: str) -> Any:
    """The arguments in the body of a plan; None where there are none."""
    body = json.loads(text)
    return body.get("arguments") if isinstance(body, dict) else None
