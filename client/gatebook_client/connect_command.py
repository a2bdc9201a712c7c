"""`gatebook connect`: let a coding agent ask Gatebook before each tool call.

It takes a token or gets one through the browser, stores it, writes the hooks into the settings file
of the coding agent after showing the difference, and tests that a call is held. `--undo` restores
the file.
"""

import argparse
import base64
import difflib
import hashlib
import json
import os
import secrets
import subprocess
import sys
import time
import webbrowser
from pathlib import Path
from typing import Any

from gatebook_client.agent_settings import (
    AGENT_SETTINGS,
    AgentSettings,
    add_hooks,
    build_groups,
    make_hook_command,
    remove_hooks,
)
from gatebook_client.connections import (
    DEFAULT_NAME,
    check_connection_name,
    get_state_folder,
    load_connection,
    store_connection,
    write_private_file,
)
from gatebook_client.plain_http import RequestFailed, parse_object, send_request
from gatebook_client.settings_edit import NotEditable

TIMEOUT_S = 10.0
CLAIM_EVERY_S = 2.0
CLAIM_WITHIN_S = 600.0
TEST_COMMAND = "git push origin HEAD:refs/heads/main"
DONE, NOT_HELD, REFUSED, UNAVAILABLE, USAGE = 0, 3, 77, 69, 64
RULE = """rules:
  - {id: ask-push, title: A push is asked for, match: {tools: [git.push]}, outcome: require}"""


class ConnectFailed(Exception):
    """Connecting ends; the text says what was done and what to do."""

    def __init__(self, sentence: str, code: int = USAGE) -> None:
        super().__init__(sentence)
        self.code = code


def main(arguments: list[str]) -> int:
    """Run `gatebook connect` and return its exit code."""
    options = _make_parser().parse_args(arguments)
    settings = AGENT_SETTINGS[options.agent]
    project = Path.cwd() if options.project else None
    try:
        check_connection_name(options.connection)
        path = settings.locate_file(project)
        if options.undo:
            return _undo(settings, path, yes=options.yes)
        url, token = _obtain_token(options)
        stored = store_connection(options.connection, url, token)
        _print(f"The connection {options.connection} to {url} is stored in {stored}.")
        _write_settings(settings, path, options)
        code = DONE if options.no_test else check_hook(settings, options, url, token)
        if settings.remaining_step:
            _print(settings.remaining_step)
        return code
    except NotEditable as error:
        return _fail(f"{path} is not changed: {error}.", USAGE)
    except ConnectFailed as error:
        return _fail(str(error), error.code)
    except (ValueError, OSError) as error:
        return _fail(str(error), USAGE)
    except KeyboardInterrupt:
        return 130


def _make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gatebook connect", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("agent", choices=list(AGENT_SETTINGS))
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--user", action="store_true", help="for all your folders (default)")
    where.add_argument("--project", action="store_true", help="for this folder only")
    parser.add_argument("--url", default="", help="default: GATEBOOK_URL")
    parser.add_argument(
        "--token", default="", help="default: GATEBOOK_TOKEN; without it, the browser issues one"
    )
    parser.add_argument(
        "--connection",
        default=DEFAULT_NAME,
        metavar="NAME",
        help="name under which address and token are stored; default: %(default)s",
    )
    parser.add_argument("--yes", action="store_true", help="write without asking")
    parser.add_argument(
        "--portable",
        action="store_true",
        help="write `gatebook` as found by PATH, for a settings file that others share",
    )
    parser.add_argument("--undo", action="store_true", help="restore the settings file")
    parser.add_argument("--no-browser", action="store_true", help="print the address only")
    parser.add_argument("--no-test", action="store_true", help="do not test that a call is held")
    parser.add_argument(
        "--test-command",
        default=TEST_COMMAND,
        metavar="COMMAND",
        help="shell command that a rule should hold; it is not run; default: %(default)s",
    )
    return parser


def _print(line: str = "") -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _fail(sentence: str, code: int) -> int:
    sys.stderr.write(f"gatebook: {sentence}\n")
    return code


