"""Compare claims about files with what a call changes. Pure."""

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Final

from approvals.checks.check_results import Compared
from approvals.checks.claims.claim_evidence import MAX_COMPARED, ClaimEvidence, Contradiction
from approvals.checks.claims.claim_words import Claim
from approvals.checks.claims.claimed_files import (
    ChangedPaths,
    classify_file,
    describe_classes,
    is_code_path,
    is_dangerous_path,
    is_docs_path,
    is_picture,
    is_style_path,
    is_test_path,
    is_translation_path,
    normalize_path,
)
from approvals.diff.unified import FileDiff

_COMMENT: Final = re.compile(r"^\s*(?:#(?!!).*|//.*|/\*.*|\*.*|--\s.*|<!--.*|;.*|%.*|\"\"\".*)$")
_TRAILING: Final = re.compile(r"(?<=\s)(?:#|//|--)\s?.*$")
_CODE_LINE: Final = re.compile(
    r"[\w\])]\s*\(|[^=!<>]=[^=]|[;{}]\s*$|^\s*(?:return|import|from|def|class|if|for|else|elif|raise"
    r"|while|try|func|function|const|let|var|public|private)\b"
)


def compare_files(evidence: ClaimEvidence, claim: Claim) -> Contradiction | None:
    """Compare "docs only" and the like with the paths that a call changes."""
    short, belongs, plural = {
        "docs": ("not docs only", is_docs_path, "not docs"),
        "docs_tweak": ("not docs only", is_docs_path, "not docs"),
        "tests": ("not tests only", lambda path: is_test_path(path) or is_docs_path(path),
                  "not tests"),
        "config": ("not config only", lambda path: not _is_code_file(path), "not configuration"),
        "styles": ("not styles only", is_style_path, "not styles"),
        "translations": ("not translations only", is_translation_path, "not translations"),
        "no_code": ("changes code", lambda path: not is_code_path(path), "code"),
        "no_dependencies": ("changes dependencies", lambda path: classify_file(path) != "lock",
                            "lock files"),
        "no_ci": ("changes CI", lambda path: classify_file(path) != "ci", "CI workflows"),
        "no_migrations": ("changes the schema", lambda path: classify_file(path) != "migration",
                          "migrations"),
    }[claim.kind]  # fmt: skip
    changed = evidence.changed
    outside = [path for path in changed.paths if not belongs(path)]
    if claim.kind == "no_code":
        outside = [path for path in outside if not _changes_comments_only(changed.files, path)]
    if not outside:
        return None
    contradiction = _describe_outside(changed, outside, short, plural)
    if claim.bound == "type":  # docs of code are often in the code
        level = "warning" if any(map(is_dangerous_path, outside)) else "notice"
        return contradiction._replace(level=level)
    if claim.kind == "docs_tweak":  # it does not say that nothing else changes
        return contradiction._replace(level="warning")
    return contradiction


def compare_touched_docs(evidence: ClaimEvidence, claim: Claim) -> Contradiction | None:
    """Compare "fix typo in README" with changes that contain no document at all."""
    changed = evidence.changed
    if (
        not changed.paths
        or not changed.whole
        or any(map(is_docs_path, changed.paths))
        or not any(map(is_dangerous_path, changed.paths))
    ):
        return None
    contradiction = _describe_outside(changed, changed.paths, "not docs", "not docs")
    return contradiction._replace(level="warning")


def _is_code_file(path: str) -> bool:
    return classify_file(path) in ("source", "migration", "binary")


_SINGULARS: Final = {
    "not tests": "no test",
    "not translations": "no translation",
    "lock files": "a lock file",
    "CI workflows": "a CI workflow",
    "migrations": "a migration",
}


def _describe_outside(
    changed: ChangedPaths, outside: Sequence[str], short: str, plural: str
) -> Contradiction:
    total, count = len(changed.paths), len(outside)
    fact = f"{count} of {total} files {'is' if count == 1 else 'are'} {plural}."
    if total == 1:
        fact = f"{outside[0][-80:]} is {_SINGULARS.get(plural, plural)}."
    return Contradiction(
        short,
        fact,
        changed.source,
        describe_classes(outside),
        tuple(Compared("changes", path) for path in outside[:MAX_COMPARED]),
    )


