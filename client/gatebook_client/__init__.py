"""Python client of Gatebook: plan an effect, wait for permission, act once, report the result.

    import gatebook_client as gatebook

    with gatebook.session(url, token, key="nightly-2026-05-01") as s:

        s.perform("mail.send", {"to": "ada"}, lambda remote_key: send("ada", id=remote_key))

`docs/reference/client.md` of Gatebook is the reference.
"""

TYPE_CHECKING = False  # as in typing, whose import takes longer than the rest of this module
if TYPE_CHECKING:
    from gatebook_client.async_sessions import AsyncSession as AsyncSession
    from gatebook_client.client import AsyncClient as AsyncClient
    from gatebook_client.client import Client as Client
    from gatebook_client.client import async_session as async_session
    from gatebook_client.client import claim as claim
    from gatebook_client.client import session as session
    from gatebook_client.errors import ForkError as ForkError
    from gatebook_client.errors import GatebookError as GatebookError
    from gatebook_client.errors import HumanDecisionRequired as HumanDecisionRequired
    from gatebook_client.errors import LeaseHeld as LeaseHeld
    from gatebook_client.errors import LeaseLost as LeaseLost
    from gatebook_client.errors import NotYet as NotYet
    from gatebook_client.errors import OpenWork as OpenWork
    from gatebook_client.errors import PermissionRefused as PermissionRefused
    from gatebook_client.errors import Refused as Refused
    from gatebook_client.errors import Rejected as Rejected
    from gatebook_client.errors import ServerUnavailable as ServerUnavailable
    from gatebook_client.errors import SessionClosed as SessionClosed
    from gatebook_client.errors import SessionEnded as SessionEnded
    from gatebook_client.errors import WaitTimeout as WaitTimeout
    from gatebook_client.recovery import Recovery as Recovery
    from gatebook_client.recovery import Step as Step
    from gatebook_client.sessions import Session as Session
    from gatebook_client.types import AttemptInfo as AttemptInfo
    from gatebook_client.types import Dispatched as Dispatched
    from gatebook_client.types import EffectResult as EffectResult
    from gatebook_client.types import PlannedEffect as PlannedEffect
    from gatebook_client.types import Result as Result
    from gatebook_client.types import Undo as Undo
    from gatebook_client.types import Verdict as Verdict
    from gatebook_client.working_state import Decision as Decision
    from gatebook_client.working_state import Message as Message
    from gatebook_client.working_state import Task as Task

# Module -> its public names, loaded on first use: a hook that needs none of them starts at once.
_NAMES = {
    "async_sessions": ("AsyncSession",),
    "client": ("AsyncClient", "Client", "async_session", "claim", "session"),
    "errors": (
        "ForkError",
        "GatebookError",
        "HumanDecisionRequired",
        "LeaseHeld",
        "LeaseLost",
        "NotYet",
        "OpenWork",
        "PermissionRefused",
        "Refused",
        "Rejected",
        "ServerUnavailable",
        "SessionClosed",
        "SessionEnded",
        "WaitTimeout",
    ),
    "recovery": ("Recovery", "Step"),
    "sessions": ("Session",),
    "types": (
        "AttemptInfo",
        "Dispatched",
        "EffectResult",
        "PlannedEffect",
        "Result",
        "Undo",
        "Verdict",
    ),
    "working_state": ("Decision", "Message", "Task"),
}
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names}
__all__ = sorted(_MODULE_OF)

if not TYPE_CHECKING:  # type checkers must refuse names that do not exist

    def __getattr__(name):
        if name not in _MODULE_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        value = getattr(import_module(f"gatebook_client.{_MODULE_OF[name]}"), name)
        globals()[name] = value
        return value

    def __dir__():
        return [*globals(), *__all__]
