"""Compare claims about environments with where a call acts. Pure."""

import re
from collections.abc import Iterator
from typing import Any, Final

from approvals.checks.check_results import CheckResult, Compared
from approvals.checks.claims.claim_evidence import CONTRADICTION, ClaimEvidence, Contradiction
from approvals.checks.claims.claim_words import Claim, names_production, recognize_claims
from approvals.checks.claims.claimed_files import classify_file
from approvals.checks.claims.named_values import build_word_set, iterate_values, split_into_words
from approvals.checks.claims.shell_commands import ShellCommand

_PRODUCTION_WORDS: Final = frozenset(("production", "prod"))
_SCOPED_PRODUCTION_WORDS: Final = frozenset(("production", "prod", "prd", "live"))
_NON_PRODUCTION: Final = build_word_set(
    "staging stage stg test testing dev development sandbox qa uat demo preprod preproduction"
    " nonprod nonproduction"
)
_LIVE_FLAGS: Final = frozenset(("livemode", "live_mode", "live", "production", "is_production"))
_EXCLUDING: Final = build_word_set("non pre not no like")
_RESEMBLING: Final = build_word_set("like grade sized style")  # words after it: production-like
# Names of arguments whose value says where a call acts.
_SCOPES: Final = build_word_set(
    "context cluster namespace ns database db dbname host hostname server url uri dsn connection"
    " endpoint account project env environment stage target profile workspace bucket tenant"
    " subscription release values inventory instance service domain app org organization site"
    " deployment stack vault channel"
)
# Names of arguments with text about something, or with where something comes from.
_TEXTS: Final = build_word_set(
    "message body subject description why thought explanation comment comments reason text content"
    " title prompt note notes summary label labels source from origin image images snapshot backup"
    " template base old new previous string str html markdown query sql command cmd commands code"
    " script argv patch diff input id ids product products sha commit commits"
)
_READING_PROGRAMS: Final = build_word_set(
    "grep rg ag cat echo printf less more head tail ls find sed awk vi vim nano diff jq yq cd wc"
    " which test [ export source . sort uniq tree stat file cut tr xargs git npm yarn pnpm bun"
    " composer pip node ng vite webpack npx bundle bundler hugo jekyll flutter gradle gradlew make"
    " xcodebuild tsc esbuild rollup next nuxt"
)
NAMES_PRODUCTION: Final = "names production"


def compare_environment(evidence: ClaimEvidence, claim: Claim) -> Contradiction | None:
    """Compare "staging" and "not production" with the environment and the arguments."""
    if claim.kind == "not_production" and names_production(evidence.text):
        return None
    request = evidence.request
    if _names_production_word(request.environment, scoped=True):
        return Contradiction(
            NAMES_PRODUCTION,
            f"the environment is {request.environment}.",
            "target.environment",
            compared=(Compared("environment", request.environment),),
        )
    return _find_production_argument(evidence)


def compare_environment_word(evidence: ClaimEvidence) -> Iterator[CheckResult]:
    """Compare the word of the target's environment with the arguments and the claim."""
    environment = evidence.request.environment
    words = split_into_words(environment)
    if not _NON_PRODUCTION.intersection(words) or _names_production_word(environment, scoped=True):
        return
    claim_text = evidence.request.claim
    contradiction = None
    if not names_production(claim_text):
        contradiction = _find_production_argument(evidence)
    if contradiction is not None:
        yield CheckResult(
            CONTRADICTION,
            "danger",
            contradiction.short,
            f"Environment \u201c{environment}\u201d: {contradiction.fact}",
            concerns=contradiction.concerns,
            compared=(Compared("environment", environment), *contradiction.compared),
        )
        return
    if _NON_PRODUCTION.intersection(split_into_words(claim_text)):
        return
    for claim in recognize_claims(claim_text):
        if claim.kind == "production":
            yield CheckResult(
                CONTRADICTION,
                "warning",
                "environment differs",
                f"Claim \u201c{claim.phrase}\u201d: the environment is {environment}.",
                "The risk was computed for the environment that the agent sent.",
                "target.environment",
                (Compared("environment", environment),),
                (claim.start, claim.end),
            )
            return


