"""The steps of an effect as commands: plan, wait, dispatch, acknowledge, fail, report, result.

Each prints one JSON object on standard output and says by its exit code what may be done. The
steps may run in different processes: `--session` names the session, and an effect is named by its
id or handle, by `--key`, or by `--call-id`.
"""

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gatebook_client.client import Client
from gatebook_client.errors import NotYet, PermissionRefused, Refused, ServerUnavailable
from gatebook_client.sessions import Session
from gatebook_client.types import EffectResult, Json, PlannedEffect

# The codes of sysexits.h: usage, unavailable, temporary failure, not permitted.
USAGE, UNAVAILABLE, NOT_NOW, REFUSED = 64, 69, 75, 77
UNKNOWN = 3  # an earlier attempt may have happened: ask for the verdict
_CODE_OF_ANSWER = {
    "proceed": 0,
    "done": 0,
    "wait": NOT_NOW,
    "blocked": REFUSED,
    "ambiguous": UNKNOWN,
}
STEP_CODES = (
    f"exit codes: 0 done, or permitted; {UNKNOWN} an earlier attempt may have happened; {USAGE} "
    f"wrong usage or request; {UNAVAILABLE} Gatebook cannot be reached; {NOT_NOW} not yet; "
    f"{REFUSED} refused"
)
Step = Callable[[Session, argparse.Namespace], tuple[int, Json]]


