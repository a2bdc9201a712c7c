"""The rules of stuck sessions as a pure function: each right after its deadline, and the false
alarms of elsewhere."""

from dataclasses import replace
from itertools import product
from typing import Any, Final
from uuid import UUID

import pytest

from monitoring.stuck import hysteresis, loops
from monitoring.stuck.hysteresis import EpisodeState, next_step
from monitoring.stuck.rule_inputs import (
    EffectInput,
    FencedWrites,
    GateInput,
    HandoffInput,
    LeaseInput,
    Loop,
    RuleInput,
)
from monitoring.stuck.rules import (
    DEFAULT_LIMITS,
    LIVENESS,
    US,
    RuleLimits,
    evaluate_stuck_rules,
    stuck_reasons,
)
from sessions.models import ENDED, MODES, STATUSES

pytestmark = pytest.mark.once
T: Final = 1_790_000_000 * US
ONE, TWO = UUID(int=1), UUID(int=2)
LEASE: Final = LeaseInput(
    epoch=3,
    process="w-1",
    heartbeat_at_us=T,
    progress_at_us=T,
    expires_at_us=T + 60 * US,
    dead_at_us=T + 120 * US,
    wedged_at_us=T + 900 * US,
)
AT_WORK: Final = RuleInput(ONE, created_at_us=T, lease=LEASE)
GATE: Final = GateInput(TWO, "g_7", "git.push", T, T + 600 * US, "team-leads")
CALL: Final = EffectInput(TWO, "e_9", "mail.send", T + 300 * US, T)
HANDOFF: Final = HandoffInput(TWO, "h_5", T, T + 600 * US)
BEATING: Final = replace(
    LEASE, heartbeat_at_us=T + 10**6 * US, expires_at_us=T + 10**7 * US, dead_at_us=T + 10**7 * US
)
GIVEN_UP: Final = replace(LEASE, released_at_us=T)


def rules(seen: RuleInput, now: int, limits: RuleLimits = DEFAULT_LIMITS) -> list[str]:
    return [one.rule for one in stuck_reasons(seen, now, limits)]


def with_lease(lease: LeaseInput, **more: Any) -> RuleInput:
    return replace(AT_WORK, lease=lease, **more)


# What is stuck, by which rule, and the first moment at which the rule may not speak yet.
CASES: Final[dict[str, tuple[RuleInput, str, int]]] = {
    "never started": (
        RuleInput(ONE, created_at_us=T, start_by_us=T + 300 * US),
        "S1",
        T + 300 * US,
    ),
    "dead": (AT_WORK, "S2", T + 120 * US),
    "wedged": (with_lease(BEATING), "S3", T + 900 * US),
    "no answer": (
        with_lease(replace(BEATING, wedged_at_us=T + 10**7 * US), effects=[CALL]),
        "S4",
        T + 300 * US,
    ),
    "waits for people": (replace(AT_WORK, gates=[GATE]), "S6", T + 300 * US),
    "given up": (with_lease(GIVEN_UP), "S7", T + 600 * US),
    "handed off": (with_lease(GIVEN_UP, handoff=HANDOFF), "S7", T + 600 * US),
}


@pytest.mark.parametrize("name", CASES)
def test_a_rule_speaks_right_after_its_deadline_and_not_at_it(name: str) -> None:
    seen, rule, due = CASES[name]
    assert rules(seen, due) == []
    after = stuck_reasons(seen, due + 1)
    assert {one.rule for one in after} == {rule}
    assert {one.since_us for one in after} == {due}
    assert all(one.says and one.terms for one in after)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("ended", ENDED)
def test_an_end_wins_over_everything(name: str, ended: str) -> None:
    seen = replace(
        CASES[name][0], status=ended, fenced=FencedWrites(1, 9, T), loop=Loop(calls=99, attempts=99)
    )
    assert evaluate_stuck_rules(seen, T + 10**9 * US) == []


@pytest.mark.parametrize(("name", "mode"), [*product(CASES, MODES)])
def test_only_leased_sessions_have_a_heart_to_stop(name: str, mode: str) -> None:
    seen, rule, due = CASES[name]
    expected = [] if mode != "leased" and rule in LIVENESS else [rule]
    assert sorted(set(rules(replace(seen, mode=mode), due + 1))) == expected


@pytest.mark.parametrize(("name", "word"), [*product(CASES, STATUSES)])
def test_who_says_that_it_waits_or_rests_is_believed(name: str, word: str) -> None:
    seen, rule, due = CASES[name]
    silent = {"S1": ("waiting", "suspended"), "S2": ("suspended",), "S3": ("waiting", "suspended")}
    quiet = {**silent, "S7": ("waiting", "suspended")}.get(rule, ()) + ENDED
    assert bool(rules(replace(seen, status=word), due + 1)) == (word not in quiet)