def find_production_value(arguments: Any) -> str:
    """Return the first argument that names production, as text; "" for none."""
    return next(
        (
            value
            for _, key, value in iterate_values(arguments)
            if isinstance(value, str) and _value_names_production(key, value)
        ),
        "",
    )


def _find_production_argument(evidence: ClaimEvidence) -> Contradiction | None:
    request = evidence.request
    for where, key, value in evidence.values:
        if value is True and "_".join(split_into_words(key)) in _LIVE_FLAGS:
            return _describe_production(where, key, "true")
        if isinstance(value, str) and _value_names_production(key, value):
            return _describe_production(where, key, value)
    for where, commands in evidence.commands:
        for command in commands:
            word = _find_production_word(command)
            if word:
                return _describe_production(where, "command", word)
    if _names_production_word(request.ref, scoped=False) and evidence.has_git_words(
        "push", "merge"
    ):
        return _describe_production("target.ref", "ref", request.ref)
    resource = request.resource
    if resource and " " not in resource and _names_production_word(resource, scoped=False):
        return _describe_production("target.resource", "resource", resource)
    return None


def _describe_production(where: str, key: str, value: str) -> Contradiction:
    shown = value if len(value) <= 60 else f"{value[:40]}\u2026{value[-16:]}"
    return Contradiction(
        NAMES_PRODUCTION,
        f"{'the command' if key == 'command' else key} names {shown}.",
        where,
        compared=(Compared(key, value[:200]),),
    )


def _value_names_production(key: str, value: str) -> bool:
    if re.match(r"(?:sk|pk|rk)_live_", value):
        return True
    if not value or len(value) > 300 or re.search(r"\s", value):
        return False
    words = split_into_words(key)
    if _TEXTS.intersection(words):
        return False
    if _is_file(value):
        return classify_file(value) == "production"
    return _names_production_word(value, scoped=bool(_SCOPES.intersection(words)))


def _is_file(value: str) -> bool:
    return "://" not in value and re.search(r"\.[A-Za-z]{1,5}$", value) is not None and (
        "/" in value or re.fullmatch(r"[\w.-]+\.(?:ya?ml|json|toml|env|tf|tfvars|md|txt)", value)
        is not None
    )  # fmt: skip


def _names_production_word(value: str, *, scoped: bool) -> bool:
    """Return True if a name has a word for production, which non-prod has not."""
    if re.fullmatch(r"prod_[A-Za-z0-9]{6,}", value):  # the id of a product
        return False
    words = split_into_words(value)
    sought = _SCOPED_PRODUCTION_WORDS if scoped else _PRODUCTION_WORDS
    return any(
        word in sought
        and (at == 0 or words[at - 1] not in _EXCLUDING)
        and not _RESEMBLING.intersection(words[at + 1 : at + 2])
        for at, word in enumerate(words)
    )


def _find_production_word(command: ShellCommand) -> str:
    """Return the word of a command that names production; "" for none."""
    if command.program == "git":
        if "push" not in command.words[1:4]:
            return ""
    elif command.program in _READING_PROGRAMS:
        return ""
    if "build" in command.words[1:3]:  # a target or mode of the build, used for all environments
        return ""
    for word in (*command.assignments, *command.words[1:]):
        if "settings" in word or word.startswith(
            ("NODE_ENV=", "BABEL_ENV=", "MIX_ENV=", "RAILS_ENV=", "--mode")
        ):
            continue
        if re.fullmatch(r"\w+=\S+(?:\s+\w+=\S+)+", word):  # a connection string
            if _names_production_word(word, scoped=False):
                return word
            continue
        if re.search(r"\s", word) or word in ("--production", "--prod", "production=false"):
            continue
        if _is_file(word):
            if classify_file(word.rpartition("=")[2]) == "production":
                return word
        elif _names_production_word(word.removeprefix("--"), scoped=False):
            return word
    return ""
