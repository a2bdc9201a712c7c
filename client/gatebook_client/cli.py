"""The command line: `gatebook exec --tool git.push -- git push …` wraps what exists; the other words look.

Where a Gatebook is, GATEBOOK_URL and GATEBOOK_TOKEN say, or --url and --token.
"""

import argparse
import sys
import time
from collections.abc import Callable

from gatebook_client import command, searching, waiting
from gatebook_client.client import Client
from gatebook_client.errors import GatebookError, LedgerAway, NoLeave, Refused
from gatebook_client.lease import Lease
from gatebook_client.values import Json

AWAY, NOT_NOW, NO_LEAVE, USAGE = 69, 75, 77, 64  # as sysexits.h has them: unavailable, temporary, not permitted, usage
NOT_SAFE = 3
PAUSE_S = 2.0
TIMEOUT = "for the command; at most, and by default, the request lifetime of its tool, after which it is killed"
CODES = (
    f"exit codes: that of the command, where it ran; {AWAY} Gatebook is away and nothing was begun; {NO_LEAVE} leave"
    f" was refused; {NOT_NOW} not now (a person decides, or the wait was over); {USAGE} wrong usage or request"
)


def main(arguments: list[str] | None = None) -> int:
    """Run one command; return its exit code."""
    given = sys.argv[1:] if arguments is None else arguments
    # What stands behind -- is a command of its own, and none of its options is ours.
    cut = given.index("--") if "--" in given else len(given)
    asked = _parser().parse_args(given[:cut])
    asked.command = given[cut + 1 :]
    try:
        client = Client(asked.url, asked.token, patience_s=asked.patience, waiting=command.tell_of_waiting)
        run: Callable[[Client, argparse.Namespace], int] = asked.run
        return run(client, asked)
    except LedgerAway as away:
        if away.acted:
            sentence = (
                "The command ran, and only the report of it is missing: see `gatebook resume` before you run it again."
            )
            return _stop(AWAY, f"{away.reason} {sentence}")
        return _stop(AWAY, str(away) if away.undone else f"{away} Nothing was begun.")
    except NoLeave as no:
        return _stop(NO_LEAVE, f"{no}. Nothing was begun.")
    except searching.Unclear as fault:
        return _stop(USAGE, str(fault))
    except (Refused, ValueError) as refusal:
        return _stop(USAGE, f"{str(refusal).rstrip('.')}. Nothing was begun.")
    except GatebookError as fault:
        return _stop(NOT_NOW, str(fault))
    except (KeyboardInterrupt, BrokenPipeError):
        return 130


def _stop(code: int, sentence: str) -> int:
    sys.stderr.write(f"gatebook: {sentence}\n")
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="gatebook", description=(__doc__ or "").partition("\n")[0], epilog=CODES)
    parser.add_argument("--url", default="", help="default: GATEBOOK_URL")
    parser.add_argument("--token", default="", help="default: GATEBOOK_TOKEN")
    parser.add_argument("--patience", type=float, default=15.0, metavar="SECONDS", help="default: %(default)s")
    words = parser.add_subparsers(required=True, metavar="WORD")

    wrap = words.add_parser("exec", help="run a command as one effect", epilog=CODES)
    wrap.add_argument("--tool", required=True, help="the name under which policies and tools.yaml know it")
    wrap.add_argument("--session", default="", metavar="KEY", help="a session to take up again; default: a new one")
    wrap.add_argument("--key", default="", help="names the effect for good: what is done under it is not done again")
    wrap.add_argument("--probe", default="", metavar="COMMAND", help="looks whether it happened: exit 0 yes, 1 no")
    wrap.add_argument("--reference", default="", metavar="COMMAND", help="prints what the other side calls it, after")
    wrap.add_argument("--why", default="", help="shown to people")
    wrap.add_argument("--repository", default="")
    wrap.add_argument("--ref", default="")
    wrap.add_argument("--environment", default="")
    wrap.add_argument("--resource", default="")
    wrap.add_argument(
        "--wait", type=float, default=None, metavar="SECONDS", help="for leave; default: as long as it takes"
    )
    wrap.add_argument("--timeout", type=float, default=None, metavar="SECONDS", help=TIMEOUT)
    wrap.set_defaults(run=command.run)

    look = words.add_parser("sessions", help="list sessions, newest first")
    look.add_argument("--status", default="")
    look.add_argument("--limit", type=int, default=20)
    look.set_defaults(run=_sessions)

    look = words.add_parser("effects", help="list effects, newest first")
    look.add_argument("--session", default="", metavar="KEY")
    look.add_argument("--state", default="")
    look.add_argument("--tool", default="")
    look.add_argument("--limit", type=int, default=20)
    look.set_defaults(run=_effects)

    ask = words.add_parser("search", help="ask the book, such as 'effect is:unknown' or 'gate is:waiting'")
    ask.add_argument("query")
    ask.add_argument("--limit", type=int, default=20)
    ask.add_argument("--json", action="store_true", help="the whole answer of each page, one a line")
    ask.add_argument("--all", action="store_true", help="page on until nothing is left")
    ask.set_defaults(run=searching.run)

    wait = words.add_parser("wait", help="wait until people have ruled on a gate, or on the gate of an effect")
    wait.add_argument("id", help="of a gate or an effect, or its handle")
    wait.add_argument("--wait", type=float, default=None, metavar="SECONDS")
    wait.set_defaults(run=_wait)

    resume = words.add_parser("resume", help=f"can it resume safely? exit code 0 yes, {NOT_SAFE} no")
    resume.add_argument("session", metavar="KEY", help="of a session, its handle or its id")
    resume.set_defaults(run=_resume)

    tail = words.add_parser("tail", help="print effects as they change, until interrupted")
    tail.add_argument("--session", default="", metavar="KEY")
    tail.add_argument("--once", action="store_true", help="print what is there and end")
    tail.set_defaults(run=_tail)
    return parser


