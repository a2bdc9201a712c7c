"""The benchmark works: a tiny run of every part on the database of this run, without its figures."""

import math
import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from django.conf import settings

from config.supervisor import build_web_server
from evaluation.bench import (
    approvals,
    bulk_seed,
    commands,
    gates,
    heartbeats,
    memory_growth,
    pages,
    resume,
    reviewer_process,
    search,
    text_expiry,
    workload,
    write_contention,
)
from evaluation.bench import installation as bench_installation
from evaluation.bench.__main__ import Size, measure
from evaluation.bench.report import Figure, Report, percentile
from evaluation.bench.workload import BYTES, ITEMS, Writer
from tests.config.server import Shell, _fill

TINY = Size(
    rounds=1,
    batches=2,
    effects=1,
    sizes=(400, 1_200),
    reads=1,
    costly_batches=1,
    calls=10,
    starts=2,
    growth_batches=1,
    growth_effects=1,
    gates=25,
    cards=3,
    heartbeat_sessions=20,
    resumed=300,
)
# Each database runs the parts that can fail only there, with as few servers as possible. A part
# has some of its figures here.
PARTS = {
    "sqlite": {
        "batch": ("batch mixed: CPU", "batch split: × that floor"),
        "traces": ("spans: × own batches",),
        "hooks": (
            "hooks, one connection: p50",
            "hooks, empty endpoint, one connection: CPU",
            "hooks, command: × an empty Python",
        ),
        "command": ("command: p99",),
        "heartbeats": ("20 sessions with heartbeats every 1 s: CPU",),
        "memory": ("memory: last tenth against first",),
        "busy": ("person's form next to 2 importers: errors",),
        "seal": ("ingest with sealing", "sealer with a backlog", "sealer beside ingest"),
        "resume": ("resume answer: p95 of 300 against 100",),
        "gates": (
            "inbox with 25 pending: p95",
            "ruling to agent, 3 idle waiters: p95",
            "5 rulings 0 to 2 s after the wait began: lost",
            "4 voters, 1 rounds: not exactly one",
            "4 users of one permission, 1 rounds: not exactly one",
            "revoke against use, 5 rounds: both or neither",
            "2 rulings around a server crash: lost",
            "evidence: p99 with 3 waiters against none",
            "a plan against 200 rules: all of it",
        ),
        "upkeep": ("writing: with upkeep against without",),
        "retention": ("ingest: 1,200 against 400", "ingest: p99 during expiry"),
    },
    "postgresql": {
        "read": (
            "session page: 1,200 against 400",
            "search: failed of one tool, 1,200 effects: p95",
            "session page, 1,200 effects: queries",
            "question 3, 1,200 effects: p95",
            "words, in many effects, 1,200 effects: p95",
            "evidence: p99 during 2 searches against none",
        ),
        "cards": ("inbox with 25 pending: p95", "card, 25 pending: p95"),
        "retention": ("ingest: 1,200 against 400", "ingest: p99 during expiry"),
    },
}
CORE = ("batch",)  # one part that writes


class _MostlyWebServer:
    """Start the supervisor where the server crashes and restarts; otherwise the web server alone.

    The web server alone costs half the time. No part measures the job worker or its scheduler.
    """

    def __init__(self) -> None:
        self._supervise = bench_installation._supervise
        self._next = {"inbox", "small"}

    def __call__(
        self, installation: bench_installation.Installation, port: int
    ) -> "subprocess.Popen[bytes]":
        if installation.folder.name in self._next:
            self._next = {"inbox"}
            return self._supervise(installation, port)
        with (installation.folder / "server.log").open("ab") as log:
            return subprocess.Popen(
                build_web_server("127.0.0.1", port, installation.vendor, 16).command,
                cwd=bench_installation.ROOT,
                env=installation.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                process_group=0,
            )


class _SharedShells:
    """Run the `manage.py` commands of an installation in one persistent process."""

    def __init__(self) -> None:
        self._shells: dict[str, Shell] = {}

    def __call__(self, command: Sequence[str], environment: dict[str, str]) -> str:
        assert command[1] == "manage.py"
        folder = environment["GATEBOOK_VAR"]
        if folder not in self._shells:
            self._shells[folder] = Shell(environment)
            if not (environment["DATABASE_URL"] or (Path(folder) / "gatebook.sqlite3").exists()):
                _fill(self._shells[folder], Path(folder), "sqlite")
        return self._shells[folder].do({"manage": list(command[2:])})

    def close(self) -> None:
        for shell in self._shells.values():
            shell.close()


