"""Entry point of the command `gatebook`.

It loads only what the command at hand needs: a hook of a coding agent starts at every tool call,
and the HTTP library and the parser of all commands take longer to load than Python itself.
"""

import sys
from importlib import import_module

# Commands with a module of their own, which has `main(arguments) -> exit code` and parses the
# arguments behind the command itself: name -> (module, summary for --help).
SEPARATE_COMMANDS: dict[str, tuple[str, str]] = {
    "hook": ("gatebook_client.hook_command", "pass one hook of a coding agent to Gatebook"),
    "connect": ("gatebook_client.connect_command", "let a coding agent ask before each call"),
    "mcp-permissions": (
        "gatebook_client.mcp_permissions_command",
        "serve the permission prompt of Claude Code",
    ),
    "codex-approvals": (
        "gatebook_client.codex_approvals_command",
        "answer the approval requests of the Codex app-server",
    ),
    "resume-runner": (
        "gatebook_client.resume_runner_command",
        "continue what waited when people have ruled",
    ),
    "mcp-proxy": ("gatebook_client.mcp_proxy_command", "hold the tool calls of an MCP server"),
}


def main(arguments: list[str] | None = None) -> int:
    """Run one subcommand and return its exit code."""
    tokens = sys.argv[1:] if arguments is None else arguments
    if tokens and tokens[0] in SEPARATE_COMMANDS:
        module, _ = SEPARATE_COMMANDS[tokens[0]]
        return int(import_module(module).main(tokens[1:]))
    from gatebook_client import command_line

    return command_line.run_command_line(tokens)
