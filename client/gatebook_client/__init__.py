"""Python client of Gatebook: plan an effect, wait for permission, act once, report the result.

    import gatebook_client as gatebook

    with gatebook.session(url, token, key="nightly-2026-05-01") as s:

        s.perform("mail.send", {"to": "ada"}, lambda remote_key: send("ada", id=remote_key))

`docs/reference/client.md` of Gatebook is the reference.
"""

from gatebook_client.client import Client, claim, session
from gatebook_client.errors import (
    ForkError,
    GatebookError,
    HumanDecisionRequired,
    LeaseHeld,
    LeaseLost,
    OpenWork,
    PermissionRefused,
    Refused,
    Rejected,
    ServerUnavailable,
    SessionClosed,
    SessionEnded,
    WaitTimeout,
)
from gatebook_client.recovery import Recovery, Step
from gatebook_client.sessions import Session
from gatebook_client.types import AttemptInfo, EffectResult, Result, Undo, Verdict
from gatebook_client.working_state import Decision, Message, Task

__all__ = [
    "AttemptInfo",
    "Client",
    "Decision",
    "EffectResult",
    "ForkError",
    "GatebookError",
    "HumanDecisionRequired",
    "LeaseHeld",
    "LeaseLost",
    "Message",
    "OpenWork",
    "PermissionRefused",
    "Recovery",
    "Refused",
    "Rejected",
    "Result",
    "ServerUnavailable",
    "Session",
    "SessionClosed",
    "SessionEnded",
    "Step",
    "Task",
    "Undo",
    "Verdict",
    "WaitTimeout",
    "claim",
    "session",
]
