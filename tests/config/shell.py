"""Commands of manage.py and lines of Python that a test runs next to its server, one after another.

Standard input has a line of JSON for each: {"manage": [argument, …]} or {"run": "lines of
Python"}. Standard output has an answer line for each: [whether it succeeded, its output], the
output with standard error after a failure.

{"fork": "lines of Python", "arguments": [argument, …], "pipes": [path, path]} makes a copy of this
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
    """Execute the commands on standard input until its end."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # output of libraries is no answer line
    django.setup()
    for line in sys.stdin:
        answers.write(json.dumps(do(json.loads(line))) + "\n")
        answers.flush()


def do(what: dict[str, object]) -> tuple[bool, str]:
    """Execute one command; return whether it succeeded and its output."""
    from django.core.management import execute_from_command_line
    from django.db import connections

    printed, complained, done = io.StringIO(), io.StringIO(), True
    with redirect_stdout(printed), redirect_stderr(complained):
        try:
            if "manage" in what:
                execute_from_command_line(["manage.py", *what["manage"]])  # type: ignore[misc]
            elif "fork" in what:
                printed.write(str(fork(**what)))  # type: ignore[arg-type]
            elif "wait" in what:
                printed.write(
                    str(os.waitstatus_to_exitcode(os.waitpid(int(str(what["wait"])), 0)[1]))
                )
            else:
                exec(str(what["run"]), {"__name__": "shell"})  # noqa: S102 - lines of a test
        except SystemExit as end:
            done = not end.code
        except BaseException:
            done = False
            traceback.print_exc()
        finally:
            connections.close_all()  # a test may stop or copy the database before the next command
            for connection in connections.all(initialized_only=True):
                if connection.vendor == "postgresql":
                    connection.close_pool()  # type: ignore[attr-defined]
    return done, printed.getvalue() if done else printed.getvalue() + complained.getvalue()


def fork(fork: str, arguments: list[str], pipes: list[str]) -> int:
    """Run the lines `fork` in a copy of this process; return its id."""
    from django.db import connections

    for connection in connections.all(initialized_only=True):
        if connection.vendor == "postgresql":
            connection.close_pool()  # type: ignore[attr-defined]  # processes must not share a connection
    input_end, output_end = os.open(pipes[0], os.O_RDONLY), os.open(pipes[1], os.O_WRONLY)
    child = os.fork()
    if child:
        os.close(input_end)
        os.close(output_end)
        return child
    status = 1
    try:
        for pipe, number in ((input_end, 0), (output_end, 1)):
            os.dup2(pipe, number)
        os.closerange(3, 256)  # among them the answer pipe of this process
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
