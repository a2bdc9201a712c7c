"""What a tool call intends: the tool, its arguments and its target, for rules and people.

Shell commands are mapped to tools (`shell`). Texts in which the model only describes a call vary
from one sampling to the next, so the intent does not contain them.
"""

import shlex
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from api.plan_columns import compute_intent_digest
from api.schemas import core
from hooks.coding_agents.hook_events import HookEvent, read_text_field, to_plain_text
from shell.map_command import map_command
from shell.mapping import ShellMapping

SHELL_TOOLS: Final = {
    "claude-code": frozenset({"Bash"}),
    "codex": frozenset({"Bash", "shell", "local_shell", "exec_command"}),
    "gemini": frozenset({"run_shell_command"}),
}
# Tools of the clients themselves that change nothing outside the machine. A call that a dead
# process left open does not hold its repetition back.
LOCAL_TOOLS: Final = {
    "claude-code": frozenset(
        {
            *("Read", "Glob", "Grep", "LS", "NotebookRead", "Edit", "MultiEdit", "Write"),
            *("NotebookEdit", "TodoWrite", "TodoRead", "BashOutput", "KillShell", "ToolSearch"),
            *("EnterPlanMode", "ExitPlanMode", "AskUserQuestion", "Skill", "Agent", "Task"),
            *("TaskCreate", "TaskGet", "TaskList", "TaskUpdate", "TaskOutput", "TaskStop"),
            *("WebSearch", "ListMcpResourcesTool", "ReadMcpResourceTool"),
        }
    ),
    "codex": frozenset({"apply_patch", "update_plan", "view_image", "read_file", "list_dir"}),
    "gemini": frozenset(
        {
            *("read_file", "read_many_files", "list_directory", "glob", "search_file_content"),
            *("grep_search", "write_file", "replace", "write_todos", "google_web_search"),
            *("save_memory", "activate_skill"),
        }
    ),
}
# Fields in which the model describes a call of the client's own tools.
DESCRIPTIONS: Final = ("description", "justification")
_DESCRIBED_TOOLS: Final = frozenset({"Agent", "Task"})
# Fields of a shell call that say how the client runs it, not what it does.
_HOW_IT_RUNS: Final = frozenset({"timeout", "timeout_ms", "yield_time_ms", "max_output_tokens"})
_GIT_REF_TOOLS: Final = ("git.push", "git.commit", "git.merge", "git.rebase", "git.reset")


class CallIntent(NamedTuple):
    """A tool call as it is planned. `sources` says where each fact of the target is from."""

    tool: str
    arguments: Any
    free_text: list[str]
    digest: str
    why: str
    target: core.Target | None
    sources: dict[str, str]
    changes_outside: bool
    command: str = ""  # of a shell call
    is_simple: bool = False  # a shell call of one program
    is_mapped: bool = False  # a shell call that was understood


def build_call_intent(event: HookEvent, mapping: ShellMapping) -> CallIntent:
    """Return the intent of a hook's call; `mapping` knows the project's shell commands."""
    is_shell = event.tool in SHELL_TOOLS[event.client]
    command = _read_command(event.input) if is_shell else ""
    if is_shell and command and isinstance(event.input, Mapping):
        return _build_shell_intent(event, command, mapping)
    free_text = []
    if event.tool in _DESCRIBED_TOOLS and isinstance(event.input, Mapping):
        free_text = [name for name in DESCRIPTIONS if name in event.input]
    target, sources = _build_target({}, event, "")
    tool = _name_tool(event, mapping)
    return CallIntent(
        tool,
        event.input,
        free_text,
        compute_intent_digest(tool, event.input, free_text),
        _describe(event.input) if free_text else "",
        target,
        sources,
        event.tool not in LOCAL_TOOLS[event.client],
    )


def _name_tool(event: HookEvent, mapping: ShellMapping) -> str:
    """Return the tool of a call that is no shell command.

    An MCP server names its tools as it likes: one called `shell.read` is no command that reads.
    """
    if "." in event.tool and event.tool in mapping.list_tools():
        return f"{event.client}.{event.tool}"
    return event.tool


