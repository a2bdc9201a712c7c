"""Map a shell command to the tools that it calls. Pure; never raises.

The order of risk is that of shell/command_effects.py: what is not parsed, then what is not
known, then what destroys, changes, stays on this machine, only reads. The gravest part names the
tool; of equal parts the first. All parts are shown in their order.
"""

import posixpath
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from shell.argument_readers import strip_password
from shell.command_effects import (
    CHANGES,
    CODE_TOOL,
    DELETE_TOOL,
    EDIT_TOOL,
    EFFECTS,
    LOCAL,
    OUTSIDE,
    READ_TOOL,
    READS,
    RUN_TOOL,
    RUNS,
    UNPARSED,
    UNPARSED_TOOL,
    is_graver,
)
from shell.interpretation import MAX_NESTING, Invocation, interpret_command
from shell.mapping import MappedCall, ShellMapping
from shell.words import is_unknown_value, show_words
from shell.wrappers import UnclearError

MAX_PARTS: Final = 50  # in arguments; more are counted
MAX_VALUE: Final = 4_000  # characters of one argument of a part
MAX_VALUES: Final = 200  # of one argument that is a list
_MAX_REF: Final = 200  # characters of the ref of a target
ANY_REF: Final = "*"  # as accounts/git_refs.py calls it
_WIDE_PUSHES: Final = ("all", "mirror", "tags", "follow_tags", "delete", "prune")
_GIT_DIRECTORIES: Final = ("git_dir", "work_tree")
# Tools that run a command elsewhere: the argument with its words, and whether a shell reads them.
_REMOTE_COMMANDS: Final = {
    "ssh.run": True,
    "kubectl.exec": False,
    "docker.exec": False,
    "docker.run": False,
}
# Modules of Python that are called like another program.
_PYTHON_MODULES: Final = frozenset(
    {"code", "test", "time", "timeit", "this", "trace", "cmd", "base64", "uu"}
)
_API_REPOSITORY: Final = re.compile(r"/?repos/([^/{}]+/[^/{}?]+)")
_UNPRINTABLE: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]+")
# As long as the API takes them; a longer ref counts as any ref.
_FACT_CHARACTERS: Final = {"environment": 64, "resource": 300, "repository": 200, "remote": 200}
_Facts = dict[str, dict[str, str]]


@dataclass(frozen=True, slots=True)
class CommandPart:
    """One simple command as the call of a tool. `why` says by what it was mapped."""

    tool: str
    arguments: dict[str, Any]
    effect: str
    target: _Facts
    text: str
    why: str


@dataclass(frozen=True, slots=True)
class MappedCommand:
    """A shell command as a call of the tool of its gravest part.

    `arguments` are those of that part, with `command` and, if there are several parts, `parts`,
    `tools` and `compound` (whether several parts change something outside). `target` has facts that
    the command itself names, each with `value` and `source`: repository, remote, ref, environment,
    resource, and `directory` if the part runs elsewhere than in `cwd` (empty if not known where).
    """

    tool: str
    arguments: dict[str, Any]
    target: _Facts
    parts: tuple[CommandPart, ...]
    parsed: bool
    changes_outside: bool
    effect: str
    why: str


def map_command(command: str, *, mapping: ShellMapping, cwd: str = "") -> MappedCommand:
    """Return the tool that a command calls, its arguments and its parts. Never raises."""
    parts = list_command_parts(command, mapping=mapping, cwd=cwd)
    gravest = max(parts, key=lambda part: EFFECTS.index(part.effect))  # the first of equals
    arguments: dict[str, Any] = {"command": command}
    arguments |= {name: _cut_value(value) for name, value in gravest.arguments.items()}
    if len(parts) > 1:
        arguments["parts"] = [
            {
                "tool": part.tool,
                "arguments": {name: _cut_value(value) for name, value in part.arguments.items()},
            }
            for part in parts[:MAX_PARTS]
        ]
        if len(parts) > MAX_PARTS:
            arguments["further_parts"] = len(parts) - MAX_PARTS
        arguments["tools"] = sorted({part.tool for part in parts})
        arguments["compound"] = sum(part.effect in OUTSIDE for part in parts) > 1
    return MappedCommand(
        tool=gravest.tool,
        arguments=arguments,
        target=_merge_targets(gravest, parts),
        parts=tuple(parts),
        parsed=all(part.effect != UNPARSED for part in parts),
        changes_outside=gravest.effect in OUTSIDE,
        effect=gravest.effect,
        why=gravest.why,
    )


def list_command_parts(
    command: str, *, mapping: ShellMapping, cwd: str = "", nesting: int = 0
) -> list[CommandPart]:
    """Return the parts of a command in the order of their execution, at least one."""
    if not isinstance(command, str):
        return [_build_unclear("", "it is no text")]
    try:
        invocations = interpret_command(command, nesting=nesting)
        parts = [
            part
            for invocation in invocations
            for part in _map_invocation(invocation, mapping, cwd, nesting)
        ]
    except Exception as fault:  # nothing that was not expected may look harmless
        return [_build_unclear(command, f"the parser failed ({type(fault).__name__})")]
    return parts or [
        CommandPart(READ_TOOL, {"program": ""}, READS, {}, command[:500], "no command")
    ]