@pytest.fixture
def _quickly(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Use fast password hashes and running shells for commands."""
    monkeypatch.setenv("DJANGO_SETTINGS_MODULE", "tests.config.settings")
    shells = _SharedShells()
    monkeypatch.setattr(bench_installation, "_run", shells)
    yield
    shells.close()


@pytest.mark.matrix
@pytest.mark.usefixtures("_quickly")
@pytest.mark.django_db  # in full on both databases, which measure different parts
@pytest.mark.parametrize(
    "chosen",
    [
        pytest.param("core", marks=pytest.mark.once),
        pytest.param("every part", marks=pytest.mark.matrix),
    ],
)
def test_a_tiny_run_measures_its_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chosen: str
) -> None:
    monkeypatch.setattr(bench_installation, "QUIET_WITHIN_S", 0)
    monkeypatch.setattr(bench_installation, "_supervise", _MostlyWebServer())
    monkeypatch.setattr(workload, "ITEMS", 100)
    monkeypatch.setattr(commands, "CLIENTS", 4)
    monkeypatch.setattr(memory_growth, "TENTHS", 2)
    monkeypatch.setattr(memory_growth, "READS", 2)
    monkeypatch.setattr(heartbeats, "EVERY_S", 1)
    monkeypatch.setattr(heartbeats, "IDLE_S", 0.1)
    monkeypatch.setattr(heartbeats, "OPENERS", 2)
    monkeypatch.setattr(write_contention, "IMPORTERS", 2)
    monkeypatch.setattr(pages, "MEASURED_EFFECTS", 100)
    monkeypatch.setattr(pages, "SEARCHES", dict(list(pages.SEARCHES.items())[1:3]))
    monkeypatch.setattr(pages, "QUESTIONS", {3: pages.QUESTIONS[3], 13: pages.QUESTIONS[13]})
    monkeypatch.setattr(pages, "WORDS", {"in many effects": "push"})
    monkeypatch.setattr(search, "SEARCHERS", 2)
    monkeypatch.setattr(search, "POLL_S", 0.5)
    monkeypatch.setattr(resume, "READS", 5)
    monkeypatch.setattr(approvals, "READS", 5)
    monkeypatch.setattr(gates, "WAITERS", 3)
    monkeypatch.setattr(gates, "POLL_S", 0.2)
    monkeypatch.setattr(gates, "EVALUATIONS", 50)
    # An agent that is not woken gets its answer 50 seconds after its wait began; a
    # busy machine is faster.
    monkeypatch.setattr(gates, "WAIT_S", 50)
    monkeypatch.setattr(gates, "LOST_AFTER_S", 35)
    monkeypatch.setattr(reviewer_process, "PEOPLE", 4)
    monkeypatch.setattr(text_expiry, "QUICK_SIZES", (400, 1_200))
    vendor = "sqlite" if settings.DATABASES["default"]["ENGINE"] == "db.sqlite" else "postgresql"
    cluster = Path(f"/var/tmp/gatebook-bench-test-{os.getpid()}")
    report = Report({"size": "tiny"})
    parts = CORE if chosen == "core" else tuple(PARTS[vendor])

    measure(report, vendor, tmp_path / vendor, cluster, TINY, parts)

    figures = {figure.name: figure.median for figure in report.figures}
    assert {name for part in parts for name in PARTS[vendor][part]} <= figures.keys()
    assert all(math.isfinite(value) and value >= 0 for value in figures.values())
    assert vendor == "postgresql" or figures["batch mixed: CPU"] > 0
    wrong = ("lost", "not exactly one", "both or neither")
    assert {value for name, value in figures.items() if name.endswith(wrong)} <= {0}
    assert figures.get("person's form next to 2 importers: errors", 0) == 0
    queries = [
        figures.get(f"session page, {size} effects: queries", 0) for size in ("400", "1,200")
    ]
    assert queries[0] == queries[1]
    assert not cluster.exists()
    report.write(tmp_path / "report.json")
    assert (tmp_path / "report.json").stat().st_size > 1000
    assert report.render_table().endswith("bars met.")


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
def test_batches_are_full_and_items_have_the_usual_size(workload: str) -> None:
    batches = Writer("x").batches(workload, 3)

    assert [batch.items for batch in batches] == [ITEMS] * 3
    assert all(abs(len(batch.body) / batch.items - BYTES) < 30 for batch in batches)
    assert batches == Writer("x").batches(workload, 3)


@pytest.mark.once
def test_the_queries_of_a_page_exclude_other_queries_of_the_server() -> None:
    page = ['SELECT "django_session"."session_key"', 'SELECT "ledger_effect"."id"']
    tick = [
        'SELECT "monitoring_jobheartbeat"."name"',
        'UPDATE "monitoring_jobheartbeat" SET "heartbeat_us" = $1',
    ]
    refreshed = [
        *page,
        'SELECT "ledger_tool"."name"',
        'UPDATE "django_session" SET "session_data" = $1',
    ]
    for connections in (
        [tick, [*tick, *refreshed, *page]],
        [[*page, *tick], page],
        [refreshed, [*tick, *page]],
        [[*page, *page, *tick]],
    ):
        assert pages._count_queries(connections) == len(page)


@pytest.mark.once
def test_copies_fit_below_their_seed() -> None:
    small, large = bulk_seed.plan_fillings((10_000, 1_000_000))

    assert small.seed == large.seed == 5_000
    assert small.first == large.first
    assert large.first - large.copies * bulk_seed.STEP > 0
