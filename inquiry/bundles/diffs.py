"""The diffs of a bundle: what effects were to change in files, as far as their arguments tell."""

from approvals.changes import changes
from approvals.diffs import File
from journal.gists import parsed


def of_plan(body: str) -> str:
    """The changes that the plan in `body` names, as a unified diff; "" where it names none.

    The arguments hold texts and no files, so hunks carry no line numbers.
    """
    plan = parsed(body)
    found = changes(plan.get("arguments"), plan.get("preconditions"))
    return "".join(map(_file, found.files))


def _file(one: File) -> str:
    path = "".join(sign if sign.isprintable() else "?" for sign in one.path) or "unnamed"
    before = "/dev/null" if one.whole else f"a/{path}"
    after = "/dev/null" if one.deletes else f"b/{path}"
    rows = []
    for row in one.rows:
        sign = "@@ " if row.sign == "@" else row.sign
        rows += [f"{sign}{line}\n" for line in row.text.split("\n")]
    return f"--- {before}\n+++ {after}\n{'' if one.rows and one.rows[0].sign == '@' else '@@ @@' + chr(10)}{''.join(rows)}"