@pytest.mark.parametrize("name", ["dead", "wedged", "given up", "handed off"])
def test_who_waits_for_people_is_never_called_dead(name: str) -> None:
    seen, _rule, due = CASES[name]
    later = replace(GATE, requested_at_us=due, decide_by_us=due + 600 * US)
    assert rules(replace(seen, gates=[later]), due + 1) == []
    assert rules(replace(seen, gates=[later]), due + 10**6 * US) == ["S6"]


def test_a_request_is_amber_at_half_of_its_time_and_red_past_it() -> None:
    seen = replace(AT_WORK, gates=[GATE])
    assert [one.grade for one in stuck_reasons(seen, T + 600 * US)] == ["amber"]
    (red,) = stuck_reasons(seen, T + 600 * US + 1)
    assert red.grade == "red"
    assert "team-leads" in str(red.says)


@pytest.mark.parametrize("name", ["dead", "wedged"])
def test_announced_quiet_is_quiet_until_it_is_over(name: str) -> None:
    seen, rule, due = CASES[name]
    assert seen.lease is not None
    announced = with_lease(replace(seen.lease, quiet_until_us=due + 50 * US))
    assert rules(announced, due + 50 * US) == []
    assert rules(announced, due + 50 * US + 1) == [rule]


def test_a_call_within_its_own_time_is_no_silence() -> None:
    """A healthy run reaped: one call may take longer than a quarter of an hour."""
    long = replace(CALL, deadline_us=T + 3600 * US)
    assert rules(with_lease(BEATING, effects=[long]), T + 3600 * US) == []
    assert rules(with_lease(BEATING, effects=[long]), T + 3600 * US + 1) == ["S3", "S4"]


def test_a_healthy_run_is_not_reaped() -> None:
    """A worker that sends heartbeats and moves is never stuck, however long it has run."""
    for hours in range(1, 200):
        now = T + hours * 3600 * US
        moving = replace(
            LEASE,
            heartbeat_at_us=now - US,
            progress_at_us=now - US,
            expires_at_us=now + 59 * US,
            dead_at_us=now + 119 * US,
            wedged_at_us=now + 899 * US,
        )
        assert rules(with_lease(moving), now) == []


def test_a_watchdog_with_heartbeats_for_a_wedged_agent_does_not_hide_it() -> None:
    assert rules(with_lease(BEATING), T + 901 * US) == ["S3"]


def test_a_heartbeat_after_completion_raises_nothing() -> None:
    done = with_lease(replace(BEATING, epoch=4), status="completed", fenced=FencedWrites(3, 1, T))
    assert rules(done, T + 10**6 * US) == []


def test_who_was_stopped_by_a_person_cannot_move() -> None:
    assert rules(with_lease(BEATING, stopped=True), T + 901 * US) == []


def test_a_worker_that_writes_a_handoff_and_goes_on_is_no_orphan() -> None:
    going_on = replace(BEATING, progress_at_us=T + 700 * US, wedged_at_us=T + 10**6 * US)
    assert rules(with_lease(going_on, handoff=HANDOFF), T + 800 * US) == []
    resting = replace(going_on, progress_at_us=T + 10 * US)
    assert rules(with_lease(resting, handoff=HANDOFF), T + 800 * US) == ["S7"]


def test_a_dead_session_that_nobody_takes_is_an_orphan_too() -> None:
    assert rules(AT_WORK, T + 660 * US) == ["S2"]
    assert rules(AT_WORK, T + 660 * US + 1) == ["S2", "S7"]


@pytest.mark.parametrize(
    ("name", "limits", "moves_by"),
    [
        ("never started", RuleLimits(start_s=30), -270),
        ("never started", RuleLimits(start_s=3600), 3300),
        ("dead", RuleLimits(dead_s=400), 400),
        ("wedged", RuleLimits(progress_s=60), -840),
        ("wedged", RuleLimits(progress_s=7200), 6300),
        ("given up", RuleLimits(orphan_s=60), -540),
        ("handed off", RuleLimits(orphan_s=3600), 3000),
    ],
)
def test_an_agent_may_have_limits_of_its_own(name: str, limits: RuleLimits, moves_by: int) -> None:
    seen, rule, due = CASES[name]
    due += moves_by * US
    assert rules(seen, due, limits) == []
    assert set(rules(seen, due + 1, limits)) == {rule}


