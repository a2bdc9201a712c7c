"""Refs: the predicted refs of `git push` are compared with those that git moves in real
repositories."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from accounts import git_refs
from tests.matrices import IN_FULL

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")

BRANCH = "main"
# Refspecs that git pushes in a clone with main checked out, the branches dev and release/1, and the
# tag v1.
PUSHED = (
    "main",
    "heads/main",
    "refs/heads/main",
    "+main",
    "+heads/main",
    "+refs/heads/main",
    "main:main",
    "+main:main",
    "HEAD",
    "@",
    "+HEAD",
    "HEAD:main",
    "@:main",
    "+HEAD:main",
    "HEAD:refs/heads/main",
    "HEAD:heads/main",
    "main~1:main",
    "HEAD^:main",
    "+HEAD^:main",
    "dev:main",
    "+dev:main",
    "dev:refs/heads/main",
    "refs/heads/dev:heads/main",
    ":main",
    ":heads/main",
    ":refs/heads/main",
    "+:main",
    "--delete main",
    "-d main",
    "-d refs/heads/main",
    "dev",
    "dev main",
    "main dev release/1",
    "release/1",
    "refs/heads/release/1:release/1",
    "main:new",
    "main:new/er",
    "main:refs/heads/new",
    "main:refs/tags/new",
    "v1",
    "tags/v1",
    "refs/tags/v1",
    "tag v1",
    "v1:refs/tags/v2",
    ":v0",
    ":refs/tags/v0",
    "main:refs/notes/x",
    "refs/remotes/origin/main",
    "remotes/origin/main",
    "origin/main",
    ":",
    "+:",
    "--all",
    "--mirror",
    "--tags",
    "--follow-tags main",
    "--force main",
    "-f HEAD:main",
    "--force",
    "refs/heads/*",
    "refs/heads/*:refs/heads/*",
    "+refs/heads/*:refs/heads/*",
    "refs/heads/r*:refs/heads/x*",
    "refs/tags/*",
    "*:*",
    "*",
    "++main",
    "++main:main",
    "main:+main",
    "main^{commit}:main",
    "@{0}:main",
    "v1^{}:main",
    "main main",
    "--force-with-lease main",
    "--atomic dev main",
    "main:Main",
    "main:máin",
    "main:refs/for/main",
    "main:%6dain",
    "dev:HEAD",
    "main:@",
    "dev:heads/new",
    "main:",
    "main/",
    "main.lock",
    "main.",
    "/main",
    "refs//heads/main",
    ".main",
    "ma in",
    "ma..in",
    "main:main:main",
    "^main",
    "refs/heads/main^0",
    "--al",
    "--prune",
    "--branches",
    "@{-1}",
    "main@{upstream}",
    "FETCH_HEAD",
    "refs",
    "refs/main",
    "heads/",
)


def run(folder: Path, *words: str) -> str:
    """Run git without any configuration of this machine."""
    names = {
        f"GIT_{role}_{name}": "a@example.org"
        for role in ("AUTHOR", "COMMITTER")
        for name in ("NAME", "EMAIL")
    }
    quiet = {
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_SYSTEM": os.devnull,
        "GIT_TERMINAL_PROMPT": "0",
    }
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), **names, **quiet}
    done = subprocess.run(
        ("git", *words), cwd=folder, env=env, capture_output=True, text=True, check=False
    )
    return done.stdout if done.returncode == 0 else ""


def listed(bare: Path) -> dict[str, str]:
    lines = run(bare, "for-each-ref", "--format=%(refname) %(objectname)").splitlines()
    return dict(line.split(" ") for line in lines)


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a bare repository, and a clone in which every branch and tag is newer."""
    home = tmp_path_factory.mktemp("refs")
    run(home, "init", "-q", "--template=", "--bare", "-b", BRANCH, "bare")
    for name, value in (
        ("receive.denyDeleteCurrent", "ignore"),
        ("receive.denyCurrentBranch", "ignore"),
    ):
        run(home / "bare", "config", name, value)
    run(home, "clone", "-q", "--template=", "bare", "clone")
    clone = home / "clone"
    run(clone, "remote", "set-url", "origin", "../bare")  # also in copies of both folders
    run(clone, "checkout", "-q", "-b", BRANCH)
    run(clone, "commit", "-q", "--allow-empty", "-m", "1")
    for branch in ("dev", "release/1"):
        run(clone, "branch", branch)
    run(clone, "tag", "v0")
    run(clone, "push", "-q", "origin", "main", "dev", "release/1", "v0")
    for branch in ("dev", "release/1", BRANCH):
        run(clone, "checkout", "-q", branch)
        run(clone, "commit", "-q", "--allow-empty", "-m", branch)
    run(clone, "tag", "v1")
    run(clone, "config", "push.default", "current")
    assert len(listed(home / "bare")) == 4
    return home


def pushed(origin: Path, folder: Path, refspec: str, before: dict[str, str]) -> set[str]:
    """Return the refs of the remote that differ from `before` after `git push origin <refspec>`."""
    shutil.copytree(origin, folder, symlinks=True)
    clone, bare = folder / "clone", folder / "bare"
    words = refspec.split(" ")
    options = [word for word in words if word.startswith("-")]
    run(clone, "push", *options, "origin", *(word for word in words if not word.startswith("-")))
    after = listed(bare)
    return {ref for ref in before.keys() | after.keys() if before.get(ref) != after.get(ref)}


def allows(patterns: tuple[str, ...], text: str, ref: str) -> bool:
    """Return whether a ref is among the predicted refs of `text`."""
    for pattern in patterns:
        head, star, tail = pattern.partition("*")
        if star and ref.startswith(head) and ref.endswith(tail):
            return True
        if ref in git_refs.possible_refs(pattern, text):
            return True
    return False


@pytest.mark.once
@pytest.mark.deepened
def test_git_moves_no_ref_that_is_not_named(origin: Path, tmp_path: Path) -> None:
    refspecs = PUSHED if IN_FULL else PUSHED[::3]
    before = listed(origin / "bare")
    moved = {
        refspec: pushed(origin, tmp_path / str(at), refspec, before)
        for at, refspec in enumerate(refspecs)
    }
    named = {refspec: git_refs.parse_moved_refs(refspec, lambda: BRANCH) for refspec in refspecs}
    escaped = {
        refspec: refs_
        for refspec in refspecs
        if (refs_ := {r for r in moved[refspec] if not allows(named[refspec], refspec, r)})
    }
    assert escaped == {}
    # Conversely, every predicted ref moves, where git moved any and no pattern is involved.
    other = {
        refspec: (moved[refspec], named[refspec])
        for refspec in refspecs
        if moved[refspec]
        and git_refs.are_refs_exact(named[refspec])
        and len(moved[refspec]) != len(named[refspec])
    }
    assert other == {}
    movers = [refspec for refspec in refspecs if "refs/heads/main" in moved[refspec]]
    assert len(movers) > len(refspecs) / 3, "git moves main by many"
    classes = {
        refspec: git_refs.find_worst_class(named[refspec], ["main"], ["release/*"])
        for refspec in refspecs
        if "refs/heads/main" in moved[refspec]
    }
    assert set(classes.values()) == {"production"}
    guarded = [
        refspec
        for refspec in refspecs
        if any(moved_ref.startswith("refs/heads/release") for moved_ref in moved[refspec])
    ]
    assert {
        git_refs.find_worst_class(named[refspec], ["main"], ["release/*"]) for refspec in guarded
    } <= {"production", "protected"}
