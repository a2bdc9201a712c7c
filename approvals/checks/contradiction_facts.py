"""Load facts against claims: session titles, runs of tests, earlier dry runs.

At most eight queries for any number of requests; all but the first only where a claim speaks about
tests or a dry run.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final, NamedTuple
from uuid import UUID

from django.db.models import OuterRef, Q, Subquery

from approvals.checks.checked_request import CheckedRequest
from approvals.checks.claims.claim_evidence import ContradictionFacts, RecordedRun
from approvals.checks.claims.named_values import build_word_set, iterate_values, split_into_words
from approvals.checks.claims.passed_tests import is_publishing
from approvals.checks.claims.reading_claims import DRY_FLAGS
from approvals.checks.claims.shell_commands import ShellCommand, read_commands
from approvals.checks.contradictions import claims_any
from db import raw_sql
from db.compiled_query import CompiledQuerySet
from journal import summaries
from journal.models import Body
from journal.text_caches import cache_texts
from ledger.models import Attempt, Effect
from sessions.models import Session

SESSION_DEPTH: Final = 80  # latest effects of a session that are searched for runs of tests
SESSION_RUNS: Final = 10  # latest runs of tests of a session whose answers are read
TOOL_DEPTH: Final = 10  # latest effects of a tool that are searched for a dry-run argument
TOOL_WINDOW: Final = 20_000  # journal positions before a request in which these are sought
MAX_TOOLS: Final = 20  # tools whose earlier calls one page searches
MAX_EFFECTS: Final = 4_000  # effects that one page searches
_MAX_ANSWER: Final = 20_000  # characters of an answer that are read
_TEST_WORDS: Final = build_word_set("test tests pytest jest vitest unittest ci testsuite")
_NO_RUN: Final = build_word_set("read write edit get list create find search delete view")
_SHELL_WORDS: Final = build_word_set(
    "bash shell sh exec execute run terminal command cmd process powershell console"
)
_TEST_PROGRAMS: Final = build_word_set(
    "pytest py.test tox nox jest vitest mocha rspec phpunit ctest ava karma bats"
)
_RUNNERS: Final[dict[str, str]] = {  # program -> its word that runs tests
    "go": r"test", "cargo": r"(?:nextest|test)", "npm": r"(?:t|test\S*)", "pnpm": r"test\S*",
    "yarn": r"test\S*", "bun": r"test\S*", "make": r"(?:test\S*|check)", "mvn": r"(?:test|verify)",
    "gradle": r"(?:test|check)", "gradlew": r"(?:test|check)", "dotnet": r"test", "mix": r"test",
    "python": r"(?:pytest|unittest)", "python3": r"(?:pytest|unittest)", "manage.py": r"test",
    "rake": r"(?:test|spec)", "bazel": r"test", "just": r"test\S*", "swift": r"test",
    "bundle": r"(?:rspec|test)", "uv": r"(?:pytest|tox)", "poetry": r"(?:pytest|tox)",
    "npx": r"(?:jest|vitest|playwright|mocha)", "playwright": r"test", "deno": r"test",
}  # fmt: skip
_MAY_MATTER: Final = re.compile(  # most commands run no tests: they are not parsed
    r"test|tox|nox|spec|mocha|karma|bats|phpunit|\bava\b|jest|check|verify|switch|npm t\b"
)
_FAILED_TEXT: Final = re.compile(
    r"\b[1-9]\d* (?:failed|failures?|failing|errors?)\b|^FAIL\b|^--- FAIL|\bBUILD FAILED\b"
    r"|test result: FAILED|(?:exit ?code|returncode|exit status)\W{0,3}[1-9]",
    re.IGNORECASE | re.MULTILINE,
)
_EXITS: Final = build_word_set("exit exit_code exitcode returncode return_code code")
_STATUSES: Final = build_word_set("status conclusion result state outcome")
_FAILED_WORDS: Final = build_word_set("failed failure fail error red broken cancelled")


class _SessionRow(NamedTuple):
    id: UUID
    title: str
    branch: str
    parent: UUID | None
    parent_branch: str | None
    grandparent: UUID | None
    grandparent_branch: str | None


class _EffectRow(NamedTuple):
    id: UUID
    session: UUID
    position: int
    tool: str
    ref: str
    outcome: str
    state: str
    plan_position: int | None


@dataclass(frozen=True, slots=True)
class _Run:
    """A run of tests before its outcome is known from the answer."""

    effect: _EffectRow
    words: str
    ref: str
    commit: str


class _TestCall(NamedTuple):
    """A call as its plan describes it: `words` of its run of tests, "" for none."""

    words: str
    ref: str
    commit: str
    checkout: str  # the branch that it checks out


_NO_TEST: Final = _TestCall("", "", "", "")


def load_contradiction_facts(
    project: UUID, requests: Sequence[CheckedRequest]
) -> dict[UUID, ContradictionFacts]:
    """Load the facts of each request by gate. At most eight queries."""
    if not requests:
        return {}
    sessions = {
        row.id: row
        for row in (
            _SessionRow(*columns)
            for columns in _SESSIONS.rows(
                project=project, sessions=sorted({request.session for request in requests})
            )
        )
    }
    runs = _load_test_runs(
        project,
        sessions,
        [
            request
            for request in requests
            if request.session in sessions
            and claims_any(request, "tests_passed")
            and is_publishing(request)
        ],
    )
    dry = _load_dry_flags(
        project, [request for request in requests if claims_any(request, "dry_run")]
    )
    facts = {}
    for request in requests:
        session = sessions.get(request.session)
        tested, complete = runs.get(request.gate, (None, True))
        flag, handle = dry.get(request.tool, ("", ""))
        facts[request.gate] = ContradictionFacts(
            session.title if session else "", tested, complete, flag, handle
        )
    return facts


def _select_sessions(project: UUID, sessions: Sequence[UUID]) -> Any:
    return Session.objects.filter(project=project, id__in=sessions).values_list(
        "id", "title", "branch", "parent_id", "parent__branch", "parent__parent_id",
        "parent__parent__branch",
    )  # fmt: skip


_SESSIONS: Final = CompiledQuerySet(_select_sessions, project=UUID, sessions=[UUID])


def _load_test_runs(
    project: UUID, sessions: Mapping[UUID, _SessionRow], requests: Sequence[CheckedRequest]
) -> dict[UUID, tuple[tuple[RecordedRun, ...], bool]]:
    """Load the runs of tests of each request's session and two parents, oldest first."""
    if not requests:
        return {}
    branches: dict[UUID, str] = {}
    chains: dict[UUID, tuple[UUID, ...]] = {}
    for request in requests:
        row = sessions[request.session]
        branches[row.id] = row.branch
        if row.parent is not None:
            branches[row.parent] = row.parent_branch or ""
        if row.grandparent is not None:
            branches[row.grandparent] = row.grandparent_branch or ""
        chains[request.gate] = tuple(
            each for each in (row.id, row.parent, row.grandparent) if each is not None
        )
    effects, cut = _load_latest_effects(sorted(branches))
    candidates = [row for row in effects if _may_run_tests(row.tool)]
    heads = summaries.load_plan_heads(
        [row.plan_position for row in candidates if row.plan_position is not None]
    )
    runs = _read_runs(candidates, heads, branches)
    outcomes = _load_outcomes(runs)
    tests = {
        request.gate: tuple(
            RecordedRun(
                f"e_{run.effect.position}", run.words, run.ref, run.commit, outcomes[run.effect.id]
            )
            for run in runs
            if run.effect.session in chains[request.gate]
            and run.effect.position < request.plan_position
        )
        for request in requests
    }
    return {
        gate: (listed, not any(session in cut for session in chains[gate]))
        for gate, listed in tests.items()
    }