def _build_unclear(text: str, reason: str) -> CommandPart:
    return CommandPart(
        UNPARSED_TOOL, {"text": text[:500], "reason": reason}, UNPARSED, {}, text[:500], reason
    )


def _map_invocation(
    invocation: Invocation, mapping: ShellMapping, cwd: str, nesting: int
) -> list[CommandPart]:
    if invocation.reason:
        return [_build_unclear(invocation.text, invocation.reason)]
    invocation = _enter_module(invocation, mapping)
    name = invocation.program
    words = invocation.words
    if name == ">":
        arguments = {"program": ">", "paths": show_words(words[1:])}
        return [_build_part(invocation, EDIT_TOOL, arguments, LOCAL, "writes a file")]
    try:
        call = mapping.map_program(name, words[1:], invocation.stdin)
    except UnclearError as error:
        return [_build_unclear(invocation.text, str(error))]
    if call is None:
        why = (
            f"no usage line of {name} applies"
            if mapping.has_program(name)
            else "the mapping has no such program"
        )
        return [_build_part(invocation, RUN_TOOL, _show_unmapped(invocation), RUNS, why)]
    arguments, tool, effect = call.arguments, call.tool, call.effect
    if tool.partition(".")[0] != name:
        arguments = {"program": name, **arguments}
    why = call.why
    if effect == RUNS and tool.startswith(("shell.", "packages.")):
        tool = RUN_TOOL
    if not invocation.trusted and not is_graver(effect, LOCAL):
        if effect == READS:
            path = words[0].value or ""
            folder = path.rpartition("/")[0]
            tool, effect = (
                (CODE_TOOL, LOCAL) if not folder or folder.endswith("bin") else (RUN_TOOL, RUNS)
            )
            arguments = {**arguments, "program": name, "path": path}
            why += ", but the program may be another"
    elif tool == EDIT_TOOL and effect == READS:
        tool = READ_TOOL
    if tool in (READ_TOOL, EDIT_TOOL) and effect == LOCAL:
        tool = DELETE_TOOL if arguments.get("delete") is True else EDIT_TOOL
    parts = [_build_part(invocation, tool, arguments, effect, why, call)]
    if tool in _REMOTE_COMMANDS:
        parts = _follow_remote(parts[0], mapping, nesting)
    return [_add_git_facts(part, invocation, cwd) for part in parts[:1]] + parts[1:]


def _enter_module(invocation: Invocation, mapping: ShellMapping) -> Invocation:
    """Read `python -m twine upload x` as `twine upload x`."""
    words = invocation.words
    if not invocation.program.startswith(("python", "pypy")):
        return invocation
    for at in range(1, len(words) - 1):
        value = words[at].value or ""
        module = words[at + 1].value or ""
        if value == "-m" and mapping.has_program(module) and module not in _PYTHON_MODULES:
            return replace(invocation, words=words[at + 1 :], trusted=True)
        if not value.startswith("-") or value == "-c":
            break
    return invocation


def _show_unmapped(invocation: Invocation) -> dict[str, Any]:
    path = invocation.words[0].value or ""
    arguments: dict[str, Any] = {"program": invocation.program or path}
    if "/" in path:
        arguments["path"] = path
    if len(invocation.words) > 1:
        arguments["words"] = show_words(invocation.words[1:])
    return arguments


def _build_part(
    invocation: Invocation,
    tool: str,
    arguments: dict[str, Any],
    effect: str,
    why: str,
    call: MappedCall | None = None,
) -> CommandPart:
    target = dict(call.target) if call is not None else {}
    return CommandPart(tool, arguments, effect, target, invocation.text, why)


def _follow_remote(part: CommandPart, mapping: ShellMapping, nesting: int) -> list[CommandPart]:
    """Look into the command that ssh, kubectl or docker runs elsewhere."""
    arguments = dict(part.arguments)
    words = arguments.pop("words", None)
    if words is None:
        if part.tool == "ssh.run" and part.effect == CHANGES and not arguments.get("no_command"):
            return [replace(part, effect=RUNS, why=part.why + ", a shell without a command")]
        return [part]
    if is_unknown_value(words) or nesting >= MAX_NESTING:
        return [
            replace(part, arguments=arguments | {"runs": words}, effect=RUNS,
                    why=part.why + ", what it runs there is only known when it runs")
        ]  # fmt: skip
    text = (
        " ".join(words)
        if _REMOTE_COMMANDS[part.tool]
        else " ".join("'" + word.replace("'", "'\\''") + "'" for word in words)
    )
    inner = list_command_parts(text, mapping=mapping, nesting=nesting + 1)
    arguments["runs"] = [
        {"tool": item.tool, "arguments": item.arguments} for item in inner[:MAX_PARTS]
    ]
    gravest = max(inner, key=lambda item: EFFECTS.index(item.effect))
    effect = part.effect
    tool = part.tool
    if gravest.effect in (UNPARSED, RUNS):
        effect = RUNS if part.effect != LOCAL else LOCAL
        if gravest.effect == UNPARSED:
            effect = RUNS
    elif gravest.effect == READS and part.effect == CHANGES:
        effect, tool = READS, tool.partition(".")[0] + ".read"
    outside = [
        item for item in inner if item.effect in OUTSIDE and item.effect not in (RUNS, UNPARSED)
    ]
    return [replace(part, tool=tool, arguments=arguments, effect=effect), *outside]


