"""Two administrators of a project with a row of every table, and the address that is erased."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from pytest_django import Settings

from accounts.models import Membership
from erasure import erasure_requests, erasure_runner, storage_scrub
from erasure.models import ErasureRequest
from tests.journal.committed import committed as committed
from tests.ledger.rows_by_hand import World
from tests.rows_with_entries import mark_own_password

# Its second word occurs nowhere else. The search index holds it alone.
ADDRESS = "jane.q7xkvz@customer.example"
TRACE = b"q7xkvz"
# Longer than other tests hold a transaction of the same PostgreSQL server, however busy it is.
PATIENT_S = 600.0


@dataclass
class Office:
    """A project with two administrators, who erase together."""

    world: World
    first: User
    second: User

    def ask(self, *words: str, **options: Any) -> ErasureRequest:
        """Ask for an erasure, and count nothing yet."""
        values = {"reason": "ticket 88", "project": self.world.project, **options}
        return erasure_requests.request_erasure(self.first, words=words, **values)

    def request(self, *words: str, **options: Any) -> ErasureRequest:
        """Ask for an erasure and count its preview."""
        row = self.ask(*words, **options)
        run_all()
        row.refresh_from_db()
        assert row.state == "counted"
        return row

    def erase(self, *words: str, **options: Any) -> ErasureRequest:
        """Ask, confirm as the second person, and carry out."""
        return self.confirm(self.request(*words, **options))

    def confirm(self, row: ErasureRequest) -> ErasureRequest:
        """Confirm a counted request as the second person, and carry it out."""
        erasure_requests.confirm_erasure(row.pk, self.second, erasure_requests.digest_counts(row))
        run_all()
        row.refresh_from_db()
        return row


def run_all() -> None:
    """Run the job until nothing is due."""
    while erasure_runner.run_erasures():
        pass


def make_administrator(world: World, name: str) -> User:
    user = User.objects.create_user(name, password="slate-lantern-orbit-42")
    world.write(Membership, user=user, role="administrator")
    mark_own_password(user)
    return user


@pytest.fixture
def own_folder(tmp_path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of its own for everything that Gatebook writes next to the database."""
    # Tests of other workers hold transactions of the same PostgreSQL server open.
    monkeypatch.setattr(storage_scrub, "WAIT_S", PATIENT_S)
    folder = tmp_path / "var"
    folder.mkdir(mode=0o700)
    settings.VAR_DIR = folder
    settings.MEDIA_ROOT = folder / "artifacts"
    settings.EMAIL_FILE_PATH = folder / "mail"
    settings.GATEBOOK_ERASURE_JOURNAL = folder / "erasures.jsonl"
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    return folder


@pytest.fixture
def office(own_folder: Path, committed: None) -> Iterator[Office]:
    world = World()
    yield Office(world, make_administrator(world, "first"), make_administrator(world, "second"))
    connection.close()
