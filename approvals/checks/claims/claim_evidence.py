"""What a claim is compared with: the request and facts of the journal. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, NamedTuple

from approvals.checks.check_results import Compared
from approvals.checks.checked_request import CheckedRequest
from approvals.checks.claims.claim_words import Claim
from approvals.checks.claims.claimed_files import ChangedPaths, collect_changed_paths
from approvals.checks.claims.named_values import iterate_values, split_into_words
from approvals.checks.claims.shell_commands import ShellCommand, read_commands

# Keys of approvals/checks/run_checks.py: CHECKS.
CONTRADICTION: Final = "contradiction"
TEST_RUN: Final = "test_run"
MAX_COMPARED: Final = 5  # values that one result lists


class RecordedRun(NamedTuple):
    """A run of tests in the journal.

    `handle` is e_<n>; `outcome` is ok, failed or unknown.
    """

    handle: str
    words: str  # tool or command, agent text
    ref: str
    commit: str
    outcome: str


@dataclass(frozen=True, slots=True)
class ContradictionFacts:
    """Facts of the journal about a request.

    `test_runs` are in the order of time, None if they were not loaded.
    """

    session_title: str = ""
    test_runs: tuple[RecordedRun, ...] | None = None
    complete: bool = True  # all calls of the session were read
    dry_flag: str = ""  # an argument that earlier calls of the tool carried
    dry_handle: str = ""


class Contradiction(NamedTuple):
    """What a comparison yields: the fact against the claim, and where it is."""

    short: str
    fact: str  # continues the title after the colon; ends with a period
    concerns: str
    sentence: str = ""
    compared: tuple[Compared, ...] = ()
    level: str = "danger"


NO_FACTS: Final = ContradictionFacts()


@dataclass
class ClaimEvidence:
    """The request with what is read from its arguments only if a claim needs it."""

    request: CheckedRequest
    facts: ContradictionFacts
    claims: Sequence[Claim] = field(default=())
    text: str = ""

    @cached_property
    def changed(self) -> ChangedPaths:
        request = self.request
        return collect_changed_paths(request.tool, request.arguments, request.preconditions)

    @cached_property
    def values(self) -> list[tuple[str, str, Any]]:
        return list(iterate_values(self.request.arguments))

    @cached_property
    def commands(self) -> list[tuple[str, list[ShellCommand]]]:
        return list(read_commands(self.request.arguments))

    @cached_property
    def tool_words(self) -> frozenset[str]:
        return frozenset(split_into_words(self.request.tool))

    def has_git_words(self, *verbs: str) -> bool:
        """Return True if the tool's name or a command has one of these words after git."""
        return not self.tool_words.isdisjoint(verbs) or any(
            command.program in ("git", "gh") and set(command.words[1:4]).intersection(verbs)
            for _where, commands in self.commands
            for command in commands
        )
