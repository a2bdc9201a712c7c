"""Compare "tests are green" with the runs of tests in the journal. Pure."""

import re

from approvals.checks.check_results import Compared
from approvals.checks.checked_request import CheckedRequest
from approvals.checks.claims.branch_claims import REF_ARGUMENTS, list_target_refs, read_target_ref
from approvals.checks.claims.claim_evidence import ClaimEvidence, Contradiction
from approvals.checks.claims.claim_words import Claim
from approvals.checks.claims.named_values import split_into_words
from approvals.checks.claims.shell_commands import read_commands


def compare_tests(evidence: ClaimEvidence, claim: Claim) -> Contradiction | None:
    """Compare "tests are green" with stated and recorded runs of tests."""
    if not is_publishing(evidence.request):
        return None
    stated = _find_stated_tests(evidence)
    if stated is not None:
        return stated
    runs = evidence.facts.test_runs
    if runs is None:
        return None
    if not runs:
        scope = "in this session" if evidence.facts.complete else "in its latest calls"
        return Contradiction(
            "no test run recorded", f"the journal has no test run {scope}.", "evidence",
            level="notice",
        )  # fmt: skip
    refs = [ref for _where, ref in list_target_refs(evidence)]
    commit, source = _read_pushed(evidence)
    on_it = [
        run
        for run in runs
        if (commit and run.commit and _same_commit(commit, run.commit))
        or (run.ref and (run.ref in refs or run.ref == source))
    ]
    last = (on_it or list(runs))[-1]
    if last.outcome == "failed":
        return Contradiction(
            "tests failed",
            f"the last run{f' on {last.ref}' if last.ref else ''} failed.",
            "evidence",
            f"{last.words[:80]} in {last.handle}.",
            (Compared("test run", last.words[:120], last.handle),),
        )
    if on_it or not last.ref or not refs:
        return None
    return Contradiction(
        "tests on another branch",
        f"they ran on {last.ref}, not on {refs[0]}.",
        "evidence",
        f"{last.words[:80]} in {last.handle}.",
        (Compared("tested", last.ref, last.handle), Compared("branch", refs[0])),
        "warning",
    )


def is_publishing(request: CheckedRequest) -> bool:
    """Return True if a call hands work on: push, merge, deploy, release, commit."""
    verbs = {"push", "merge", "deploy", "release", "publish", "commit", "promote", "rollout", "pr"}
    if verbs & set(split_into_words(request.tool)) or "pull_request" in request.tool:
        return True
    return any(
        command.program in ("git", "gh", "npm", "twine", "helm", "kubectl")
        and {
            "push",
            "merge",
            "commit",
            "publish",
            "upload",
            "upgrade",
            "apply",
            "create",
            "rollout",
        }
        & set(command.words[1:4])
        for _where, commands in read_commands(request.arguments)
        for command in commands
    )


def _find_stated_tests(evidence: ClaimEvidence) -> Contradiction | None:
    """Compare the claim with what arguments or preconditions state about tests."""
    named = evidence.request.arguments
    refs = [ref for _where, ref in list_target_refs(evidence)]
    for root, source in (("arguments", named), ("preconditions", evidence.request.preconditions)):
        for key, value in source.items() if isinstance(source, dict) else ():
            if not {"test", "tests", "ci", "checks"} & set(split_into_words(str(key))):
                continue
            stated = value if isinstance(value, dict) else {}
            texts = [str(item) for item in stated.values()] if stated else [str(value)]
            where = f"{root}.{key}" if root == "arguments" else "evidence"
            if any(map(_states_failure, texts)):
                return Contradiction("tests failed", f"{key} states a failure.", where)
            ref = next((stated[name] for name in ("ref", "branch") if name in stated), "")
            if not ref and isinstance(value, str):
                match = re.search(r"\b(?:passed|green|ok|ran)\b.{0,20}?\bon\s+([\w./-]+)", value)
                ref = match[1].rstrip(".") if match else ""
            ref = read_target_ref(str(ref))
            if ref and refs and ref not in refs:
                return Contradiction(
                    "tests on another branch", f"they ran on {ref}, not on {refs[0]}.", where,
                    compared=(Compared("tested", ref), Compared("branch", refs[0])),
                    level="warning",
                )  # fmt: skip
    return None


def _states_failure(text: str) -> bool:
    return (
        re.search(r"\b(?:fail\w*|red|error\w*)\b", text, re.IGNORECASE) is not None
        and re.search(r"\b(?:0|no) (?:fail|error)", text, re.IGNORECASE) is None
    )


def _read_pushed(evidence: ClaimEvidence) -> tuple[str, str]:
    """Return the commit and source branch that a push or merge names, "" for none."""
    named = evidence.request.arguments if isinstance(evidence.request.arguments, dict) else {}
    texts = [str(named[name]) for name in REF_ARGUMENTS if isinstance(named.get(name), str)]
    for _where, commands in evidence.commands:
        texts += [word for command in commands for word in command.words if ":" in word]
    commit = source = ""
    for text in texts:
        left = text.lstrip("+").partition(":")[0] if ":" in text else ""
        if re.fullmatch(r"[0-9a-f]{7,40}", left):
            commit = left
        elif left and left != "HEAD":
            source = read_target_ref(left)
    for name in ("sha", "commit", "head_sha", "commit_sha"):
        if isinstance(named.get(name), str):
            commit = commit or named[name]
    for name in ("head", "source", "source_branch", "from", "head_branch"):
        if isinstance(named.get(name), str):
            source = source or read_target_ref(named[name])
    return commit, source


def _same_commit(first: str, second: str) -> bool:
    length = min(len(first), len(second))
    return length >= 7 and first[:length] == second[:length]