def test_loops_are_told_by_calls_by_attempts_and_by_heartbeats() -> None:
    moving = replace(BEATING, wedged_at_us=T + 10**7 * US)
    for calls, attempts, expected in [(4, 0, []), (5, 0, ["S5"]), (0, 4, []), (0, 5, ["S5"])]:
        assert rules(with_lease(moving, loop=Loop(calls=calls, attempts=attempts)), T) == expected
        reported = replace(
            AT_WORK, mode="reported", lease=None, loop=Loop(calls=calls, attempts=attempts)
        )
        assert rules(reported, T) == expected
    assert rules(with_lease(BEATING, loop=Loop(heartbeats=30)), T + 900 * US) == []
    assert rules(with_lease(BEATING, loop=Loop(heartbeats=30)), T + 901 * US) == ["S3", "S5"]
    assert (
        rules(with_lease(BEATING, loop=Loop(heartbeats=30), status="waiting"), T + 901 * US) == []
    )
    own = RuleLimits(loop_calls=3, loop_attempts=8)
    assert rules(with_lease(moving, loop=Loop(calls=3)), T, own) == ["S5"]
    assert rules(with_lease(moving, loop=Loop(attempts=7)), T, own) == []


def test_a_stale_report_is_remembered_for_an_hour() -> None:
    moving = with_lease(replace(BEATING, wedged_at_us=T + 10**7 * US), fenced=FencedWrites(2, 1, T))
    (told,) = stuck_reasons(moving, T + 3600 * US)
    assert (told.rule, told.epoch) == ("S8", 2)
    assert stuck_reasons(moving, T + 3600 * US + 1) == []


def test_every_term_says_its_value_and_what_it_is_measured_by() -> None:
    everything = with_lease(
        BEATING,
        gates=[GATE],
        effects=[CALL],
        handoff=HANDOFF,
        loop=Loop(calls=2),
        fenced=FencedWrites(2, 1, T),
    )
    for one in evaluate_stuck_rules(everything, T):
        assert one.terms, one.rule
        assert all(term.name and str(term.value) and str(term.threshold) for term in one.terms)


def call(
    number: int,
    intent: str = "a",
    *,
    settled: bool = True,
    ending: tuple[str, str, str] = ("ok", "", ""),
) -> Any:
    return loops.LoopCall(UUID(int=number), number, "ci.run", intent, settled, ending, T)


@pytest.mark.parametrize(
    ("calls", "length"),
    [
        ([], 0),
        ([call(n) for n in range(9, 0, -1)], 9),
        ([call(9, "b"), *[call(n) for n in range(8, 0, -1)]], 1),
        ([call(9, settled=False), call(8), call(7)], 2),
        ([call(9, "b", settled=False), call(8), call(7)], 0),
        ([call(9), call(8, ending=("error", "", "")), call(7)], 1),
        ([call(9), call(8, ending=("ok", "", "run-8"))], 1),
        ([call(9, ""), call(8, "")], 0),
    ],
)
def test_only_equal_calls_with_equal_ends_in_a_row_repeat_themselves(
    calls: list[Any], length: int
) -> None:
    assert len(loops.repeated_run(calls)) == length


@pytest.mark.parametrize(
    ("episode", "holds", "is_paused", "seen", "step"),
    [
        (None, False, False, 0, ""),
        (None, True, False, 0, "see"),
        (None, True, True, 0, "see"),
        ("seen", False, False, 6, "forget"),
        ("seen", True, False, 6, "raise"),
        ("seen", True, False, 7, ""),  # the very evaluation that saw it
        ("seen", True, True, 6, ""),
        ("raised", True, False, 6, ""),
        ("raised", True, True, 6, ""),
        ("raised", False, False, 6, "clear"),
        ("raised", False, True, 6, "clear"),
        ("seen", False, True, 6, "forget"),
    ],
)
def test_two_evaluations_in_a_row_raise_and_one_sign_of_progress_clears(
    episode: str | None, holds: bool, is_paused: bool, seen: int, step: str
) -> None:
    known = None if episode is None else EpisodeState(seen, episode == "raised")
    assert next_step(known, holds=holds, evaluation=7, is_paused=is_paused) == step


@pytest.mark.parametrize(
    ("silent_s", "every_s", "away"),
    [
        (0, 5, False),
        (60, 5, False),
        (61, 5, True),
        (300, 300, False),
        (900, 300, False),
        (901, 300, True),
    ],
)
def test_an_outage_of_our_own_is_longer_than_the_grace_and_than_our_usual_way(
    silent_s: int, every_s: int, away: bool
) -> None:
    assert hysteresis.is_outage(T, every_s * US, T + silent_s * US) == away
    assert not hysteresis.is_outage(None, 0, T)
