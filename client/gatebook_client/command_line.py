"""Record and control commands with Gatebook, and inspect sessions and effects.

cli.py loads this module for every command that needs the client library.

`gatebook exec --tool git.push -- git push …` wraps an existing command; the other subcommands
read. The address and the token come from GATEBOOK_URL and GATEBOOK_TOKEN, or from --url and
--token.
"""

import argparse
import sys
from collections.abc import Callable

from gatebook_client import exec_command, search_command
from gatebook_client.cli import SEPARATE_COMMANDS
from gatebook_client.client import Client
from gatebook_client.connections import load_connection
from gatebook_client.errors import GatebookError, PermissionRefused, Refused, ServerUnavailable
from gatebook_client.step_commands import (
    NOT_NOW,
    REFUSED,
    UNAVAILABLE,
    UNKNOWN,
    USAGE,
    add_step_commands,
)
from gatebook_client.types import Json

NOT_SAFE = UNKNOWN
PAUSE_S = 2.0
TIMEOUT = (
    "for the command, which is then killed; default and maximum: the request lifetime of its tool"
)
CODES = (
    f"exit codes: that of the command if it ran; {UNAVAILABLE} Gatebook cannot be reached and "
    f"nothing was begun; {REFUSED} permission was refused; {NOT_NOW} not now (a person decides, or "
    f"the wait timed out); {USAGE} wrong usage or request"
)


def run_command_line(tokens: list[str]) -> int:
    """Run one subcommand and return its exit code."""
    # Arguments after -- belong to the wrapped command; its options are not parsed.
    separator = tokens.index("--") if "--" in tokens else len(tokens)
    parser = _make_parser()
    options, unknown = parser.parse_known_args(tokens[:separator])
    if unknown and options.command_name not in SEPARATE_COMMANDS:
        parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    options.command = tokens[separator + 1 :]
    try:
        url, token = load_connection(options.connection, url=options.url, token=options.token)
        client = Client(url, token, patience_s=options.patience, on_wait=exec_command.print_wait)
        run: Callable[[Client, argparse.Namespace], int] = options.run
        return run(client, options)
    except ServerUnavailable as error:
        if error.acted:
            return _fail(UNAVAILABLE, f"{error.reason} {exec_command.REPORT_MISSING}")
        return _fail(UNAVAILABLE, str(error) if error.undone else f"{error} Nothing was begun.")
    except PermissionRefused as error:
        return _fail(REFUSED, f"{error}. Nothing was begun.")
    except search_command.QueryError as error:
        return _fail(USAGE, str(error))
    except (Refused, ValueError) as error:
        return _fail(USAGE, f"{str(error).rstrip('.')}. Nothing was begun.")
    except GatebookError as error:
        return _fail(NOT_NOW, str(error))
    except (KeyboardInterrupt, BrokenPipeError):
        return 130


def _fail(code: int, sentence: str) -> int:
    sys.stderr.write(f"gatebook: {sentence}\n")
    return code


