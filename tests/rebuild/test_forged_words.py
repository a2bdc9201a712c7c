"""The words and values by which a search finds effects are compared with the texts that exist."""

from typing import Any, Final

import orjson
import pytest
from django.db import connection, transaction

from db.clock import now_us
from db.triggers import suspend_triggers
from erasure import single_erasure
from erasure.models import ErasureRequest
from investigation.fulltext import field_index, indexer
from investigation.models import EffectText, FieldValue
from journal.models import Entry
from ledger.models import Effect
from rebuild import damaged_indexes
from rebuild.checks import search_word_checks
from rebuild.session_journal import CHANGED
from tests.approvals.inbox_scenario import InboxScenario
from tests.query.test_declared_fields import TOOLS, declare, find, pay
from tests.rebuild.test_forged_excuses import forge_value
from tests.rebuild.test_forged_names import list_named
from tests.rebuild.test_forged_rows import run
from tests.rebuild.test_rebuilt_stories import list_differences

pytestmark = pytest.mark.django_db
WORDS, VALUES = "investigation_effecttext", "investigation_fieldvalue"
BOTH: Final = ("--table", WORDS, "--table", VALUES)


@pytest.fixture
def wired(inbox: InboxScenario) -> Effect:
    """Five effects with fields, of which the index has read all; the first is returned."""
    inbox.rules("name: all\nrules:\n- {id: all, title: All, match: {}, outcome: allow}\n")
    declare(inbox, TOOLS)
    for number in range(5):
        pay(inbox, f"e-{number}", ticket=f"OPS-{number}", note=f"wire {number} Zürich")
    inbox.agent.dispatch(done := plan_of("e-0"))
    inbox.agent.acknowledge(done, external_reference="run-7", result={"receipt": "zz9"})
    indexer.update_index()
    assert name_rows() == set()
    assert count_rows() == {WORDS: 5, VALUES: 5}
    return effect_of("e-0")


def effect_of(key: str) -> Effect:
    return Effect.objects.get(effect_key=key)


def plan_of(key: str) -> dict[str, Any]:
    """Return what the agent got when it planned an effect."""
    effect = effect_of(key)
    return {"id": str(effect.id), "intent_digest": effect.intent_digest}


def name_rows() -> set[tuple[str, str, str]]:
    """Return what the check of both tables names: (difference, table, column)."""
    rows = list_differences(tables=(WORDS, VALUES))
    return {(row["difference"], row["table"], row.get("column", "")) for row in rows}


def count_rows() -> dict[str, int]:
    """Return how many rows of the index the check compares."""
    _code, text = run("--check", "--json", *BOTH)
    rows: dict[str, int] = orjson.loads(text.splitlines()[-1])["rows"]
    return {table: rows.get(table, 0) for table in (WORDS, VALUES)}


def list_excuses() -> set[tuple[str, str]]:
    _code, text = run("--check", "--json", *BOTH)
    rows = orjson.loads(text.splitlines()[-1])["not_compared"]
    return {(row["table"], row["reason"]) for row in rows}


def remove_words(*effects: Effect) -> None:
    EffectText.objects.filter(position__in=[row.opened_position for row in effects]).delete()


