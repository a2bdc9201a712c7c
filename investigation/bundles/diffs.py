"""Diffs of a bundle: file changes that the arguments of effects describe."""

from approvals.diff.from_arguments import extract_changes
from approvals.diff.unified import FileDiff
from journal.summaries import parse_body


def diff_of_plan(body: str) -> str:
    """Return the changes that a plan names as a unified diff; "" without any.

    Arguments contain text and no files, so hunks have no line numbers.
    """
    plan = parse_body(body)
    arguments = extract_changes(plan.get("arguments"), plan.get("preconditions"))
    return "".join(map(_file_diff, arguments.files))


def _file_diff(argument: FileDiff) -> str:
    path = "".join(sign if sign.isprintable() else "?" for sign in argument.path) or "unnamed"
    before = "/dev/null" if argument.whole else f"a/{path}"
    after = "/dev/null" if argument.deletes else f"b/{path}"
    rows = []
    for row in argument.rows:
        sign = "@@ " if row.sign == "@" else row.sign
        rows += [f"{sign}{line}\n" for line in row.text.split("\n")]
    has_header = bool(argument.rows) and argument.rows[0].sign == "@"
    header = "" if has_header else "@@ @@\n"
    return f"--- {before}\n+++ {after}\n{header}{''.join(rows)}"
