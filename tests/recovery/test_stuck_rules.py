"""The stuck rules as a pure function: each right after its deadline, without known false alarms."""

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
    US,
    RuleLimits,
    evaluate_stuck_rules,
    stuck_reasons,
)
from sessions.models import ENDED, MODES, STATUSES

pytestmark = pytest.mark.once
LIVENESS: Final = ("S1", "S2", "S3", "S7")
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
ALIVE: Final = replace(
    LEASE, heartbeat_at_us=T + 10**6 * US, expires_at_us=T + 10**7 * US, dead_at_us=T + 10**7 * US
)
GIVEN_UP: Final = replace(LEASE, released_at_us=T)


def rules(seen: RuleInput, now: int, limits: RuleLimits = DEFAULT_LIMITS) -> list[str]:
    return [reason.rule for reason in stuck_reasons(seen, now, limits)]


def with_lease(lease: LeaseInput, **more: Any) -> RuleInput:
    return replace(AT_WORK, lease=lease, **more)


# The input, the rule, and the last moment at which the rule does not hold yet.
CASES: Final[dict[str, tuple[RuleInput, str, int]]] = {
    "never started": (
        RuleInput(ONE, created_at_us=T, start_by_us=T + 300 * US),
        "S1",
        T + 300 * US,
    ),
    "dead": (AT_WORK, "S2", T + 120 * US),
    "wedged": (with_lease(ALIVE), "S3", T + 900 * US),
    "no answer": (
        with_lease(replace(ALIVE, wedged_at_us=T + 10**7 * US), effects=[CALL]),
        "S4",
        T + 300 * US,
    ),
    "waits for people": (replace(AT_WORK, gates=[GATE]), "S6", T + 300 * US),
    "given up": (with_lease(GIVEN_UP), "S7", T + 600 * US),
    "handed off": (with_lease(GIVEN_UP, handoff=HANDOFF), "S7", T + 600 * US),
}


@pytest.mark.parametrize("name", CASES)
def test_a_rule_holds_right_after_its_deadline_and_not_at_it(name: str) -> None:
    seen, rule, due = CASES[name]
    assert rules(seen, due) == []
    after = stuck_reasons(seen, due + 1)
    assert {reason.rule for reason in after} == {rule}
    assert {reason.since_us for reason in after} == {due}
    assert all(reason.says and reason.terms for reason in after)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("ended", ENDED)
def test_an_ended_session_is_never_stuck(name: str, ended: str) -> None:
    seen = replace(
        CASES[name][0], status=ended, fenced=FencedWrites(1, 9, T), loop=Loop(calls=99, attempts=99)
    )
    assert evaluate_stuck_rules(seen, T + 10**9 * US) == []


@pytest.mark.parametrize(("name", "mode"), [*product(CASES, MODES)])
def test_liveness_rules_apply_only_to_leased_sessions(name: str, mode: str) -> None:
    seen, rule, due = CASES[name]
    expected = [] if mode != "leased" and rule in LIVENESS else [rule]
    assert sorted(set(rules(replace(seen, mode=mode), due + 1))) == expected


@pytest.mark.parametrize(("name", "word"), [*product(CASES, STATUSES)])
def test_a_waiting_or_suspended_session_silences_some_rules(name: str, word: str) -> None:
    seen, rule, due = CASES[name]
    silent = {"S1": ("waiting", "suspended"), "S2": ("suspended",), "S3": ("waiting", "suspended")}
    quiet = {**silent, "S7": ("waiting", "suspended")}.get(rule, ()) + ENDED
    assert bool(rules(replace(seen, status=word), due + 1)) == (word not in quiet)


@pytest.mark.parametrize("name", ["dead", "wedged", "given up", "handed off"])
def test_a_session_with_a_pending_gate_is_never_dead(name: str) -> None:
    seen, _rule, due = CASES[name]
    later = replace(GATE, requested_at_us=due, decide_by_us=due + 600 * US)
    assert rules(replace(seen, gates=[later]), due + 1) == []
    assert rules(replace(seen, gates=[later]), due + 10**6 * US) == ["S6"]


def test_a_request_is_amber_at_half_of_its_time_and_red_past_it() -> None:
    seen = replace(AT_WORK, gates=[GATE])
    assert [reason.grade for reason in stuck_reasons(seen, T + 600 * US)] == ["amber"]
    (red,) = stuck_reasons(seen, T + 600 * US + 1)
    assert red.grade == "red"
    assert "team-leads" in str(red.says)


@pytest.mark.parametrize("name", ["dead", "wedged"])
def test_announced_quiet_delays_the_rules_until_its_end(name: str) -> None:
    seen, rule, due = CASES[name]
    assert seen.lease is not None
    announced = with_lease(replace(seen.lease, quiet_until_us=due + 50 * US))
    assert rules(announced, due + 50 * US) == []
    assert rules(announced, due + 50 * US + 1) == [rule]


