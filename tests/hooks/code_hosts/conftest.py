"""Fixtures of the tests of code hosts."""

from collections.abc import Iterator

import pytest

from ledger.tools import cache
from tests.hooks.code_hosts.code_host import CodeHost
from tests.pages.people import Organization
from tests.pages.sample_data import ORGANIZATIONS_TOKEN, connect_agent


@pytest.fixture
def host(organization: Organization) -> Iterator[CodeHost]:
    """A project without policies, with a GitHub source."""
    cache.clear_tool_cache()
    with connect_agent(organization.agent, kept=ORGANIZATIONS_TOKEN) as caller:
        yield CodeHost(organization, caller)
