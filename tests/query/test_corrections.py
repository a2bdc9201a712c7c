"""Wrong queries get the query that was meant, which runs, or none."""

import pytest

from investigation.query import compiler, execute
from investigation.query.corrections import correct_query, find_meant_conditions
from investigation.query.entity_registry import ENTITIES
from investigation.query.parser.ast import QueryError
from investigation.query.spelling import find_nearest_word
from investigation.query.usual_words import USUAL_FIELDS, USUAL_FLAGS, USUAL_VALUES
from tests.matrices import keep_core
from tests.query.incident import Scenario

pytestmark = [pytest.mark.django_db, pytest.mark.once]
NOW_US = 1_795_780_800_000_000  # Friday, 2026-11-27T12:00Z

# Wrong query -> the query that is offered, "" for none.
WRONG = {
    # Spelling: near names only.
    "tol:git.push": "tool:git.push",
    "stat:failed": "state:failed",
    "state:faild": "state:failed",
    "tool:git.push sttae:failed": "tool:git.push state:failed",
    "State:Failed": "state:failed",
    "enviroment:prod": "environment:prod",
    "flavour:blue": "",
    "frobnicate:x": "",
    "state:purple": "",
    "is:purple": "",
    # Usual words for fields.
    "target:web": "resource:web",
    "target:main": "ref:main",
    "user:carol": "on_behalf_of:carol",
    "session user:carol": "session owner:carol",
    "event user:carol": "event actor:carol",
    "gate person:carol": "gate reviewer:carol",
    "approved_by:carol": "approver:carol",
    "status:failed": "state:failed",
    "branch:main": "ref:main",
    "result:ok": "outcome:ok",
    "after:2026-11-20": "since:2026-11-20",
    "event type:effect.failed": "event kind:effect.failed",
    "duration:>10m": "took:>10m",
    "has:target": "has:resource",
    "has:refrence": "has:reference",
    "mode:leased": "session mode:leased",
    # Usual words for values, and states after is:.
    "is:failed": "state:failed",
    "is:denied": "permission:denied",
    "is:running": "state:dispatched",
    "is:pending": "is:waiting",
    "session is:failed": "session status:failed",
    "gate is:approved": "gate status:approved",
    "exemption is:active": "exemption is:live",
    "state:success": "outcome:ok",
    "state:done": "state:acknowledged",
    "state:[error,unknown]": "state:[failed,unknown]",
    "state:!failed": "-state:failed",
    "status:error": "state:failed",
    "gate status:rejected": "gate status:denied",
    "any(session: status:done)": "any(session: status:completed)",
    # Times and lengths of time.
    "since:yesterday": "since:2026-11-26",
    "since:today tool:git.push": "since:2026-11-27 tool:git.push",
    "at:yesterday": "at:2026-11-26",
    "since:last week": "since:1w",
    'since:"last week"': "since:1w",
    "since:this week": "since:2026-11-23",
    "since:monday": "since:2026-11-23",
    "since:7 days": "since:7d",
    "since:3 days ago": "since:3d",
    "since:last 24 hours state:failed": "since:24h state:failed",
    "since:-7d": "since:7d",
    "since:now-7d": "since:7d",
    "since:1month": "since:30d",
    "since:1.5h": "since:90m",
    "since:2026/11/20": "since:2026-11-20",
    "since:2026-11-5": "since:2026-11-05",
    "since:>7d": "since:7d",
    "at:2026-11-1..2026-11-20": "at:2026-11-01..2026-11-20",
    "state:failed asof:yesterday": "state:failed asof:2026-11-26",
    "since:whenever": "",
    "took:>10minutes": "took:>10m",
    "took:>10 minutes": "took:>10m",
    "took:>2hrs tool:git.push": "took:>2h tool:git.push",
    "took:<500 ms": "took:<500ms",
    "took:>10": "",
    # Brackets and quotes.
    "(tool:git.push": "(tool:git.push)",
    "(tool:git.push OR (state:failed": "(tool:git.push OR (state:failed))",
    "(tool:git.push OR tool:mail.send | group tool": "(tool:git.push OR tool:mail.send) | group tool",
    "tool:git.push)": "tool:git.push",
    "(tool:git.push))": "(tool:git.push)",
    'tool:"git.push': 'tool:"git.push"',
    'tool:"git push state:failed': 'tool:"git push" state:failed',
    'tool:git.push"': "tool:git.push",
    "state:[failed,unknown": "state:[failed,unknown]",
    "state:[failed,unknown tool:git.push": "state:[failed,unknown] tool:git.push",
    "session any(effect: state:failed": "session any(effect: state:failed)",
    "session any(effect state:failed)": "session any(effect: state:failed)",
    "session any(effects: state:failed)": "session any(effect: state:failed)",
    # Operators.
    "tool:git.push OR": "tool:git.push",
    "tool:git.push AND": "tool:git.push",
    "tool:git.push NOT": "tool:git.push",
    "OR tool:git.push": "tool:git.push",
    "tool:git.push AND OR state:failed": "tool:git.push AND state:failed",
    "tool:git.push || state:failed": "tool:git.push OR state:failed",
    "tool:git.push && state:failed": "tool:git.push AND state:failed",
    "state: failed": "state:failed",
    "attempts:> 3": "attempts:>3",
    "tool:git.push state:": "tool:git.push",
    "state = failed": "state:failed",
    "reference:*": "has:reference",
    # Stages.
    "state:failed | group by tool": "state:failed | group tool",
    "state:failed | count by tool": "state:failed | group tool",
    "state:failed | group status": "state:failed | group state",
    "state:failed | group tool | limit 5": "state:failed | group tool | top 5",
    "state:failed |": "state:failed",
    "sessions status:failed": "session status:failed",
    # Several errors.
    "(status:error since:yesterday": "(state:failed since:2026-11-26)",
    "tol:git.push took:>10minutes OR": "tool:git.push took:>10m",
    # Nothing is certain.
    "count(effect: tool:a)": "",
    "attempts:many": "",
    "state:": "",
    "(": "",
    '"': "",
    "|": "",
    "|||": "",
}

