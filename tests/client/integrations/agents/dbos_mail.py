"""Run the program of docs/how-to/dbos.md; scripted_mail.py has the marks."""

import json
import sys

from scripted_mail import load_program, mark, report

program = load_program()
program.POLL_S = 1
try_to_send = program.try_to_send


def try_marked(*arguments: str) -> dict[str, str]:
    """Try to send, and mark that the workflow waits."""
    outcome: dict[str, str] = try_to_send(*arguments)
    if "waits" in outcome:
        sys.stdout.write(f"{outcome['page']}\n")
        sys.stdout.flush()
        mark("waiting")
    return outcome


program.try_to_send = try_marked
key, *texts = sys.argv[1:]
to = json.loads(open("script.json").read())  # noqa: PTH123, SIM115
report(program.work(key, *(word for text in texts for word in (to, text))))
