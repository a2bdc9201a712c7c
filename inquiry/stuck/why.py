"""Why is it waiting? Every rule that could speak of a session, its terms, their present values and their thresholds."""

from dataclasses import dataclass

from inquiry.stuck import limits as limits_of
from inquiry.stuck import loops, reading
from inquiry.stuck.rules import RULES, VERSION, Reason, judge
from sessions.models import ENDED, Session


@dataclass(frozen=True, slots=True)
class Why:
    """What holds, what could and does not yet; `ended` says why nothing can. `version` is that of the rules."""

    holding: list[Reason]
    others: list[Reason]
    ended: bool
    version: int = VERSION

    @property
    def waits(self) -> list[Reason]:
        """What is waited for and not yet too long: people, answers of tools, somebody who accepts a handoff."""
        return [one for one in self.others if one.kind != "session"]

    @property
    def titles(self) -> dict[str, str]:
        """The rules by name."""
        return RULES


def of(session: Session, now_us: int) -> Why:
    """Judge one session, everything read now. About ten queries; none for one that has ended."""
    if session.status in ENDED:
        return Why([], [], True)
    limits = limits_of.known(session.project_id)
    own = limits.of(session.agent_id)
    looping = loops.constant([session.id], now_us) | loops.found([session.id], own)
    fenced = loops.fenced([session.id], now_us, own)
    read = list(reading.facts(session.project_id, [session.id], now_us, loops=looping, fenced=fenced))
    reasons = [one for _session, seen in read for one in judge(seen, now_us, own)]
    return Why([one for one in reasons if one.holds], [one for one in reasons if not one.holds], False)
