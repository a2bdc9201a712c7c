"""Imported sessions are never stuck: they are over, whatever their records contain."""

import io

import pytest
from django.core.management import call_command
from django.db.models import BigIntegerField, F, Value

from accounts.models import Project
from db.clock import now_us
from ledger.models import Effect
from monitoring.models import StuckEpisode
from monitoring.stuck import rule_limits, rule_queries, sweeper
from sessions.models import Session
from tests.api.conftest import agent as agent
from tests.api.conftest import application as application
from tests.api.conftest import call as call
from tests.api.conftest import importer as importer
from tests.api.conftest import issue as issue
from tests.importers.conftest import in_process as in_process
from tests.importers.conftest import project as project
from tests.importers.samples import FILES, RECORDED, format_of, needs_recordings, recorded_counts

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("project", "in_process")]
DAY_US = 86_400_000_000
SMALL = 200_000  # bytes of a file: small samples keep the test quick


def check_never_stuck(project: Project) -> None:
    """Sweep now and a day later, and check that no episode opens."""
    for later in (0, 5_000_000, DAY_US, DAY_US + 5_000_000):
        sweeper.sweep_stuck(now_us() + later)
        assert not StuckEpisode.objects.exists()
    assert (
        rule_queries.find_candidates(
            project.id, now_us() + 30 * DAY_US, rule_limits.load_limits(project.id)
        )
        == []
    )


def test_imported_samples_are_never_stuck(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    call_command(
        "import_trajectory", "claude-code", str(FILES / "claude-code.jsonl"), stdout=io.StringIO()
    )
    call_command("import_trajectory", "pi", str(FILES / "pi.jsonl"), stdout=io.StringIO())
    # As if no effect had an answer.
    unanswered = Effect.objects.filter(state="acknowledged")
    assert unanswered.exists()
    deadline = F("received_us") + Value(1, output_field=BigIntegerField())
    unanswered.update(state="dispatched", outcome="", deadline_us=deadline)
    check_never_stuck(project)


@pytest.mark.once
@needs_recordings
def test_recorded_sessions_are_never_stuck(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [name for name in recorded_counts() if (RECORDED / name).stat().st_size <= SMALL]
    sample = {format_of(name): name for name in sorted(names, reverse=True)}
    assert len(sample) >= 2
    for kind, name in sample.items():
        call_command("import_trajectory", kind, str(RECORDED / name), stdout=io.StringIO())
    assert set(Session.objects.values_list("mode", flat=True)) == {"reported"}
    check_never_stuck(project)
