"""An agent's side of Gatebook: what it does to the world is written down first, let go, done once, and told.

    import gatebook_client as gatebook

    with gatebook.session(url, token, key="nightly-2026-05-01") as s:
        s.perform("mail.send", {"to": "ada"}, lambda remote_key: send(to="ada", message_id=remote_key))

`docs/client.md` of Gatebook shows the rest.
"""

from gatebook_client.client import Client, claim, session
from gatebook_client.errors import (
    Closed,
    Forked,
    GatebookError,
    LeaseHeld,
    LeaseLost,
    LedgerAway,
    NeedsPerson,
    NoLeave,
    NotYet,
    OpenWork,
    Refused,
    Rejected,
    SessionEnded,
)
from gatebook_client.recovery import Recovery, Step
from gatebook_client.sessions import Session
from gatebook_client.values import Done, Known, Performed, Undo, Verdict
from gatebook_client.work import Decision, Message, Task

__all__ = [
    "Client",
    "Closed",
    "Decision",
    "Done",
    "Forked",
    "GatebookError",
    "Known",
    "LeaseHeld",
    "LeaseLost",
    "LedgerAway",
    "Message",
    "NeedsPerson",
    "NoLeave",
    "NotYet",
    "OpenWork",
    "Performed",
    "Recovery",
    "Refused",
    "Rejected",
    "Session",
    "SessionEnded",
    "Step",
    "Task",
    "Undo",
    "Verdict",
    "claim",
    "session",
]
