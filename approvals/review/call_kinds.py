"""The kind of a call: what it does, whatever it does it to. Pure."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from approvals.diff import destructive_pushes

_COMMANDS: Final = ("command", "cmd", "commands", "code", "script", "sql")
_COMMAND_SEPARATORS: Final = re.compile(r"[;&|\n]+")
_PROGRAM_PREFIX: Final = re.compile(r"(?:\w+=\S*\s+|sudo\s+|env\s+|time\s+|nohup\s+|\s+)*")
_PROGRAMS_WITH_VERBS: Final = frozenset(
    [
        "apt",
        "apt-get",
        "aws",
        "az",
        "brew",
        "cargo",
        "docker",
        "gcloud",
        "gh",
        "git",
        "go",
        "helm",
        "kubectl",
        "make",
        "npm",
        "pip",
        "pnpm",
        "systemctl",
        "terraform",
        "uv",
        "yarn",
    ]
)
_WORD: Final = re.compile(r"[A-Za-z][\w-]*")


class CallKind(NamedTuple):
    """Names of arguments, switches that are on, programs with verbs, and destructive pushes."""

    names: frozenset[str]
    switches: frozenset[str]
    programs: frozenset[str]
    push: tuple[str, ...]


def call_kind(tool: str, plan: Mapping[str, Any]) -> CallKind:
    """Return the kind of a call: argument names, switches, programs, pushes."""
    arguments = plan.get("arguments")
    named = arguments if isinstance(arguments, dict) else {"": arguments}
    switched = frozenset(name for name, value in named.items() if value is True)
    runs = frozenset(
        word for name in (*_COMMANDS, "") for word in _iterate_programs(named.get(name))
    )
    return CallKind(
        frozenset(named),
        switched,
        runs,
        destructive_pushes.describe_destructive_push(tool, arguments, plan.get("preconditions")),
    )


def _iterate_programs(value: Any) -> Iterator[str]:
    """Yield each program of a command with verb and options: git push --force, rm -rf."""
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        value = " ".join(value)
    if not isinstance(value, str):
        return
    for part in _COMMAND_SEPARATORS.split(value):
        words = _PROGRAM_PREFIX.sub("", part, count=1).split()
        if not words:
            continue
        program = words[0].rpartition("/")[2]
        verb = (
            next((word for word in words[1:] if _WORD.fullmatch(word)), "")
            if program in _PROGRAMS_WITH_VERBS
            else ""
        )
        options = sorted({word.partition("=")[0] for word in words[1:] if word.startswith("-")})
        yield " ".join([program, verb, *options])
