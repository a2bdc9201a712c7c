"""Where a fact comes from: the token's agent, its key, its clocks. Every verb that writes history takes one."""

from dataclasses import dataclass
from typing import Literal
from uuid import UUID

from journal.entries import Draft
from journal.order import latest_key, order_key

Lane = Literal["command", "evidence", "claim"]


@dataclass(slots=True)
class Origin:
    """The envelope of one fact. Times are microseconds since the epoch; `text` is the canonical body."""

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
    team: str = ""  # of the agent

    @property
    def mark(self) -> str:
        """The order key of this fact."""
        return order_key(self.lane, self.producer_seq, self.source, self.key)

    def latest_mark(self, position: int) -> str:
        """The order key of this fact, whose entry has `position`, for what the latest word decides."""
        return latest_key(self.lane, position, self.producer_seq, self.source, self.key)

    @property
    def told_us(self) -> int | None:
        """When it happened, as far as anyone told: the producer's clock, or for a command the moment it was asked."""
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
        """The journal entry of this fact."""
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


class Repeated(Exception):
    """The key of this command is already in the book: the door answers from what is stored there."""
