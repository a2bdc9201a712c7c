"""Erasing a body: recorded first, body and salt deleted, the entry kept."""

import pytest
from django.db import DatabaseError, connection, transaction

from journal import entries, erasures
from journal.entries import AppendResult, AppendStatus
from journal.erasures import NothingToErase
from journal.models import Body, Entry, Erasure
from tests.journal.drafts import NOW_US, conflicts, draft, new_project

pytestmark = pytest.mark.django_db
PROJECT = new_project()


def _stored(text: str = '{"name":"Jane"}') -> int:
    return entries.append_entries(
        [draft("a", text, project=PROJECT, session=new_project())], NOW_US
    )[0].position


def _erase(position: int) -> Erasure:
    return erasures.erase_body(
        PROJECT, position, reason="request 17", actor="p_1", now_us=NOW_US + 5
    )


def _delete_body(position: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM journal_body WHERE entry_id = %s", [position])


def test_body_and_salt_are_deleted_and_the_entry_with_its_commitment_is_kept() -> None:
    position = _stored()
    before = Entry.objects.filter(position=position).values().get()
    erasure = _erase(position)
    assert not Body.objects.filter(entry=position).exists()
    assert Entry.objects.filter(position=position).values().get() == before
    assert len(bytes(before["body_commit"] or b"")) == 32
    assert (erasure.reason, erasure.actor, erasure.erased_at_us) == (
        "request 17",
        "p_1",
        NOW_US + 5,
    )


def test_the_journal_records_that_something_was_erased() -> None:
    position = _stored()
    _erase(position)
    erasure = Entry.objects.get(kind="erasure.executed")
    assert erasure.facts == f'{{"entry":{position}}}'
    assert erasure.session == Entry.objects.get(position=position).session
    assert "Jane" not in Body.objects.get(entry=erasure.position).text


def test_no_body_is_deleted_without_its_erasure_row() -> None:
    position, other = (
        _stored(),
        entries.append_entries([draft("b", project=PROJECT)], NOW_US)[0].position,
    )
    with (
        pytest.raises(DatabaseError, match="a body goes only after an erasure names it"),
        transaction.atomic(),
    ):
        _delete_body(position)
    Erasure.objects.create(
        entry_id=other, project=PROJECT, reason="another", actor="p_1", erased_at_us=NOW_US
    )
    with (
        pytest.raises(DatabaseError, match="a body goes only after an erasure names it"),
        transaction.atomic(),
    ):
        _delete_body(position)
    _erase(position)
    assert not Body.objects.filter(entry=position).exists()


def test_the_erasure_is_written_before_anything_is_destroyed() -> None:
    position = _stored()
    statements: list[str] = []

    def note(execute, sql, parameters, many, context):  # type: ignore[no-untyped-def]  # Django's wrapper protocol
        statements.append(sql)
        return execute(sql, parameters, many, context)

    with connection.execute_wrapper(note):
        _erase(position)
    changing = [
        sql.split("journal_")[1].split()[0].strip('"') for sql in statements if "journal_" in sql
    ]
    named, gone = changing.index("erasure"), changing.index("body", changing.index("erasure"))
    assert named < gone


def test_a_second_erasure_is_refused() -> None:
    position = _stored()
    _erase(position)
    with pytest.raises(NothingToErase, match=f"Entry {position} has no body"):
        _erase(position)
    assert Entry.objects.filter(kind="erasure.executed").count() == 1


def test_of_two_concurrent_erasures_the_second_is_refused() -> None:
    if connection.vendor == "sqlite":
        return  # one writer: the second finds no body
    position = _stored()
    Erasure.objects.create(
        entry_id=position, project=PROJECT, reason="request 16", actor="p_2", erased_at_us=NOW_US
    )
    with pytest.raises(NothingToErase, match="already being erased"), transaction.atomic():
        _erase(position)
    assert Body.objects.filter(entry=position).exists()
    assert not Entry.objects.filter(kind="erasure.executed").exists()


def test_another_projects_entry_is_not_there_to_erase() -> None:
    position = _stored()
    with pytest.raises(NothingToErase):
        erasures.erase_body(
            new_project(), position, reason="request 17", actor="p_1", now_us=NOW_US
        )
    assert Body.objects.filter(entry=position).exists()


def test_after_the_erasure_a_repetition_is_a_duplicate_and_restores_nothing() -> None:
    position = _stored()
    _erase(position)
    for text in ('{"name":"Jane"}', '{"name":"Joan"}'):
        fate = entries.append_entries([draft("a", text, project=PROJECT)], NOW_US)[0]
        assert fate == AppendResult(AppendStatus.DUPLICATE, position)
    assert not Body.objects.filter(entry=position).exists()
    assert conflicts(PROJECT) == []


def _insert_bodies(verb: str, *positions: int) -> None:
    rows = ", ".join(["(%s, %s, 'forged')"] * len(positions))
    values = [value for position in positions for value in (position, b"s" * 32)]
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"{verb} INTO journal_body (entry_id, salt, text) VALUES {rows}", values)


@pytest.mark.parametrize(
    "verb",
    [
        "INSERT",
        *(
            ["INSERT OR REPLACE", "INSERT OR IGNORE", "REPLACE"]
            if connection.vendor == "sqlite"
            else []
        ),
    ],
)
def test_an_erased_body_is_never_restored(verb: str) -> None:
    position = _stored()
    _erase(position)
    with pytest.raises(DatabaseError, match="the body of an erased entry never comes back"):
        _insert_bodies(verb, position)
    assert not Body.objects.filter(entry=position).exists()


def test_an_erased_body_is_not_restored_among_others_either() -> None:
    """An erasure between other entries does not block their bodies."""
    bare = [Entry.objects.create(**{**_BARE, "event_id": name}).position for name in "xyz"]
    Erasure.objects.create(
        entry_id=bare[1], project=PROJECT, reason="another", actor="p_1", erased_at_us=NOW_US
    )
    with pytest.raises(DatabaseError, match="the body of an erased entry never comes back"):
        _insert_bodies("INSERT", *bare)
    assert not Body.objects.filter(entry__in=bare).exists()
    _insert_bodies("INSERT", bare[0], bare[2])
    assert Body.objects.filter(entry__in=bare).count() == 2


_BARE = {
    "project": PROJECT,
    "source": "robot",
    "kind": "fact.observed",
    "actor": "agent:7",
    "lane": "evidence",
    "received_us": NOW_US,
}