def add_step_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the commands to the parser of `gatebook`."""

    def add(name: str, summary: str, step: Step, *, named: bool = True) -> argparse.ArgumentParser:
        parser = commands.add_parser(name, help=summary, epilog=STEP_CODES)
        if named:
            parser.add_argument("effect", nargs="?", default="", help="id or handle of the effect")
        parser.add_argument("--session", default="", metavar="KEY", help="key of the session")
        parser.add_argument("--key", default="", help="key of the effect in the session")
        parser.add_argument("--call-id", default="", metavar="ID", help="id of the tool call")
        parser.set_defaults(run=lambda client, options: run_step(client, options, step))
        return parser

    plan = add("plan", "plan an effect and print its permission", _plan, named=False)
    plan.add_argument("--tool", required=True)
    _add_json(plan, "--arguments", "arguments of the call: JSON, @FILE, or - for standard input")
    _add_json(plan, "--target", 'what it acts on: {"repository", "ref", "environment", "resource"}')
    _add_json(plan, "--meta", "what people see with it, never compared: a JSON object")
    plan.add_argument("--ordinal", type=int, default=0, help="of equal calls under one call id")
    plan.add_argument("--why", default="", help="reason shown to reviewers")
    wait = add("wait", "wait until people have ruled on an effect", _wait)
    wait.add_argument(
        "--wait", type=float, default=None, metavar="SECONDS", help="default: no limit"
    )
    dispatch = add("dispatch", "use the permission; act only after exit code 0", _dispatch)
    _add_json(dispatch, "--arguments", "arguments that will run, to be compared with the plan")
    acknowledge = add("acknowledge", "report that the attempt happened", _acknowledge)
    acknowledge.add_argument("--outcome", choices=("ok", "error", "unknown"), default="ok")
    _add_json(acknowledge, "--result", "what it returned: JSON, @FILE, or - for standard input")
    acknowledge.add_argument("--reference", default="", help="the remote's name for it")
    acknowledge.add_argument("--attempt", type=int, default=0, help="default: the newest")
    fail = add("fail", "report that the attempt failed", _fail)
    fail.add_argument("--reason", choices=("rejected", "timeout", "error"), default="error")
    fail.add_argument("--detail", default="")
    fail.add_argument("--attempt", type=int, default=0, help="default: the newest")
    add("result", "print the stored result of an effect", _read_result)
    report = commands.add_parser(
        "report", help="report a fact after the event, as evidence", epilog=STEP_CODES
    )
    report.add_argument("kind", help="such as effect.acknowledged")
    report.add_argument("--session", required=True, metavar="KEY")
    report.add_argument("--effect", default="", help="id or handle of the effect")
    report.add_argument("--key", default="", help="key of the effect in the session")
    report.add_argument("--call-id", default="", metavar="ID", help="id of the tool call")
    report.add_argument("--event-id", default="", help="reports the same fact once")
    _add_json(report, "--fields", "fields of the kind: JSON, @FILE, or - for standard input")
    report.set_defaults(run=lambda client, options: run_step(client, options, _report))


def _add_json(parser: argparse.ArgumentParser, name: str, summary: str) -> None:
    parser.add_argument(name, type=_read_json, default=None, metavar="JSON", help=summary)


def _read_json(text: str) -> Any:
    if text == "-":
        text = sys.stdin.read()
    elif text.startswith("@"):
        text = Path(text[1:]).read_text(encoding="utf-8")
    try:
        return json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"not JSON: {error}") from None


def run_step(client: Client, options: argparse.Namespace, step: Step) -> int:
    """Run one step, print what it returned or why it was not done, and return its exit code."""
    try:
        code, answer = step(_open_session(client, options), options)
    except NotYet as later:
        names = ("reason", "until_us", "gate", "gate_url", "effect")
        code, answer = NOT_NOW, {"answer": "wait", "detail": str(later)}
        answer |= {name: value for name in names if (value := getattr(later, name))}
    except PermissionRefused as refusal:
        code, answer = REFUSED, {"answer": "blocked", "detail": str(refusal)}
        answer |= {"effect": refusal.effect, "status": refusal.status, "message": refusal.message}
    except ServerUnavailable as error:
        code, answer = UNAVAILABLE, {"answer": "unavailable", "detail": str(error)}
    except Refused as refusal:
        verdict = refusal.problem.get("verdict")
        unknown = isinstance(verdict, dict) and refusal.code == "ALREADY_DISPATCHED"
        code = UNKNOWN if unknown else NOT_NOW if refusal.code == "NO_RESULT" else USAGE
        answer = {"answer": "refused", "code": refusal.code, "detail": refusal.sentence}
        answer |= {"verdict": verdict} if verdict else {}
    sys.stdout.write(json.dumps(answer, default=str) + "\n")
    return code


def _open_session(client: Client, options: argparse.Namespace) -> Session:
    """Return the session of a step, opened where `plan` is the first to name it."""
    if options.session:
        try:
            return client.attach(options.session)
        except Refused as refusal:
            if refusal.status != 404 or not hasattr(options, "tool"):
                raise
        return client.session(options.session, mode="one_shot", end_on_exit=False)
    effect = getattr(options, "effect", "")
    if not effect:
        raise ValueError("Name the session by --session, or the effect by its id or handle")
    if effect.startswith("g_"):
        effect = options.effect = client.http.get(f"/gates/{effect}").body["effect"]
    try:
        return client.attach(client.http.get(f"/effects/{effect}").body["session"])
    except Refused as refusal:
        if refusal.status != 404 or options.command_name != "wait":
            raise
        options.effect = client.http.get(f"/gates/{effect}").body["effect"]
        return client.attach(client.http.get(f"/effects/{options.effect}").body["session"])


def _names(options: argparse.Namespace) -> Json:
    return {"effect": options.effect, "key": options.key, "call_id": options.call_id}


def _to_json(value: PlannedEffect) -> Json:
    fields = asdict(value)
    more = {"verdict": value.effect_json.get("verdict")}
    fields.pop("effect_json")
    return {name: item for name, item in (fields | more).items() if item not in ("", None, 0)}


def _describe_result(result: EffectResult) -> Json:
    return {name: item for name, item in asdict(result).items() if item not in ("", None)}


def _plan(session: Session, options: argparse.Namespace) -> tuple[int, Json]:
    planned = session.plan(
        options.tool,
        {} if options.arguments is None else options.arguments,
        target=options.target,
        key=options.key,
        call_id=options.call_id,
        ordinal=options.ordinal,
        meta=options.meta,
        why=options.why,
    )
    return _CODE_OF_ANSWER[planned.answer], _to_json(planned)


def _wait(session: Session, options: argparse.Namespace) -> tuple[int, Json]:
    planned = session.wait(**_names(options), wait_s=options.wait)
    return _CODE_OF_ANSWER[planned.answer], _to_json(planned)


def _dispatch(session: Session, options: argparse.Namespace) -> tuple[int, Json]:
    sent = {} if options.arguments is None else {"arguments": options.arguments}
    return 0, {"answer": "proceed"} | asdict(session.dispatch(**_names(options), **sent))


def _acknowledge(session: Session, options: argparse.Namespace) -> tuple[int, Json]:
    return 0, _describe_result(
        session.acknowledge(
            **_names(options),
            attempt=options.attempt,
            outcome=options.outcome,
            result=options.result,
            reference=options.reference,
        )
    )


def _fail(session: Session, options: argparse.Namespace) -> tuple[int, Json]:
    return 0, _describe_result(
        session.fail(
            **_names(options),
            attempt=options.attempt,
            reason=options.reason,
            detail=options.detail,
        )
    )


def _read_result(session: Session, options: argparse.Namespace) -> tuple[int, Json]:
    return 0, _describe_result(session.result(**_names(options)))


def _report(session: Session, options: argparse.Namespace) -> tuple[int, Json]:
    fields = options.fields or {}
    if not isinstance(fields, dict):
        raise ValueError("--fields must be a JSON object")
    reported = session.report(options.kind, **_names(options), event_id=options.event_id, **fields)
    return 0, reported