def _load_latest_effects(sessions: Sequence[UUID]) -> tuple[list[_EffectRow], set[UUID]]:
    """Load the latest effects of sessions, oldest first, and which sessions have more.

    One query over the index (session, opened_position). The sessions are of the project.
    """
    rows = raw_sql.fetch_rows(
        " UNION ALL ".join([_LATEST.format(number) for number in range(len(sessions))]),
        list(map(raw_sql.vendor_id, sessions)),
    )
    effects = [
        _EffectRow(raw_sql.read_uuid(effect), raw_sql.read_uuid(session), *columns)
        for effect, session, *columns in sorted(rows, key=itemgetter(2))
    ]
    counts = Counter(effect.session for effect in effects)
    cut = {session for session, count in counts.items() if count >= SESSION_DEPTH}
    return effects[-MAX_EFFECTS:], cut


_LATEST: Final = (
    "SELECT * FROM (SELECT id, session_id, opened_position, tool, ref, outcome, state,"
    " plan_position FROM ledger_effect WHERE session_id = %s"
    f" ORDER BY opened_position DESC LIMIT {SESSION_DEPTH}) AS latest_{{}}"
)


def _may_run_tests(tool: str) -> bool:
    words = set(split_into_words(tool))
    return bool(words & (_TEST_WORDS | _SHELL_WORDS)) and not words & _NO_RUN


