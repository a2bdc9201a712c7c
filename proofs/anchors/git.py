"""Anchor: git commits, pushed to a remote by fast-forward only.

Each head is a commit that replaces the file `<origin>.checkpoint`; other files of the branch stay,
so several installations may share one. A remote that is a missing local folder is created as a bare
repository that refuses to go back. Gatebook keeps a clone without work tree in
`<var>/anchors/<name>.git`; it can be deleted at any time.
"""

import os
import re
import signal
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from django.conf import settings

from proofs.anchors.published_head import (
    AnchorContradicts,
    AnchorFailed,
    AnchorTarget,
    LastReceipt,
    PublishedHead,
    TreeReader,
    find_notes,
    refuse_other_history,
    write_receipt,
)

TIMEOUT_S: Final = 30.0  # of each git command
_OURS: Final = "refs/gatebook/remote"  # where the clone keeps the branch of the remote
# A branch or path that git takes for an option, or for a range, is refused.
_BRANCH: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,99}")
_REMOTE: Final = re.compile(r"(?:https://|ssh://|git://|file://|/|[\w.-]+@[\w.-]+:)[^\s]+")


def publish_to_git(
    target: AnchorTarget,
    heads: Sequence[PublishedHead],
    last: LastReceipt | None,
    tree: TreeReader,
) -> Iterator[str]:
    """Commit each of `heads` and push all of them; yield a receipt for each.

    Raises AnchorFailed where the remote refuses, or no longer has what was pushed before.
    """
    _create_missing_remote(target)
    clone = _prepare_clone(target)
    tip = _fetch_tip(target, clone)
    _check_last_commit(target, clone, tip, last)
    file_name = _name_file(heads[0].origin)
    shown = _git(target, clone, "show", f"{tip}:{file_name}", check=False) if tip else ""
    notes = find_notes(shown.encode())
    # Pushed before a crash that lost the receipts.
    is_unrecorded = tip != (last.receipt.get("commit") if last else "")
    texts = [head.note for head in heads]
    pushed = 0
    if is_unrecorded and notes and notes[0].text in texts:
        pushed = texts.index(notes[0].text) + 1
    for _ in heads[:pushed]:
        yield _write_git_receipt(target, tip)
    if pushed == len(heads):
        return
    refuse_other_history(hide_credentials(target.address), notes, heads[pushed], tree)
    commits = _write_commits(target, clone, tip, file_name, heads[pushed:])
    # Without force, a remote that has moved since the fetch refuses; the next run builds on what it
    # has.
    _git(
        *(target, clone, "push", "--quiet", "--porcelain", "--", target.address),
        f"{commits[-1]}:refs/heads/{target.branch}",
    )
    _git(target, clone, "update-ref", _OURS, commits[-1])
    _git(target, clone, "gc", "--auto", "--quiet", check=False)
    for commit in commits:
        yield _write_git_receipt(target, commit)


def read_published_commits(target: AnchorTarget, origin: str) -> dict[str, str]:
    """Return the commits of tree heads that the remote has, with their subjects, newest first."""
    clone = _prepare_clone(target)
    tip = _fetch_tip(target, clone)
    if not tip:
        return {}
    log = _git(target, clone, "log", "--format=%H %s", tip, "--", _name_file(origin))
    lines = (line.partition(" ") for line in log.splitlines())
    return {commit: subject for commit, _, subject in lines}


def _name_file(origin: str) -> str:
    """Return the name of an installation's file in the branch."""
    return f"{origin.replace('/', '-')}.checkpoint"


def find_git_faults(target: AnchorTarget) -> list[str]:
    """Return why the remote cannot be an anchor."""
    if not _REMOTE.fullmatch(target.address):
        return [
            f"{hide_credentials(target.address)} is no git remote. Write an absolute path, an "
            "https:// or ssh:// URL, or user@host:path"
        ]
    if not _BRANCH.fullmatch(target.branch) or ".." in target.branch:
        return [f"{target.branch} is no name of a branch. Use letters, digits, '-' and '/'"]
    return []


def hide_credentials(address: str) -> str:
    """Return a remote's address without user and password of a URL."""
    parts = urlsplit(address) if "://" in address else None
    if parts is None or "@" not in parts.netloc:
        return address
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _write_git_receipt(target: AnchorTarget, commit: str) -> str:
    remote = hide_credentials(target.address)
    return write_receipt(remote=remote, branch=target.branch, commit=commit)


def _create_missing_remote(target: AnchorTarget) -> None:
    path = Path(target.address)
    if not target.address.startswith("/") or path.exists():
        return
    if target.makes_folder:
        path.parent.mkdir(parents=True, exist_ok=True)
    _git(target, None, "init", "--quiet", "--bare", str(path))
    for name in ("receive.denyNonFastForwards", "receive.denyDeletes"):
        _git(target, path, "config", name, "true")