def _make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gatebook", description=(__doc__ or "").partition("\n")[0], epilog=CODES
    )
    parser.add_argument("--url", default="", help="default: GATEBOOK_URL")
    parser.add_argument("--token", default="", help="default: GATEBOOK_TOKEN")
    parser.add_argument(
        "--connection",
        default="",
        metavar="NAME",
        help="address and token that `gatebook connect` stored; default: GATEBOOK_CONNECTION, or"
        " default",
    )
    parser.add_argument(
        "--patience", type=float, default=15.0, metavar="SECONDS", help="default: %(default)s"
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND", dest="command_name")

    wrap = commands.add_parser("exec", help="run a command as one effect", epilog=CODES)
    wrap.add_argument("--tool", required=True, help="name of the tool in policies and tools.yaml")
    wrap.add_argument(
        "--session",
        default="",
        metavar="KEY",
        help="session to continue; default: a new one",
    )
    wrap.add_argument(
        "--key",
        default="",
        help="permanent name of the effect: under one key it is done once",
    )
    wrap.add_argument(
        "--probe",
        default="",
        metavar="COMMAND",
        help="checks whether it happened: exit code 0 yes, 1 no",
    )
    wrap.add_argument(
        "--reference",
        default="",
        metavar="COMMAND",
        help="prints the remote's reference, after the command",
    )
    wrap.add_argument("--why", default="", help="reason shown to reviewers")
    wrap.add_argument(
        "--arguments",
        default="",
        metavar="JSON",
        help="arguments of the effect as it was planned; their `command` is what -- bash -c runs",
    )
    wrap.add_argument("--repository", default="")
    wrap.add_argument("--ref", default="")
    wrap.add_argument("--environment", default="")
    wrap.add_argument("--resource", default="")
    wrap.add_argument(
        "--wait",
        type=float,
        default=None,
        metavar="SECONDS",
        help="maximum wait for permission; default: no limit",
    )
    wrap.add_argument("--timeout", type=float, default=None, metavar="SECONDS", help=TIMEOUT)
    wrap.set_defaults(run=exec_command.run)

    listing = commands.add_parser("sessions", help="list sessions, newest first")
    listing.add_argument("--status", default="")
    listing.add_argument("--limit", type=int, default=20)
    listing.set_defaults(run=_list_sessions)

    listing = commands.add_parser("effects", help="list effects, newest first")
    listing.add_argument("--session", default="", metavar="KEY")
    listing.add_argument("--state", default="")
    listing.add_argument("--tool", default="")
    listing.add_argument("--limit", type=int, default=20)
    listing.set_defaults(run=_list_effects)

    search = commands.add_parser(
        "search", help="search the journal, for example 'effect is:unknown' or 'gate is:waiting'"
    )
    search.add_argument("query")
    search.add_argument("--limit", type=int, default=20)
    search.add_argument(
        "--json", action="store_true", help="print the API response of each page, one per line"
    )
    search.add_argument("--all", action="store_true", help="print all pages")
    search.set_defaults(run=search_command.run)

    add_step_commands(commands)

    resume = commands.add_parser(
        "resume", help=f"check whether a session can resume safely: exit code 0 yes, {NOT_SAFE} no"
    )
    resume.add_argument("session", metavar="KEY", help="key, handle or id of a session")
    resume.set_defaults(run=_show_resume)

    tail = commands.add_parser("tail", help="print effects as they change, until interrupted")
    tail.add_argument("--session", default="", metavar="KEY")
    tail.add_argument("--once", action="store_true", help="print the current effects and exit")
    tail.set_defaults(run=_follow_effects)
    for name, (_, summary) in SEPARATE_COMMANDS.items():  # for --help: cli.py runs them
        separate = commands.add_parser(name, help=summary, add_help=False)
        separate.set_defaults(run=_refuse_options_before)
    return parser


def _refuse_options_before(_client: Client, options: argparse.Namespace) -> int:
    raise ValueError(
        f"`gatebook {options.command_name}` takes no options before its name. Put the name first; "
        "the address and the token come from GATEBOOK_URL and GATEBOOK_TOKEN"
    )


def _print_line(line: str) -> None:
    sys.stdout.write(f"{line.rstrip()}\n")
    sys.stdout.flush()


def _list_sessions(client: Client, options: argparse.Namespace) -> int:
    for session in client.http.get("/sessions", status=options.status, limit=options.limit).body[
        "items"
    ]:
        _print_line(
            f"{session['handle']:>8}  {session['status']:<10}  {session['key']:<32}"
            f"  {session.get('title') or ''}"
        )
    return 0


def _format_effect(effect: Json) -> str:
    reference = str(effect.get("external_reference") or "")
    state = (
        f"{effect['handle']:>8}  {effect['state']:<12}  {effect.get('outcome') or '':<7}"
        f"  {effect['permission']:<8}"
    )
    return f"{state}  {effect['tool']:<20}  {effect['effect_key']}  {reference}"


def _resolve_session(client: Client, session: str) -> str:
    """Return the id of a session given by key, handle or id; "" for "". Raises ValueError."""
    if not session or _is_id(session):
        return session
    sessions = client.http.get("/sessions", key=session, limit=1).body["items"] or _find_by_handle(
        client, "/sessions", session
    )
    if not sessions:
        raise ValueError(f"There is no session {session}; `gatebook sessions` lists their keys")
    return str(sessions[0]["id"])


def _find_by_handle(client: Client, path: str, handle: str) -> list[Json]:
    """Return the item with a handle such as e_17, as a list of at most one.

    Lists are ordered by the number in the handle, newest first.
    """
    _, _, number = handle.partition("_")
    if not number.isdecimal() or not number.isascii():
        return []
    items = client.http.get(path, after=int(number) + 1, limit=1).body["items"]
    return [item for item in items if item["handle"] == handle]


def _list_effects(client: Client, options: argparse.Namespace) -> int:
    session = _resolve_session(client, options.session)
    response = client.http.get(
        "/effects", session=session, state=options.state, tool=options.tool, limit=options.limit
    )
    for effect in response.body["items"]:
        _print_line(_format_effect(effect))
    return 0


def _show_resume(client: Client, options: argparse.Namespace) -> int:
    summary = client.http.get(f"/sessions/{_resolve_session(client, options.session)}/resume").body
    ended = (summary.get("session") or {}).get("ended")
    _print_line(
        str(summary["sentence"])
        if ended
        else f"Can it resume safely? {'YES' if summary['safe'] else 'NO'}"
    )
    for item in summary.get("because") or []:
        _print_line(f"  because: {_read_sentence(item)}")
    for item in summary.get("done") or []:
        reference = f" ({item['external_reference']})" if item.get("external_reference") else ""
        note = (
            " Its worker may have ended before it received this result."
            if item.get("unheard")
            else ""
        )
        _print_line(
            f"  done: {_read_sentence(item)} {item['tool']} {item.get('gist') or ''}"
            f"{reference}.{note}"
        )
    for item in summary.get("repeats") or []:
        other = item["other"]
        relation = "repeats" if other["earlier"] else "was repeated as"
        _print_line(
            f"  same call: {item['handle']} {item['tool']} {relation} {other['handle']} in"
            f" {other['session_handle']}, {other['outcome'] or other['state']}"
        )
    open_effects = (summary.get("crash_recovery") or {}).get("open_effects") or []
    for item in open_effects:
        _print_line(f"  open: {_read_sentence(item)}")
    return 0 if summary["safe"] else NOT_SAFE


def _read_sentence(item: Json) -> str:
    effect = item.get("effect")
    handle = (
        effect.get("handle", "") if isinstance(effect, dict) else item.get("handle") or effect or ""
    )
    verdict = item.get("verdict")
    source = verdict if isinstance(verdict, dict) else item
    return str(
        source.get("sentence") or f"{handle} {source.get('verdict', '')} {source.get('reason', '')}"
    ).strip()


def _is_id(text: str) -> bool:
    return len(text) == 36 and text.count("-") == 4


def _follow_effects(client: Client, options: argparse.Namespace) -> int:
    printed: dict[str, str] = {}
    session = _resolve_session(client, options.session)
    while True:
        effects = client.http.get("/effects", session=session, limit=100).body["items"]
        for effect in reversed(effects):
            if printed.get(effect["id"]) != (line := _format_effect(effect)):
                printed[effect["id"]] = line
                _print_line(line)
        if options.once:
            return 0
        client.http.sleep(PAUSE_S)