def _say(line: str) -> None:
    sys.stdout.write(f"{line.rstrip()}\n")
    sys.stdout.flush()


def _sessions(client: Client, asked: argparse.Namespace) -> int:
    for one in client.wire.get("/sessions", status=asked.status, limit=asked.limit).body["items"]:
        _say(f"{one['handle']:>8}  {one['status']:<10}  {one['key']:<32}  {one.get('title') or ''}")
    return 0


def _line(one: Json) -> str:
    reference = str(one.get("external_reference") or "")
    state = f"{one['handle']:>8}  {one['state']:<12}  {one.get('outcome') or '':<7}  {one['leave']:<8}"
    return f"{state}  {one['tool']:<20}  {one['effect_key']}  {reference}"


def _known(client: Client, session: str) -> str:
    """The id of a session that was named by its key, handle or id; nothing for none. Raises ValueError."""
    if not session or _is_id(session):
        return session
    found = client.wire.get("/sessions", key=session, limit=1).body["items"] or _called(client, "/sessions", session)
    if not found:
        raise ValueError(f"There is no session {session}; `gatebook sessions` lists their keys")
    return str(found[0]["id"])


def _called(client: Client, path: str, handle: str) -> list[Json]:
    """What has that handle, such as e_17: lists go by that number, the newest first."""
    _, _, number = handle.partition("_")
    if not number.isdecimal() or not number.isascii():
        return []
    found = client.wire.get(path, after=int(number) + 1, limit=1).body["items"]
    return [one for one in found if one["handle"] == handle]


def _effects(client: Client, asked: argparse.Namespace) -> int:
    session = _known(client, asked.session)
    found = client.wire.get("/effects", session=session, state=asked.state, tool=asked.tool, limit=asked.limit)
    for one in found.body["items"]:
        _say(_line(one))
    return 0


def _wait(client: Client, asked: argparse.Namespace) -> int:
    until, subject = None if asked.wait is None else time.monotonic() + asked.wait, asked.id
    if not _is_id(subject):
        found = _called(client, "/gates" if subject.startswith("g_") else "/effects", subject)
        if not found:
            raise ValueError(f"There is no gate or effect {subject}; `gatebook effects` lists their handles")
        subject = found[0]["id"]
    try:
        gate = client.wire.get(f"/gates/{subject}").body
        effect = {"id": gate["effect"], "handle": gate.get("handle"), "gate": {"id": gate["id"]}}
    except Refused as refusal:
        if refusal.status != 404:
            raise
        effect = client.wire.get(f"/effects/{subject}").body
        if "gate" not in effect:
            _say(f"No people are asked about it; it is {effect['state']}, its leave {effect['leave']}.")
            return 0 if effect["answer"] in ("proceed", "done") else NO_LEAVE
    waiting.for_leave(_Watcher(client), effect, until)
    _say("Leave is given.")
    return 0


class _Watcher:
    """Waits without a session, and begins nothing."""

    id, process, status = "", "", ""

    def __init__(self, client: Client) -> None:
        self.wire = client.wire
        self.lease: Lease | None = None

    def guard(self) -> None:
        """Nothing to guard."""


def _resume(client: Client, asked: argparse.Namespace) -> int:
    told = client.wire.get(f"/sessions/{_known(client, asked.session)}/resume").body
    ended = (told.get("session") or {}).get("ended")
    _say(str(told["sentence"]) if ended else f"Can it resume safely? {'YES' if told['safe'] else 'NO'}")
    for one in told.get("because") or []:
        _say(f"  because: {_sentence(one)}")
    for one in told.get("done") or []:
        reference = f" ({one['external_reference']})" if one.get("external_reference") else ""
        unheard = " Its worker may have ended before it heard." if one.get("unheard") else ""
        _say(f"  done: {_sentence(one)} {one['tool']} {one.get('gist') or ''}{reference}.{unheard}")
    opened = (told.get("crash_recovery") or {}).get("open_effects") or []
    for one in opened:
        _say(f"  open: {_sentence(one)}")
    return 0 if told["safe"] else NOT_SAFE


def _sentence(one: Json) -> str:
    effect = one.get("effect")
    handle = effect.get("handle", "") if isinstance(effect, dict) else one.get("handle") or effect or ""
    verdict = one.get("verdict")
    told = verdict if isinstance(verdict, dict) else one
    return str(told.get("sentence") or f"{handle} {told.get('verdict', '')} {told.get('reason', '')}").strip()


def _is_id(text: str) -> bool:
    return len(text) == 36 and text.count("-") == 4


def _tail(client: Client, asked: argparse.Namespace) -> int:
    known: dict[str, str] = {}
    session = _known(client, asked.session)
    while True:
        found = client.wire.get("/effects", session=session, limit=100).body["items"]
        for one in reversed(found):
            if known.get(one["id"]) != (line := _line(one)):
                known[one["id"]] = line
                _say(line)
        if asked.once:
            return 0
        client.wire.sleep(PAUSE_S)
