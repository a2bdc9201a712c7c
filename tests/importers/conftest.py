"""Fixtures of the importers' tests."""

from collections.abc import Iterator

import pytest
from django.core.signals import request_finished, request_started
from django.db import close_old_connections

from accounts import projects
from accounts.models import Project


@pytest.fixture
def project(db: None) -> Project:
    """Return the project of the imports."""
    return projects.ensure_default_project()


@pytest.fixture
def in_process(db: None) -> Iterator[None]:
    """Keep the connection open after a request in process, like Django's test client."""
    signals = (request_started, request_finished)
    for signal in signals:
        signal.disconnect(close_old_connections)
    yield
    for signal in signals:
        signal.connect(close_old_connections)