# The token.


def _obtain_token(options: argparse.Namespace) -> tuple[str, str]:
    """Return address and token: given, stored before, or issued through the browser."""
    url = (options.url or os.environ.get("GATEBOOK_URL", "")).rstrip("/")
    token = options.token or os.environ.get("GATEBOOK_TOKEN", "")
    if not (url and token):
        try:
            stored_url, stored_token = load_connection(options.connection)
        except ValueError:
            stored_url, stored_token = "", ""
        url = url or stored_url
        if not token and stored_url.rstrip("/") == url:
            token = stored_token
    if not url:
        raise ConnectFailed(
            "The address of Gatebook is missing. Pass --url https://… or set GATEBOOK_URL."
        )
    if token and _is_valid_token(url, token):
        return url, token
    if token and (options.token or os.environ.get("GATEBOOK_TOKEN")):
        raise ConnectFailed(
            f"{url} refuses the token. Issue another on the page Tokens, or leave --token out to"
            " get one through the browser.",
            REFUSED,
        )
    return url, request_token(url, no_browser=options.no_browser)


def _is_valid_token(url: str, token: str) -> bool:
    try:
        status, body = send_request(
            "GET", url, "/api/v1/sessions?limit=1", token=token, timeout_s=TIMEOUT_S
        )
    except RequestFailed as error:
        raise ConnectFailed(f"{url} does not answer ({error}).", UNAVAILABLE) from error
    if status in (401, 403):
        return False
    if status >= 500:
        raise ConnectFailed(
            f"{url} answers with HTTP {status}. Its log has the cause.", UNAVAILABLE
        )
    if status != 200 or "items" not in parse_object(body):
        raise ConnectFailed(f"The server at {url} is not a Gatebook (HTTP {status}).", UNAVAILABLE)
    return True


def request_token(url: str, *, no_browser: bool = False) -> str:
    """Ask an administrator, in a browser, for a token, and return it.

    The page knows only a hash of the secret that fetches the token. Raises ConnectFailed.
    """
    secret = secrets.token_urlsafe(32)
    code = hashlib.sha256(secret.encode()).hexdigest()
    page = f"{url}/settings/connect/{code}/"
    _print("An administrator of the project issues a token on this page:")
    _print(f"\n  {page}\n")
    _print(f"The page must show this code:\n\n  {format_check_code(code)}\n")
    if not no_browser:
        webbrowser.open(page)
    until = time.monotonic() + CLAIM_WITHIN_S
    body = json.dumps({"secret": secret}).encode()
    while time.monotonic() < until:
        try:
            status, received = send_request(
                "POST", url, "/settings/connect/claim/", body=body, timeout_s=TIMEOUT_S
            )
        except RequestFailed as error:
            raise ConnectFailed(f"{url} does not answer ({error}).", UNAVAILABLE) from error
        answer = parse_object(received)
        if status == 200 and isinstance(answer.get("token"), str):
            _print(f"The token of {answer.get('agent')} arrived.")
            return str(answer["token"])
        if status not in (202, 429):
            raise ConnectFailed(
                f"{url} issues no tokens this way (HTTP {status}). Issue one on the page Tokens and"
                " pass it by --token.",
                REFUSED,
            )
        time.sleep(CLAIM_EVERY_S)
    raise ConnectFailed("No token was issued within 10 minutes. Nothing was changed.", REFUSED)


def format_check_code(code: str) -> str:
    """Return the part of a code that a person compares."""
    return f"{code[:4]}-{code[4:8]}-{code[8:12]}".upper()


# The settings file.


def _write_settings(settings: AgentSettings, path: Path, options: argparse.Namespace) -> None:
    before = path.read_bytes() if path.exists() else None
    text = "" if before is None else before.decode("utf-8")
    groups = build_groups(settings, options.connection, portable=options.portable)
    after = add_hooks(text, groups)
    if after == text:
        _print(f"{path} has the hooks already.")
        return
    _confirm(path, text, after, yes=options.yes)
    _store_undo(path, before, after.encode())
    replace_file(path, after.encode())
    where = " --project" if options.project else ""
    _print(f"{path} is written. `gatebook connect {settings.name}{where} --undo` restores it.")