def _read_runs(
    candidates: Sequence[_EffectRow], heads: Mapping[int, str], branches: Mapping[UUID, str]
) -> list[_Run]:
    """Return the latest runs of tests of each session with the ref that each ran on.

    The target's ref counts first, then an argument, then what the session checked out before.
    """
    checked_out = dict(branches)
    runs: dict[UUID, list[_Run]] = defaultdict(list)
    for effect in candidates:
        call = _read_call(effect.tool, heads.get(effect.plan_position or 0) or "{}")
        if call.checkout:
            checked_out[effect.session] = call.checkout
        if not call.words:
            continue
        ref, commit = effect.ref or call.ref, call.commit
        if re.fullmatch(r"[0-9a-f]{7,40}", ref):
            ref, commit = "", ref
        ref = ref.removeprefix("refs/heads/").removeprefix("origin/")
        ref = ref or checked_out.get(effect.session, "")
        runs[effect.session].append(_Run(effect, call.words, ref, commit))
    latest = [run for listed in runs.values() for run in listed[-SESSION_RUNS:]]
    return sorted(latest, key=lambda run: run.effect.position)


@cache_texts(1024)
def _read_call(tool: str, head: str) -> _TestCall:
    """Return what the beginning of a plan's body says about tests and branches."""
    is_test_tool = bool(set(split_into_words(tool)) & _TEST_WORDS)
    if not is_test_tool and _MAY_MATTER.search(head) is None:
        return _NO_TEST
    arguments = summaries.extract_arguments(head)
    words, checkout = tool if is_test_tool else "", ""
    for _where, commands in read_commands(arguments):
        for command in commands:
            checkout = _read_checkout(command) or checkout
            if _runs_tests(command):
                words = " ".join(command.words)[:120]
    texts = {
        str(key).casefold(): value
        for key, value in (arguments.items() if isinstance(arguments, dict) else ())
        if isinstance(value, str)
    }
    ref, commit = (
        next((texts[name] for name in names if name in texts), "")
        for names in (
            ("ref", "branch", "head", "head_branch"),
            ("sha", "commit", "head_sha", "commit_sha"),
        )
    )
    return _TestCall(words, ref, commit, checkout)


def _read_checkout(command: ShellCommand) -> str:
    """Return the branch that a command checks out; "" for none."""
    if command.program != "git":
        return ""
    verb = next((word for word in command.words[1:3] if word in ("checkout", "switch")), "")
    if not verb or "--" in command.words:
        return ""
    plain = [
        word for word in command.words[command.words.index(verb) + 1 :] if not word.startswith("-")
    ]
    return plain[0] if plain and "." not in plain[0].rpartition("/")[2] else ""


