"""Drawing of lanes: silences, heartbeats, labels, ticks, and what is dropped for space."""

import json
import re
from types import SimpleNamespace

import pytest

from display.display_state import short_process
from display.effect_runs import RunTimes
from pages.timeline import svg_layout
from pages.timeline.bars import Bar, SessionEvent, Step, TimelineWindow
from pages.timeline.svg import draw_timeline
from pages.timeline.svg_layout import build_axis, find_silences, lease_spans
from tests.pages.test_timeline_lanes import NOON


@pytest.mark.parametrize("span_s", [1, 7, 59, 600, 4_000, 90_000, 800_000, 40_000_000])
def test_ticks_are_few_and_round(span_s: int) -> None:
    start = NOON + 7
    ticks = svg_layout.axis_ticks(build_axis((), start, start + span_s * 1_000_000))
    assert len(ticks) <= svg_layout.MOST_TICKS + 1
    assert all(0 <= tick.x <= 100 for tick in ticks)
    assert [tick.x for tick in ticks] == sorted(tick.x for tick in ticks)


def fact(kind: str, at_s: int, **facts: int) -> SessionEvent:
    return SessionEvent(at_s * 1_000_000, kind, at_s, json.dumps(facts), 1)


def test_a_silence_lasts_from_the_last_heartbeat_to_a_takeover() -> None:
    session_events = [
        fact("lease.acquired", 0, ttl_s=60),
        fact("session.silent", 190, since_us=100_000_000),
        fact("session.silence_ended", 200),
        fact("session.silent", 420, since_us=300_000_000),
        fact("lease.lost", 450),
        fact("lease.acquired", 450, ttl_s=60),
        fact("session.silent", 600, since_us=500_000_000),
    ]
    end = 700_000_000
    silences = [
        (span.starts_us // 10**6, span.ends_us // 10**6, span.is_ended)
        for span in find_silences(session_events, end)
    ]
    assert silences == [(100, 200, True), (300, 450, False), (500, 700, False)]
    # A crash is drawn where the lease expired, not where the expiry was detected.
    assert [span.crash_us for span in lease_spans(session_events, end)] == [
        360_000_000,
        560_000_000,
    ]
    drawn = draw_timeline(
        TimelineWindow("server", session_events=session_events, now_us=end), str, running=True
    )
    assert drawn is not None
    assert drawn.inner.count('class="fenced"') == 3
    last_bar, first_crash = drawn.inner.rindex('class="lease"'), drawn.inner.index("crash")
    assert last_bar < first_crash  # no later holder's bar covers it


def test_a_minute_of_heartbeats_is_drawn_inside_the_window() -> None:
    """Start a minute before its first fact; the current minute is not over."""
    acquired = SessionEvent(45 * 10**6, "lease.acquired", 1, "{}", 1)
    window = TimelineWindow(
        "server",
        session_events=[acquired],
        minutes=[(0, 2, 0), (60 * 10**6, 1, 0)],
        now_us=70 * 10**6,
    )
    drawn = draw_timeline(window, str, running=True)
    assert drawn is not None
    lease, *heartbeats = [
        float(x) for x in re.findall(r'class="(?:lease|heartbeat)" x="([\d.]+)%"', drawn.inner)
    ]
    present = float(re.findall(r'class="now" x1="([\d.]+)%"', drawn.inner)[0])
    assert [lease <= x <= present for x in heartbeats] == [True, True]


def test_labels_of_marks_overlap_no_mark_and_stay_in_the_drawing() -> None:
    acquired = SessionEvent(0, "lease.acquired", 1, "{}", 1)
    marks = [
        SessionEvent(at * 10**6, "checkpoint.written", at, "{}", 1) for at in (300, 340, 360, 990)
    ]
    drawn = draw_timeline(
        TimelineWindow("server", session_events=[acquired, *marks], now_us=10**9), str, running=True
    )
    assert drawn is not None
    per_pixel = 100 / svg_layout.WIDTH
    shapes = [
        float(x)
        for x in re.findall(r'x="([\d.]+)%" y="\d+"><use href="#m-checkpoint"', drawn.inner)
    ]
    assert len(shapes) == 4
    names = re.findall(
        r'<text x="([\d.]+)%" y="\d+" class="dim" text-anchor="(start|end)">checkpoint<',
        drawn.inner,
    )
    assert names
    present = float(re.findall(r'class="now" x1="([\d.]+)%"', drawn.inner)[0])
    for x, anchor in names:
        length = svg_layout.CHARACTER * len("checkpoint") * per_pixel
        low, high = (
            (float(x), float(x) + length) if anchor == "start" else (float(x) - length, float(x))
        )
        assert 0 < low < high <= 100
        assert not any(low < shape < high for shape in [*shapes, present])


def test_long_times_without_activity_are_cut_and_named_on_one_scale() -> None:
    minute = 60 * 10**6
    at = [0, 10, 20, 320, 330, 630, 640]  # minutes, with two gaps of five hours
    axis = build_axis([each * minute for each in at], 0, 640 * minute)
    assert [gap.cut_us for gap in axis.gaps] == [300 * minute, 300 * minute]
    x = [axis.x(each * minute) for each in at]
    assert x == sorted(x)
    ten = x[1] - x[0]
    assert [round(x[n + 1] - x[n] - ten, 1) for n in (1, 3, 5)] == [0, 0, 0]
    assert all(x[n + 1] - x[n] < 2 * ten for n in (2, 4))
    assert build_axis([0, 29 * minute], 0, 58 * minute).gaps == []

    def step(minutes: int, what: str) -> Step:
        return Step(minutes * minute, what, 1, minutes, minutes * minute, "command")

    effect = SimpleNamespace(
        id=1, tool="t", task_id=None, attempt_count=1, violates=False, outcome="ok"
    )
    bar = Bar(effect, [step(0, "planned"), step(320, "acknowledged")], "acknowledged", "")
    drawn = draw_timeline(TimelineWindow("server", bars=[bar]), str, running=False)
    assert drawn is not None
    assert drawn.gaps == ["5 h 20 min"]
    assert "5 h 20 min without activity, cut out</title>" in drawn.inner
    assert drawn.overview is not None


def test_a_late_run_is_red_with_words_from_the_end_of_its_permission() -> None:
    minute = 60 * 10**6
    moves = (
        ("planned", 0),
        ("awaiting", 1),
        ("ruled", 10),
        ("dispatched", 27),
        ("acknowledged", 29),
    )
    steps = [
        Step(at * minute, what, 1, at, at * minute, "command", "ok" if at == 29 else "")
        for what, at in moves
    ]
    effect = SimpleNamespace(
        id=1, tool="db.migrate", task_id=None, attempt_count=1, violates=True, outcome="ok"
    )
    run = RunTimes(
        ran_us=27 * minute, ran_source="agent", permitted_us=10 * minute, permitted_by="exemption"
    )
    run.permission_end_us = 15 * minute
    bar = Bar(effect, steps, "acknowledged", "0142", run)
    drawn = draw_timeline(TimelineWindow("server", bars=[bar]), str, running=False)
    assert drawn is not None
    assert ">12 min after its exemption ended</text>" in drawn.inner
    red = re.findall(r'<line class="span" x1="([\d.]+)%" x2="([\d.]+)%"', drawn.inner)
    wait = re.findall(r'class="wait is-awaiting" x1="([\d.]+)%" x2="([\d.]+)%"', drawn.inner)
    assert float(wait[0][1]) < float(red[0][0]) < float(red[0][1])
    assert 'class="pin is-danger"' in drawn.inner
    run.permission_end_us = 60 * minute
    drawn = draw_timeline(TimelineWindow("server", bars=[bar]), str, running=False)
    assert drawn is not None
    assert "is-danger" not in drawn.inner


@pytest.mark.parametrize(
    ("full", "short"),
    [
        ("w-1", "w-1"),
        ("deploy-host-7", "deploy-host-7"),
        ("793cf4220c917b85386088659b1a2c3d", "793cf422…"),
        ("w1-793cf4220c917b85386088659b1a2c3d", "w1-793cf422…"),
        ("host:3c36519d-e9e3-8be3-ba3b-337a705edff0:14", "host:3c36519d…:14"),
        ("worker-7f3a", "worker-7f3a"),
    ],
)
def test_a_process_has_a_short_name(full: str, short: str) -> None:
    assert short_process(full) == short


def test_successes_are_dropped_for_space_and_every_failure_is_drawn() -> None:
    bars = []
    for number in range(400):
        failed = number % 40 == 7
        effect = SimpleNamespace(
            id=number,
            tool=f"tool.{number % 3}",
            task_id=None,
            attempt_count=1,
            violates=False,
            outcome="error" if failed else "ok",
        )
        at = number * 10**6
        steps = [
            Step(at + n, what, 1, number, at + n, "command")
            for n, what in enumerate(("planned", "acknowledged"))
        ]
        bars.append(Bar(effect, steps, "acknowledged", ""))
    drawn = draw_timeline(TimelineWindow("server", bars=bars, now_us=2 * 10**9), str, running=True)
    assert drawn is not None
    assert drawn.folded == 0
    assert drawn.inner.count('href="#m-failed"') == 10
    assert "39 calls, all succeeded" in drawn.inner
