"""Where leave is decided. Until policies exist a project only observes: what is planned is released, and said so.

`plan` is the way of every intention, `observe` of everything that merely was reported.
"""

from ledger import commands
from ledger.commands import Answered, Grant, Plan
from ledger.fold import Observation
from sessions.origin import Origin

OBSERVED = Grant(leave="granted", basis="observe")


def plan(origin: Origin, wish: Plan) -> Answered:
    """Plan an effect and decide its leave: granted with basis `observe`."""
    return commands.plan(origin, wish, OBSERVED, observe)


def observe(leave: str, imports: bool) -> Observation:
    """What is to be thought of an effect that happened without a command.

    `leave` is the present one (held, pending or refused). Where people had not ruled, or had refused, it ran without
    approval; else the project observes.
    """
    if leave in ("pending", "refused"):
        return Observation("bypassed", "observe", True)
    return Observation("observed", "import" if imports else "observe", False)