def _runs_tests(command: ShellCommand) -> bool:
    words, program = command.words, command.program
    if {"--collect-only", "--version", "--help", "-h", "install", "add"} & set(words[1:]):
        return False
    if program in _TEST_PROGRAMS:
        return True
    verb = _RUNNERS.get(program)
    return verb is not None and any(re.fullmatch(verb, word) for word in words[1:5])


def _load_outcomes(runs: Sequence[_Run]) -> dict[UUID, str]:
    """Load how runs ended: ok, failed or unknown. Two queries, for at most 500 runs."""
    outcomes = {}
    for run in runs:
        failed = run.effect.state == "failed" or run.effect.outcome == "error"
        outcomes[run.effect.id] = (
            "failed" if failed else "ok" if run.effect.outcome == "ok" else "unknown"
        )
    passed = [run.effect.id for run in runs if outcomes[run.effect.id] == "ok"][-500:]
    if not passed:
        return outcomes
    answers = {
        position: effect
        for effect, position in Attempt.objects.filter(
            effect__in=passed, answer_position__isnull=False
        )
        .order_by("number")
        .values_list("effect_id", "answer_position")
        if position is not None
    }
    for position, text in Body.objects.filter(entry__in=list(answers)).values_list("entry", "text"):
        if text is not None and has_failed_tests(text[:_MAX_ANSWER]):
            outcomes[answers[position]] = "failed"
    return outcomes


def has_failed_tests(text: str) -> bool:
    """Return True if the answer of a test run states a failure."""
    body = summaries.parse_body(text) or summaries.parse_body(summaries.close_truncated_json(text))
    result = body.get("result")
    texts = []
    for _where, key, value in iterate_values(result, "result", "result"):
        name = "_".join(split_into_words(key))
        if name in _EXITS and isinstance(value, int) and not isinstance(value, bool):
            return value != 0
        if name in _STATUSES and isinstance(value, str) and value.casefold() in _FAILED_WORDS:
            return True
        if name == "failed" and isinstance(value, int) and not isinstance(value, bool) and value:
            return True
        if isinstance(value, str):
            texts.append(value)
    return any(_FAILED_TEXT.search(each) for each in texts)


def _load_dry_flags(
    project: UUID, requests: Sequence[CheckedRequest]
) -> dict[str, tuple[str, str]]:
    """Load by tool the dry-run argument of an earlier call, with its handle.

    Three queries over the index (project, tool, opened_position); at most 20 tools.
    """
    effects = sorted(
        {request.effect for request in requests if isinstance(request.arguments, dict)}
    )[:MAX_TOOLS]
    if not effects:
        return {}
    # The window bounds the query if a rare tool is sought in the order of positions.
    earlier = Effect.objects.filter(
        project=project,
        tool=OuterRef("tool"),
        opened_position__lt=OuterRef("opened_position"),
        opened_position__gt=OuterRef("opened_position") - TOOL_WINDOW,
    ).order_by("-opened_position")
    depth = earlier.values("opened_position")[TOOL_DEPTH - 1 : TOOL_DEPTH]
    wanted = Q()
    for tool, opened, floor in Effect.objects.filter(project=project, id__in=effects).values_list(
        "tool", "opened_position", Subquery(depth)
    ):
        first = opened - TOOL_WINDOW if floor is None else floor
        wanted |= Q(tool=tool, opened_position__gte=first, opened_position__lt=opened)
    if not wanted:
        return {}
    latest = Effect.objects.filter(wanted, project=project, plan_position__isnull=False)
    rows = sorted(latest.values_list("tool", "opened_position", "plan_position"), reverse=True)
    heads = summaries.load_plan_heads(
        [position for *_rest, position in rows if position is not None]
    )
    flags: dict[str, tuple[str, str]] = {}
    for tool, opened, position in rows:
        arguments = summaries.extract_arguments(heads.get(position or 0) or "{}")
        for _where, key, value in iterate_values(arguments):
            if (
                "_".join(split_into_words(key)) in DRY_FLAGS
                and value is not None
                and tool not in flags
            ):
                flags[tool] = (key, f"e_{opened}")
    return flags
