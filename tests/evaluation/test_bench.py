"""The benchmark works: a tiny run of every part on the database of this run. How fast it was proves nothing."""

import math
import os
import subprocess
from pathlib import Path

import pytest
from django.conf import settings

from config.run import web_server
from evaluation.bench import beats, busy, deciders, filling, gates, growth, house, reading, resuming, searching
from evaluation.bench.__main__ import Size, measure
from evaluation.bench.figures import Figure, Report, percentile
from evaluation.bench.workload import BYTES, ITEMS, Writer

TINY = Size(
    rounds=1,
    batches=2,
    effects=1,
    sizes=(400, 1_200),
    reads=1,
    calls=10,
    growth_batches=1,
    growth_effects=1,
    gates=25,
    beating=20,
    resumed=300,
)
# Each database proves what can only go wrong there, and starts as few servers as that takes.
PARTS = {
    "sqlite": ("batch", "command", "beats", "memory", "busy", "resume", "gates", "upkeep"),
    "postgresql": ("read",),
}
NAMED = {
    "sqlite": (
        "batch mixed: CPU",
        "batch split: × that floor",
        "command: p99",
        "20 sessions beating every 1 s: CPU",
        "memory: last tenth against first",
        "person's form beside 2 importers: errors",
        "resume answer: p95 of 300 against 100",
        "inbox with 25 pending: p95",
        "ruling to agent, 3 idle waiters: p95",
        "5 rulings 0 to 2 s after the wait began: lost",
        "4 deciders, 1 rounds: not exactly one",
        "4 users of one leave, 1 rounds: not exactly one",
        "revoke against use, 5 rounds: both or neither",
        "5 rulings around a fall of the server: lost",
        "evidence: p99 with 3 waiters against none",
        "a plan against 200 rules: all of it",
        "writing: with upkeep against without",
    ),
    "postgresql": (
        "session page: 1,200 against 400",
        "search: failed of one tool, 1,200 effects: p95",
        "session page, 1,200 effects: queries",
        "question 3, 1,200 effects: p95",
        "words, many have, 1,200 effects: p95",
        "evidence: p99 with 2 who search against none",
    ),
}


class _OnceWhole:
    """Start the whole house the first time, and where it falls and rises; later the web server alone, at half the cost.

    No part measures the job worker or its clock.
    """

    def __init__(self) -> None:
        self._whole = house._supervise
        self._stood = False

    def __call__(self, installation: house.Installation, port: int) -> "subprocess.Popen[bytes]":
        if not self._stood or installation.folder.name == "desk":
            self._stood = True
            return self._whole(installation, port)
        with (installation.folder / "server.log").open("ab") as log:
            return subprocess.Popen(
                web_server("127.0.0.1", port, installation.vendor, 16).command,
                cwd=house.ROOT,
                env=installation.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                process_group=0,
            )


@pytest.mark.django_db  # on both databases, each of which measures parts of its own
def test_a_tiny_run_measures_every_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(house, "QUIET_WITHIN_S", 0)
    monkeypatch.setattr(house, "_supervise", _OnceWhole())
    monkeypatch.setattr(growth, "TENTHS", 2)
    monkeypatch.setattr(beats, "EVERY_S", 1)
    monkeypatch.setattr(beats, "IDLE_S", 0.1)
    monkeypatch.setattr(beats, "OPENERS", 2)
    monkeypatch.setattr(busy, "IMPORTERS", 2)
    monkeypatch.setattr(reading, "MEASURED_EFFECTS", 100)
    monkeypatch.setattr(reading, "SEARCHES", dict(list(reading.SEARCHES.items())[1:3]))
    monkeypatch.setattr(reading, "QUESTIONS", {3: reading.QUESTIONS[3], 13: reading.QUESTIONS[13]})
    monkeypatch.setattr(reading, "WORDS", {"many have": "push"})
    monkeypatch.setattr(searching, "SEARCHERS", 2)
    monkeypatch.setattr(searching, "LOOK_S", 0.5)
    monkeypatch.setattr(resuming, "READS", 5)
    monkeypatch.setattr(gates, "WAITERS", 3)
    monkeypatch.setattr(gates, "JUDGEMENTS", 50)
    monkeypatch.setattr(deciders, "PEOPLE", 4)
    vendor = "sqlite" if settings.DATABASES["default"]["ENGINE"] == "config.sqlite" else "postgresql"
    cluster = Path(f"/var/tmp/gatebook-bench-test-{os.getpid()}")
    report = Report({"size": "tiny"})

    measure(report, vendor, tmp_path / vendor, cluster, TINY, PARTS[vendor])

    figures = {figure.name: figure.median for figure in report.figures}
    assert set(NAMED[vendor]) <= figures.keys()
    assert all(math.isfinite(value) and value >= 0 for value in figures.values())
    assert vendor == "postgresql" or figures["batch mixed: CPU"] > 0
    wrong = ("lost", "not exactly one", "both or neither")
    assert {value for name, value in figures.items() if name.endswith(wrong)} <= {0}
    assert figures.get("person's form beside 2 importers: errors", 0) == 0
    queries = [figures.get(f"session page, {size} effects: queries", 0) for size in ("400", "1,200")]
    assert abs(queries[0] - queries[1]) <= 1  # once in five seconds a process reads the declarations of tools anew
    assert not cluster.exists()
    report.write(tmp_path / "report.json")
    assert (tmp_path / "report.json").stat().st_size > 1000
    assert report.table().endswith("bars met.")


@pytest.mark.once
def test_a_bar_is_met_by_the_median_of_the_rounds() -> None:
    assert Figure("sqlite", "x", "ms", [1.0, 9.0, 2.0], bar=2.0).met is True
    assert Figure("sqlite", "x", "ms", [1.0, 9.0, 2.1], bar=2.0).met is False
    assert Figure("sqlite", "x", "ms", [1.0]).met is None


@pytest.mark.once
def test_a_percentile_is_one_of_the_values() -> None:
    values = [float(value) for value in range(1, 101)]
    assert percentile(values, 0.5) == 50
    assert percentile(values, 0.99) == 99
    assert percentile([7.0], 0.99) == 7


@pytest.mark.once
@pytest.mark.parametrize("workload", ["mixed", "split"])
def test_batches_are_full_and_of_the_size_that_was_measured_before(workload: str) -> None:
    batches = Writer("x").batches(workload, 3)

    assert [batch.items for batch in batches] == [ITEMS] * 3
    assert all(abs(len(batch.body) / batch.items - BYTES) < 30 for batch in batches)
    assert batches == Writer("x").batches(workload, 3)


@pytest.mark.once
def test_copies_fit_below_their_seed() -> None:
    small, large = filling.plan((10_000, 1_000_000))

    assert small.seed == large.seed == 5_000
    assert small.first == large.first
    assert large.first - large.copies * filling.STEP > 0
