"""The evaluation's first tier: crashes, races and injected faults, on one server with SQLite.

`make evaluate` runs complete tiers; docs/explanation/evaluation.md shows their figures.
"""

import itertools
import json
import os
import re
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from evaluation.bench.installation import ROOT
from evaluation.crashtest import (
    agent_crashes,
    contention,
    delivery_orders,
    interleavings,
    report,
    report_text,
    server_crashes,
    suites,
)
from evaluation.crashtest.checker import COUNTERS
from evaluation.crashtest.domain import CASES, UNDECIDABLE
from evaluation.crashtest.gatebook import Api, Unexpected
from evaluation.crashtest.mutants import Suite
from evaluation.crashtest.remote import Oracle, run_oracle
from evaluation.crashtest.schedules import ADVERSARY, Choices, Killed, explore
from evaluation.crashtest.server import Installation, serve_installation
from tests.matrices import keep_core

pytestmark = pytest.mark.once  # the rig creates its own databases
NAMED = {case.name: case for case in CASES}
# One case of each tool class; the longer tiers run the others too.
ONE_OF_EACH = [
    "read_only",
    "idempotent",
    "idempotency_key",
    "transactional",
    "probeable",
    "compensable by key",
    "opaque",
]
MUTANTS = [
    *(
        "events posted after the effect",
        "no in-flight window before a probe is believed",
        "a fresh key per attempt",
    ),
    *(
        "approval used in another transaction",
        "acknowledgement without compare-and-set",
        "2xx before COMMIT",
    ),
    *("skip on restart", "blob rewritten in place", "a grant replayed to a new process"),
    *("evidence leaves a grant unspent", "a fold that depends on order"),
]


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Oracle]:
    with run_oracle(tmp_path_factory.mktemp("oracle")) as running:
        yield running


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    folder, template = (
        tmp_path_factory.mktemp("rig") / "served",
        Path(os.environ.get("TESTS_TEMPLATE") or "none"),
    )
    folder.mkdir()
    if template.exists():
        shutil.copy(template, folder / "gatebook.sqlite3")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv(
            "DJANGO_SETTINGS_MODULE", "tests.config.settings"
        )  # password hashing is fast
        with serve_installation("sqlite", folder, None) as served:
            yield served


def test_explore_runs_every_line_of_answers_once() -> None:
    def run(choices: Choices) -> str:
        try:
            choices.tick("before")
            answer = choices.adversary()
            choices.tick("after")
        except Killed:
            return "killed"
        return answer

    walked = [(choices.replay, end) for choices, end in explore(1, 1, run)]
    assert len({replay for replay, _ in walked}) == len(walked)
    # One death before the request, or one of five answers, each with and without a later death.
    assert sorted(end for _, end in walked) == sorted(
        ["killed", *ADVERSARY, *["killed"] * len(ADVERSARY)]
    )


@pytest.mark.matrix
def test_the_session_file_fails_as_the_paper_predicts(
    remote: Oracle, installation: Installation
) -> None:
    figures = suites.run_baselines(
        remote, installation.clock, cases=[NAMED["probeable"], NAMED["opaque"]], every=False
    )
    assert report.list_violations({"baselines": figures, "databases": {}}) == []
    assert figures["blob, saved after"]["duplicates"]
    # A file written in place loses even steps that were saved long before.
    assert figures["blob, replay, in place"]["duplicates"] > figures["blob, replay"]["duplicates"]


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_a_death_at_any_tick_leaves_what_happened_known(
    installation: Installation, remote: Oracle, name: str
) -> None:
    """The remote answers each request; the next test adds what may become of a request."""
    check_deaths(installation, remote, name, tricks=0, least=5)


@pytest.mark.matrix
@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_a_death_beside_any_outcome_of_a_request_leaves_what_happened_known(
    installation: Installation, remote: Oracle, name: str
) -> None:
    """The core has the class that cannot be decided after a death."""
    check_deaths(installation, remote, name, tricks=1, least=25)


def check_deaths(
    installation: Installation, remote: Oracle, name: str, *, tricks: int, least: int
) -> None:
    """Check that every schedule of one death and `tricks` outcomes is clean; more than `least` run."""
    context = agent_crashes.make_gatebook_context(remote, installation)
    findings, lines = agent_crashes.crash_by_raising(context, [NAMED[name]], 1, tricks, every=False)
    assert findings.clean, findings.to_json()
    assert findings.runs == len(set(lines)) > least
    assert findings.abandoned == 0
    assert set(findings.reasons) == ({"UNDECIDABLE"} if name in UNDECIDABLE else set())


@pytest.mark.parametrize("name", sorted(NAMED))
def test_every_outcome_of_a_request_is_known_or_reported(
    installation: Installation, remote: Oracle, name: str
) -> None:
    """No process dies here; the longer tiers add deaths to the variants of a class too."""
    findings, _ = agent_crashes.crash_by_raising(
        agent_crashes.make_gatebook_context(remote, installation), [NAMED[name]], 0, 1
    )
    assert findings.clean, findings.to_json()
    assert findings.runs == len(ADVERSARY)
    assert set(findings.reasons) == {
        "undeclared": {"UNDECIDABLE"},
        "opaque": {"UNDECIDABLE"},
        "compensable by reference": {"REF_LOST"},
    }.get(name, set())


