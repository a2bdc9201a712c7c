"""The office of the tests of erasure, with journal entries of past months."""

import pytest

from retention import expiry
from tests.bundles.conftest import origin as origin
from tests.erasure.conftest import committed as committed
from tests.erasure.conftest import office as office
from tests.erasure.conftest import own_folder as own_folder
from tests.pages.conftest import agent as agent
from tests.pages.conftest import sample as sample


@pytest.fixture
def one_window(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let one entry name all that expires: PostgreSQL goes on counting positions between tests."""
    monkeypatch.setattr(expiry, "WINDOW", 1 << 62)