def _confirm(path: Path, before: str, after: str, *, yes: bool) -> None:
    """Show the difference and ask. Raises ConnectFailed unless the person agrees."""
    lines = difflib.unified_diff(
        before.splitlines(), after.splitlines(), str(path), str(path), lineterm=""
    )
    for line in lines:
        _print(line)
    if yes:
        return
    if not sys.stdin.isatty():
        raise ConnectFailed("Nothing was written. Read the difference and pass --yes.")
    sys.stdout.write("Write this? [y/N] ")
    sys.stdout.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise ConnectFailed("Nothing was written.")


def replace_file(path: Path, content: bytes) -> None:
    """Replace a settings file as a whole, with the mode that it had; follow a symbolic link."""
    target = path.resolve()
    target.parent.mkdir(parents=True, exist_ok=True)
    mode = target.stat().st_mode & 0o777 if target.exists() else 0o600
    write_private_file(str(target), content)
    target.chmod(mode)


def _undo_path(path: Path) -> Path:
    name = hashlib.sha256(str(path.absolute()).encode()).hexdigest()[:24]
    return Path(get_state_folder()) / "connect" / f"{name}.json"


def _store_undo(path: Path, before: bytes | None, after: bytes) -> None:
    undo = _undo_path(path)
    undo.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    stored = json.loads(undo.read_bytes()) if undo.exists() else None
    current = hashlib.sha256(before or b"").hexdigest()
    if stored is not None and before is not None and stored["after"] == current:
        original = stored["before"]  # the file still is what an earlier run wrote
    else:
        original = None if before is None else base64.b64encode(before).decode()
    content = {
        "path": str(path.absolute()),
        "before": original,
        "after": hashlib.sha256(after).hexdigest(),
    }
    write_private_file(str(undo), json.dumps(content).encode())


def _undo(settings: AgentSettings, path: Path, *, yes: bool) -> int:
    """Restore the settings file exactly, or remove the hooks if it was changed since."""
    if not path.exists():
        _print(f"{path} does not exist. Nothing to undo.")
        return DONE
    undo, current = _undo_path(path), path.read_bytes()
    stored = json.loads(undo.read_bytes()) if undo.exists() else None
    if stored is not None and stored["after"] == hashlib.sha256(current).hexdigest():
        original = None if stored["before"] is None else base64.b64decode(stored["before"])
        _confirm(path, current.decode(), (original or b"").decode(), yes=yes)
        if original is None:
            path.unlink()
        else:
            replace_file(path, original)
    else:
        text = current.decode("utf-8")
        after = remove_hooks(text)
        if after == text:
            _print(f"{path} has no hooks of Gatebook. Nothing to undo.")
            return DONE
        _print(f"{path} was changed since. Only the hooks of Gatebook are removed.")
        _confirm(path, text, after, yes=yes)
        replace_file(path, after.encode())
    undo.unlink(missing_ok=True)
    _print(f"{settings.title} does not ask Gatebook any more. Its token stays valid; revoke it on")
    _print("the page Tokens if nothing else uses it.")
    return DONE


# The test.


def make_test_hook(settings: AgentSettings, session: str, command: str) -> dict[str, Any]:
    """Return a hook as the coding agent sends it before it runs a shell command."""
    fields: dict[str, Any] = {
        "session_id": session,
        "transcript_path": "",
        "cwd": str(Path.cwd()),
        "hook_event_name": settings.gate_events[0],
        "tool_name": "run_shell_command" if settings.name == "gemini" else "Bash",
        "tool_input": {"command": command},
    }
    if settings.name == "gemini":
        return fields | {"timestamp": time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime())}
    return fields | {"permission_mode": "default", "tool_use_id": f"call_{secrets.token_hex(8)}"}


