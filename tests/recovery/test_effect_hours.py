"""Counts of effects by hour: equal to a count of the rows after any history, and rebuilt so."""

import random
from uuid import UUID

import pytest
import time_machine
from django.core.management import call_command
from django.db.models import F

from db.clock import now_us
from ledger.models import Effect
from monitoring import effect_hours
from monitoring.effect_hours import HOUR_US, count_effect_hours
from monitoring.models import EffectHour
from tests.api.api_client import Caller

Hours = set[tuple[UUID, int, int, int]]


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


@pytest.mark.parametrize("seed", [1, 2])
def test_hours_equal_a_count_of_the_effects(
    agent: Caller, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    chance = random.Random(seed)
    count_effect_hours()  # positions go on from test to test: small steps begin here
    monkeypatch.setattr(effect_hours, "_STEP_POSITIONS", chance.randint(1, 9))
    with time_machine.travel(now_us() / 1_000_000, tick=False) as clock:
        agent.session("s-1")
        for number in range(12):
            clock.shift(chance.choice((1, 400, 2_000, 5_000)))
            agent.plan(f"e-{number}")
            if chance.random() < 0.4:
                count_effect_hours()
            if chance.random() < 0.3:
                clock.shift(-1_900)  # the clock was set back: hours and positions disagree
    count_effect_hours()
    expected = counted_hours()
    assert stored_hours() == expected
    assert len(expected) > 1
    EffectHour.objects.update(effects=F("effects") + 7)
    monkeypatch.undo()  # from the first position on, in ordinary steps
    call_command("rebuild_counts")
    assert stored_hours() == expected