def test_a_call_within_its_deadline_is_no_silence() -> None:
    """One call may take longer than 15 minutes."""
    long = replace(CALL, deadline_us=T + 3600 * US)
    assert rules(with_lease(ALIVE, effects=[long]), T + 3600 * US) == []
    assert rules(with_lease(ALIVE, effects=[long]), T + 3600 * US + 1) == ["S3", "S4"]


def test_a_healthy_run_is_never_stuck() -> None:
    """A worker with heartbeats and progress is never stuck, even after days."""
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


def test_heartbeats_without_progress_do_not_hide_a_wedged_agent() -> None:
    assert rules(with_lease(ALIVE), T + 901 * US) == ["S3"]


def test_a_heartbeat_after_completion_raises_nothing() -> None:
    done = with_lease(replace(ALIVE, epoch=4), status="completed", fenced=FencedWrites(3, 1, T))
    assert rules(done, T + 10**6 * US) == []


def test_a_stopped_session_is_not_wedged() -> None:
    assert rules(with_lease(ALIVE, stopped=True), T + 901 * US) == []


def test_a_session_with_progress_after_its_handoff_is_no_orphan() -> None:
    going_on = replace(ALIVE, progress_at_us=T + 700 * US, wedged_at_us=T + 10**6 * US)
    assert rules(with_lease(going_on, handoff=HANDOFF), T + 800 * US) == []
    resting = replace(going_on, progress_at_us=T + 10 * US)
    assert rules(with_lease(resting, handoff=HANDOFF), T + 800 * US) == ["S7"]


def test_a_dead_session_without_a_new_worker_is_an_orphan_too() -> None:
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
def test_an_agent_may_have_its_own_limits(name: str, limits: RuleLimits, moves_by: int) -> None:
    seen, rule, due = CASES[name]
    due += moves_by * US
    assert rules(seen, due, limits) == []
    assert set(rules(seen, due + 1, limits)) == {rule}


def test_loops_are_detected_by_calls_attempts_and_heartbeats() -> None:
    moving = replace(ALIVE, wedged_at_us=T + 10**7 * US)
    for calls, attempts, expected in [(4, 0, []), (5, 0, ["S5"]), (0, 4, []), (0, 5, ["S5"])]:
        assert rules(with_lease(moving, loop=Loop(calls=calls, attempts=attempts)), T) == expected
        reported = replace(
            AT_WORK, mode="reported", lease=None, loop=Loop(calls=calls, attempts=attempts)
        )
        assert rules(reported, T) == expected
    assert rules(with_lease(ALIVE, loop=Loop(heartbeats=30)), T + 900 * US) == []
    assert rules(with_lease(ALIVE, loop=Loop(heartbeats=30)), T + 901 * US) == ["S3", "S5"]
    assert rules(with_lease(ALIVE, loop=Loop(heartbeats=30), status="waiting"), T + 901 * US) == []
    own = RuleLimits(loop_calls=3, loop_attempts=8)
    assert rules(with_lease(moving, loop=Loop(calls=3)), T, own) == ["S5"]
    assert rules(with_lease(moving, loop=Loop(attempts=7)), T, own) == []


def test_a_stale_report_is_shown_for_an_hour() -> None:
    moving = with_lease(replace(ALIVE, wedged_at_us=T + 10**7 * US), fenced=FencedWrites(2, 1, T))
    (reason,) = stuck_reasons(moving, T + 3600 * US)
    assert (reason.rule, reason.epoch) == ("S8", 2)
    assert stuck_reasons(moving, T + 3600 * US + 1) == []


def test_every_term_has_a_value_and_a_threshold() -> None:
    everything = with_lease(
        ALIVE,
        gates=[GATE],
        effects=[CALL],
        handoff=HANDOFF,
        loop=Loop(calls=2),
        fenced=FencedWrites(2, 1, T),
    )
    for result in evaluate_stuck_rules(everything, T):
        assert result.terms, result.rule
        assert all(term.name and str(term.value) and str(term.threshold) for term in result.terms)


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
def test_only_equal_calls_with_equal_results_in_a_row_are_a_loop(
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
        ("seen", True, False, 7, ""),  # the evaluation that saw it first
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
    state = None if episode is None else EpisodeState(seen, episode == "raised")
    assert next_step(state, holds=holds, evaluation=7, is_paused=is_paused) == step


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
def test_an_outage_is_longer_than_the_grace_period_and_three_intervals(
    silent_s: int, every_s: int, away: bool
) -> None:
    assert hysteresis.is_outage(T, every_s * US, T + silent_s * US) == away
    assert not hysteresis.is_outage(None, 0, T)
