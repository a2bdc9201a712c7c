"""Git facts from files are those that git itself prints."""

import os
import subprocess
from pathlib import Path

import pytest
from gatebook_client.git_facts import hide_password, read_git_facts, shorten_address

pytestmark = pytest.mark.once
ENVIRONMENT = {
    **os.environ,
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    **{
        f"GIT_{who}_{what}": f"a@{what}"
        for who in ("AUTHOR", "COMMITTER")
        for what in ("NAME", "EMAIL")
    },
}


def git(folder: Path, *words: str) -> str:
    return subprocess.run(
        ["git", "-C", str(folder), *words],
        env=ENVIRONMENT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    folder = tmp_path / "clone"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    git(folder, "remote", "add", "origin", "git@example.org:acme/tariffs.git")
    git(folder, "commit", "-q", "--allow-empty", "-m", "first")
    return folder


def test_facts_of_a_clone_also_from_a_folder_inside(clone: Path) -> None:
    inside = clone / "a" / "b"
    inside.mkdir(parents=True)
    facts = read_git_facts(str(inside))
    assert facts == {
        "repository": "acme/tariffs",
        "branch": "main",
        "head": git(clone, "rev-parse", "HEAD"),
        "remotes": {"origin": "git@example.org:acme/tariffs.git"},
        "source": "git files",
    }


def test_packed_refs_and_a_detached_head(clone: Path) -> None:
    git(clone, "pack-refs", "--all")
    commit = git(clone, "rev-parse", "HEAD")
    assert read_git_facts(str(clone))["head"] == commit
    git(clone, "checkout", "-q", "--detach")
    facts = read_git_facts(str(clone))
    assert (facts["branch"], facts["head"]) == ("", commit)


def test_a_linked_working_tree_has_its_own_branch(clone: Path) -> None:
    linked = clone.parent / "linked"
    git(clone, "worktree", "add", "-q", "-b", "topic/x", str(linked))
    facts = read_git_facts(str(linked))
    assert (facts["branch"], facts["repository"]) == ("topic/x", "acme/tariffs")
    assert facts["head"] == git(linked, "rev-parse", "HEAD")


def test_the_remote_is_that_which_a_push_goes_to(clone: Path) -> None:
    git(clone, "remote", "add", "fork", "https://example.org/ada/tariffs")
    assert read_git_facts(str(clone))["repository"] == "acme/tariffs"
    git(clone, "config", "branch.main.remote", "fork")
    assert read_git_facts(str(clone))["repository"] == "ada/tariffs"
    git(clone, "config", "remote.pushDefault", "origin")
    assert read_git_facts(str(clone))["repository"] == "acme/tariffs"
    git(clone, "config", "branch.main.pushRemote", "fork")
    assert read_git_facts(str(clone))["repository"] == "ada/tariffs"


def test_the_address_is_that_which_a_push_goes_to(clone: Path) -> None:
    git(clone, "config", "remote.origin.pushurl", "git@example.org:ada/other.git")
    facts = read_git_facts(str(clone))
    assert facts["repository"] == "ada/other"
    assert facts["remotes"] == {"origin": "git@example.org:ada/other.git"}


def test_git_is_asked_where_the_files_do_not_suffice(
    clone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_NOSYSTEM"):
        monkeypatch.setenv(name, ENVIRONMENT[name])
    git(clone, "config", "url.https://mirror.example/.insteadOf", "git@example.org:")
    facts = read_git_facts(str(clone))
    assert facts["source"] == "git"
    assert facts["remotes"] == {"origin": "https://mirror.example/acme/tariffs.git"}
    assert (facts["repository"], facts["branch"]) == ("acme/tariffs", "main")
    assert facts["head"] == git(clone, "rev-parse", "HEAD")


def test_no_facts_outside_a_repository_or_of_a_broken_one(tmp_path: Path) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / ".git").write_text("gitdir: nowhere")
    assert read_git_facts(str(tmp_path / "broken")) == {}
    assert read_git_facts("/") == {}
    assert read_git_facts(str(tmp_path / "missing")) == {}


@pytest.mark.parametrize(
    ("address", "hidden", "short"),
    [
        ("https://u:p@h/a/b.git", "https://h/a/b.git", "a/b"),
        ("https://token@h/a/b", "https://h/a/b", "a/b"),
        ("https://h/a/b?key=secret", "https://h/a/b", "a/b"),
        ("ssh://git@h:22/a/b.git", "ssh://git@h:22/a/b.git", "a/b"),
        ("ssh://git:pw@h/a/b.git", "ssh://h/a/b.git", "a/b"),
        ("git@h:a/b.git", "git@h:a/b.git", "a/b"),
        ("/srv/git/b.git", "/srv/git/b.git", "srv/git/b"),
        ("", "", ""),
    ],
)
def test_addresses_lose_passwords_and_are_shortened(address: str, hidden: str, short: str) -> None:
    assert (hide_password(address), shorten_address(hidden)) == (hidden, short)