# Queries that run, but search words where a condition is meant.
MEANT = {
    "state=failed": "state:failed",
    "status=failed": "state:failed",
    "tool:git.push state=failed": "tool:git.push state:failed",
    "state!=failed": "-state:failed",
    "state==failed": "state:failed",
    "attempts>3": "attempts:>3",
    'tool="git push"': 'tool:"git push"',
    "state:failed,unknown": "state:[failed,unknown]",
    "state:failed,unknown] tool:git.push": "state:[failed,unknown] tool:git.push",
    "since:2026-11-20 09:00": "since:2026-11-20T09:00",
    "since:2026-11-20 9:00": "since:2026-11-20T09:00",
    "state:failed or state:unknown": "state:failed OR state:unknown",
    "not state:failed": "NOT state:failed",
    "effects state:failed": "effect state:failed",
    "sessions": "session",
    "tool:“git push”": 'tool:"git push"',
    "tool:'git push'": 'tool:"git push"',
    # Words that stay words.
    "stop or go": "",
    "requests for access": "",
    "file=report.pdf": "",
    "x=y": "",
    '"state=failed"': "",
    'title "a or tool:b"': "",
    "state:failed": "",
    "": "",
}


def run(text: str, scenario: Scenario) -> None:
    """Compile and run a query. Raises QueryError."""
    compiled = execute.compile_query(text, scenario.inbox.project, NOW_US)
    execute.load_results(compiled, lambda rows: rows)


def offer(text: str, scenario: Scenario) -> str:
    def check(candidate: str) -> None:
        execute.compile_query(candidate, scenario.inbox.project, NOW_US)

    try:
        check(text)
    except QueryError as error:
        return correct_query(text, error, check, NOW_US)
    return find_meant_conditions(compiler.parse_query(text), check)


def test_a_wrong_query_offers_what_was_meant_or_nothing(scenario: Scenario) -> None:
    offers = {text: offer(text, scenario) for text in WRONG}
    assert {text: made for text, made in offers.items() if made != WRONG[text]} == {}
    for text in WRONG:
        with pytest.raises(QueryError):
            run(text, scenario)


def test_words_that_look_like_conditions_offer_them(scenario: Scenario) -> None:
    offers = {text: offer(text, scenario) for text in MEANT}
    assert {text: made for text, made in offers.items() if made != MEANT[text]} == {}


def test_every_offered_query_runs(scenario: Scenario) -> None:
    for text in (*WRONG, *MEANT):
        offered = offer(text, scenario)
        if offered:
            run(offered, scenario)
            assert offer(offered, scenario) == "", "an offered query needs no correction"


@pytest.mark.matrix
@pytest.mark.parametrize("one_in", keep_core([9, 1], [9]))
def test_a_broken_query_never_breaks_the_correction(scenario: Scenario, one_in: int) -> None:
    """Cut each query at every character, and drop each character; the core has one in nine."""
    texts = {text[:end] for text in (*WRONG, *MEANT) for end in range(len(text))}
    texts |= {text[:at] + text[at + 1 :] for text in list(WRONG)[::5] for at in range(len(text))}
    for text in sorted(texts)[::one_in]:
        offered = offer(text, scenario)
        if offered:
            run(offered, scenario)


def test_usual_words_mean_what_exists() -> None:
    names = {*compiler.OPERATOR_HELP, *(name for each in ENTITIES.values() for name in each.fields)}
    for words in USUAL_FIELDS.values():
        assert {meaning for meanings in words.values() for meaning in meanings} <= names
    for name, words in USUAL_FLAGS.items():
        for usual, (flag,) in words.items():
            assert flag in ENTITIES[name].flags, usual
            assert usual not in ENTITIES[name].flags, usual
    for key, words in USUAL_VALUES.items():
        entity_name, _, field = key.partition(".")
        for usual, (meaning, *_) in words.items():
            condition = meaning if ":" in meaning else f"{field}:{meaning}"
            compiler.parse_query(f"{entity_name} {condition}")
            assert usual != meaning, key


@pytest.mark.parametrize(
    ("word", "nearest"),
    [
        ("stat", "state"),
        ("sttae", "state"),
        ("environmnet", "environment"),
        ("failed", ""),
        ("target", ""),
        ("user", ""),
        ("a", ""),
        ("deploy-8", ""),
        ("depoly-7", "deploy-7"),
    ],
)
def test_the_nearest_word_is_close_or_none(word: str, nearest: str) -> None:
    words = ["state", "environment", "fenced", "agent", "turn", "ran", "deploy-7"]
    assert find_nearest_word(word, words) == nearest
