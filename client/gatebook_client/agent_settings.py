"""What the settings files of coding agents get so that Gatebook holds their tool calls.

For each agent: which file, which events, and the hook as that agent writes it.
"""

import json
import os
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gatebook_client.settings_edit import append_item, parse_settings, remove_item, remove_member

HOOK_TIMEOUT_S = 30  # the hook's own deadline is 20 seconds
_MARKS = ("hook_start.py", "gatebook hook ", "/api/v1/hooks/")


@dataclass(frozen=True)
class AgentSettings:
    """Where one coding agent reads its hooks, and which it knows."""

    name: str
    title: str
    folder: str
    user_file: str
    project_file: str
    folder_variable: str
    gate_events: tuple[str, ...]
    report_events: tuple[str, ...]
    matched_events: tuple[str, ...]  # events whose groups name the tools that they are for
    matcher: str
    timeout_unit: int  # in a second
    takes_input: bool  # an answer may replace the command of a call
    remaining_step: str  # what its user must do before it runs the hooks; "" for nothing

    def locate_file(self, project: Path | None) -> Path:
        """Return the settings file of a project folder, or of the user."""
        if project is not None:
            return project / self.folder / self.project_file
        base = os.environ.get(self.folder_variable) if self.folder_variable else ""
        return (Path(base) if base else Path.home() / self.folder) / self.user_file


AGENT_SETTINGS = {
    "claude-code": AgentSettings(
        "claude-code",
        "Claude Code",
        ".claude",
        "settings.json",
        "settings.local.json",
        "CLAUDE_CONFIG_DIR",
        ("PreToolUse",),
        (
            "PostToolUse",
            "PostToolUseFailure",
            "SessionStart",
            "SessionEnd",
            "UserPromptSubmit",
            "Stop",
            "SubagentStart",
            "SubagentStop",
            "Notification",
        ),
        ("PreToolUse", "PostToolUse", "PostToolUseFailure"),
        "*",
        1,
        True,
        "",
    ),
    "codex": AgentSettings(
        "codex",
        "Codex",
        ".codex",
        "hooks.json",
        "hooks.json",
        "CODEX_HOME",
        ("PreToolUse",),
        ("PostToolUse", "SessionStart", "UserPromptSubmit", "Stop"),
        ("PreToolUse", "PostToolUse"),
        "*",
        1,
        False,
        "Codex runs these hooks only after you have trusted them: start `codex`, type /hooks and"
        " trust them. Until then it holds no call. `codex exec` without such trust runs no hook.",
    ),
    "gemini": AgentSettings(
        "gemini",
        "Gemini CLI",
        ".gemini",
        "settings.json",
        "settings.json",
        "",
        ("BeforeTool",),
        ("AfterTool", "SessionStart", "SessionEnd", "BeforeAgent"),
        ("BeforeTool", "AfterTool"),
        ".*",
        1000,
        True,
        "",
    ),
}


def make_hook_command(agent: str, connection: str, *, portable: bool, gate: bool) -> str:
    """Return the shell command of a hook.

    The command that gates a call ends with exit code 2 if it cannot even start, at which the agents
    block the call: they let calls pass at any other code. `portable` names `gatebook` by PATH.
    """
    words = (
        ["gatebook", "hook"]
        if portable
        else [sys.executable, "-I", "-S", str(Path(__file__).with_name("hook_start.py"))]
    )
    words += [agent, "--connection", connection]
    if not gate:
        return shlex.join(words)
    if AGENT_SETTINGS[agent].takes_input:
        words.append("--rewrite")
    command = shlex.join(words)
    return f"{command} || {{ echo 'gatebook hook did not run: the call is blocked' >&2; exit 2; }}"


def build_groups(
    settings: AgentSettings, connection: str, *, portable: bool
) -> dict[str, dict[str, Any]]:
    """Return the group of hooks for each event."""
    groups: dict[str, dict[str, Any]] = {}
    for event in (*settings.gate_events, *settings.report_events):
        gate = event in settings.gate_events
        hook: dict[str, Any] = {
            "type": "command",
            "command": make_hook_command(settings.name, connection, portable=portable, gate=gate),
            "timeout": HOOK_TIMEOUT_S * settings.timeout_unit,
        }
        if settings.name == "gemini":
            hook = {"name": "gatebook", **hook}
        group: dict[str, Any] = {"hooks": [hook]}
        if event in settings.matched_events:
            group = {"matcher": settings.matcher, **group}
        groups[event] = group
    return groups


def is_own_group(group: Any) -> bool:
    """Return whether a group of hooks calls Gatebook."""
    hooks = group.get("hooks") if isinstance(group, dict) else None
    return isinstance(hooks, list) and any(
        mark in str(hook.get("command") or hook.get("url") or "")
        for hook in hooks
        if isinstance(hook, dict)
        for mark in _MARKS
    )


def add_hooks(text: str, groups: dict[str, dict[str, Any]]) -> str:
    """Return a settings file with the groups added, and older ones of Gatebook replaced.

    Raises NotEditable.
    """
    if not text.strip():
        hooks = {event: [group] for event, group in groups.items()}
        return json.dumps({"hooks": hooks}, indent=2) + "\n"
    stored = parse_settings(text).to_json().get("hooks")
    current = stored if isinstance(stored, dict) else {}
    for event, group in groups.items():
        present = current.get(event) if isinstance(current.get(event), list) else []
        own = [item for item in present or [] if is_own_group(item)]
        if own == [group]:
            continue
        text = append_item(_remove_groups(text, event), ["hooks", event], group)
    return text


def remove_hooks(text: str) -> str:
    """Return a settings file without the hooks of Gatebook. Raises NotEditable."""
    stored = parse_settings(text).to_json().get("hooks")
    if not isinstance(stored, dict):
        return text
    for event in stored:
        text = _remove_groups(text, event)
        left = parse_settings(text).to_json()["hooks"]
        if stored[event] and not left[event]:
            text = remove_member(text, ["hooks", event])
    if stored and not parse_settings(text).to_json()["hooks"]:
        text = remove_member(text, ["hooks"])
    return text


def _remove_groups(text: str, event: str) -> str:
    stored = parse_settings(text).to_json().get("hooks")
    groups = stored.get(event) if isinstance(stored, dict) else None
    if not isinstance(groups, list):
        return text
    for index in reversed([i for i, group in enumerate(groups) if is_own_group(group)]):
        text = remove_item(text, ["hooks", event], index)
    return text
