"""What a test lets happen beside the running server: commands of manage.py and lines of Python, one after the other.

Told on standard input, a line of JSON each: {"manage": [argument, …]} or {"run": "lines of Python"}. Answered on
standard output, a line each: [whether it ended well, what it printed], the latter with its standard error when it
failed.
"""

import io
import json
import os
import sys
import traceback
from contextlib import redirect_stderr, redirect_stdout

import django


def main() -> None:
    """Do what is told until nobody is left to tell."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints past Python is no answer
    django.setup()
    for line in sys.stdin:
        answers.write(json.dumps(do(json.loads(line))) + "\n")
        answers.flush()


def do(what: dict[str, object]) -> tuple[bool, str]:
    """Do one thing; return whether it ended well and what it printed."""
    from django.core.management import execute_from_command_line
    from django.db import connections

    said, complained, done = io.StringIO(), io.StringIO(), True
    with redirect_stdout(said), redirect_stderr(complained):
        try:
            if "manage" in what:
                execute_from_command_line(["manage.py", *what["manage"]])  # type: ignore[misc]
            else:
                exec(str(what["run"]), {"__name__": "shell"})  # noqa: S102 - lines of a test
        except SystemExit as end:
            done = not end.code
        except BaseException:
            done = False
            traceback.print_exc()
        finally:
            connections.close_all()  # a database may be stopped, or made from this one, before the next
    return done, said.getvalue() if done else said.getvalue() + complained.getvalue()


if __name__ == "__main__":
    main()
