"""Shared fixtures of the tests of approvals."""

from collections.abc import Iterator

import pytest

from approvals.models import Gate
from ledger.tools import cache
from monitoring.stuck import rule_limits
from tests.approvals.inbox_scenario import Desk
from tests.approvals.live_fixture import Shelf, furnish
from tests.approvals.reviewer import Reviewer
from tests.config.row_snapshot import Kept
from tests.config.server import Server
from tests.pages.people import House
from tests.pages.sample_data import HOUSES_TOKEN, doors


@pytest.fixture
def quiet(house: House) -> Iterator[Desk]:
    """A project without any policy."""
    with doors(house.agent, kept=HOUSES_TOKEN) as caller:
        yield Desk(house, caller)


@pytest.fixture
def desk(quiet: Desk) -> Desk:
    """A project whose policy asks for pushes and deploys."""
    _FURNISHED.again(lambda: _furnish(quiet))
    return quiet


def _furnish(desk: Desk) -> None:
    desk.rules()
    for name in ("git.push", "deploy"):
        desk.declare(name)


_FURNISHED = Kept[None]()


@pytest.fixture
def remembered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Keep what a process caches for seconds for the whole test, because queries are counted."""
    for module in (cache, rule_limits):
        monkeypatch.setattr(module, "CACHE_S", float("inf"))
    yield
    rule_limits._cache.clear()


@pytest.fixture
def rita(desk: Desk) -> Reviewer:
    return Reviewer(desk)


@pytest.fixture
def gate(desk: Desk) -> Gate:
    """A push that waits: compensable, medium risk."""
    return desk.gate(
        desk.plan(arguments={"command": "git push origin main"}, why="Because <b>I</b> say so.")
    )


@pytest.fixture
def final(desk: Desk) -> Gate:
    """An irreversible deployment that needs one approval."""
    desk.rules(
        "name: strict\nrules:\n- {id: all, title: All, match: {}, outcome: require, require: "
        "{decide_within: 2h}}\n"
    )
    planned = desk.plan("final", tool="drop.table", arguments={"command": "DROP TABLE invoices"})
    return desk.gate(planned)


@pytest.fixture(scope="session")
def shelf(live_server_process: Server) -> Shelf:
    """The requests in the running installation.

    Several files share them: a test decides only requests that it planned itself.
    """
    return furnish(live_server_process)


@pytest.fixture
def complaints() -> Iterator[list[str]]:
    """Errors of the browser's console and its policy; must stay empty."""
    messages: list[str] = []
    yield messages
    assert messages == []
