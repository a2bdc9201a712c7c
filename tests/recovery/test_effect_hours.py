"""Counts of effects by hour and day: equal to a count of the rows after any history, and rebuilt so."""

import random
from collections import Counter
from uuid import UUID

import pytest
import time_machine
from django.core.management import call_command
from django.db.models import F

from db.clock import now_us
from db.whole_days import DAY_US
from ledger.models import Effect
from monitoring import effect_hours
from monitoring.effect_hours import HOUR_US, count_effect_hours
from monitoring.models import EffectDay, EffectHour
from tests.api.api_client import Caller

Hours = set[tuple[UUID, int, int, int]]
Days = Counter[tuple[UUID, UUID, str, int]]


def stored_hours() -> Hours:
    return set(EffectHour.objects.values_list("project", "hour_us", "effects", "first_position"))


def counted_hours() -> Hours:
    """Count the rows themselves."""
    hours: Hours = set()
    groups: dict[tuple[UUID, int], list[int]] = {}
    for project, received_us, position in Effect.objects.values_list(
        "project", "received_us", "opened_position"
    ):
        groups.setdefault((project, received_us - received_us % HOUR_US), []).append(position)
    for (project, hour_us), positions in groups.items():
        hours.add((project, hour_us, len(positions), min(positions)))
    return hours


def stored_days() -> Days:
    return Counter(
        {
            (project, agent, tool, day_us): number
            for project, agent, tool, day_us, number in EffectDay.objects.values_list(
                "project", "agent", "tool", "day_us", "effects"
            )
        }
    )


def counted_days() -> Days:
    """Count the rows themselves."""
    return Counter(
        (project, agent, tool, received_us - received_us % DAY_US)
        for project, agent, tool, received_us in Effect.objects.values_list(
            "project", "agent", "tool", "received_us"
        )
    )


def check_loaded_days() -> None:
    """What readers add up is exact, whatever the job has counted yet."""
    days = counted_days()
    since_us = min(day_us for *_, day_us in days) + DAY_US  # without the first day
    for project, agent in {(project, agent) for project, agent, *_ in days}:
        for of_agent in (agent, None):
            expected: Counter[tuple[str, int]] = Counter()
            for (in_project, by, tool, day_us), number in days.items():
                if in_project == project and by == (of_agent or by) and day_us >= since_us:
                    expected[tool, day_us] += number
            loaded = effect_hours.load_effect_days(project, since_us, of_agent)
            assert expected == Counter(
                {(tool, day): n for tool, by_day in loaded.items() for day, n in by_day.items()}
            )


@pytest.mark.parametrize("seed", [1, 2])
def test_hours_and_days_equal_a_count_of_the_effects(
    agent: Caller, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    chance = random.Random(seed)
    count_effect_hours()  # positions go on from test to test: small steps begin here
    monkeypatch.setattr(effect_hours, "_STEP_POSITIONS", chance.randint(1, 9))
    with time_machine.travel(now_us() / 1_000_000, tick=False) as clock:
        agent.session("s-1")
        for number in range(12):
            clock.shift(chance.choice((1, 400, 2_000, 5_000, 40_000)))
            agent.plan(f"e-{number}", tool=chance.choice(("git.push", "file.read")))
            if chance.random() < 0.4:
                count_effect_hours()
            if chance.random() < 0.3:
                clock.shift(-1_900)  # the clock was set back: hours and positions disagree
    check_loaded_days()
    count_effect_hours()
    check_loaded_days()
    assert stored_days() == counted_days()
    expected = counted_hours()
    assert stored_hours() == expected
    assert len(expected) > 1
    EffectHour.objects.update(effects=F("effects") + 7)
    EffectDay.objects.update(effects=F("effects") + 7)
    monkeypatch.undo()  # from the first position on, in ordinary steps
    call_command("rebuild_counts")
    assert stored_hours() == expected
    assert stored_days() == counted_days()
