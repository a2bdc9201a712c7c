"""Partitions of journal_body: each refuses what the table refuses; made ahead, dropped when empty."""

import psycopg
import pytest
from django.db import DatabaseError, connection, transaction

from db import raw_sql, triggers
from erasure import erasure_requests
from journal import body_partitions, entries
from journal.models import Body, Erasure
from tests.erasure.conftest import make_administrator
from tests.journal.attacks import attack, everything, history
from tests.journal.drafts import NOW_US, draft, new_project
from tests.journal.positions import RANGE, Jump
from tests.journal.positions import jump as jump
from tests.ledger.rows_by_hand import World
from tests.retention.past_entries import append_texts

pytestmark = pytest.mark.django_db
PROJECT = new_project()


def append(count: int, name: str) -> list[int]:
    drafts = [draft(f"{name}{n}", project=PROJECT) for n in range(count)]
    return [row.position for row in entries.append_entries(drafts, NOW_US)]


def find_partition(position: int) -> str:
    ((name,),) = raw_sql.fetch_rows(
        "SELECT tableoid::regclass::text FROM journal_body WHERE entry_id = %s", [position]
    )
    return str(name)


def name_all(positions: list[int]) -> None:
    """Record that bodies are erased, and leave them."""
    for position in positions:
        Erasure.objects.create(
            entry_id=position, project=PROJECT, reason="x", actor="p_1", erased_at_us=1
        )


def drop(cell: int) -> int:
    with transaction.atomic():
        ((kept,),) = raw_sql.fetch_rows("SELECT journal_drop_body_partition(%s)", [cell])
    return int(kept)


def test_a_partition_refuses_what_the_table_refuses() -> None:
    position = history()
    part, before = find_partition(position), everything()
    ((erased,),) = raw_sql.fetch_rows("SELECT max(entry_id) FROM journal_erasure")
    for statement in (
        f"UPDATE {part} SET text = 'forged'",
        f"DELETE FROM {part} WHERE entry_id = {position}",
        f"TRUNCATE {part}",
        f"TRUNCATE {part}, journal_body_rest",
        f"INSERT INTO {part} VALUES ({erased}, decode(repeat('00', 32), 'hex'), 'again')",
    ):
        assert "the journal is append-only" in attack(statement), statement
    for values, refusal in (
        (f"({erased}, ''::bytea, 'no salt')", "body_salt_is_32_bytes"),
        (f"({position}, decode(repeat('00', 32), 'hex'), 'twice')", "unique"),
    ):
        assert refusal in attack(f"INSERT INTO {part} VALUES {values}")
    orphan = f"INSERT INTO {part} VALUES (-1, decode(repeat('00', 32), 'hex'), '')"
    assert "foreign key" in attack(f"SET CONSTRAINTS ALL IMMEDIATE; {orphan}")
    assert everything() == before


@pytest.mark.parametrize(
    "trigger", ["journal_body_never_changes", "journal_body_is_never_truncated"]
)
def test_a_trigger_that_is_off_on_one_partition_counts_as_missing(trigger: str, jump: Jump) -> None:
    jump(7 * RANGE)
    assert body_partitions.make_partitions() >= 4
    with connection.cursor() as cursor:
        cursor.execute(f"ALTER TABLE journal_body_9 DISABLE TRIGGER {trigger}")
    assert triggers.find_missing_triggers(connection) == [trigger]
    triggers.install_triggers(connection)
    assert triggers.find_missing_triggers(connection) == []
    assert "append-only" in attack("TRUNCATE journal_body_9")


def test_a_late_job_leaves_no_body_without_a_place(jump: Jump) -> None:
    jump(50 * RANGE - 2)  # one is the last of its range, the other the first of the next
    late = append(2, "late")
    assert {find_partition(position) for position in late} == {"journal_body_rest"}
    assert body_partitions.load_free_positions() < 0
    assert body_partitions.make_partitions() == 4  # not 50, which has one
    ends = [partition.high for partition in body_partitions.load_partitions()]
    assert ends[-1] == 55 * RANGE
    assert body_partitions.make_partitions() == 0
    jump(51 * RANGE)
    [position] = append(1, "ready")
    assert find_partition(position) == "journal_body_51"
    assert triggers.find_missing_triggers(connection) == []


