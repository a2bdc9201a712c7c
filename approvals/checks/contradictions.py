"""Compare what the agent claims about a call with what its arguments do. Pure.

The words that count as a claim are in approvals/checks/claims/claim_words.py. A claim that the
arguments do not decide is no warning: a missed case costs less than an alarm on ordinary work.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from approvals.checks.check_results import CheckResult
from approvals.checks.checked_request import CheckedRequest
from approvals.checks.claims.branch_claims import (
    compare_branch,
    compare_feature_branch,
    compare_push,
)
from approvals.checks.claims.claim_evidence import (
    CONTRADICTION,
    NO_FACTS,
    TEST_RUN,
    ClaimEvidence,
    Contradiction,
    ContradictionFacts,
)
from approvals.checks.claims.claim_words import Claim, recognize_claims
from approvals.checks.claims.environment_claims import (
    NAMES_PRODUCTION,
    compare_environment,
    compare_environment_word,
)
from approvals.checks.claims.file_claims import (
    compare_changed_lines,
    compare_files,
    compare_named_path,
    compare_only_paths,
    compare_touched_docs,
)
from approvals.checks.claims.identifier_claims import compare_identifiers
from approvals.checks.claims.named_values import split_into_words
from approvals.checks.claims.number_claims import compare_count, compare_money
from approvals.checks.claims.passed_tests import compare_tests
from approvals.checks.claims.personal_data_claims import compare_personal_data
from approvals.checks.claims.reading_claims import (
    compare_dry_run,
    compare_looking,
    compare_reading_verb,
    compare_reads,
    compare_replica,
)
from approvals.checks.claims.sharing_claims import (
    compare_draft,
    compare_kept_data,
    compare_rights,
    compare_visibility,
)
from approvals.checks.claims.shell_commands import read_commands
from journal.summaries import COMMAND_ARGUMENTS, COMMENT_ARGUMENTS

_MAX_PHRASE: Final = 80  # characters of a claim that a title quotes
MAX_RESULTS: Final = 8  # contradictions of one request
_FILE_KINDS: Final = frozenset(("docs", "tests", "comments", "whitespace", "formatting"))
_TITLE_KINDS: Final = frozenset(("docs", "tests", "reads", "dry_run"))
_MESSAGE_KINDS: Final = _FILE_KINDS | {"names_path", "only_paths", "no_code"}
_GIT_WORDS: Final = frozenset(("commit", "push", "merge", "pr", "pull"))
_MESSAGES: Final = ("message", "commit_message", "msg")


class Statement(NamedTuple):
    """A text in which the agent speaks about the call; `label` names it in titles."""

    label: str
    text: str
    is_claim: bool
    kinds: frozenset[str] | None = None  # that count; None for all
    commit: bool = False


def find_contradictions(
    request: CheckedRequest, facts: ContradictionFacts = NO_FACTS
) -> Iterator[CheckResult]:
    """Yield what contradicts the claim, the session's title and the environment.

    Reads at most 4,000 characters of a claim, and the arguments only if it claims something.
    """
    evidence = ClaimEvidence(request, facts)
    reported: set[tuple[str, str]] = set()
    for statement in _list_statements(request, facts):
        claims = recognize_claims(statement.text, commit=statement.commit)
        evidence.claims, evidence.text = claims, statement.text
        for claim, contradiction in _compare_statement(evidence, statement):
            identity = (contradiction.short, contradiction.concerns)
            if identity not in reported and len(reported) < MAX_RESULTS:
                reported.add(identity)
                yield _build_result(statement, claim, contradiction)
    if not any(short == NAMES_PRODUCTION for short, _concerns in reported):
        yield from compare_environment_word(evidence)


def _compare_statement(
    evidence: ClaimEvidence, statement: Statement
) -> Iterator[tuple[Claim, Contradiction]]:
    for claim in evidence.claims:
        if statement.kinds is not None and claim.kind not in statement.kinds:
            continue
        compare = _COMPARISONS.get(claim.kind)
        contradiction = compare(evidence, claim) if compare is not None else None
        if contradiction is not None:
            yield claim, contradiction
    if statement.kinds is None:
        yield from compare_identifiers(evidence, statement.text)


def claims_any(request: CheckedRequest, *kinds: str) -> bool:
    """Return True if the claim of a request claims one of these kinds."""
    return any(claim.kind in kinds for claim in recognize_claims(request.claim))


def _list_statements(request: CheckedRequest, facts: ContradictionFacts) -> Iterator[Statement]:
    is_commit = not _GIT_WORDS.isdisjoint(split_into_words(request.tool))
    yield Statement("Claim", request.claim, True, commit=is_commit)
    named = request.arguments if isinstance(request.arguments, dict) else {}
    # Beside a command a description is about the call; elsewhere it is content, as of a ticket.
    for name in COMMENT_ARGUMENTS if not named.keys().isdisjoint(COMMAND_ARGUMENTS) else ():
        text = named.get(name)
        if isinstance(text, str) and text.strip() and text != request.claim:
            yield Statement(name.capitalize(), text, False)
    for message in _list_messages(request, named):
        yield Statement("Commit message", message, False, _MESSAGE_KINDS, commit=True)
    if facts.session_title:
        yield Statement("Session title", facts.session_title, False, _TITLE_KINDS)


def _list_messages(request: CheckedRequest, named: dict[str, Any]) -> Iterator[str]:
    if not _GIT_WORDS.isdisjoint(split_into_words(request.tool)):
        for name in _MESSAGES:
            if isinstance(named.get(name), str):
                yield named[name]
        commits = named.get("commits")
        if isinstance(commits, list) and len(commits) == 1 and isinstance(commits[0], dict):
            yield from (
                str(commits[0][name]) for name in ("title", "subject", "message")
                if isinstance(commits[0].get(name), str)
            )  # fmt: skip
    if not any("commit" in str(named.get(name, "")) for name in ("command", "cmd", "commands")):
        return
    for _where, commands in read_commands(named):
        for command in commands:
            words = command.words
            if command.program == "git" and "commit" in words[1:4]:
                for at, word in enumerate(words[:-1]):
                    if re.fullmatch(r"-[a-z]*m|--message", word):
                        yield words[at + 1]
                        break


def _build_result(statement: Statement, claim: Claim, contradiction: Contradiction) -> CheckResult:
    level = contradiction.level
    if not statement.is_claim and level == "danger":
        level = "warning"
    phrase = claim.phrase.strip()
    if len(phrase) > _MAX_PHRASE:
        phrase = f"{phrase[: _MAX_PHRASE - 1]}\u2026"
    return CheckResult(
        CONTRADICTION if claim.kind != "tests_passed" else TEST_RUN,
        level,
        contradiction.short,
        f"{statement.label} \u201c{phrase}\u201d: {contradiction.fact}",
        contradiction.sentence,
        contradiction.concerns,
        contradiction.compared,
        (claim.start, claim.end) if statement.is_claim else None,
    )


_COMPARISONS: Final[dict[str, Callable[[ClaimEvidence, Claim], Contradiction | None]]] = {
    "environment": compare_environment,
    "not_production": compare_environment,
    "docs": compare_files,
    "docs_tweak": compare_files,
    "tests": compare_files,
    "no_code": compare_files,
    "no_dependencies": compare_files,
    "no_ci": compare_files,
    "no_migrations": compare_files,
    "comments": compare_changed_lines,
    "whitespace": compare_changed_lines,
    "formatting": compare_changed_lines,
    "only_paths": compare_only_paths,
    "names_path": compare_named_path,
    "reads": compare_reads,
    "replica": compare_replica,
    "dry_run": compare_dry_run,
    "normal_push": compare_push,
    "feature_branch": compare_feature_branch,
    "not_main": compare_feature_branch,
    "to_branch": compare_branch,
    "count": compare_count,
    "money": compare_money,
    "no_personal_data": compare_personal_data,
    "touches_docs": compare_touched_docs,
    "reads_verb": compare_reading_verb,
    "looks": compare_looking,
    "few_rights": compare_rights,
    "keeps_data": compare_kept_data,
    "draft": compare_draft,
    "internal": compare_visibility,
    "private": compare_visibility,
    "config": compare_files,
    "styles": compare_files,
    "translations": compare_files,
    "tests_passed": compare_tests,
}
