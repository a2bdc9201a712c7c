"""What the tests of importers share."""

from collections.abc import Iterator

import pytest
from django.core.signals import request_finished, request_started
from django.db import close_old_connections

from accounts import projects
from accounts.models import Project


@pytest.fixture
def project(db: None) -> Project:
    """The project that imports go to."""
    return projects.ensure_default_project()


@pytest.fixture
def in_process(db: None) -> Iterator[None]:
    """As Django's own test client does: a request in process must not close the connection it runs
    on."""
    signals = (request_started, request_finished)
    for signal in signals:
        signal.disconnect(close_old_connections)
    yield
    for signal in signals:
        signal.connect(close_old_connections)
