"""Shared fixtures of the tests of approvals."""

from collections.abc import Iterator

import pytest

from approvals.models import Gate
from ledger.tools import cache
from monitoring.stuck import rule_limits
from tests.approvals.inbox_scenario import InboxScenario
from tests.approvals.live_fixture import LiveInbox, furnish
from tests.approvals.reviewer import Reviewer
from tests.config.row_snapshot import Kept
from tests.config.server import Server
from tests.pages.people import Organization
from tests.pages.sample_data import ORGANIZATIONS_TOKEN, connect_agent


@pytest.fixture
def quiet(organization: Organization) -> Iterator[InboxScenario]:
    """A project without any policy."""
    with connect_agent(organization.agent, kept=ORGANIZATIONS_TOKEN) as caller:
        yield InboxScenario(organization, caller)


@pytest.fixture
def inbox(quiet: InboxScenario) -> InboxScenario:
    """A project whose policy asks for pushes and deploys."""
    _FURNISHED.again(lambda: _furnish(quiet))
    return quiet


def _furnish(inbox: InboxScenario) -> None:
    inbox.rules()
    for name in ("git.push", "deploy"):
        inbox.declare(name)


_FURNISHED = Kept[None]()


@pytest.fixture
def remembered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Keep what a process caches for seconds for the whole test, because queries are counted."""
    for module in (cache, rule_limits):
        monkeypatch.setattr(module, "CACHE_S", float("inf"))
    yield
    rule_limits._cache.clear()


@pytest.fixture
def rita(inbox: InboxScenario) -> Reviewer:
    return Reviewer(inbox)


@pytest.fixture
def gate(inbox: InboxScenario) -> Gate:
    """A push that waits: compensable, medium risk."""
    return inbox.gate(
        inbox.plan(arguments={"command": "git push origin main"}, why="Because <b>I</b> say so.")
    )


@pytest.fixture
def final(inbox: InboxScenario) -> Gate:
    """An irreversible deployment that needs one approval."""
    inbox.rules(
        "name: strict\nrules:\n- {id: all, title: All, match: {}, outcome: require, require: "
        "{decide_within: 2h}}\n"
    )
    planned = inbox.plan("final", tool="drop.table", arguments={"command": "DROP TABLE invoices"})
    return inbox.gate(planned)


@pytest.fixture(scope="session")
def live_inbox(live_server_process: Server) -> LiveInbox:
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
