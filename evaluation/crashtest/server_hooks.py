"""What the rig changes inside the server that it starts: the clock, the places where it falls, and
the mutants.

The web server serves `evaluation.crashtest.server_hooks:application` in place of the product's own
application; its files stay as they are, and the product knows nothing of this one. It is the one
module of the evaluation that reaches into the product, and it does so by name at run time, in the
server's process only. Without its headers a request passes through untouched.

X-Rig-Tick: before | last | committed | half   the server falls there, in the course of this request
X-Rig-Kill: real                               by SIGKILL; else the transaction is torn down and
nobody hears an answer X-Rig-Mutant: NAME                             the request is served by a
server with this fault
"""

import importlib
import io
import os
import re
import signal
import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from evaluation.crashtest.clock import Clock
from evaluation.crashtest.gatebook import LOST

_CLOCK: Final = Clock(Path(os.environ["RIG_CLOCK"]))
_PROCESS: Final = re.compile(rb'("process": ?")[^"]*(")')


class _Fell(BaseException):
    """The server is no more."""


class _Request(threading.local):
    """The headers of the request that this thread serves."""

    tick = ""
    real = False
    mutant = ""
    deferred: tuple[Callable[..., Any], tuple[Any, ...]] | None = None


_REQUEST: Final = _Request()


def _fall() -> None:
    if _REQUEST.real:
        os.kill(os.getpid(), signal.SIGKILL)
    raise _Fell


def _module(name: str) -> Any:
    return importlib.import_module(name)


# The clock first: whoever imports it after this has the injected one.
_module("db.clock").now_us = _CLOCK.now_us
_product: Final = _module("config.wsgi").application


def _transactions() -> None:
    """Ticks inside the door's transaction, and the mutants of its end."""
    doors, atomic = _module("api.endpoint"), _module("django.db.transaction").atomic
    transact = doors.transact

    class _Undone(Exception):
        pass

    def torn(run: Callable[[], Any], again: Callable[[], Any]) -> Any:
        def work() -> Any:
            reply = run()
            if _REQUEST.tick == "last":
                _fall()
            return reply

        if _REQUEST.mutant == "2xx before COMMIT" and _REQUEST.tick == "committed":
            said: list[Any] = []
            try:
                with atomic(durable=True):
                    said.append(run())
                    raise _Undone  # the answer is out, and the server falls before it committed
            except _Undone:
                _REQUEST.tick = ""
                return said[0]
        reply = transact(work, again)
        if _REQUEST.deferred is not None:
            (verb, arguments), _REQUEST.deferred = _REQUEST.deferred, None
            if _REQUEST.tick == "committed":
                _fall()  # between the two transactions
            with atomic(durable=True):
                verb(*arguments)
        return reply

    doors.transact = torn
    for name in ("api.views.events", "api.views.gates", "api.views.verdicts", "api.views.leases"):
        try:
            views = _module(name)
        except ImportError:
            continue
        if getattr(views, "transact", None) is transact:
            views.transact = torn


def _mutants() -> None:
    """Faults of the product, each of which the suite must catch. They act only where the request's
    header asks."""
    verdicts, fold, gates = (
        _module("ledger.verdicts.table"),
        _module("ledger.fold.apply"),
        _module("approvals.gates.gates"),
    )
    looked, attempt, use = verdicts._decide_by_probe, fold._attempt_of_fact, gates.use_gate

    def believes_at_once(case: Any, now_us: int, *rest: str) -> Any:
        if _REQUEST.mutant == "no fence before a probe is believed" and case.probe == "miss":
            case = replace(
                case, means=replace(case.means, request_lifetime_s=1), first_us=1, last_us=1
            )
        return looked(case, now_us, *rest)

    def keeps_grant(effect: Any, attempts: Any, fact: Any, observe: Any) -> Any:
        before = effect.permission, effect.spent_by
        row = attempt(effect, attempts, fact, observe)
        if (
            _REQUEST.mutant == "evidence leaves a grant unspent"
            and fact.lane == "evidence"
            and before[0] == "granted"
        ):
            effect.permission, effect.spent_by = before
        return row

    def uses_later(*arguments: Any) -> None:
        if _REQUEST.mutant == "approval used in another transaction":
            _REQUEST.deferred = (use, arguments)
        else:
            use(*arguments)

    verdicts._decide_by_probe = believes_at_once
    fold._attempt_of_fact, gates.use_gate = keeps_grant, uses_later

    def overwritten(handler: Callable[..., None], mark: str) -> Callable[..., None]:
        def handle(effect: Any, attempts: Any, fact: Any, observe: Any) -> None:
            row = attempts.get(fact.attempt)
            if _REQUEST.mutant == "acknowledgement without compare-and-set" and row is not None:
                setattr(row, mark, "")
            handler(effect, attempts, fact, observe)

        return handle

    def reopened(handler: Callable[..., None]) -> Callable[..., None]:
        def handle(effect: Any, attempts: Any, fact: Any, observe: Any) -> None:
            handler(effect, attempts, fact, observe)
            if _REQUEST.mutant == "a fold that depends on order":
                row = attempts[fact.attempt]
                row.acknowledged_mark, row.outcome = "", ""

        return handle

    handlers = fold._HANDLERS
    handlers["effect.acknowledged"] = overwritten(
        handlers["effect.acknowledged"], "acknowledged_mark"
    )
    handlers["effect.dispatched"] = reopened(handlers["effect.dispatched"])


_transactions()
_mutants()


def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """The product's application, with a place to fall at each end."""
    _REQUEST.tick = environ.get("HTTP_X_RIG_TICK", "")
    _REQUEST.real = environ.get("HTTP_X_RIG_KILL") == "real"
    _REQUEST.mutant = environ.get("HTTP_X_RIG_MUTANT", "")
    _REQUEST.deferred = None
    if _REQUEST.mutant == "a grant replayed to a new process":
        sent = _PROCESS.sub(rb"\1anybody\2", environ["wsgi.input"].read())
        environ["wsgi.input"], environ["CONTENT_LENGTH"] = io.BytesIO(sent), str(len(sent))
    try:
        if _REQUEST.tick == "before":
            _fall()
        answer: Iterable[bytes] = _product(environ, start_response)
        if _REQUEST.tick == "committed":
            _fall()
        if _REQUEST.tick == "half":
            return _half(answer)
        return answer
    except _Fell:
        start_response(f"{LOST} The server fell", [("Content-Length", "0")])
        return [b""]


def _half(answer: Iterable[bytes]) -> Iterable[bytes]:
    text = b"".join(answer)
    yield text[: len(text) // 2]
    if _REQUEST.real:
        os.kill(os.getpid(), signal.SIGKILL)