def test_a_killed_process_is_recovered(installation: Installation, remote: Oracle) -> None:
    lines = [
        f"probeable\t{answers}"
        for answers in ("1", "01", "001", "0011", "00021", "000301", "0000001")
    ]
    findings = agent_crashes.crash_by_killing(
        agent_crashes.make_gatebook_context(remote, installation), lines, 1, 1
    )
    assert findings.clean, findings.to_json()
    assert findings.crashed == len(lines)


def test_the_server_may_crash_during_any_command(
    installation: Installation, remote: Oracle
) -> None:
    findings = server_crashes.crash_at_every_command(
        installation, remote, [NAMED["opaque"]], trick="lose"
    )
    assert findings.clean, findings.to_json()
    assert findings.runs >= 4 * len(("open", "plan", "dispatch", "fail", "checkpoint"))


@pytest.mark.matrix
def test_no_interleaving_of_three_writers_loses_an_update(installation: Installation) -> None:
    figures = suites.run_interleavings(installation, controls=False)
    assert (figures["read/write"]["interleavings"], figures["read/write"]["lost"]) == (90, 0)
    assert (
        figures["begin/update/commit"]["interleavings"],
        figures["begin/update/commit"]["lost"],
    ) == (1680, 0)
    assert figures["read/write, session file"]["lost"] == 84


def test_actors_wait_for_writes_of_the_installation(
    installation: Installation,
) -> None:
    """Such a write is not a step of an order, and locks the database at random times."""
    tasks = interleavings.Tasks(Api(installation.port, installation.token, {}), "concurrent")
    row = tasks.create().replace("-", "")
    clean, orders = interleavings.Sqlite(installation), interleavings.list_interleavings(3)

    def connect() -> interleavings.Sqlite:
        return interleavings.Sqlite(installation)

    def reset() -> None:
        clean.begin(row, alone=True)
        clean.update(row, 0, None)
        clean.end(commit=True)

    def open_sessions() -> list[int]:
        api = Api(installation.port, installation.token, {})
        return [
            api.post("/sessions", {"key": f"concurrent-{n}"}, f"concurrent-{n}")[0]
            for n in range(40)
        ]

    lost: list[int] = []
    with ThreadPoolExecutor(1) as pool:
        concurrent = pool.submit(open_sessions)
        while not lost or not concurrent.done():
            some = orders[len(lost) :: 40]
            lost.append(interleavings.run_in_transactions(connect, row, reset, some, check=True))
        assert concurrent.result() == [201] * 40
    assert set(lost) == {0}


def test_a_worker_without_its_lease_changes_nothing(
    installation: Installation, remote: Oracle
) -> None:
    figures = contention.steal_leases(installation, remote)
    assert figures["runs"] == 2 * len(list(itertools.combinations(range(5), 2)))
    assert [figures[name] for name in COUNTERS] == [0] * 5
    assert figures["refused as LEASE_LOST"]


def test_two_votes_give_one_ruling_that_is_used_once(installation: Installation) -> None:
    figures = contention.race_approvers(installation, 3)
    assert figures == {**dict.fromkeys(figures, 0), "gates": 3, "rulings": 3}


def test_one_of_eight_concurrent_dispatches_may_act(installation: Installation) -> None:
    figures = contention.race_dispatchers(installation, 10)
    assert figures == {"rounds": 10, "dispatches": 80, "permitted twice": 0, "never permitted": 0}


@pytest.mark.parametrize("one_in", keep_core([1, 6], [6]))
def test_every_order_of_delivery_leaves_one_state(installation: Installation, one_in: int) -> None:
    every = delivery_orders.list_orders()
    assert len(every) == len(set(every)) == 2520
    orders = every[::one_in]
    states = delivery_orders.deliver_orders(Api(installation.port, installation.token, {}), orders)
    assert list(states.values()) == [2520 // one_in]
    assert json.loads(next(iter(states)))["state"] == "acknowledged"


@pytest.mark.parametrize("name", keep_core(MUTANTS, one_in=2))
def test_an_injected_fault_is_caught(installation: Installation, remote: Oracle, name: str) -> None:
    trial = dict(Suite(installation, remote).list_trials())[name]
    try:
        caught = trial(name)
    except Unexpected as refused:
        caught = str(refused)
    assert caught


def test_all_mutants_exist_and_controls_catch_nothing(
    installation: Installation, remote: Oracle
) -> None:
    suite = Suite(installation, remote)
    assert [name for name, _ in suite.list_trials()] == MUTANTS
    assert suite.run_controls() == []


def test_a_session_file_written_in_turns_loses_nothing(tmp_path: Path) -> None:
    """The baseline loses updates only if another actor writes between a read and its write."""
    in_turns = [
        order for order in interleavings.list_interleavings(2) if order[0::2] == order[1::2]
    ]
    assert len(in_turns) == 6
    assert interleavings.run_on_file(tmp_path / "session.json", in_turns) == 0


def test_the_page_shows_the_figures_and_nothing_else() -> None:
    results = json.loads(report.FIGURES.read_text(encoding="utf-8"))
    assert report.PAGE.read_text(encoding="utf-8") == report.render_page(results)
    assert report.list_violations(results) == []


def test_every_failure_mode_of_the_paper_names_a_test_that_is_there() -> None:
    rows = [
        line
        for line in report_text.FAILURE_MODES.splitlines()
        if line.startswith("|") and "`test_" in line
    ]
    assert len(rows) == 7
    for row in rows:
        named = re.search(r"`(test_\w+)` in \[(tests/[\w/]+\.py)\]", row)
        assert named, row
        assert f"def {named[1]}(" in (ROOT / named[2]).read_text(encoding="utf-8"), row
