"""`gatebook hook`: pass one hook of a coding agent to Gatebook and print the answer.

A coding agent runs this at every tool call, with the hook as JSON on standard input. Whatever goes
wrong, a call that waits for a decision is denied: no server, no answer in time, an answer that is
not understood. Other events answer with an empty object, and are kept and sent with the next hook.

Standard library only, and little of it: the start is paid at every tool call.
"""

import _thread
import json
import os
import sys
import time

from gatebook_client import hook_spool
from gatebook_client.connections import DEFAULT_NAME, NAME_ENV_NAME, load_connection
from gatebook_client.git_facts import read_git_facts
from gatebook_client.plain_http import RequestFailed, parse_object, send_request

AGENTS = ("claude-code", "codex", "gemini")
DEADLINE_S = 20.0  # below the 30 seconds that `gatebook connect` allows a hook
MAX_BODY_BYTES = 64 * 1024 * 1024
# Events of which a tool call waits for the answer.
PRE_EVENTS = {"PreToolUse", "PermissionRequest", "BeforeTool"}
DECISIONS = ("allow", "deny", "ask", "defer")
USAGE = f"""usage: gatebook hook {{{",".join(AGENTS)}}} [--connection NAME] [--rewrite]
                     [--deadline SECONDS]

Reads one hook of the coding agent from standard input and prints Gatebook's answer. Without an
answer in time (default: {DEADLINE_S:g} seconds), a call that waits for a decision is denied.
--rewrite lets Gatebook replace shell commands that it understands by `gatebook exec`.
"""


TYPE_CHECKING = False  # as in typing, which takes long to load
if TYPE_CHECKING:
    from collections.abc import Callable


class Options:
    """What the arguments of the command ask for; `wrong` says what is wrong with them."""

    def __init__(self) -> None:
        self.agent = ""
        self.connection = ""
        self.deadline_s = DEADLINE_S
        self.rewrites = False
        self.wants_help = False
        self.wrong = ""


class HookFailed(Exception):
    """The hook cannot be answered by Gatebook; the text says why and what to do."""


class Hook:
    """One hook: the bytes that were read, and what could be understood of them."""

    def __init__(self, agent: str, body: bytes) -> None:
        self.agent = agent
        self.body = body
        try:
            parsed = json.loads(body.decode("utf-8", "surrogatepass"))
        except (ValueError, RecursionError):
            parsed = None
        self.fields: dict[str, object] = parsed if isinstance(parsed, dict) else {}
        self.event = str(self.fields.get("hook_event_name") or "")

    @property
    def waits(self) -> bool:
        """Whether a tool call waits for the answer; true where that cannot be known."""
        if not self.event or self.event in PRE_EVENTS:
            return True
        is_before = self.event.startswith(("Pre", "Before", "Permission"))
        return is_before and "tool_name" in self.fields and self.event != "PermissionDenied"

    def add_facts(self, facts: dict[str, object]) -> bytes:
        """Return the body with a field `gatebook`; every other byte is as it was read."""
        added = json.dumps(facts, separators=(",", ":"))
        if "gatebook" in self.fields:
            return json.dumps(self.fields | {"gatebook": facts}).encode()
        kept = self.body.rstrip(b" \t\r\n")
        separator = "," if self.fields else ""
        return kept[:-1] + f'{separator}"gatebook":{added}}}'.encode()

    def deny(self, reason: str) -> dict[str, object]:
        """Return the answer that denies the call, in the form of its agent; else an empty one."""
        if not self.waits:
            return {}
        if self.agent == "gemini":
            return {"decision": "deny", "reason": reason}
        if self.event == "PermissionRequest":
            decision = {"behavior": "deny", "message": reason}
            return {"hookSpecificOutput": {"hookEventName": self.event, "decision": decision}}
        return {
            "hookSpecificOutput": {
                "hookEventName": self.event or "PreToolUse",
                "permissionDecision": "deny",
                "permissionDecisionReason": reason,
            }
        }

    def is_understood(self, answer: dict[str, object]) -> bool:
        """Return whether an answer is for a call that waits for it.

        An answer that names the event and no decision leaves it to the agent's own permissions.
        """
        if self.event == "PermissionRequest" and not answer:
            return True
        if self.agent == "gemini":
            return answer.get("decision") in ("allow", "deny", "block", "ask", "approve")
        output = answer.get("hookSpecificOutput")
        if not isinstance(output, dict) or output.get("hookEventName") != self.event:
            return False
        if self.event == "PermissionRequest":
            decision = output.get("decision")
            return isinstance(decision, dict) and decision.get("behavior") in ("allow", "deny")
        return output.get("permissionDecision", "allow") in DECISIONS