def compare_changed_lines(evidence: ClaimEvidence, claim: Claim) -> Contradiction | None:
    """Compare changed lines with "comments only", "whitespace only" and the like."""
    changed = evidence.changed
    if claim.kind == "comments":
        outside = [
            file.path
            for file in changed.files
            if not is_docs_path(file.path) and not _has_only_comments(file)
        ]
    else:
        noise = r"\s+" if claim.kind == "whitespace" else r"[\s\"',;()\\]+"
        outside = [file.path for file in changed.files if not _equals_without(file, noise)]
    if not outside:
        return None
    word = f"{claim.kind} only"
    return Contradiction(
        f"not {word}",
        f"{outside[0][-80:]} changes more.",
        "changes",
        compared=tuple(Compared("changes", path) for path in outside[:MAX_COMPARED]),
    )


def _has_only_comments(file: FileDiff) -> bool:
    if file.whole or file.deletes or is_picture(file.path):
        return True
    before, after = (
        [
            line
            for row in file.rows
            if row.sign == sign and not _COMMENT.match(row.text)
            if (line := _TRAILING.sub("", row.text).strip()) and _CODE_LINE.search(line)
        ]
        for sign in "-+"
    )
    return before == after


def _changes_comments_only(files: Sequence[FileDiff], path: str) -> bool:
    listed = [file for file in files if file.path == path]
    return bool(listed) and all(_has_only_comments(file) and not file.whole for file in listed)


def _equals_without(file: FileDiff, noise: str) -> bool:
    if file.whole or file.deletes:
        return True
    before, after = (
        re.sub(noise, "", "".join(row.text for row in file.rows if row.sign == sign))
        for sign in "-+"
    )
    return before == after


def compare_only_paths(evidence: ClaimEvidence, claim: Claim) -> Contradiction | None:
    """Compare "only touches this file" with the other files that change."""
    changed, names = evidence.changed, claim.value
    if not changed.paths or not isinstance(names, tuple):
        return None
    outside = [path for path in changed.paths if not any(covers_path(name, path) for name in names)]
    if not outside:
        return None
    other = f"{len(outside)} other file{'' if len(outside) == 1 else 's'}"
    return Contradiction(
        "other files too",
        f"{other} {'changes' if len(outside) == 1 else 'change'}, too."
        if len(outside) < len(changed.paths)
        else f"it changes {outside[0][-80:]}.",
        changed.source,
        describe_classes(outside),
        tuple(Compared("changes", path) for path in outside[:MAX_COMPARED]),
    )


def compare_named_path(evidence: ClaimEvidence, claim: Claim) -> Contradiction | None:
    """Compare a file that is claimed to change with the files of a commit or push."""
    changed, names = evidence.changed, claim.value
    if not isinstance(names, tuple) or not changed.paths or not changed.whole:
        return None
    names = tuple(name for name in names if "." in name and classify_file(name) != "other")
    if not names:
        return None
    if not evidence.has_git_words("commit", "push", "merge", "pr"):
        return None
    if any(
        covers_path(name, path) or _read_stem(name) == _read_stem(path)
        for name in names
        for path in changed.paths
    ):
        return None
    return Contradiction(
        "path not in the diff",
        "the changes do not contain it.",
        changed.source,
        compared=tuple(Compared("changes", path) for path in changed.paths[:MAX_COMPARED]),
        level="warning",
    )


def _read_stem(path: str) -> str:
    return path.rpartition("/")[2].partition(".")[0].casefold()


def covers_path(name: str, path: str) -> bool:
    """Return True if a name means this path: equal, its end, its folder, a pattern."""
    name, path = normalize_path(name).casefold(), normalize_path(path).casefold()
    if name in (path, ".", "") or path.endswith(f"/{name}") or name.endswith(f"/{path}"):
        return True
    if "*" in name and (fnmatchcase(path, name) or fnmatchcase(path, f"*/{name}")):
        return True
    return path.startswith(f"{name}/") or f"/{name}/" in path
