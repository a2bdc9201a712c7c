"""The evaluation's first tier: crashes around effects, meetings and faults put in, all before one
server on SQLite.

Whole tiers are run by `make evaluate`; docs/explanation/evaluation.md shows what they measured.
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
from evaluation.crashtest.remote import Oracle, oracle
from evaluation.crashtest.schedules import ADVERSARY, Choices, Killed, explore
from evaluation.crashtest.server import House, serve

pytestmark = pytest.mark.once  # the rig makes its own databases
NAMED = {case.name: case for case in CASES}
# The classes of the table. In one setting each; the longer tiers try the others too.
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
        "no fence before a probe is believed",
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
    with oracle(tmp_path_factory.mktemp("oracle")) as found:
        yield found


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    folder, kept = (
        tmp_path_factory.mktemp("rig") / "house",
        Path(os.environ.get("TESTS_TEMPLATE") or "none"),
    )
    folder.mkdir()
    if kept.exists():
        shutil.copy(kept, folder / "gatebook.sqlite3")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv(
            "DJANGO_SETTINGS_MODULE", "tests.config.settings"
        )  # passwords are hashed in no time
        with serve("sqlite", folder, None) as found:
            yield found


def test_the_walk_takes_every_line_of_answers_once() -> None:
    def run(choices: Choices) -> str:
        try:
            choices.tick("before")
            said = choices.adversary()
            choices.tick("after")
        except Killed:
            return "killed"
        return said

    walked = [(choices.replay, said) for choices, said in explore(1, 1, run)]
    assert len({replay for replay, _ in walked}) == len(walked)
    # One death before the request; else each of five answers, and each of them with and without a
    # death after it.
    assert sorted(said for _, said in walked) == sorted(
        ["killed", *ADVERSARY, *["killed"] * len(ADVERSARY)]
    )


def test_the_session_file_fails_as_the_paper_predicts(remote: Oracle, house: House) -> None:
    told = suites.baselines(
        remote, house.clock, cases=[NAMED["probeable"], NAMED["opaque"]], every=False
    )
    assert report.broken({"baselines": told, "databases": {}}) == []
    assert told["blob, saved after"]["duplicates"]
    # Written in place it loses even what it had saved long before.
    assert told["blob, replay, in place"]["duplicates"] > told["blob, replay"]["duplicates"]


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_a_death_at_any_tick_leaves_what_happened_known(
    house: House, remote: Oracle, name: str
) -> None:
    found, lines = agent_crashes.by_raising(
        agent_crashes.gatebook(remote, house), [NAMED[name]], 1, 1, every=False
    )
    assert found.clean, found.as_dict()
    assert found.runs == len(set(lines)) > 25
    assert found.given_up == 0
    assert set(found.reasons) == ({"UNDECIDABLE"} if name in UNDECIDABLE else set())


@pytest.mark.parametrize("name", sorted(NAMED.keys() - set(ONE_OF_EACH)))
def test_whatever_becomes_of_a_request_is_known_or_told(
    house: House, remote: Oracle, name: str
) -> None:
    """The variants, without a death; with one they are part of the longer tiers."""
    found, _ = agent_crashes.by_raising(agent_crashes.gatebook(remote, house), [NAMED[name]], 0, 1)
    assert found.clean, found.as_dict()
    assert found.runs == len(ADVERSARY)
    assert set(found.reasons) == {
        "undeclared": {"UNDECIDABLE"},
        "compensable by reference": {"REF_LOST"},
    }.get(name, set())


def test_a_process_that_is_killed_is_recovered_as_one_that_fell(
    house: House, remote: Oracle
) -> None:
    lines = [
        f"probeable\t{answers}"
        for answers in ("1", "01", "001", "0011", "00021", "000301", "0000001")
    ]
    found = agent_crashes.by_killing(agent_crashes.gatebook(remote, house), lines, 1, 1)
    assert found.clean, found.as_dict()
    assert found.crashed == len(lines)


def test_the_server_may_fall_in_the_course_of_any_command(house: House, remote: Oracle) -> None:
    found = server_crashes.every_command(house, remote, [NAMED["opaque"]], trick="lose")
    assert found.clean, found.as_dict()
    assert found.runs >= 4 * len(("open", "plan", "dispatch", "fail", "checkpoint"))


def test_no_interleaving_of_three_writers_loses_an_update(house: House) -> None:
    figures = suites.interleaved(house, controls=False)
    assert (figures["read/write"]["interleavings"], figures["read/write"]["lost"]) == (90, 0)
    assert (
        figures["begin/update/commit"]["interleavings"],
        figures["begin/update/commit"]["lost"],
    ) == (1680, 0)
    assert figures["read/write, session file"]["lost"] == 84


def test_what_the_installation_writes_besides_the_actors_is_waited_for(house: House) -> None:
    """It is no step of an order: the actors' connections met it as often as not when they waited
    for nobody."""
    tasks = interleavings.Tasks(Api(house.port, house.token, {}), "beside")
    row = tasks.new().replace("-", "")
    clean, orders = interleavings.Sqlite(house), interleavings.interleavings(3)

    def connect() -> interleavings.Sqlite:
        return interleavings.Sqlite(house)

    def reset() -> None:
        clean.begin(row, alone=True)
        clean.update(row, 0, None)
        clean.end(commit=True)

    def write_beside() -> list[int]:
        said = Api(house.port, house.token, {})
        return [said.post("/sessions", {"key": f"beside-{n}"}, f"beside-{n}")[0] for n in range(40)]

    lost: list[int] = []
    with ThreadPoolExecutor(1) as pool:
        beside = pool.submit(write_beside)
        while not lost or not beside.done():
            some = orders[len(lost) :: 40]
            lost.append(interleavings.in_transactions(connect, row, reset, some, check=True))
        assert beside.result() == [201] * 40
    assert set(lost) == {0}


def test_a_worker_whose_lease_was_taken_changes_nothing(house: House, remote: Oracle) -> None:
    figures = contention.stolen_leases(house, remote)
    assert figures["runs"] == 2 * len(list(itertools.combinations(range(5), 2)))
    assert [figures[name] for name in COUNTERS] == [0] * 5
    assert figures["told that the lease was lost"]


def test_two_people_give_one_ruling_and_it_is_used_once(house: House) -> None:
    figures = contention.two_approvers(house, 3)
    assert figures == {**dict.fromkeys(figures, 0), "gates": 3, "rulings in all": 3}


def test_of_eight_who_dispatch_at_once_one_may_act(house: House) -> None:
    figures = contention.threads_at_one_effect(house, 10)
    assert figures == {"rounds": 10, "dispatches": 80, "told twice": 0, "told nobody": 0}


def test_every_order_of_delivery_leaves_one_state(house: House) -> None:
    every = delivery_orders.every()
    assert len(every) == len(set(every)) == 2520
    states = delivery_orders.deliver(Api(house.port, house.token, {}), every)
    assert list(states.values()) == [2520]
    assert json.loads(next(iter(states)))["state"] == "acknowledged"


@pytest.mark.parametrize("name", MUTANTS)
def test_a_fault_put_in_is_caught(house: House, remote: Oracle, name: str) -> None:
    trial = dict(Suite(house, remote).trials())[name]
    try:
        caught = trial(name)
    except Unexpected as refused:
        caught = str(refused)
    assert caught


def test_the_mutants_are_all_there_and_without_a_fault_nothing_is_caught(
    house: House, remote: Oracle
) -> None:
    suite = Suite(house, remote)
    assert [name for name, _ in suite.trials()] == MUTANTS
    assert suite.control() == []


def test_a_session_file_written_in_turns_loses_nothing(tmp_path: Path) -> None:
    """The baseline is not made to fail: only those orders lose in which somebody wrote between
    reading and writing."""
    in_turns = [order for order in interleavings.interleavings(2) if order[0::2] == order[1::2]]
    assert len(in_turns) == 6
    assert interleavings.on_a_file(tmp_path / "session.json", in_turns) == 0


def test_the_page_shows_the_figures_and_nothing_else() -> None:
    results = json.loads(report.FIGURES.read_text(encoding="utf-8"))
    assert report.PAGE.read_text(encoding="utf-8") == report.page(results)
    assert report.broken(results) == []


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
