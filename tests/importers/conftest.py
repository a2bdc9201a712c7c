"""Fixtures of the importers' tests."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.core.signals import request_finished, request_started
from django.db import close_old_connections

from accounts import projects
from accounts.models import Project
from tests.config.server import Server
from tests.hooks.real.live_project import make_live_project
from tests.importers.followed_files import Following


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


@pytest.fixture
def following(live_server_process: Server, tmp_path: Path) -> Iterator[Following]:
    """Return what starts the process that follows, for a project of its own."""
    project = make_live_project(live_server_process, f"follow-{uuid.uuid4().hex[:8]}")
    following = Following(project, tmp_path)
    yield following
    following.close()