def _add_git_facts(part: CommandPart, invocation: Invocation, cwd: str) -> CommandPart:
    """Add the facts that only git has: where it runs, its remote, the refs that it pushes."""
    if not part.tool.startswith(("git.", "gh.", "glab.")):
        return part
    target = dict(part.target)
    arguments = part.arguments
    directory: str | None = invocation.directory
    sources = ["cd"] if directory != "" else []
    named = arguments.get("directory")
    if named is not None and part.tool.startswith("git.") and part.tool != "git.clone":
        sources.append("-C")
        directory = (
            None
            if directory is None or not isinstance(named, str)
            else posixpath.join(directory, named)
        )
    for name in _GIT_DIRECTORIES:
        if name in arguments:
            sources.append("--" + name.replace("_", "-"))
            value = arguments[name]
            directory = (
                posixpath.join(directory or "", re.sub(r"/?\.git/?$", "", value) or ".")
                if isinstance(value, str) and directory is not None
                else None
            )
    for name, word in invocation.assignments:
        if name in ("GIT_DIR", "GIT_WORK_TREE"):
            sources.append(name)
            directory = None if word.value is None else re.sub(r"/?\.git/?$", "", word.value)
        elif name == "GH_REPO" and "repository" not in target:
            target["repository"] = {"value": word.value or word.text, "source": "command: GH_REPO"}
    if sources:
        source = "command: " + ", ".join(sources)
        if directory is None or directory.startswith("~"):
            target["directory"] = {
                "value": directory or "",
                "source": source + ", known only when it runs",
            }
        else:
            path = posixpath.normpath(posixpath.join(cwd, directory))
            if path != posixpath.normpath(cwd or "."):
                target["directory"] = {"value": path, "source": source}
    remote = arguments.get("remote")
    if remote is None and part.tool == "git.push":
        remote = arguments.get("repo")
    if part.tool in ("git.clone",):
        remote = arguments.get("repository")
    if remote is not None:
        value = show_remote(remote)
        if re.search(r"://|^[^/]+@[^/]+:|^\.{0,2}/", value):
            target["repository"] = {"value": value, "source": "command: URL"}
        else:
            target["remote"] = {"value": value, "source": "command: remote"}
            target.pop("repository", None)
    endpoint = arguments.get("endpoint")
    match = _API_REPOSITORY.match(endpoint) if isinstance(endpoint, str) else None
    if match and "repository" not in target:
        target["repository"] = {"value": match[1], "source": "command: endpoint"}
    if part.tool == "git.push":
        text = _build_ref_text(arguments)
        if text:
            target["ref"] = {"value": text, "source": "command: refspec"}
    return replace(part, target=target)


def show_remote(remote: Any) -> str:
    """Return the name or URL of a remote without user and password."""
    if is_unknown_value(remote):
        return str(remote["unknown"])
    return strip_password(str(remote))


def _build_ref_text(arguments: dict[str, Any]) -> str:
    """Return what follows the remote, as `git_refs.parse_moved_refs` reads it.

    `*` is any ref: what is not known exactly. Empty if the push names none.
    """
    refs = arguments.get("refs", [])
    if any(is_unknown_value(arguments.get(name)) for name in ("refs", "remote", *_WIDE_PUSHES)):
        return ANY_REF
    words = ["--" + name.replace("_", "-") for name in _WIDE_PUSHES if arguments.get(name) is True]
    text = " ".join([*words, *arguments.get("options", []), *refs])
    return text if len(text) <= _MAX_REF else ANY_REF


def _merge_targets(gravest: CommandPart, parts: Sequence[CommandPart]) -> _Facts:
    """Return the facts of the gravest part, completed by those of other parts outside."""
    target = dict(gravest.target)
    for part in parts:
        if part.effect in OUTSIDE:
            for fact, value in part.target.items():
                target.setdefault(fact, value)
    return {
        fact: {
            "value": _UNPRINTABLE.sub(" ", value["value"])[: _FACT_CHARACTERS.get(fact)],
            "source": value["source"],
        }
        for fact, value in target.items()
    }


def _cut_value(value: Any) -> Any:
    """Return an argument; what is too long to be listed is unknown, so that no rule allows it.

    The whole command still shows it.
    """
    if isinstance(value, str) and len(value) > MAX_VALUE:
        return {"unknown": value[:MAX_VALUE] + "…"}
    if isinstance(value, list) and len(value) > MAX_VALUES:
        return {"unknown": [_cut_value(item) for item in value[:MAX_VALUES]]}
    if isinstance(value, list):
        return [_cut_value(item) for item in value]
    return value