def _build_shell_intent(event: HookEvent, command: str, mapping: ShellMapping) -> CallIntent:
    mapped = map_command(command, mapping=mapping, cwd=event.cwd)
    left_out = {"command", *DESCRIPTIONS, *_HOW_IT_RUNS}
    rest = {name: value for name, value in event.input.items() if name not in left_out}
    arguments = dict(mapped.arguments)
    if rest:
        arguments["shell"] = rest
    if event.cwd:
        arguments["cwd"] = event.cwd  # the same text in another folder is another intent
    target, sources = _build_target(mapped.target, event, mapped.tool)
    return CallIntent(
        mapped.tool,
        arguments,
        [],
        compute_intent_digest(mapped.tool, arguments, []),
        _describe(event.input),
        target,
        sources,
        mapped.changes_outside or not mapped.parsed,
        command,
        mapped.parsed and len(mapped.parts) <= 1,
        mapped.parsed,
    )


def _read_command(tool_input: Any) -> str:
    command = (
        tool_input.get("command", tool_input.get("cmd"))
        if isinstance(tool_input, Mapping)
        else None
    )
    if isinstance(command, list) and all(isinstance(word, str) for word in command):
        return shlex.join(command)
    return command if isinstance(command, str) else ""


def _describe(tool_input: Any) -> str:
    texts = [read_text_field(tool_input, name) for name in DESCRIPTIONS]
    return next((text for text in texts if text), "")


def _build_target(
    named: Mapping[str, Any], event: HookEvent, tool: str
) -> tuple[core.Target | None, dict[str, str]]:
    """Return the target and the source of each of its facts.

    What the command names counts before what its folder says.
    """
    values: dict[str, str] = {}
    sources: dict[str, str] = {}
    for name, most in (("repository", 200), ("ref", 200), ("environment", 64), ("resource", 300)):
        fact = named.get(name)
        if isinstance(fact, Mapping) and read_text_field(fact, "value"):
            values[name] = to_plain_text(read_text_field(fact, "value"), most)
            sources[name] = read_text_field(fact, "source")
    directory = _read_fact(named, "directory")
    if directory in (None, event.cwd):  # else the folder of the client says nothing about it
        _add_folder_facts(values, sources, _read_fact(named, "remote"), event, tool)
    elif remote := _read_fact(named, "remote"):
        _add_address(values, sources, remote, "command: remote")
    values = {name: value for name, value in values.items() if value}
    return (core.Target(**values) if values else None), sources


def _read_fact(named: Mapping[str, Any], name: str) -> str | None:
    """Return the value of a fact that the command names; None if it does not."""
    fact = named.get(name)
    return read_text_field(fact, "value") if isinstance(fact, Mapping) else None


def _add_folder_facts(
    values: dict[str, str], sources: dict[str, str], remote: str | None, event: HookEvent, tool: str
) -> None:
    """Complete a target by the remotes and the branch of the client's folder."""
    remotes = event.facts.get("remotes")
    address = remotes.get(remote) if isinstance(remotes, Mapping) and remote else None
    if isinstance(address, str) and address:
        source = f"command: remote, and the remotes of the folder ({_get_source(event)})"
        _add_address(values, sources, address, source)
    elif remote:
        _add_address(values, sources, remote, "command: remote")
    repository = read_text_field(event.facts, "repository")
    if repository and not remote and "repository" not in values:
        values["repository"] = to_plain_text(repository, 200)
        sources["repository"] = f"the folder ({_get_source(event)})"
    branch = read_text_field(event.facts, "branch")
    if branch and tool in _GIT_REF_TOOLS and values.get("ref", "HEAD") == "HEAD":
        values["ref"] = to_plain_text(branch, 200)
        sources["ref"] = f"the branch of the folder ({_get_source(event)})"


def _add_address(
    values: dict[str, str], sources: dict[str, str], address: str, source: str
) -> None:
    """Set the repository to that of an address; the bare name of a remote is no repository."""
    if "repository" not in values and ("/" in address or ":" in address):
        values["repository"] = to_plain_text(shorten_address(address), 200)
        sources["repository"] = source


def _get_source(event: HookEvent) -> str:
    return read_text_field(event.facts, "source") or "gatebook hook"


def shorten_address(address: str) -> str:
    """Return `owner/name` of a repository's address; any other text as it is."""
    rest = address
    if "://" in address:
        rest = address.partition("://")[2].partition("/")[2]
    elif ":" in address.partition("/")[0]:
        rest = address.partition(":")[2]
    return rest.strip("/").removesuffix(".git") or address
