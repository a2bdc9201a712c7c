"""An agent that pushes to a bare remote by the client: `pushing.py URL TOKEN CLONE MARKS CALL
[stand]`.

It writes a line to MARKS before and after the push. `stand` is where it waits for its kill:
`before` the push, `during` the push (the remote's hook waits), or `after` the push.
"""

import signal
import subprocess
import sys
from pathlib import Path

import gatebook_client as gatebook

signal.alarm(300)
url, token, clone, marks, call, *stand = sys.argv[1:]


def mark(word: str) -> None:
    """Write the mark, and wait there if `stand` names it."""
    with Path(marks).open("a") as file:
        file.write(f"{word}\n")
    if stand == [word]:
        signal.pause()


def git(*arguments: str) -> str:
    """Run git in the clone."""
    done = subprocess.run(
        ["git", "-C", clone, *arguments], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


commit = git("rev-parse", "HEAD")


def push(_remote_key: str) -> gatebook.Result:
    """Push the commit."""
    mark("before")
    git("push", "--quiet", "origin", f"{commit}:refs/heads/main")
    mark("after")
    return gatebook.Result(reference=commit)


def pushed(_known: gatebook.AttemptInfo) -> str | None:
    """Return the commit of the remote's branch."""
    return commit if git("ls-remote", "origin", "refs/heads/main").startswith(commit) else None


with gatebook.session(
    url, token, key=Path(marks).parent.name, wait_for_lease_s=60, end_on_exit=False
) as s:
    s.register("git.push", probe=pushed)
    sys.stdout.write(f"{s.recover()}\n")
    done = s.perform(
        "git.push",
        {"remote": "origin", "refspec": f"{commit}:refs/heads/main"},
        push,
        call_id=call or "",
        target={"repository": "acme/shop", "ref": "refs/heads/main"},
    )
    sys.stdout.write(f"{done.state} {done.outcome} {done.reference} {done.already_done}\n")