def check_hook(settings: AgentSettings, options: argparse.Namespace, url: str, token: str) -> int:
    """Run the hook that was written, and report whether it holds the test command."""
    command = make_hook_command(
        settings.name, options.connection, portable=options.portable, gate=True
    )
    session = f"connect-test-{secrets.token_hex(6)}"
    hook = make_test_hook(settings, session, options.test_command)
    kept_out = {"GATEBOOK_URL", "GATEBOOK_TOKEN", "GATEBOOK_CONNECTION"}
    environment = {name: value for name, value in os.environ.items() if name not in kept_out}
    offline = environment | {"XDG_CONFIG_HOME": os.devnull}
    denied, sentence = read_decision(settings, _run_hook(command, hook, offline))
    if denied != "deny":
        raise ConnectFailed(
            f"The hook does not deny a call without a connection: {sentence}", NOT_HELD
        )
    _print("Without a connection the hook denies every call.")
    started = time.monotonic()
    decision, sentence = read_decision(settings, _run_hook(command, hook, environment))
    took_ms = (time.monotonic() - started) * 1000
    _end_test(settings, url, token, session)
    if "Nothing was executed." in sentence:  # the hook itself denies: it has no answer
        return _fail(f"The hook gets no answer: {sentence}", UNAVAILABLE)
    if decision in ("deny", "defer", "rewritten"):
        how = {
            "deny": "is denied until people approve it",
            "defer": "waits for people without a process",
            "rewritten": "is replaced by `gatebook exec`, which waits for people",
        }[decision]
        _print(f"Held: `{options.test_command}` {how} ({took_ms:.0f} ms).")
        if sentence:
            _print(f"  The coding agent reads: {sentence}")
        _print("This was a test: nothing was executed, and its request is withdrawn.")
        _print(f"Requests for approval are at {url}/approvals/.")
        return DONE
    _print(f"Not held: Gatebook lets `{options.test_command}` pass ({took_ms:.0f} ms).")
    _print("No active rule of the project holds it. Calls are recorded all the same. Add a rule on")
    _print(f"the page Policies ({url}/policies/), activate it to enforce, and run this again:")
    _print(RULE)
    return NOT_HELD


def _run_hook(command: str, hook: dict[str, Any], environment: dict[str, str]) -> dict[str, Any]:
    completed = subprocess.run(  # noqa: S602  as the coding agent runs it
        command,
        shell=True,
        input=json.dumps(hook).encode(),
        capture_output=True,
        timeout=60,
        env=environment,
        check=False,
    )
    if completed.returncode != 0:
        error = completed.stderr.decode("utf-8", "replace").strip()[:500]
        raise ConnectFailed(f"The hook ends with code {completed.returncode}: {error}", NOT_HELD)
    return parse_object(completed.stdout)


def read_decision(settings: AgentSettings, answer: dict[str, Any]) -> tuple[str, str]:
    """Return what an answer decides, and its reason."""
    output = answer.get("hookSpecificOutput")
    output = output if isinstance(output, dict) else {}
    if settings.name == "gemini":
        changed = output.get("tool_input")
        decision, reason = answer.get("decision"), answer.get("reason")
    else:
        changed = output.get("updatedInput")
        decision = output.get("permissionDecision")
        reason = output.get("permissionDecisionReason")
    rewritten = isinstance(changed, dict) and "gatebook" in str(changed.get("command"))
    if decision in (None, "allow") and rewritten:
        return "rewritten", str(reason or "")
    return str(decision or "nothing"), str(reason or "")


def _end_test(settings: AgentSettings, url: str, token: str, session: str) -> None:
    """End the session of the test, which withdraws its request for approval."""
    try:
        status, body = send_request(
            "GET", url, f"/api/v1/sessions?key={session}&limit=1", token=token, timeout_s=TIMEOUT_S
        )
        items = parse_object(body).get("items")
        if status == 200 and isinstance(items, list) and items:
            send_request(
                "POST",
                url,
                f"/api/v1/sessions/{items[0]['id']}/end",
                token=token,
                body=b'{"status":"cancelled"}',
                timeout_s=TIMEOUT_S,
                headers=(("Idempotency-Key", secrets.token_hex(16)),),
            )
    except RequestFailed:
        pass
