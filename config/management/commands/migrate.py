"""`manage.py migrate`: Django's command, faster on an empty database.

After each operation Django renders the changed model again with all that are related to it, here
nearly all: three quarters of the time of a first migration. Tables, constraints and triggers follow
from the changed model alone. Migrations that read rows may need the others, but an empty database
has no rows. `setup` and tests compare the result with the recorded schema.
"""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from django.core.checks import Tags
from django.core.management.commands import migrate
from django.db import connections
from django.db.migrations.recorder import MigrationRecorder
from django.db.migrations.state import ProjectState


class Command(migrate.Command):
    requires_system_checks = [Tags.database]  # the others check code, for a second

    def handle(self, *args: Any, **options: Any) -> None:
        applied = MigrationRecorder(connections[options["database"]]).applied_migrations()
        with nullcontext() if applied else _render_changed_models_only():
            super().handle(*args, **options)


@contextmanager
def _render_changed_models_only() -> Iterator[None]:
    find_with_related = ProjectState._find_reload_model  # type: ignore[attr-defined]

    def find_changed(
        _state: ProjectState, app_label: str, model_name: str, delay: bool = False
    ) -> set[tuple[str, str]]:
        return {(app_label, model_name)}

    ProjectState._find_reload_model = find_changed  # type: ignore[attr-defined]
    try:
        yield
    finally:
        ProjectState._find_reload_model = find_with_related  # type: ignore[attr-defined]