def test_a_partition_goes_when_its_bodies_are_gone_and_the_others_move(jump: Jump) -> None:
    jump(60 * RANGE)
    body_partitions.make_partitions()
    positions = append(12, "old")
    text = Body.objects.get(entry_id=positions[-1]).text
    with pytest.raises(DatabaseError, match="partition 60 of journal_body is in use"):
        drop(60)
    jump(61 * RANGE)
    append(1, "new")
    body_partitions.drop_expired_partitions()  # nothing of it is gone
    name_all(positions[:10])
    entries.delete_bodies(positions[:5])
    body_partitions.drop_expired_partitions()  # seven are left, five are gone
    entries.delete_bodies(positions[5:10])
    name_all(positions[10:11])  # an erasure that was not carried out yet
    body_partitions.drop_expired_partitions()
    assert raw_sql.fetch_rows("SELECT to_regclass('journal_body_60') IS NULL") == [(False,)]
    entries.delete_bodies(positions[10:11])
    values = connection.settings_dict
    address = {"host": values["HOST"], "user": values["USER"], "dbname": values["NAME"]}
    with psycopg.connect(**address) as reader:  # as a dump does
        reader.execute("SELECT 1 FROM journal_entry")
        assert not body_partitions.drop_expired_partitions()
    assert body_partitions.drop_expired_partitions()
    assert raw_sql.fetch_rows("SELECT to_regclass('journal_body_60') IS NULL") == [(True,)]
    left = Body.objects.filter(entry_id__in=positions).values_list("entry_id", "text")
    assert list(left) == [(positions[-1], text)]
    assert find_partition(positions[-1]) == "journal_body_rest"
    assert "append-only" in attack(f"DELETE FROM journal_body WHERE entry_id = {positions[-1]}")


def test_a_partition_with_texts_that_nothing_names_stays(jump: Jump) -> None:
    jump(70 * RANGE)
    body_partitions.make_partitions()
    positions = append(5_001, "many")
    jump(71 * RANGE)
    with pytest.raises(DatabaseError, match="more than 5000 texts that no row of"):
        drop(70)
    name_all(positions[:1])
    assert drop(70) == 5_000  # the body that an erasure names goes
    assert Body.objects.filter(entry_id__in=positions).count() == 5_000
    with pytest.raises(DatabaseError, match="has no partition 70"):
        drop(70)


def test_a_text_under_a_legal_hold_stays_although_an_erasure_names_it(jump: Jump) -> None:
    jump(80 * RANGE)
    body_partitions.make_partitions()
    world = World()
    [position] = append_texts(world, "note.claimed", ["x"], 1)
    name_all([position])
    jump(81 * RANGE)
    user = make_administrator(world, "first")
    hold = erasure_requests.set_legal_hold(
        user, world.project, reason="case 12", session=world.session
    )
    with pytest.raises(
        DatabaseError, match=f"the text of entry {position}, whose session is under"
    ):
        drop(80)
    assert Body.objects.filter(entry_id=position).exists()
    erasure_requests.release_legal_hold(hold.pk, world.project, user)
    drop(80)
    assert not Body.objects.filter(entry_id=position).exists()


def test_a_job_that_cannot_make_partitions_fails_only_when_none_is_ready(jump: Jump) -> None:
    jump(90 * RANGE)
    body_partitions.make_partitions()
    append(1, "a")
    with connection.cursor() as cursor:
        cursor.execute("ALTER FUNCTION journal_make_body_partitions() RENAME TO other")
    assert body_partitions.make_partitions() == 0
    assert body_partitions.load_free_positions() > 3 * RANGE
    jump(95 * RANGE)
    append(1, "b")
    with pytest.raises(DatabaseError, match="journal_make_body_partitions"):
        body_partitions.make_partitions()
