"""The origin of a fact: agent, key, lane and clocks. All writers take one."""

from dataclasses import dataclass
from typing import Literal
from uuid import UUID

from journal.entries import AppendStatus, Draft, append_entries
from journal.order_keys import make_latest_key, make_order_key

Lane = Literal["command", "evidence", "claim"]


class RepeatedKey(Exception):
    """The command's key is in the journal. The endpoint repeats the stored answer."""


@dataclass(slots=True)
class Origin:
    """The envelope of one fact.

    Times are microseconds since the epoch; `text` is the canonical body.
    """

    project: UUID
    agent: UUID
    source: str
    actor: str
    lane: Lane
    key: str  # the entry's id
    text: str
    received_us: int
    claimed_source: str = ""
    occurred_us: int | None = None
    producer_seq: int | None = None
    lease_epoch: int | None = None
    imports: bool = False  # the token's scope is import
    team: str = ""  # the agent's team

    @property
    def mark(self) -> str:
        """Return the order key of this fact."""
        return make_order_key(self.lane, self.producer_seq, self.source, self.key)

    def latest_mark(self, position: int) -> str:
        """Return this fact's order key at `position`, for fields where the latest counts."""
        return make_latest_key(self.lane, position, self.producer_seq, self.source, self.key)

    @property
    def told_us(self) -> int | None:
        """Return when the fact happened, if reported.

        That is the producer's time, or for a command the time of the request.
        """
        if self.occurred_us is not None:
            return self.occurred_us
        return self.received_us if self.lane == "command" else None

    def draft(
        self,
        kind: str,
        *,
        facts: str = "{}",
        session: UUID | None = None,
        effect: UUID | None = None,
        attempt: int | None = None,
        subject: UUID | None = None,
    ) -> Draft:
        """Build the journal entry of this fact."""
        return Draft(
            project=self.project,
            source=self.source,
            event_id=self.key,
            kind=kind,
            lane=self.lane,
            actor=self.actor,
            text=self.text,
            facts=facts,
            session=session,
            effect=effect,
            attempt=attempt,
            subject=subject,
            claimed_source=self.claimed_source,
            lease_epoch=self.lease_epoch,
            producer_seq=self.producer_seq,
            occurred_us=self.occurred_us,
        )

    def append_draft(self, draft: Draft) -> int:
        """Append the entry of a command; return its position. Raises RepeatedKey."""
        appended = append_entries([draft], self.received_us)[0]
        if appended.status is not AppendStatus.CREATED:
            raise RepeatedKey
        return appended.position
