"""The tables of the fold define the schema: an edit needs a migration, so both stay equal."""

import importlib.util
from typing import Any

import pytest
from django.db.migrations.autodetector import MigrationAutodetector
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.operations import AddConstraint, RemoveConstraint
from django.db.migrations.state import ModelState
from django.test.utils import isolate_apps

from ledger import states

pytestmark = pytest.mark.once


FILES = {"ledger.models": ("Effect", "Attempt", "Tool", "Stop")}


def load_models_again() -> dict[str, ModelState]:
    """Execute the files of models once more against the current tables, in their own registry."""
    model_states = {}
    for file, names in FILES.items():
        spec = importlib.util.find_spec(file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        with isolate_apps("ledger"):
            spec.loader.exec_module(module)
        model_states.update(
            {name.lower(): ModelState.from_model(getattr(module, name)) for name in names}
        )
    return model_states


def wanted_migrations() -> set[str]:
    """The names of the constraints that `makemigrations` would now change in the ledger."""
    loader = MigrationLoader(None)
    before = loader.project_state()
    after = before.clone()
    for name, model in load_models_again().items():
        after.models["ledger", name] = model
    changes = MigrationAutodetector(before, after).changes(graph=loader.graph)
    names = set()
    for migration in changes.get("ledger", []):
        for operation in migration.operations:
            if isinstance(operation, AddConstraint):
                names.add(operation.constraint.name)
            else:
                assert isinstance(operation, RemoveConstraint), operation
                names.add(operation.name)
    return names


def test_the_migrations_match_the_tables() -> None:
    assert wanted_migrations() == set()


@pytest.mark.parametrize(
    ("table", "value", "constraint"),
    [
        (
            "PERMISSIONS_OF_STATE",
            {**states.PERMISSIONS_OF_STATE, "dispatched": states.PERMISSIONS},
            "effect_moves_only_with_permission",
        ),
        (
            "OUTCOME_OF_STATE",
            {**states.OUTCOME_OF_STATE, "planned": ("ok",)},
            "effect_outcome_fits_its_state",
        ),
        (
            "MOVED_PERMISSIONS",
            (*states.MOVED_PERMISSIONS, "granted"),
            "attempt_moves_only_with_permission",
        ),
        ("PERMISSIONS", (*states.PERMISSIONS, "assumed"), "effect_permission_is_known"),
        (
            "PERMISSION_BASES",
            (*states.PERMISSION_BASES, "hope"),
            "effect_permission_basis_is_known",
        ),
        ("FAILURE_REASONS", (*states.FAILURE_REASONS, "mood"), "effect_reason_is_known"),
        ("OUTCOMES", (*states.OUTCOMES, "fine"), "attempt_outcome_is_known"),
        ("RESOLUTIONS", (*states.RESOLUTIONS, "ignored"), "effect_resolution_is_known"),
        ("TOOL_CLASSES", (*states.TOOL_CLASSES, "magic"), "tool_class_is_known"),
        ("REVERSIBILITIES", (*states.REVERSIBILITIES, "maybe"), "tool_reversibility_is_known"),
        ("STOP_SCOPES", (*states.STOP_SCOPES, "planet"), "stop_scope_is_known"),
    ],
)
def test_editing_a_table_of_the_fold_asks_for_a_migration(
    monkeypatch: pytest.MonkeyPatch, table: str, value: Any, constraint: str
) -> None:
    monkeypatch.setattr(states, table, value)
    assert constraint in wanted_migrations()


def test_all_tables_list_the_same_states() -> None:
    assert set(states.PERMISSIONS_OF_STATE) == set(states.OUTCOME_OF_STATE) == set(states.STATES)
    assert set(states.OPEN_STATES) < set(states.STATES)
    assert not set(states.MOVED_PERMISSIONS) & set(states.IDLE_PERMISSIONS)
    assert set(states.OUTCOME_OF_REASON.values()) <= set(states.OUTCOME_OF_STATE["failed"])