def test_words_and_values_that_the_owner_changes_are_named_and_restored(
    inbox: InboxScenario, wired: Effect
) -> None:
    effects = [effect_of(f"e-{number}") for number in range(5)]
    before = list(EffectText.objects.values()), list(FieldValue.objects.values("field", "value"))
    remove_words(wired)
    altered = EffectText.objects.filter(position=effects[1].opened_position)
    altered.update(words=altered.get().words.replace("wire", "wirf"))
    EffectText.objects.filter(position=effects[2].opened_position).update(
        project=inbox.organization.other, cut_short=True
    )
    of_another = Entry.objects.filter(session=wired.session_id, effect=wired.id).latest("position")
    EffectText.objects.create(position=of_another.position, project=inbox.project, words=" aa ")
    FieldValue.objects.filter(effect=wired).delete()
    FieldValue.objects.filter(effect=effects[1]).update(value="OPS-7")
    FieldValue.objects.filter(effect=effects[2]).update(plan_position=1)
    assert find(inbox, "receipt") == find(inbox, "field.ticket:OPS-0") == []
    assert list_named() == {
        ("missing", WORDS, ""),
        ("changed", WORDS, "words"),
        ("changed", WORDS, "project_id"),
        ("changed", WORDS, "cut_short"),
        ("added", WORDS, ""),
        ("missing", VALUES, ""),
        ("added", VALUES, ""),
        ("changed", VALUES, "plan_position"),
    }
    assert run()[0] == 0
    assert list_named() == set()
    after = list(EffectText.objects.values()), list(FieldValue.objects.values("field", "value"))
    assert [sorted(map(repr, rows)) for rows in after] == [
        sorted(map(repr, rows)) for rows in before
    ]
    assert find(inbox, "receipt zz9 run") == find(inbox, "field.ticket:OPS-0") == ["e-0"]
    assert find(inbox, "wire zürich") == [f"e-{number}" for number in range(5)]


def test_what_the_index_has_not_read_is_not_compared(inbox: InboxScenario, wired: Effect) -> None:
    pay(inbox, "e-5", ticket="OPS-5")
    remove_words(effect_of("e-4"))
    inbox.agent.dispatch(plan_of("e-4"))  # gives no words
    inbox.agent.dispatch(later := plan_of("e-3"))
    inbox.agent.acknowledge(later, result="fine")
    assert name_rows() == {("missing", WORDS, "")}
    assert list_excuses() == {(table, search_word_checks.UNREAD) for table in (WORDS, VALUES)}
    indexer.update_index()
    assert list_excuses() == set()
    remove_words(effect_of("e-3"), effect_of("e-5"))
    assert name_rows() == {("missing", WORDS, "")}
    indexer.reset_index()  # the next run reads all effects again, and a search says so
    assert name_rows() == set()
    indexer.update_index()
    assert name_rows() == set()
    assert list_excuses() == set()
    assert count_rows() == {WORDS: 6, VALUES: 6}


def test_what_is_left_of_an_effect_whose_text_was_erased_is_compared(
    inbox: InboxScenario, wired: Effect
) -> None:
    assert wired.plan_position is not None
    single_erasure.erase_single_body(
        inbox.project.id, wired.plan_position, reason="ticket 88", actor="p_1"
    )
    assert name_rows() == set()
    indexer.update_index()
    assert name_rows() == set()
    assert count_rows() == {WORDS: 5, VALUES: 4}
    assert find(inbox, "receipt run pay") == ["e-0"]
    row = EffectText.objects.filter(position=wired.opened_position)
    row.update(words=row.get().words.replace("receipt", "recipe"))
    assert name_rows() == {("changed", WORDS, "words")}
    row.delete()
    assert name_rows() == {("missing", WORDS, "")}
    assert run(*BOTH)[0] == 0
    assert find(inbox, "receipt run pay") == ["e-0"]


def test_words_of_a_changed_body_are_not_compared(inbox: InboxScenario, wired: Effect) -> None:
    """The verifier names the body; that it was indexed before says nothing about its words."""
    forge_value("journal_body", "text", "'{}'", f"entry_id = {wired.plan_position}")
    assert name_rows() == set()
    assert list_excuses() == {(table, CHANGED) for table in (WORDS, VALUES)}


