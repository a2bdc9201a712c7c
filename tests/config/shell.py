"""What a test lets happen beside the running server: commands of manage.py and lines of Python, one
after the other.

Told on standard input, a line of JSON each: {"manage": [argument, …]} or {"run": "lines of
Python"}. Answered on standard output, a line each: [whether it ended well, what it printed], the
latter with its standard error when it failed.

{"fork": "lines of Python", "arguments": [argument, …], "pipes": [path, path]} lets a copy of this
process run them, as `python -c` would with the two pipes for standard input and output, and answers
with its process id; {"wait": process id} answers with its exit code when it has ended.
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
            elif "fork" in what:
                said.write(str(fork(**what)))  # type: ignore[arg-type]
            elif "wait" in what:
                said.write(str(os.waitstatus_to_exitcode(os.waitpid(int(str(what["wait"])), 0)[1])))
            else:
                exec(str(what["run"]), {"__name__": "shell"})  # noqa: S102 - lines of a test
        except SystemExit as end:
            done = not end.code
        except BaseException:
            done = False
            traceback.print_exc()
        finally:
            connections.close_all()  # a database may be stopped, or copied, before the next
            for one in connections.all(initialized_only=True):
                if one.vendor == "postgresql":
                    one.close_pool()  # type: ignore[attr-defined]
    return done, said.getvalue() if done else said.getvalue() + complained.getvalue()


def fork(fork: str, arguments: list[str], pipes: list[str]) -> int:
    """Run the lines `fork` in a copy of this process; return its id."""
    from django.db import connections

    for one in connections.all(initialized_only=True):
        if one.vendor == "postgresql":
            one.close_pool()  # type: ignore[attr-defined]  # a line to the server is not shared
    hears, says = os.open(pipes[0], os.O_RDONLY), os.open(pipes[1], os.O_WRONLY)
    child = os.fork()
    if child:
        os.close(hears)
        os.close(says)
        return child
    status = 1
    try:
        for pipe, number in ((hears, 0), (says, 1)):
            os.dup2(pipe, number)
        os.closerange(3, 256)  # among them the line on which this process answers
        sys.stdin, sys.stdout, sys.stderr = (
            os.fdopen(0),
            os.fdopen(1, "w"),
            os.fdopen(2, "w", closefd=False),
        )
        sys.argv = ["-c", *arguments]
        exec(fork, {"__name__": "__main__"})  # noqa: S102 - lines of a test
        sys.stdout.flush()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


if __name__ == "__main__":
    main()
