"""Load the page of an agent: what it does, may do and waits for. Reads only.

Every number names the search that counts the same rows. Periods are whole UTC days.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from django.db.models import Count, Min

from accounts.models import Agent
from approvals.gates.statuses import APPROVED_STATUSES
from approvals.models import Gate
from approvals.policies.rate_counters import find_position_before
from db.whole_days import DayPeriod, find_day_start
from display import display_state
from investigation.query.edit import quote_if_needed
from ledger.models import Effect, Tool
from ledger.partial_indexes import NEEDS_PERMISSION
from pages.agents import agent_activity
from pages.agents.agent_activity import AgentActivity, sum_days, sum_tools
from pages.agents.agent_calendar import draw_calendar, list_calendar_days
from recovery import liveness
from sessions.models import ENDED, Session

MAX_TOOLS: Final = 25
MAX_LIVE: Final = 6
MINUTE_US: Final = 60_000_000
LIVE_MINUTES: Final = 30
MAX_BEATS: Final = 600
_SLACK_US: Final = 60_000_000  # how far the order of positions and of the server's clock differ
# Word, statuses and look of each way in which a request can go.
ANSWERS: Final = (
    ("Approved", APPROVED_STATUSES, "is-ack"),
    ("Denied", ("denied", "denied_session"), "is-failed"),
    ("Expired", ("expired",), "is-planned"),
    ("Returned for changes", ("changes_requested",), "is-awaiting"),
    ("Withdrawn", ("cancelled",), "is-planned"),
    ("Waiting", ("pending",), "is-awaiting"),
)
_ALWAYS_SHOWN: Final = ("Approved", "Denied", "Expired")


@dataclass(frozen=True, slots=True)
class CountedShare:
    """A count, what it is a share of, and the search that finds the counted rows."""

    count: int
    whole: int
    query: str


@dataclass(frozen=True, slots=True)
class AnswerRow:
    """A way in which requests went, with its count."""

    word: str
    look: str
    count: int
    query: str


@dataclass(slots=True)
class ToolRow:
    """A tool as an agent used it in a period; `p95_us` is None without an answered effect."""

    name: str
    query: str
    effects: int
    failed: int
    unknown: int
    requests: int
    approved: int
    last_used_us: int | None
    p95_us: int | None = None
    is_p95_of_all: bool = True
    rule: str = ""
    is_irreversible: bool = False

    @property
    def failed_query(self) -> str:
        """The search for the failed effects: they did not happen, or happened with an error."""
        return f"{self.query} {display_state.ENDED_IN_ERROR}"


@dataclass(slots=True)
class LiveSession:
    """A session with a sign of life in the last half hour."""

    session: Session
    state: str
    waiting: int
    last: Effect | None = None
    ticks: list[int] = field(default_factory=list)  # minutes with an effect; 0 is the oldest

    @property
    def beats(self) -> list[str]:
        """The x of each tick in per cent."""
        return [f"{100 * minute / (LIVE_MINUTES + 1):.1f}" for minute in self.ticks]


def name_agent(agent: Agent) -> str:
    """Return the condition of searches for an agent."""
    return f"agent:{quote_if_needed(agent.name)}"


def load_agent_page(agent: Agent, period: DayPeriod) -> dict[str, Any]:
    """Load what the template shows. At most 19 queries, whatever the agent did."""
    now, named = period.now_us, name_agent(agent)
    activity = agent_activity.load_agent_activity(agent, now)
    today = find_day_start(now)
    live_since_us = now - now % MINUTE_US - LIVE_MINUTES * MINUTE_US
    first_us = activity.first_day_us
    by_day, bypassed, unknown = map(
        sum_tools, (activity.effects, activity.bypassed, activity.unknown)
    )
    days = list_calendar_days(named, first_us, today, by_day, bypassed, unknown)
    gates = _count_gates(agent, period)
    requests: Counter[str] = Counter()
    for (_, status), number in gates.items():
        requests[status] += number
    tools = _list_tools(agent, activity, period, gates)
    calendar_text = f"{named} since:{_day(first_us)}"
    return {
        "query": named,
        "period": period,
        "period_query": f"{named} {period.text}",
        "figures": _load_figures(agent, activity, period, requests),
        "calendar": draw_calendar(days),
        "weeks": [days[start : start + 7] for start in range(0, len(days), 7)],
        "calendar_total": CountedShare(sum(by_day.values()), 0, calendar_text),
        "first_us": first_us,
        "days_bypassed": sum(1 for day in days if day.bypassed),
        "days_unknown": sum(1 for day in days if day.unknown),
        "bypassed_query": f"{calendar_text} permission:bypassed",
        "unknown_query": f"{calendar_text} state:unknown",
        "permission": _load_permission(agent, activity, period, requests),
        "tools": tools[:MAX_TOOLS],
        "tool_count": len(tools),
        "tools_query": f"{named} {period.text} | group tool | count",
        "effects": sum(tool.effects for tool in tools),
        "most": max((tool.effects for tool in tools), default=0),
        "live": _load_live_sessions(agent, live_since_us),
        "live_since_us": live_since_us,
        "ended": agent.sessions.filter(status__in=ENDED).count(),
        "ended_query": f"session {named} is:ended",
    }


def _day(us: int) -> str:
    return DayPeriod(us, us, 1).text.partition(":")[2]


def _load_figures(
    agent: Agent, activity: AgentActivity, period: DayPeriod, requests: Counter[str]
) -> dict[str, Any]:
    now, named = period.now_us, name_agent(agent)
    before = period.before_us
    pending = Gate.objects.filter(project=agent.project_id, agent=agent, status="pending")
    waiting = pending.aggregate(number=Count("id"), first=Min("decide_by_us"))
    effects, failed = (
        sum_days(counts, period.since_us) for counts in (activity.effects, activity.failed)
    )
    effects_before, failed_before = (
        sum_days(counts, before, period.since_us) for counts in (activity.effects, activity.failed)
    )
    has_before = before >= activity.first_day_us
    today = find_day_start(now)
    return {
        "waiting": CountedShare(waiting["number"], 0, f"gate {named} status:pending"),
        "waiting_until_us": waiting["first"],
        "bypassed": CountedShare(
            sum_days(activity.bypassed, period.since_us).total(),
            0,
            f"{named} {period.text} permission:bypassed",
        ),
        "bypassed_before": sum_days(activity.bypassed, before, period.since_us).total()
        if has_before
        else None,
        "unknown": CountedShare(activity.all_unknown, 0, f"{named} state:unknown"),
        "unknown_since_us": activity.unknown_since_us,
        "today": CountedShare(
            sum_tools(activity.effects)[today], 0, f"{named} since:{_day(today)}"
        ),
        "same_time_last_week": activity.same_time_last_week,
        "failed": CountedShare(
            failed.total(), effects.total(), f"{named} {period.text} {display_state.ENDED_IN_ERROR}"
        ),
        "failed_before": CountedShare(failed_before.total(), effects_before.total(), "")
        if has_before and effects_before
        else None,
        "approved": CountedShare(
            sum(requests[status] for status in APPROVED_STATUSES),
            requests.total(),
            f"gate {named} {period.text} ruling:approved",
        ),
    }


def _count_gates(agent: Agent, period: DayPeriod) -> Counter[tuple[str, str]]:
    """Count the requests of the period by tool and status. Two queries."""
    rows = Gate.objects.filter(
        project=agent.project_id,
        agent=agent,
        requested_at_us__gte=period.since_us,
        opened_position__gt=find_position_before(period.since_us - _SLACK_US),
    )
    grouped = rows.order_by().values_list("tool", "status").annotate(number=Count("id"))
    return Counter({(tool, status): number for tool, status, number in grouped})


def _load_permission(
    agent: Agent, activity: AgentActivity, period: DayPeriod, requests: Counter[str]
) -> dict[str, Any]:
    named = name_agent(agent)
    gate_text = f"gate {named} {period.text}"
    rows = []
    for word, statuses, look in ANSWERS:
        count = sum(requests[status] for status in statuses)
        if count or word in _ALWAYS_SHOWN:
            text = statuses[0] if len(statuses) == 1 else f"[{','.join(statuses)}]"
            rows.append(AnswerRow(word, look, count, f"{gate_text} status:{text}"))
    needing = Effect.objects.filter(
        NEEDS_PERMISSION,
        project=agent.project_id,
        agent=agent,
        received_us__gte=period.since_us,
        opened_position__gt=find_position_before(period.since_us - _SLACK_US),
    )
    counts: Counter[str] = Counter()
    held = 0
    for basis, is_enforced, number in (
        needing.order_by()
        .values_list("permission_basis", "policy_enforced")
        .annotate(number=Count("id"))
    ):
        counts[basis] += number
        held += number if not is_enforced else 0
    effects = sum_days(activity.effects, period.since_us).total()
    effect_text = f"{named} {period.text}"
    return {
        "asked": AnswerRow("Asked", "is-accent", requests.total(), gate_text),
        "rows": rows,
        "exempted": AnswerRow(
            "Exempted",
            "is-accent",
            counts["exemption"],
            f"{effect_text} policy_outcome:[ask,deny] basis:exemption",
        ),
        "not_enforced": AnswerRow(
            "Only observed", "is-planned", held, f"{effect_text} policy_outcome:not_enforced"
        ),
        "free": AnswerRow(
            "",
            "",
            effects - counts.total(),
            f"{effect_text} -policy_outcome:[ask,deny]",
        ),
    }


def _list_tools(
    agent: Agent,
    activity: AgentActivity,
    period: DayPeriod,
    gates: Counter[tuple[str, str]],
) -> list[ToolRow]:
    """Return the tools of the period, most used first."""
    named = name_agent(agent)
    effects, failed, unknown = (
        sum_days(counts, period.since_us)
        for counts in (activity.effects, activity.failed, activity.unknown)
    )
    rows = []
    for name, number in sorted(effects.items(), key=lambda pair: (-pair[1], pair[0])):
        condition = f"tool:{quote_if_needed(name)}" if name else "-has:tool"
        statuses = {status: n for (tool, status), n in gates.items() if tool == name}
        rows.append(
            ToolRow(
                name,
                f"{named} {condition} {period.text}",
                number,
                failed[name],
                unknown[name],
                sum(statuses.values()),
                sum(statuses.get(status, 0) for status in APPROVED_STATUSES),
                activity.last_used_us.get(name),
            )
        )
    shown = [row.name for row in rows[:MAX_TOOLS]]
    times = agent_activity.load_tool_times(agent.id, shown, period)
    rules = agent_activity.load_last_rules(agent.id, shown)
    declared = dict(
        Tool.objects.filter(project=agent.project_id, name__in=shown).values_list(
            "name", "reversibility"
        )
    )
    for row in rows[:MAX_TOOLS]:
        if row.name in times:
            row.p95_us, row.is_p95_of_all = times[row.name]
        outcome, rule = rules.get(row.name, ("", ""))
        row.rule = rule.rpartition("/")[2] if outcome == "allow" else ""
        row.is_irreversible = declared.get(row.name) == "irreversible"
    return rows


def _load_live_sessions(agent: Agent, since_us: int) -> list[LiveSession]:
    """Return the sessions with a fact since then, newest first. Five queries."""
    rows = agent.sessions.filter(seen_at_us__gte=since_us).exclude(status__in=ENDED)
    sessions = list(rows.order_by("-seen_at_us")[:MAX_LIVE])
    if not sessions:
        return []
    liveness.attach_liveness(sessions)
    ids = [session.id for session in sessions]
    waiting = dict(
        Gate.objects.filter(session__in=ids, status="pending")
        .order_by()
        .values_list("session")
        .annotate(number=Count("id"))
    )
    effects = Effect.objects.filter(
        session__in=ids,
        opened_position__gt=find_position_before(since_us),
        received_us__gte=since_us,
    )
    columns = ("session_id", "id", "opened_position", "tool", "state", "received_us")
    ticks: dict[UUID, set[int]] = {}
    last: dict[UUID, Effect] = {}
    for values in effects.order_by("-opened_position").values_list(*columns)[:MAX_BEATS]:
        session, received_us = values[0], values[-1]
        if session not in last:
            last[session] = Effect(**dict(zip(columns, values, strict=True)))
        ticks.setdefault(session, set()).add((received_us - since_us) // MINUTE_US)
    return [
        LiveSession(
            session,
            liveness.get_liveness(session),
            waiting.get(session.id, 0),
            last.get(session.id),
            sorted(ticks.get(session.id, ())),
        )
        for session in sessions
    ]
