"""Who works now: sessions seen in the last 30 minutes that have not ended, with their acts.

One query: the newest sessions, their effects by minute, and what they wait for. Without any, it
returns the session of today that ended last.
"""

from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple
from uuid import UUID

from db import raw_sql
from display.urls_of_rows import build_search_url
from monitoring.effect_hours import COUNTED_POSITION, HOUR_US, IS_OF_A_RANGE
from pages.overview.day_counts import DAY_US, format_minute
from sessions.models import ENDED

MINUTE_US: Final = 60_000_000
SHOWN: Final = 4
MINUTES: Final = 30
_ENDED: Final = ", ".join(f"'{status}'" for status in ENDED)
_SQL: Final = f"""
WITH live AS (
  SELECT s.id, s.opened_position, s.title, s.key, s.status, s.mode, s.waiting_on, s.agent_id,
    s.seen_at_us, count(*) OVER () AS of_all
  FROM agent_sessions_session s
  WHERE s.project_id = %s AND s.seen_at_us >= %s AND s.status NOT IN ({_ENDED})
  ORDER BY s.seen_at_us DESC, s.opened_position DESC LIMIT {SHOWN}
), beats AS (
  SELECT e.session_id, e.received_us / {MINUTE_US} AS minute
  FROM ledger_effect e
  WHERE e.session_id IN (SELECT id FROM live) AND e.received_us >= %s AND e.{IS_OF_A_RANGE}
    AND e.opened_position >= coalesce((SELECT min(first_position) FROM monitoring_effecthour
      WHERE project_id = %s AND hour_us >= %s), {COUNTED_POSITION} + 1)
  GROUP BY 1, 2
), facts AS (
  SELECT live.id,
    (SELECT count(*) FROM approvals_gate g WHERE g.session_id = live.id AND g.status = 'pending'
      AND g.decide_by_us >= %s) AS waits,
    (SELECT max(e.opened_position) FROM ledger_effect e WHERE e.session_id = live.id) AS last
  FROM live
)
SELECT live.id, live.opened_position, live.title, live.key, live.status, live.waiting_on,
  live.seen_at_us, live.of_all, live.agent_id, agent.name, facts.waits,
  e.tool || ' ' || e.resource, e.state,
  beats.minute
FROM live JOIN facts ON facts.id = live.id JOIN accounts_agent agent ON agent.id = live.agent_id
LEFT JOIN ledger_effect e ON e.session_id = live.id AND e.opened_position = facts.last
LEFT JOIN beats ON beats.session_id = live.id
UNION ALL
SELECT ended.id, ended.opened_position, '', '', '', '', ended.seen_at_us, 0, ended.id, '', 0,
  '', '', NULL
FROM (
  SELECT s.id, s.opened_position, s.seen_at_us FROM agent_sessions_session s
  WHERE NOT EXISTS (SELECT 1 FROM live) AND s.project_id = %s AND s.seen_at_us >= %s
    AND s.status IN ({_ENDED})
  ORDER BY s.seen_at_us DESC, s.opened_position DESC LIMIT 1
) AS ended
ORDER BY 7 DESC, 2 DESC, 14
"""


@dataclass(slots=True)
class LiveSession:
    """A session that works or waits; `ticks` are the minutes (0 is the oldest) with an act."""

    id: UUID
    position: int
    name: str
    agent_id: UUID
    agent: str
    status: str
    waiting_on: str
    seen_us: int
    waits: int  # pending requests
    last: str
    last_state: str
    ticks: list[int] = field(default_factory=list)

    @property
    def beats(self) -> list[str]:
        """The x of each tick in per cent."""
        return [f"{100 * minute / (MINUTES + 1):.1f}" for minute in self.ticks]

    @property
    def wait_x(self) -> str:
        """The x in per cent from where it waits: after the last act."""
        return f"{100 * (max(self.ticks, default=0) + 1) / (MINUTES + 1):.1f}"

    @property
    def waits_url(self) -> str:
        """The search for the requests that it waits for."""
        return build_search_url(f"gate is:waiting session:s_{self.position}")

    @property
    def style(self) -> tuple[str, str, str]:
        """CSS class, shape and word of what it does."""
        if self.waits:
            return "is-awaiting", "awaiting", f"waits for {self.waits}"
        if self.status in ("waiting", "suspended"):
            return "is-planned", "pause", self.status
        if self.last_state == "dispatched":
            return "is-dispatched", "dispatched", "acting"
        return "is-dispatched", "running", "running"


class EndedSession(NamedTuple):
    """A session that has ended, and when, by the server's clock."""

    id: UUID
    ended_us: int


@dataclass(slots=True)
class LiveSessions:
    """The newest live sessions, and the number of all with the search that counts them."""

    since_us: int
    rows: list[LiveSession]
    count: int
    last_ended: EndedSession | None = None  # today, if no session is live

    @property
    def is_cut(self) -> bool:
        """Whether more sessions work than are shown."""
        return self.count > len(self.rows)

    @property
    def url(self) -> str:
        """The search for all of them."""
        return build_search_url(f"session seen_at:>={format_minute(self.since_us)} -is:ended")


def load_live_sessions(project: UUID, now: int) -> LiveSessions:
    """Load the sessions that were seen in the last 30 minutes. One query."""
    since = now - now % MINUTE_US - MINUTES * MINUTE_US
    identity = raw_sql.vendor_id(project)
    parameters = [identity, since, since, identity, since - since % HOUR_US, now]
    parameters += [identity, now - now % DAY_US]
    sessions: dict[Any, LiveSession] = {}
    count = 0
    for row in raw_sql.fetch_rows(_SQL, parameters):
        (raw_id, position, title, key, status, waiting_on, seen_us, count, agent_id) = row[:9]
        agent, waits, last, last_state, minute = row[9:]
        if not count:
            return LiveSessions(since, [], 0, EndedSession(raw_sql.read_uuid(raw_id), seen_us))
        live = sessions.setdefault(
            raw_id,
            LiveSession(
                raw_sql.read_uuid(raw_id),
                position,
                title or key,
                raw_sql.read_uuid(agent_id),
                agent,
                status,
                waiting_on,
                seen_us,
                waits,
                (last or "").strip(),
                last_state or "",
            ),
        )
        if minute is not None:
            live.ticks.append(int(minute) - since // MINUTE_US)
    return LiveSessions(since, list(sessions.values()), count)
