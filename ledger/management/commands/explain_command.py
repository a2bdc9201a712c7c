"""`manage.py explain_command 'git push -f origin main'`: show the tool that a command calls."""

import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from accounts.management.project_option import add_project_option, require_project
from ledger.tools.shell_mapping import load_shell_mapping
from shell.map_command import MappedCommand, map_command
from shell.mapping import load_default_mapping


class Command(BaseCommand):
    """Print what rules and people see of a shell command."""

    help = (
        "Show which tool a shell command calls, with the arguments and the facts that rules see,"
        " and all its parts. Nothing is executed."
    )
    requires_system_checks: list[str] = []  # they check the code, and double the start-up time

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("command", metavar="COMMAND", help="the command, as one word")
        parser.add_argument("--cwd", default="", help="the folder in which it starts")
        parser.add_argument("--json", action="store_true", help="print JSON")
        parser.add_argument(
            "--default",
            action="store_true",
            help="use only the default mapping, without the declared tools of a project",
        )
        add_project_option(parser)

    def handle(self, *_args: Any, **options: Any) -> str:
        mapping = (
            load_default_mapping()
            if options["default"]
            else load_shell_mapping(require_project(options["project"]).id)
        )
        mapped = map_command(options["command"], mapping=mapping, cwd=options["cwd"])
        return _format_json(mapped) if options["json"] else _format_text(mapped)


def _format_json(mapped: MappedCommand) -> str:
    return json.dumps(
        {
            "tool": mapped.tool,
            "effect": mapped.effect,
            "arguments": mapped.arguments,
            "target": mapped.target,
            "parts": [
                {"tool": part.tool, "effect": part.effect, "text": part.text, "why": part.why}
                for part in mapped.parts
            ],
        },
        ensure_ascii=True,
        indent=2,
    )


def _format_text(mapped: MappedCommand) -> str:
    lines = [f"tool: {mapped.tool}", f"effect: {mapped.effect}", "arguments:"]
    lines += [
        f"  {name}: {json.dumps(value)}"
        for name, value in mapped.arguments.items()
        if name not in ("command", "parts")
    ]
    if mapped.target:
        lines.append("target:")
        lines += [
            f"  {fact}: {json.dumps(value['value'])} ({value['source']})"
            for fact, value in mapped.target.items()
        ]
    lines.append("parts:")
    for number, part in enumerate(mapped.parts, 1):
        lines.append(f"  {number}. {part.tool}, {part.effect}: {json.dumps(part.text[:200])}")
        lines.append(f"     by {part.why}")
    return "\n".join(lines)