def _prepare_clone(target: AnchorTarget) -> Path:
    clone = Path(settings.VAR_DIR) / "anchors" / f"{target.name}.git"
    if not (clone / "HEAD").exists():
        clone.mkdir(parents=True, exist_ok=True, mode=0o700)
        _git(target, None, "init", "--quiet", "--bare", str(clone))
    return clone


def _fetch_tip(target: AnchorTarget, clone: Path) -> str:
    """Fetch the branch; return its commit, empty where the remote has no such branch yet."""
    branch = f"refs/heads/{target.branch}"
    listed = _git(target, clone, "ls-remote", "--", target.address, branch)
    tip = listed.partition("\t")[0].strip()
    if tip and _git(target, clone, "rev-parse", "--verify", "-q", _OURS, check=False) != f"{tip}\n":
        # Forced, because it only shows what the remote has. `_check_last_commit` compares.
        _git(
            *(target, clone, "fetch", "--quiet", "--no-tags", "--no-write-fetch-head"),
            *("--", target.address, f"+{branch}:{_OURS}"),
        )
    return tip


def _check_last_commit(
    target: AnchorTarget, clone: Path, tip: str, last: LastReceipt | None
) -> None:
    """Raise AnchorContradicts where the remote lost the commit that was pushed last."""
    remote = hide_credentials(target.address)
    if last is None or (last.receipt.get("remote"), last.receipt.get("branch")) != (
        remote,
        target.branch,
    ):
        return
    commit = str(last.receipt["commit"])
    if tip != commit and not (
        tip and _succeeds(target, clone, "merge-base", "--is-ancestor", commit, tip)
    ):
        raise AnchorContradicts(
            f"{remote} no longer holds commit {commit[:12]} with tree head {last.number} on "
            f"{target.branch}: somebody deleted or rewrote it. Put the branch back; to begin "
            "another, name another branch in GATEBOOK_ANCHORS."
        )


def _write_commits(
    target: AnchorTarget, clone: Path, tip: str, file_name: str, heads: Sequence[PublishedHead]
) -> list[str]:
    """Write one commit a head on top of `tip` in one run of git; return their ids."""
    lines: list[bytes] = []
    for number, head in enumerate(heads, 1):
        message = f"Tree head {head.number}: {head.size} entries\n".encode()
        note = head.note.encode()
        at_s = head.made_at_us // 1_000_000
        parent = f":{number - 1}" if number > 1 else tip
        lines += [
            b"commit refs/gatebook/made\n",
            b"mark :%d\n" % number,
            b"committer Gatebook <gatebook@localhost> %d +0000\n" % at_s,
            b"data %d\n%b" % (len(message), message),
            b"from %b\n" % parent.encode() if parent else b"",
            b"M 100644 inline %b\n" % file_name.encode(),
            b"data %d\n%b\n" % (len(note), note),
        ]
    lines.append(b"".join(b"get-mark :%d\n" % mark for mark in range(1, len(heads) + 1)))
    _git(target, clone, "update-ref", "-d", "refs/gatebook/made", check=False)
    marks = _git(
        *(target, clone, "fast-import", "--quiet", "--force", "--cat-blob-fd=1"),
        stdin=b"".join(lines),
    )
    return marks.split()


def _succeeds(target: AnchorTarget, clone: Path, *arguments: str) -> bool:
    try:
        _git(target, clone, *arguments)
    except AnchorFailed:
        return False
    return True


def _git(
    target: AnchorTarget,
    folder: Path | None,
    *arguments: str,
    stdin: bytes = b"",
    check: bool = True,
) -> str:
    """Run git without questions to a person; return its output. Raises AnchorFailed."""
    command = ["git", "-c", "core.hooksPath=/dev/null", "-c", "core.fsync=all"]
    command += ["--git-dir", str(folder)] if folder is not None else []
    environment = {
        "GIT_SSH_COMMAND": "ssh -o BatchMode=yes -o ConnectTimeout=10",
        **{name: value for name, value in os.environ.items() if not _is_of_repository(name)},
        "GIT_TERMINAL_PROMPT": "0",
        "LC_ALL": "C",
    }
    try:
        process = subprocess.Popen(
            [*command, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            cwd="/",
            start_new_session=True,
        )
    except OSError as error:
        raise AnchorFailed(
            f"git cannot be started: {error.strerror}. Install it, or remove the anchor."
        ) from error
    try:
        output, errors = process.communicate(stdin, timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # with the ssh or http program that it started
        process.communicate()
        raise AnchorFailed(
            f"{hide_credentials(target.address)}: git {arguments[0]} took longer than "
            f"{TIMEOUT_S:g} s. Check the remote; it is tried again."
        ) from None
    if process.returncode and check:
        words = " ".join(errors.decode(errors="replace").split()) or "no message"
        words = words.replace(target.address, hide_credentials(target.address))
        raise AnchorFailed(
            f"{hide_credentials(target.address)}: git {arguments[0]} failed: {words[:300]}. "
            f"Check the remote and its access rights; it is tried again."
        )
    return output.decode(errors="replace")


def _is_of_repository(name: str) -> bool:
    """Return whether a variable would point git at another repository."""
    return name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY")