def test_while_an_erasure_runs_its_project_is_not_compared(
    inbox: InboxScenario, wired: Effect
) -> None:
    remove_words(wired)
    with transaction.atomic():
        reviewer, other = inbox.user("reviewer"), inbox.user("administrator")
        request = ErasureRequest(
            project=inbox.organization.other,
            subject_kind="words",
            reason="t-1",
            asked_by=reviewer,
            asked_at_us=now_us(),
            requested_position=1,
            confirmed_by=other,
            confirmed_at_us=now_us(),
            state="running",
        )
        with suspend_triggers(connection, [ErasureRequest._meta.db_table]):
            ErasureRequest.objects.bulk_create([request])
            assert name_rows() == {("missing", WORDS, "")}
            ErasureRequest.objects.update(project=inbox.project)
        assert name_rows() == set()
        assert list_excuses() == {(table, search_word_checks.ERASING) for table in (WORDS, VALUES)}
        transaction.set_rollback(True)


def test_values_are_compared_as_far_as_a_declaration_was_read(
    inbox: InboxScenario, wired: Effect
) -> None:
    declare(inbox, "tools: {pay: {class: opaque, fields: {note: note}}}")
    assert list_excuses() == {(VALUES, search_word_checks.UNCOVERED)}
    field_index.begin_changed_tools(Entry.objects.latest("position").position)
    assert list_excuses() == {(VALUES, search_word_checks.UNCOVERED)}
    indexer.update_index()
    assert name_rows() == set()
    assert list_excuses() == set()
    FieldValue.objects.filter(effect=wired).delete()
    assert name_rows() == {("missing", VALUES, "")}
    declare(inbox, "tools: {pay: {class: opaque}}")
    assert name_rows() == set()
    indexer.update_index()
    assert count_rows() == {WORDS: 5, VALUES: 0}
    FieldValue.objects.create(
        project=inbox.project,
        effect=wired,
        position=wired.opened_position,
        plan_position=wired.plan_position or 0,
        field="ticket",
        value="OPS-0",
    )
    assert name_rows() == {("added", VALUES, "")}


def test_a_value_of_a_later_plan_goes_with_its_body(inbox: InboxScenario, wired: Effect) -> None:
    """Also where both plans have the value: it is stored with the plan that is in force."""
    plan = {"kind": "effect.planned", "tool": "pay", "session": "s-1", "effect_key": "again"}
    for key in ("r-2", "r-1"):  # the report with the first id counts
        arguments = {"ticket": "OPS-9", "note": key}
        assert inbox.agent.report([plan | {"id": key, "arguments": arguments}]).status_code == 200
        indexer.update_index()
    effect = effect_of("again")
    assert name_rows() == set()
    assert FieldValue.objects.get(effect=effect).plan_position == effect.plan_position


@pytest.mark.skipif("connection.vendor != 'sqlite'", reason="PostgreSQL has its own index")
def test_a_word_that_only_the_index_of_sqlite_lacks_is_named(
    inbox: InboxScenario, wired: Effect, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = EffectText.objects.get(position=wired.opened_position).words
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO investigation_wordindex (investigation_wordindex, rowid, words)"
            " VALUES ('delete', %s, %s)",
            [wired.opened_position, words],
        )
    assert find(inbox, "receipt") == []
    code, text = run("--check")
    assert (code, "damaged: investigation_effecttext index=investigation_wordindex" in text) == (
        *(1, True),
    )
    assert run("--check", "--table", "ledger_effect")[0] == 0
    monkeypatch.setattr(damaged_indexes, "MAX_COMPARED_EFFECTS", 0)  # as if there were too many
    code, text = run("--check")
    assert (
        code,
        "investigation_wordindex" in text,
        "--table investigation_effecttext" in text,
    ) == (*(0, True, True),)
    assert run("--check", "--table", "investigation_effecttext")[0] == 1
    monkeypatch.undo()
    code, text = run()
    assert (code, "Nothing was changed" in text) == (2, True)
    _before, _, statement = run("--check")[1].partition("Make the index again: ")
    with connection.cursor() as cursor:
        cursor.execute(statement.splitlines()[0])
    assert run("--check")[0] == 0
    assert find(inbox, "receipt") == ["e-0"]
