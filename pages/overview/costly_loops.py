"""The calls that one session repeated most, the costliest first. One query."""

from typing import Final, NamedTuple
from uuid import UUID

from db import raw_sql
from display.urls_of_rows import build_search_url

MIN_TIMES: Final = 3  # equal calls of a session
MAX_SHOWN: Final = 3
TIMED_CALLS: Final = 100  # the latest of a loop, whose durations are added
_CANDIDATES: Final = 6  # those with most calls, of which the costliest are shown
# An effect that only reads has the sort 'read': most loops run tests or read files.
_SQL: Final = f"""
SELECT loop.session_id, agent_session.opened_position, loop.position, effect.tool, agent.id,
  agent.name, loop.nth, (
    SELECT sum(latest.took) FROM (
      SELECT called.settled_at_us - called.dispatched_at_us AS took
      FROM investigation_repeatedoccurrence same
      JOIN ledger_effect called
        ON called.project_id = same.project_id AND called.opened_position = same.position
      WHERE same.session_id = loop.session_id AND same.digest = loop.digest
        AND same.sort = loop.sort
      ORDER BY same.nth DESC LIMIT {TIMED_CALLS}) AS latest)
FROM (
  SELECT session_id, digest, sort, position, nth, project_id
  FROM investigation_repeatedoccurrence again
  WHERE again.project_id = %s AND again.nth > 1 AND again.nth >= {MIN_TIMES}
    AND again.sort IN ('call', 'read')
    AND again.position >= coalesce((SELECT min(first_position) FROM monitoring_effecthour
      WHERE project_id = %s AND hour_us >= %s), 0)
    AND NOT EXISTS (SELECT 1 FROM investigation_repeatedoccurrence later
      WHERE later.session_id = again.session_id AND later.digest = again.digest
        AND later.sort = again.sort AND later.nth = again.nth + 1)
  ORDER BY again.nth DESC LIMIT {_CANDIDATES}) AS loop
JOIN agent_sessions_session agent_session ON agent_session.id = loop.session_id
JOIN accounts_agent agent ON agent.id = agent_session.agent_id
JOIN ledger_effect effect
  ON effect.project_id = loop.project_id AND effect.opened_position = loop.position
"""


class CostlyLoop(NamedTuple):
    """A call that a session made again and again; `took_us` is None if no duration is known."""

    session: UUID
    session_position: int
    position: int  # of the latest effect
    tool: str
    agent_id: UUID
    agent: str
    times: int
    took_us: int | None  # of the latest TIMED_CALLS calls together

    @property
    def url(self) -> str:
        """The search for these effects."""
        return build_search_url(f"like:e_{self.position} session:s_{self.session_position}")

    @property
    def is_took_of_all(self) -> bool:
        """Whether `took_us` is that of every call."""
        return self.times <= TIMED_CALLS


def load_costly_loops(project: UUID, since: int) -> tuple[CostlyLoop, ...]:
    """Load the loops that went on after `since`, by the time that their calls took together."""
    key = raw_sql.vendor_id(project)
    rows = raw_sql.fetch_rows(_SQL, [key, key, since])
    loops = [
        CostlyLoop(
            raw_sql.read_uuid(session),
            session_position,
            position,
            tool,
            raw_sql.read_uuid(agent_id),
            agent,
            times,
            None if took_us is None else int(took_us),  # a sum is a Decimal on PostgreSQL
        )
        for session, session_position, position, tool, agent_id, agent, times, took_us in rows
    ]
    loops.sort(key=lambda loop: (-(loop.took_us or 0), -loop.times, -loop.position))
    return tuple(loops[:MAX_SHOWN])