def main(arguments: list[str]) -> int:
    """Answer one hook on standard output.

    Returns 0, or 2 if nothing could be printed: the coding agents block the call at that code.
    """
    options = _parse_arguments(arguments)
    if options.wants_help:
        sys.stdout.write(USAGE)
        return 0
    answers: list[bytes] = []
    hooks: list[Hook] = []
    unsent: list[Callable[[], None]] = []  # what keeps the report that is being sent
    finished = _thread.allocate_lock()
    finished.acquire()

    def work() -> None:
        """Read and answer; a separate thread, because not every wait has a limit of its own."""
        try:
            if options.wrong:
                body = sys.stdin.buffer.read(MAX_BODY_BYTES)
                hooks.append(Hook(options.agent, body))
                raise HookFailed(options.wrong)
            answers.append(_answer_hook(options, hooks, unsent))
        except HookFailed as error:
            answers.append(_deny_bytes(options.agent, hooks, str(error)))
        except BaseException as error:
            answers.append(_deny_bytes(options.agent, hooks, f"The hook failed: {error!r}."))
        finally:
            finished.release()

    _thread.start_new_thread(work, ())
    finished.acquire(timeout=options.deadline_s)
    if not answers:
        for keep in unsent:
            keep()
        sentence = f"Gatebook did not answer within {options.deadline_s:g} seconds."
        answers.append(_deny_bytes(options.agent, hooks, sentence))
    try:
        sys.stdout.buffer.write(answers[0] + b"\n")
        sys.stdout.buffer.flush()
    except OSError:
        os._exit(2)
    os._exit(0)  # the thread may still wait for something that has no limit


def _parse_arguments(arguments: list[str]) -> Options:
    """Return the options. argparse would take longer to load than the rest."""
    options = Options()
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if word in ("-h", "--help"):
            options.wants_help = True
        elif word == "--rewrite":
            options.rewrites = True
        elif word == "--connection" and rest:
            options.connection = rest.pop(0)
        elif word == "--deadline" and rest:
            try:
                deadline_s = float(rest.pop(0))
            except ValueError:
                deadline_s = 0.0
            if 0 < deadline_s <= 3600:
                options.deadline_s = deadline_s
            else:
                options.wrong = "--deadline is a number of seconds from 0 to 3600."
        elif word in AGENTS and not options.agent:
            options.agent = word
        else:
            options.wrong = f"`gatebook hook` does not know {word!r}."
    if not options.agent and not options.wrong:
        options.wrong = f"Name the coding agent: {', '.join(AGENTS)}."
    return options


def _deny_bytes(agent: str, hooks: list[Hook], reason: str) -> bytes:
    hook = hooks[0] if hooks else Hook(agent, b"")
    sentence = f"{reason} Nothing was executed. Check `gatebook hook` and the server, then retry."
    answer = hook.deny(sentence)
    if not answer:
        sys.stderr.write(f"gatebook: {reason}\n")
    return json.dumps(answer).encode()


