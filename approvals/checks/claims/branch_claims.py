"""Compare claims about pushes and branches with the refs that a call moves. Pure."""

import re
from typing import Final

from approvals.checks.check_results import Compared
from approvals.checks.claims.claim_evidence import ClaimEvidence, Contradiction
from approvals.checks.claims.claim_words import Claim
from approvals.checks.claims.file_claims import covers_path
from approvals.diff.destructive_pushes import describe_destructive_push
from approvals.diff.from_arguments import COMMIT_LISTS

_MAIN: Final = re.compile(r"main|master|trunk|production|prod|release(?:[/-].+)?", re.IGNORECASE)
_TARGET_REFS: Final = ("into", "base", "target_branch", "destination_branch", "base_branch", "onto")
REF_ARGUMENTS: Final = ("refspec", "refspecs", "branch", "ref", "refs")


def compare_push(evidence: ClaimEvidence, claim: Claim) -> Contradiction | None:
    """Compare "a normal push" with what the push forces, deletes or removes."""
    request = evidence.request
    effects = describe_destructive_push(request.tool, request.arguments, request.preconditions)
    if re.search(r"forc|histor|fast|commit", claim.phrase, re.IGNORECASE):
        effects = tuple(effect for effect in effects if effect != "deletes a ref")
    if not effects:
        return None
    where = "request"
    named = request.arguments if isinstance(request.arguments, dict) else {}
    for key, value in named.items():
        if describe_destructive_push(request.tool, {key: value}):
            where = f"arguments.{key}"
            if "forced push" in effects and isinstance(value, str) and value.startswith("+"):
                return Contradiction("not a normal push", "the + forces it.", where)
            break
    else:
        removed = [name for name, sign in COMMIT_LISTS if sign == "-"]
        where = next((f"arguments.{name}" for name in removed if name in named), where)
    return Contradiction("not a normal push", f"{', '.join(effects)}.", where)


def list_target_refs(evidence: ClaimEvidence) -> list[tuple[str, str]]:
    """Return dot path and name of the branches that a push or merge moves."""
    if not evidence.has_git_words("push", "merge", "pr", "pull", "commit", "branch"):
        return []
    request = evidence.request
    named = request.arguments if isinstance(request.arguments, dict) else {}
    keys = [name for name in _TARGET_REFS if isinstance(named.get(name), str)]
    if not keys and "merge" not in evidence.tool_words:
        keys = [name for name in REF_ARGUMENTS if name in named]
    refs = []
    for key in keys:
        values = named[key] if isinstance(named[key], list) else [named[key]]
        refs += [
            (f"arguments.{key}", read_target_ref(text)) for text in values if isinstance(text, str)
        ]
    for where, commands in evidence.commands:
        for command in commands:
            if command.program == "git" and "push" in command.words[1:4]:
                rest = command.words[command.words.index("push") + 1 :]
                plain = [word for word in rest if not word.startswith("-")]
                refs += [(where, read_target_ref(word)) for word in plain[1:]]
    if not refs and request.ref:
        refs.append(("target.ref", read_target_ref(request.ref)))
    return [(where, ref) for where, ref in refs if ref and ref != "HEAD"]


def read_target_ref(text: str) -> str:
    """Return the branch on the right of a refspec, without its prefix."""
    target = text.strip().lstrip("+").rpartition(":")[2]
    for prefix in ("refs/heads/", "heads/", "refs/remotes/origin/", "origin/"):
        target = target.removeprefix(prefix)
    return target


def compare_feature_branch(evidence: ClaimEvidence, claim: Claim) -> Contradiction | None:
    """Compare "to my feature branch" and "not main" with the branch that moves."""
    refs = list_target_refs(evidence)
    for where, ref in refs:
        if _MAIN.fullmatch(ref) and (
            claim.kind != "not_main" or ref in ("main", "master", "trunk")
        ):
            return Contradiction(
                "other branch", f"it moves {ref}.", where, compared=(Compared("branch", ref),)
            )
    return None


def compare_branch(evidence: ClaimEvidence, claim: Claim) -> Contradiction | None:
    """Compare the branch that a claim names with the branches that move."""
    names = {
        read_target_ref(name).casefold()
        for other in evidence.claims
        if other.kind == "to_branch" and isinstance(other.value, tuple)
        for name in other.value
    }
    refs = list_target_refs(evidence)
    named = claim.value[0] if isinstance(claim.value, tuple) else ""
    if (
        not refs
        or any(ref.casefold() in names for _where, ref in refs)
        or named.casefold() in ("main", "master")
        or re.search(r"\.[a-z]{1,4}$", named)
        or any(covers_path(named, path) for path in evidence.changed.paths)
    ):
        return None
    where, ref = refs[0]
    return Contradiction(
        "other branch",
        f"it moves {ref}.",
        where,
        compared=(Compared("claimed branch", named), Compared("branch", ref)),
    )
