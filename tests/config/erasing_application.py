"""Every erasure, and the jobs, run by the application's role, in a process of its own."""

from collections.abc import Sequence
from io import StringIO

import psycopg
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connection

from erasure import erasure_journal
from erasure.models import ErasureRequest
from journal import body_partitions
from journal.models import Body, Entry
from retention import expiry, retention_dry_run, retention_sets
from tests.erasure.conftest import Office, make_administrator
from tests.journal.positions import RANGE
from tests.ledger.rows_by_hand import World
from tests.retention.past_entries import RULES, append_texts

# Each writes rows, and none needs the owner.
JOBS = (
    *("update_search_index", "update_name_index", "rebuild_counts", "expire_gates", "sweep_stuck"),
    *("prune_idempotency_keys", "deliver_outbox", "send_notifications", "run_alerts"),
    *("run_exports", "seal_journal", "anchor_heads", "rotate_seal_key", "clearsessions"),
)


def list_kept(positions: Sequence[int]) -> list[int]:
    """Return the positions that have a body."""
    return [*Body.objects.filter(pk__in=positions).order_by("pk").values_list("pk", flat=True)]


def erase_requests(office: Office) -> None:
    """Erase words, a session and a person."""
    texts = append_texts(office.world, "note.claimed", ["jane@customer.example", "other"], 1)
    row = office.erase("jane@customer.example")
    assert (row.state, list_kept(texts)) == ("scrubbing", texts[1:]), row.error
    row = office.erase(session=office.world.session)
    assert (row.state, list_kept(texts)) == ("scrubbing", []), row.error
    person = make_administrator(office.world, "leaving")
    User.objects.filter(pk=person.pk).update(email="leaving@example.org")
    texts = append_texts(office.world, "note.claimed", ["by leaving@example.org"], 1)
    row = office.erase(person=person)
    assert (row.state, list_kept(texts)) == ("scrubbing", []), row.error
    assert not User.objects.filter(email="leaving@example.org").exists()


def erase_single_bodies(world: World) -> None:
    """Erase a body by the command, and one that a restored backup has brought back."""
    first, second = append_texts(world, "note.claimed", ["alone", "restored"], 1)
    call_command("erase_body", str(first), "--reason", "ticket 88", stdout=StringIO())
    digest = erasure_journal.shorten_commitment(Entry.objects.get(pk=second).body_commit)
    about = {"entry": second, "commit": digest, "reason": "ticket 88", "actor": "system"}
    erasure_journal.append_line("body", None, **about)
    call_command("replay_erasures", stdout=StringIO())
    assert list_kept([first, second]) == []


def expire_texts(world: World, superuser: psycopg.Connection) -> None:
    """Let texts expire, and their partition go."""
    superuser.execute("SELECT setval('journal_entry_position_seq', %s)", [RANGE])
    due = append_texts(world, "effect.planned", [str(number) for number in range(20)], 200)
    stays = append_texts(world, "effect.planned", ["new"], 1)
    superuser.execute("SELECT setval('journal_entry_position_seq', %s)", [2 * RANGE])
    row = retention_sets.load_retention_set(world.project, RULES)
    retention_sets.save_set(row, counted_position=RANGE)  # nothing to read is below
    retention_dry_run.count_retention(row)
    row = retention_sets.activate_retention_set(row.pk, world.project, row.counted_at_us)
    retention_sets.save_set(row, progress=dict.fromkeys(("short", "long"), RANGE))
    assert expiry.run_retention().bodies == len(due)
    assert list_kept([*due, *stays]) == stays
    assert RANGE not in [partition.low for partition in body_partitions.load_partitions()]


def erase_everything(folder: str) -> str:
    """Erase on the server whose socket is in `folder`; return the role, and the requests' state."""
    world = World()
    office = Office(world, *(make_administrator(world, name) for name in ("first", "second")))
    erase_requests(office)
    erase_single_bodies(world)
    for job in JOBS:
        call_command(job, stdout=StringIO())
    with psycopg.connect(
        host=folder, user="postgres", dbname="gatebook", autocommit=True
    ) as superuser:
        expire_texts(world, superuser)
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_user")
        (role,) = cursor.fetchone()
    return f"{role} {sorted(ErasureRequest.objects.values_list('state', flat=True))}"