def _answer_hook(options: Options, hooks: list[Hook], unsent: "list[Callable[[], None]]") -> bytes:
    """Return the bytes to print.

    Appends the hook to `hooks` as soon as it is read, and to `unsent` what keeps its report.
    """
    until = time.monotonic() + options.deadline_s
    body = sys.stdin.buffer.read(MAX_BODY_BYTES + 1)
    hook = Hook(options.agent, body[:MAX_BODY_BYTES])
    hooks.append(hook)
    if len(body) > MAX_BODY_BYTES:
        raise HookFailed(f"The hook has more than {MAX_BODY_BYTES} bytes.")
    if not hook.fields:
        raise HookFailed("The hook is not a JSON object.")
    name = options.connection or os.environ.get(NAME_ENV_NAME, "")
    try:
        url, token = load_connection(name)
    except ValueError as error:
        raise HookFailed(str(error)) from error
    path = f"/api/v1/hooks/{options.agent}"
    spool = hook_spool.get_spool_folder(url, name)
    # Half of the time at most goes into older reports.
    _deliver_older(spool, url, token, time.monotonic() + options.deadline_s / 2)
    folder = hook.fields.get("cwd")
    facts = read_git_facts(folder if isinstance(folder, str) and folder else ".")
    # The server recognizes by its id a report that arrives twice, and knows how late it is.
    facts |= {"delivery": os.urandom(16).hex(), "occurred_us": time.time_ns() // 1000}
    facts |= _read_client_facts(options, name)
    sent = hook.add_facts(facts)

    def keep(*, was_sent: bool = True) -> None:
        _keep_for_later(hook, spool, path, sent, facts, was_sent=was_sent)

    unsent.append(keep)
    try:
        # A little earlier than the deadline, so that the answer is still printed.
        left_s = max(until - time.monotonic() - min(0.5, options.deadline_s / 10), 0.05)
        status, received = send_request("POST", url, path, token=token, body=sent, timeout_s=left_s)
    except (RequestFailed, ValueError) as error:
        was_sent = isinstance(error, RequestFailed) and error.sent
        keep(was_sent=was_sent)
        raise HookFailed(f"Gatebook does not answer at {url} ({error}).") from error
    answer = parse_object(received)
    if status != 200:
        if not hook.waits and (status >= 500 or status in (401, 403, 408, 429)):
            keep()
        detail = str(answer.get("detail") or "").rstrip(".")
        raise HookFailed(f"Gatebook answered with HTTP {status}{': ' if detail else ''}{detail}.")
    if not answer and received.strip() != b"{}":
        keep()
        raise HookFailed(f"The server at {url} is not a Gatebook: its answer is not understood.")
    if hook.waits and not hook.is_understood(answer):
        keep()
        raise HookFailed("`gatebook hook` does not understand the answer. Update gatebook-client.")
    return received.strip()


def _read_client_facts(options: Options, connection: str) -> dict[str, object]:
    """Return what the client can do with a call: put it off, or run it by `gatebook exec`."""
    facts: dict[str, object] = {}
    if os.environ.get("CLAUDE_CODE_ENTRYPOINT") == "sdk-cli":  # `claude -p`
        facts["headless"] = True
    # The command that replaces a call names no connection, and is looked up by PATH.
    is_default = connection in ("", DEFAULT_NAME, os.environ.get(NAME_ENV_NAME, DEFAULT_NAME))
    if options.rewrites and is_default and _is_on_path("gatebook"):
        facts["rewrite"] = True
    return facts


def _is_on_path(program: str) -> bool:
    folders = os.environ.get("PATH", "").split(os.pathsep)
    return any(os.access(f"{folder}/{program}", os.X_OK) for folder in folders if folder)


def _deliver_older(spool: str, url: str, token: str, until: float) -> None:
    """Send the reports that are kept, until `until`. What cannot be sent stays."""

    def send(path: str, body: bytes) -> int:
        left_s = until - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        return send_request("POST", url, path, token=token, body=body, timeout_s=left_s)[0]

    try:
        hook_spool.deliver_reports(spool, send)
    except (OSError, RequestFailed, ValueError) as error:
        sys.stderr.write(f"gatebook: earlier reports are kept: {error}\n")


def _keep_for_later(
    hook: Hook, spool: str, path: str, sent: bytes, facts: dict[str, object], *, was_sent: bool
) -> None:
    """Keep a report. Of a call that is denied, keep that it was not executed.

    Gatebook may have permitted a call whose answer got lost; it learns that nothing was begun.
    """
    if hook.waits:
        if not was_sent:
            return
        names = ("session_id", "cwd", "transcript_path", "tool_name", "tool_input", "tool_use_id")
        fields = {name: hook.fields[name] for name in names if name in hook.fields}
        fields |= {
            name: value
            for name, value in hook.fields.items()
            if name in ("agent_id", "agent_type", "turn_id", "prompt_id")
        }
        fields["hook_event_name"] = "PermissionDenied"
        fields["reason"] = "gatebook hook: no answer in time; the call was denied"
        sent = json.dumps(fields | {"gatebook": facts | {"denied_locally": True}}).encode()
    try:
        try:
            hook_spool.store_report(spool, path, sent)
        except hook_spool.SpoolFull:
            if "tool_response" not in hook.fields:
                raise
            short = hook.fields | {"tool_response": {"left_out": f"{len(sent)} bytes"}}
            hook_spool.store_report(spool, path, json.dumps(short | {"gatebook": facts}).encode())
    except OSError as error:
        sys.stderr.write(f"gatebook: this report could not be kept: {error}\n")
