"""Loading rules and activating them: versions, the active one, and its entries in the journal."""

import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import DatabaseError, IntegrityError, connection, transaction
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings

from accounts import people, projects
from accounts.models import Project
from approvals.models import Activation, PolicySet
from approvals.policies import policies, policy_evaluation
from approvals.policies.policies_yaml import DocumentError
from db import raw_sql
from db.errors import ChangeRefused
from journal.models import Body, Entry
from tests.rows_with_entries import add_row

pytestmark = pytest.mark.django_db
TEXT = "name: basic\nrules:\n  - {id: all, title: Everything, match: {}, outcome: require}\n"
OTHER = TEXT.replace("require", "deny")


@pytest.fixture
def project(settings: Settings) -> Project:
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    return projects.create_project("of the tests")


def load_entries(kind: str) -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Actor, facts and body of every entry of a kind."""
    entries = Entry.objects.filter(kind=kind).order_by("position")
    return [
        (entry.actor, json.loads(entry.facts), json.loads(Body.objects.get(entry=entry).text))
        for entry in entries
    ]


def test_rules_are_kept_as_they_were_loaded(project: Project) -> None:
    policy_set = policies.load_policy_set(project, TEXT, "p_1")
    stored = PolicySet.objects.get()
    assert (str(stored), stored.text, stored.loaded_by) == ("basic@1", TEXT, "p_1")
    assert stored.rules["rules"][0]["require"]["minimum"] == 1
    [(actor, facts, body)] = load_entries("policy.loaded")
    assert actor == "p_1"
    assert facts == {"version": 1, "rules": 1, "sha256": policy_set.sha256}
    assert (body["name"], body["text"]) == ("basic", TEXT)


def test_another_text_is_the_next_version_and_the_same_text_is_none(project: Project) -> None:
    first, second = (
        policies.load_policy_set(project, TEXT),
        policies.load_policy_set(project, OTHER),
    )
    assert [str(first), str(second)] == ["basic@1", "basic@2"]
    assert policies.load_policy_set(project, TEXT) == first
    assert PolicySet.objects.count() == len(load_entries("policy.loaded")) == 2
    assert str(policies.load_policy_set(project, TEXT.replace("basic", "yard"))) == "yard@1"


def test_a_faulty_text_stores_nothing(project: Project) -> None:
    with pytest.raises(DocumentError), transaction.atomic():
        policies.load_policy_set(project, TEXT + "rulez: []\n")
    assert not PolicySet.objects.exists()
    assert load_entries("policy.loaded") == []


def test_loading_puts_nothing_in_force(project: Project) -> None:
    policies.load_policy_set(project, TEXT)
    assert policy_evaluation.load_active_policy(project.id) is None


def test_the_set_activated_last_is_in_force(project: Project) -> None:
    user = people.add_project_member(project, "ada", "administrator", "slate-lantern-orbit-42").user
    first, second = (
        policies.load_policy_set(project, TEXT),
        policies.load_policy_set(project, OTHER),
    )
    policies.activate_policy_set(project, first, "enforce", user, "p_ada")
    policies.activate_policy_set(project, second, "observe", user, "p_ada")
    active = policy_evaluation.load_active_policy(project.id)
    assert active is not None
    assert (active.policy_set, active.name, active.mode) == (second.id, "basic@2", "observe")
    assert [rule.outcome for rule in active.compiled.rules] == ["deny"]
    assert list(
        Activation.objects.order_by("id").values_list("policy_set", "mode", "is_current")
    ) == [
        (first.id, "enforce", False),
        (second.id, "observe", True),
    ]
    modes = [
        (actor, facts["mode_before"], facts["mode"])
        for actor, facts, _ in load_entries("policy.activated")
    ]
    assert modes == [("p_ada", "observe", "enforce"), ("p_ada", "enforce", "observe")]
    assert load_entries("policy.activated")[1][1]["policy_set_before"] == first.id.hex


def test_an_active_policy_is_not_activated_again(project: Project) -> None:
    policy_set = policies.load_policy_set(project, TEXT)
    first = policies.activate_policy_set(project, policy_set, "enforce")
    assert policies.activate_policy_set(project, policy_set, "enforce") == first
    assert Activation.objects.count() == len(load_entries("policy.activated")) == 1


def test_an_earlier_set_can_be_put_in_force_again(project: Project) -> None:
    first, second = (
        policies.load_policy_set(project, TEXT),
        policies.load_policy_set(project, OTHER),
    )
    for policy_set in (first, second, first):
        policies.activate_policy_set(project, policy_set, "enforce")
    active = policy_evaluation.load_active_policy(project.id)
    assert active is not None
    assert active.name == "basic@1"
    assert Activation.objects.filter(is_current=True).count() == 1


def test_an_invalid_activation_is_refused(project: Project) -> None:
    policy_set = policies.load_policy_set(project, TEXT)
    with pytest.raises(ChangeRefused, match="Unknown mode"), transaction.atomic():
        policies.activate_policy_set(project, policy_set, "dictate")
    elsewhere = projects.create_project("elsewhere")
    with pytest.raises(ChangeRefused, match="another project"), transaction.atomic():
        policies.activate_policy_set(elsewhere, policy_set, "enforce")
    assert not Activation.objects.exists()


def test_no_policy_of_another_project_is_active(project: Project) -> None:
    other = projects.create_project("elsewhere")
    policies.activate_policy_set(other, policies.load_policy_set(other, TEXT), "enforce")
    assert policy_evaluation.load_active_policy(project.id) is None
    assert policies.find_policy_set(project, TEXT) is None


def test_loading_the_active_policy_costs_one_query(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    policies.activate_policy_set(project, policies.load_policy_set(project, TEXT), "enforce")
    policy_evaluation.load_active_policy(project.id)
    statements: list[str] = []
    rows = raw_sql.fetch_rows

    def counted(text: str, *given: Any) -> list[tuple[Any, ...]]:
        statements.append(text)
        return rows(text, *given)

    monkeypatch.setattr(raw_sql, "fetch_rows", counted)
    with CaptureQueriesContext(connection) as queries:  # those that Django knows of
        assert policy_evaluation.load_active_policy(project.id) is not None
    assert (len(statements), len(queries)) == (1, 0)


@pytest.mark.parametrize(
    ("statement", "constraint"),
    [
        (
            "UPDATE approvals_activation SET is_current = %s WHERE NOT is_current",
            "activation_only_ends",
        ),
        (
            "UPDATE approvals_activation SET mode = 'observe' WHERE is_current = %s",
            "activation_only_ends",
        ),
        (
            "UPDATE approvals_activation SET actor = 'p_other' WHERE is_current = %s",
            "activation_only_ends",
        ),
        ("DELETE FROM approvals_activation WHERE is_current = %s", "activation_is_never_deleted"),
        (
            "UPDATE approvals_policyset SET text = 'name: basic' WHERE %s",
            "policy_set_never_changes",
        ),
        ("DELETE FROM approvals_policyset WHERE %s", "policy_set_is_never_deleted"),
    ],
)
def test_the_database_refuses_to_rewrite_a_past_activation(
    project: Project, statement: str, constraint: str
) -> None:
    for text in (TEXT, OTHER):
        policies.activate_policy_set(project, policies.load_policy_set(project, text), "enforce")
    with (
        pytest.raises(DatabaseError, match=constraint),
        transaction.atomic(),
        connection.cursor() as cursor,
    ):
        cursor.execute(statement, [True])
    assert list(Activation.objects.order_by("id").values_list("mode", "is_current")) == [
        ("enforce", False),
        ("enforce", True),
    ]


@pytest.mark.parametrize(
    ("mode", "constraint"),
    [("enforce", "project_has_one_policy_in_force"), ("dictate", "activation_mode_is_known")],
)
def test_the_schema_refuses_a_second_one_in_force_and_an_unknown_mode(
    project: Project, mode: str, constraint: str
) -> None:
    before = policies.activate_policy_set(
        project, policies.load_policy_set(project, TEXT), "enforce"
    )
    with pytest.raises(IntegrityError) as refused, transaction.atomic():
        add_row(
            Activation(
                project=project,
                policy_set=before.policy_set,
                mode=mode,
                actor="tests",
                activated_at_us=1,
            )
        )
    assert constraint in str(refused.value) or "approvals_activation.project_id" in str(
        refused.value
    )


UNANSWERED = "Rule all: Needs 1 approver but only 0 are eligible; requests will expire.\n"


def command(path: Path, *options: str) -> str:
    out = StringIO()
    call_command("load_policies", str(path), *options, stdout=out)
    return out.getvalue()


def test_the_command_prints_what_it_did(project: Project, tmp_path: Path) -> None:
    path = tmp_path / "policies.yaml"
    path.write_text(TEXT)
    named = ("--project", project.name)
    assert (
        command(path, *named)
        == "of the tests: basic@1 loaded, 1 rules.\nNo rules are in force.\n" + UNANSWERED
    )
    assert command(path, *named, "--activate", "observe") == (
        "of the tests: this text is already loaded as basic@1.\nIn force now: basic@1, mode "
        "observe.\n" + UNANSWERED
    )
    already = "basic@1 was already in force in mode observe.\n"
    assert command(path, *named, "--activate", "observe").endswith(already + UNANSWERED)
    path.write_text(OTHER)
    assert command(path, *named, "--activate", "enforce", "--unless-active") == ""
    assert command(path, *named, "--activate", "enforce").endswith(
        "In force now: basic@2, mode enforce; before: basic@1, mode observe.\n"
    )
    assert [actor for actor, _, _ in load_entries("policy.activated")] == ["gatebook", "gatebook"]


def test_the_command_names_file_line_and_reason_and_loads_nothing(
    project: Project, tmp_path: Path
) -> None:
    path = tmp_path / "policies.yaml"
    path.write_text(TEXT + "rulez: []\n")
    with pytest.raises(CommandError) as refused:
        command(path, "--project", project.name)
    assert str(refused.value).startswith(
        f"{path}:4: the file has the unknown key 'rulez'; did you mean `rules`?"
    )
    path.write_bytes(b"name: \xff")
    for options, words in (
        (("--project", project.name), "is not UTF-8 text"),
        (("--project", "nowhere"), "no project 'nowhere'"),
    ):
        with pytest.raises(CommandError, match=words):
            command(path, *options)
    with pytest.raises(CommandError, match="cannot be read"):
        command(tmp_path / "absent.yaml", "--project", project.name)
    assert not PolicySet.objects.exists()
