"""Hooks of the rig inside its server: the clock, the crash points and the mutants.

The web server serves `evaluation.crashtest.server_hooks:application` instead of the product's own
application. The product's files are unchanged and do not refer to this module. No other module of
the evaluation imports the product; this one does so by name, at run time, in the server's process
only. Without the headers below a request passes through unchanged.

X-Rig-Tick: before | last | committed | half   the server crashes at that point of the request
X-Rig-Kill: real                               by SIGKILL; otherwise the transaction rolls back
                                               and no answer is sent
X-Rig-Mutant: NAME                             the request is served with this fault
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


class _ServerCrashed(BaseException):
    """The server crashed."""


class _Request(threading.local):
    """The rig headers of the thread's current request."""

    tick = ""
    real = False
    mutant = ""
    deferred: tuple[Callable[..., Any], tuple[Any, ...]] | None = None


_REQUEST: Final = _Request()


def _crash() -> None:
    if _REQUEST.real:
        os.kill(os.getpid(), signal.SIGKILL)
    raise _ServerCrashed


def _load_module(name: str) -> Any:
    return importlib.import_module(name)


# Replace the clock first, so that later imports get the injected one.
_load_module("db.clock").now_us = _CLOCK.now_us
_product: Final = _load_module("config.wsgi").application


def _patch_transactions() -> None:
    """Add crash points and mutants to the endpoints' transaction."""
    endpoint, atomic = _load_module("api.endpoint"), _load_module("django.db.transaction").atomic
    transact = endpoint.transact

    class _RolledBack(Exception):
        pass

    def transact_with_faults(run: Callable[[], Any], reload: Callable[[], Any]) -> Any:
        def work() -> Any:
            reply = run()
            if _REQUEST.tick == "last":
                _crash()
            return reply

        if _REQUEST.mutant == "2xx before COMMIT" and _REQUEST.tick == "committed":
            replies: list[Any] = []
            try:
                with atomic(durable=True):
                    replies.append(run())
                    raise _RolledBack  # the answer is sent, and the server crashes before COMMIT
            except _RolledBack:
                _REQUEST.tick = ""
                return replies[0]
        reply = transact(work, reload)
        if _REQUEST.deferred is not None:
            (verb, arguments), _REQUEST.deferred = _REQUEST.deferred, None
            if _REQUEST.tick == "committed":
                _crash()  # between the two transactions
            with atomic(durable=True):
                verb(*arguments)
        return reply

    endpoint.transact = transact_with_faults
    for name in ("api.views.events", "api.views.gates", "api.views.effects", "api.views.leases"):
        try:
            views = _load_module(name)
        except ImportError:
            continue
        if getattr(views, "transact", None) is transact:
            views.transact = transact_with_faults


def _patch_mutants() -> None:
    """Add the mutants. Each acts only on requests whose header names it."""
    verdicts, fold, gates = (
        _load_module("ledger.verdicts.table"),
        _load_module("ledger.fold.effect_state"),
        _load_module("approvals.gates.gates"),
    )
    decide_by_probe, attempt_of_fact, use_gate = (
        verdicts._decide_by_probe,
        fold._attempt_of_fact,
        gates.use_gate,
    )

    def believe_probe_at_once(case: Any, now_us: int, *rest: str) -> Any:
        if (
            _REQUEST.mutant == "no in-flight window before a probe is believed"
            and case.probe == "miss"
        ):
            case = replace(
                case, means=replace(case.means, request_lifetime_s=1), first_us=1, last_us=1
            )
        return decide_by_probe(case, now_us, *rest)

    def keep_permission(effect: Any, attempts: Any, fact: Any) -> Any:
        before = effect.permission, effect.spent_by
        row = attempt_of_fact(effect, attempts, fact)
        if (
            _REQUEST.mutant == "evidence leaves a grant unspent"
            and fact.lane == "evidence"
            and before[0] == "granted"
        ):
            effect.permission, effect.spent_by = before
        return row

    def use_gate_later(*arguments: Any) -> None:
        if _REQUEST.mutant == "approval used in another transaction":
            _REQUEST.deferred = (use_gate, arguments)
        else:
            use_gate(*arguments)

    verdicts._decide_by_probe = believe_probe_at_once
    fold._attempt_of_fact, gates.use_gate = keep_permission, use_gate_later

    def make_overwriting(handler: Callable[..., None], mark: str) -> Callable[..., None]:
        def handle(effect: Any, attempts: Any, fact: Any) -> None:
            row = attempts.get(fact.attempt)
            if _REQUEST.mutant == "acknowledgement without compare-and-set" and row is not None:
                setattr(row, mark, "")
            handler(effect, attempts, fact)

        return handle

    def make_reopening(handler: Callable[..., None]) -> Callable[..., None]:
        def handle(effect: Any, attempts: Any, fact: Any) -> None:
            handler(effect, attempts, fact)
            if _REQUEST.mutant == "a fold that depends on order":
                row = attempts[fact.attempt]
                row.acknowledged_mark, row.outcome = "", ""

        return handle

    handlers = fold._HANDLERS
    handlers["effect.acknowledged"] = make_overwriting(
        handlers["effect.acknowledged"], "acknowledged_mark"
    )
    handlers["effect.dispatched"] = make_reopening(handlers["effect.dispatched"])


_patch_transactions()
_patch_mutants()


def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """Serve a request with the product's application and the crash points around it."""
    _REQUEST.tick = environ.get("HTTP_X_RIG_TICK", "")
    _REQUEST.real = environ.get("HTTP_X_RIG_KILL") == "real"
    _REQUEST.mutant = environ.get("HTTP_X_RIG_MUTANT", "")
    _REQUEST.deferred = None
    if _REQUEST.mutant == "a grant replayed to a new process":
        sent = _PROCESS.sub(rb"\1anybody\2", environ["wsgi.input"].read())
        environ["wsgi.input"], environ["CONTENT_LENGTH"] = io.BytesIO(sent), str(len(sent))
    try:
        if _REQUEST.tick == "before":
            _crash()
        answer: Iterable[bytes] = _product(environ, start_response)
        if _REQUEST.tick == "committed":
            _crash()
        if _REQUEST.tick == "half":
            return _send_half(answer)
        return answer
    except _ServerCrashed:
        start_response(f"{LOST} The server crashed", [("Content-Length", "0")])
        return [b""]


def _send_half(answer: Iterable[bytes]) -> Iterable[bytes]:
    text = b"".join(answer)
    yield text[: len(text) // 2]
    if _REQUEST.real:
        os.kill(os.getpid(), signal.SIGKILL)
