"""The owner of the database drops the triggers and rewrites history: what the verifier names.

docs/how-to/insider.md has the same cases in the same order. Where the database alone looks whole,
a tree head kept outside, or an anchor, shows it.
"""

import re
from typing import Any, Final
from uuid import UUID

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from django.db import connection

from db import triggers
from journal import entries, erasures
from journal.models import Entry
from proofs import merkle, proof_document, signing_keys
from proofs.models import TreeHead
from proofs.signed_note import format_head_text, format_verifier_key, sign_note
from proofs.verifier import gatebook_verify
from proofs.verifier.gatebook_verify import Report
from tests.journal.drafts import NOW_US, draft, new_project
from tests.pages.plans import assert_no_scans, explained
from tests.proofs.sealing import (
    KEY,
    hash_entries,
    keep_head,
    read_clock,
    reseal_entries,
    seal_entries,
    verify_here,
)

pytestmark = pytest.mark.django_db
SIZES: Final = (100, 256, 300)
SESSION: Final = UUID("0192a7c4-1111-7111-8111-111111111111")
OTHER_KEY: Final = Ed25519PrivateKey.from_private_bytes(b"o" * 32)


@pytest.fixture
def head() -> TreeHead:
    """Seal 300 entries under heads of 100, 256 and 300; remove the triggers; keep the last head."""
    project = new_project()
    drafts = [
        draft(f"e{n}", f'{{"word":"text {n}"}}', project=project, facts=f'{{"n":{n}}}')
        for n in range(SIZES[-1])
    ]
    for item in drafts[40:60]:
        item.session = SESSION
    for start, end in zip((0, *SIZES), SIZES, strict=False):
        entries.append_entries(drafts[start:end], NOW_US + start)
        sealed = seal_entries()
    assert verify_here().counts == {"ok": SIZES[-1]}
    connection.check_constraints()  # PostgreSQL alters no table with checks that wait
    triggers.drop_for_test_flush(connection)
    return sealed


def position_at(index: int) -> int:
    """Return the position of the entry at a log index."""
    [(position,)] = run("SELECT entry_id FROM proofs_sealedentry WHERE log_index = %s", index)
    return int(position)


def run(statement: str, *values: Any) -> list[tuple[Any, ...]]:
    """Run a statement as the owner of the database."""
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute("SET session_replication_role = replica")  # no foreign keys
        else:
            cursor.execute("PRAGMA defer_foreign_keys = ON")
        cursor.execute(statement, values)
        return cursor.fetchall() if cursor.description else []


def change_entry(index: int) -> None:
    """Change one byte of the facts of an entry."""
    run("UPDATE journal_entry SET facts = '{\"n\":-1}' WHERE position = %s", position_at(index))


def delete_entries(first: int, end: int, *, with_seal: bool) -> None:
    """Delete entries with their bodies, and their places in the tree too."""
    span = (position_at(first), position_at(end - 1))
    run("DELETE FROM journal_body WHERE entry_id BETWEEN %s AND %s", *span)
    run("DELETE FROM journal_entry WHERE position BETWEEN %s AND %s", *span)
    if with_seal:
        run("DELETE FROM proofs_sealedentry WHERE entry_id BETWEEN %s AND %s", *span)


def cut_tree(size: int) -> None:
    """Bring the whole database back to what it was at a size, as an old backup does."""
    delete_entries(size, SIZES[-1], with_seal=True)
    run("DELETE FROM proofs_treehead WHERE size > %s", size)
    for level in (0, 1):
        width = (size >> 8 * level) * 32
        for index in range((SIZES[-1] >> 8 * level) // 256 + 1):
            rest = min(max(width - index * 8192, 0), 8192)
            part = f"substr(hashes, 1, {rest})"
            place = f'level = {level} AND "index" = {index}'
            run(
                f"UPDATE proofs_tile SET hashes = {part} WHERE {place}"
                if rest
                else f"DELETE FROM proofs_tile WHERE {place}"
            )


def list_places(report: Report) -> list[tuple[str, str, int | None, int | None]]:
    """Return the findings with their places."""
    return [(row.finding, row.what, row.first, row.last) for row in report.findings]


def test_a_tree_that_grows_during_the_run_has_no_faults(
    head: TreeHead, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = gatebook_verify.Database.tiles

    def grow(database: Any, *given: int) -> dict[int, bytes]:
        monkeypatch.undo()
        project = new_project()
        entries.append_entries([draft(f"l{n}", project=project) for n in range(9)], NOW_US)
        seal_entries()
        return read(database, *given)

    monkeypatch.setattr(gatebook_verify.Database, "tiles", grow)
    assert verify_here().counts == {"ok": SIZES[-1]}
    assert verify_here().counts == {"ok": SIZES[-1] + 9}


def test_a_changed_byte_of_an_entry_is_named(head: TreeHead) -> None:
    change_entry(7)
    report = verify_here()
    assert list_places(report) == [("modified", "entry", 7, 7)]
    assert report.findings[0].position == position_at(7)
    assert report.counts == {"ok": 299, "modified": 1}
    assert report.exit_code(False) == gatebook_verify.IS_BROKEN


def test_a_changed_entry_is_named_although_its_tile_was_changed_as_well(head: TreeHead) -> None:
    change_entry(7)
    _rebuild_tiles(levels=(0,))
    assert list_places(verify_here()) == [
        ("modified", "entry", 0, 255),  # the level above vouches for the block
        ("fork", "tree head", 0, 99),
    ]


def test_a_changed_entry_is_named_although_the_tree_was_built_anew(head: TreeHead) -> None:
    change_entry(270)
    _rebuild_tiles(levels=(0, 1))
    assert list_places(verify_here()) == [("fork", "tree head", 256, 299)]


def test_a_changed_body_is_named(head: TreeHead) -> None:
    run('UPDATE journal_body SET text = \'{"word":"tex"}\' WHERE entry_id = %s', position_at(8))
    assert list_places(verify_here()) == [("modified", "body", 8, 8)]


def test_a_body_with_a_commitment_of_its_own_is_named(head: TreeHead) -> None:
    text, salt = '{"word":"forged"}', b"s" * 32
    at = position_at(8)
    run("UPDATE journal_body SET text = %s, salt = %s WHERE entry_id = %s", text, salt, at)
    commit = entries.compute_commitment(salt, text)
    run("UPDATE journal_entry SET body_commit = %s WHERE position = %s", commit, at)
    assert list_places(verify_here()) == [("modified", "entry", 8, 8)]


@pytest.mark.parametrize("with_seal", [False, True])
def test_a_deleted_row_and_a_deleted_session_are_named(head: TreeHead, with_seal: bool) -> None:
    delete_entries(7, 8, with_seal=with_seal)
    delete_entries(40, 60, with_seal=with_seal)  # all entries of the session
    report = verify_here()
    assert list_places(report) == [("missing", "entry", 7, 7), ("missing", "entry", 40, 59)]
    assert report.counts == {"ok": 279, "missing": 21}


def test_a_cut_tail_is_named_by_the_heads_above_it(head: TreeHead) -> None:
    delete_entries(290, 300, with_seal=True)
    run(
        'UPDATE proofs_tile SET hashes = substr(hashes, 1, %s) WHERE level = 0 AND "index" = 1',
        34 * 32,
    )
    report = verify_here()
    assert list_places(report) == [("missing", "entry", 290, 299)]
    assert report.counts["missing"] == 10


def test_swapped_entries_are_named(head: TreeHead) -> None:
    first, second = position_at(5), position_at(9)
    for table, column in (("journal_entry", "position"), ("journal_body", "entry_id")):
        for old, new in ((first, -1), (second, first), (-1, second)):
            run(f"UPDATE {table} SET {column} = %s WHERE {column} = %s", new, old)
    report = verify_here()
    assert list_places(report) == [("reordered", "entry", 5, 5), ("reordered", "entry", 9, 9)]
    assert "sealed at log index 9" in report.findings[0].detail


def test_a_row_inserted_among_sealed_ones_is_named(head: TreeHead) -> None:
    run("UPDATE journal_entry SET position = position + 1000")
    run("UPDATE journal_body SET entry_id = entry_id + 1000")
    run("UPDATE proofs_sealedentry SET entry_id = entry_id + 1000")
    _insert_entry(position_at(0) - 1, NOW_US)
    report = verify_here()
    named = [place for place in list_places(report) if place[1] == "entry"]
    assert named == [("reordered", "entry", None, None)]
    assert any("inserted afterwards" in row.detail for row in report.findings)


def test_a_row_that_is_sealed_long_after_its_time_is_named(head: TreeHead) -> None:
    _insert_entry(position_at(299) + 1, NOW_US - 3_600_000_000)
    seal_entries()
    report = verify_here()
    assert list_places(report) == [("reordered", "entry", 300, 300)]
    assert "60 minutes" in report.findings[0].detail


def test_an_entry_of_the_future_is_the_finding_and_not_those_after_it(head: TreeHead) -> None:
    year_us = 31_536_000_000_000
    for number, received_us in ((1, NOW_US + 73 * year_us), (2, NOW_US), (3, NOW_US)):
        entries.append_entries([draft(f"later {number}", project=new_project())], received_us)
        if number != 2:  # no tree head between the first two
            seal_entries()
    report = verify_here()
    assert list_places(report) == [("reordered", "entry", 300, 300)]
    assert "after the first tree head over it was signed" in report.findings[0].detail
    assert report.counts == {"ok": 303, "reordered": 1}


def test_a_tree_rebuilt_with_the_stolen_key_is_shown_from_outside_only(head: TreeHead) -> None:
    kept, anchored = keep_head(head), keep_head(head, "anchor")
    change_entry(7)
    reseal_entries(KEY)
    assert verify_here().counts == {"ok": 300}  # the limit: the database alone looks whole
    assert list_places(verify_here([kept])) == [("fork", "tree head", 0, 299)]
    assert list_places(verify_here([anchored])) == [("anchor_mismatch", "tree head", 0, 299)]


def test_an_old_backup_is_shown_from_outside_only(head: TreeHead) -> None:
    kept, anchored = keep_head(head), keep_head(head, "anchor")
    cut_tree(256)
    assert verify_here().counts == {"ok": 256}
    report = verify_here([kept])
    assert list_places(report) == [("missing", "entry", 256, 299)]
    assert report.counts["missing"] == 44
    assert list_places(verify_here([anchored])) == [("anchor_mismatch", "entry", 256, 299)]


def test_another_key_is_shown_by_the_key_that_you_kept(head: TreeHead) -> None:
    change_entry(7)
    public = OTHER_KEY.public_key().public_bytes_raw()
    pinned = _load_key()
    key_id = gatebook_verify.make_key(pinned.name, public).key_id.hex()
    run("UPDATE proofs_signingkey SET public_key = %s, key_id = %s", public, key_id)
    reseal_entries(OTHER_KEY)
    assert verify_here().counts == {"ok": 300}
    report = verify_here(pinned=[pinned])
    assert report.counts == {"ok": 300, "modified": 3}
    assert "no key that you trust" in report.findings[0].detail


def test_a_rotated_key_is_trusted_by_the_endorsement_of_the_one_before(
    head: TreeHead, monkeypatch: pytest.MonkeyPatch
) -> None:
    pinned = _load_key()
    monkeypatch.setattr(signing_keys, "now_us", read_clock)
    signing_keys.store_next_key(OTHER_KEY, KEY)
    entries.append_entries([draft("later", project=new_project())], NOW_US)
    seal_entries(key=OTHER_KEY)
    assert verify_here(pinned=[pinned]).counts == {"ok": 301}
    run("UPDATE proofs_signingkey SET endorsement = '' WHERE retired_at_us IS NULL")
    report = verify_here(pinned=[pinned])
    assert list_places(report) == [("modified", "tree head", None, None)]
    assert "no key that you trust" in report.findings[0].detail
    assert any("No key endorses key" in note for note in report.notes)  # as after a loss


def test_changed_and_deleted_tree_heads_are_named(head: TreeHead) -> None:
    run("UPDATE proofs_treehead SET root = %s WHERE size = 100", b"r" * 32)
    run("DELETE FROM proofs_treehead WHERE size = 256")
    assert {(row.finding, row.what) for row in verify_here().findings} == {
        ("modified", "tree head"),
        ("missing", "tree head"),
        ("fork", "tree head"),
    }


def test_a_backdated_tree_head_is_named_although_its_key_was_stolen(head: TreeHead) -> None:
    """The time is signed: an hourly head of an unchanged tree shows that nothing happened."""
    kept = keep_head(head)
    origin, size, root = head.key_name, head.size, bytes(head.root)
    early_us = head.made_at_us - 3_600_000_000
    text = format_head_text(origin, size, root, early_us)
    forged = TreeHead.objects.create(
        id=head.id + 1,
        size=size,
        root=root,
        made_at_us=early_us,
        key_name=origin,
        key_id=head.key_id,
        note=sign_note(text, [(origin, KEY)]),
    )
    report = verify_here([kept])
    assert list_places(report) == [("reordered", "tree head", None, None)]
    assert f"tree head {forged.id} says" in report.findings[0].detail
    # Its row with another time, and an anchor that has it before it was signed.
    run("UPDATE proofs_treehead SET made_at_us = made_at_us + 7200000000 WHERE id = %s", forged.id)
    run(
        "INSERT INTO proofs_anchor (tree_head_id, name, kind, anchored_at_us, receipt, error)"
        " VALUES (%s, 'a', 'file', %s, '{}', '')",
        *(forged.id, head.made_at_us),
    )
    details = " | ".join(f"{row.finding}: {row.detail}" for row in verify_here().findings)
    assert re.search(
        r"reordered: tree head 4 says .* \| reordered: tree head 4 was signed at", details
    )
    assert "modified: tree head 4 has another time in its row than in its note" in details
    assert re.search(r"signature of gatebook/\S+ does not verify over this text", details)


def test_an_erased_body_is_erased_only_if_an_entry_records_it(head: TreeHead) -> None:
    project, at = Entry.objects.values_list("project", "position").order_by("position")[7]
    erasures.erase_body(project, at, reason="request 17", actor="p_1", now_us=NOW_US)
    run("DELETE FROM journal_body WHERE entry_id = %s", position_at(8))
    run(
        "INSERT INTO journal_erasure (entry_id, project, reason, actor, erased_at_us)"
        " SELECT %s, project, reason, actor, erased_at_us FROM journal_erasure",
        position_at(9),
    )
    run("DELETE FROM journal_body WHERE entry_id = %s", position_at(9))
    report = verify_here(max_lag_s=1 << 40)
    assert set(list_places(report)) == {
        ("unsealed_tail", "entry", None, None),  # the entry that records the erasure
        ("erased", "body", 7, 7),
        ("missing", "body", 8, 8),
        ("missing", "body", 9, 9),
    }
    with explained() as plans:
        erased = Entry.objects.filter(position=at).select_related("erasure").get()
        assert proof_document.load_erasing_entries([erased]).keys() == {at}
    assert_no_scans(plans)


def test_a_body_ahead_of_the_journal_is_named(head: TreeHead) -> None:
    last = Entry.objects.latest("position").position
    with connection.constraint_checks_disabled():
        run(
            "INSERT INTO journal_body (entry_id, salt, text)"
            " SELECT %s, salt, text FROM journal_body ORDER BY entry_id LIMIT 1",
            last + 7,
        )
    report = verify_here(max_lag_s=1 << 40)
    assert set(list_places(report)) == {("modified", "body", None, None)}
    assert report.findings[0].position == last + 7
    run("DELETE FROM journal_body WHERE entry_id = %s", last + 7)


def test_a_gap_of_a_producer_leaves_integrity_alone(head: TreeHead) -> None:
    project = new_project()
    numbered = [draft(f"s{n}", project=project, producer_seq=n) for n in (1, 2, 5)]
    entries.append_entries(numbered, NOW_US)
    seal_entries()
    report = verify_here()
    assert report.counts == {"ok": 303, "producer_gap": 1}
    assert "2 of the numbers 1 to 5" in report.findings[0].detail
    assert (report.exit_code(False), report.exit_code(True)) == (0, gatebook_verify.HAS_GAPS)


def _insert_entry(position: int, received_us: int) -> None:
    columns = (
        "project, source, claimed_source, kind, actor, lane, facts, body_commit, schema_version"
    )
    run(
        f"INSERT INTO journal_entry (position, received_us, id, {columns})"
        f" SELECT %s, %s, 'forged', {columns} FROM journal_entry WHERE id = 'e1'",
        position,
        received_us,
    )
    run(
        "INSERT INTO journal_body (entry_id, salt, text) SELECT %s, salt, text FROM journal_body"
        " JOIN journal_entry ON position = entry_id WHERE id = 'e1'",
        position,
    )


def _rebuild_tiles(levels: tuple[int, ...]) -> None:
    """Write the tiles of these levels again over the entries as they are now."""
    tiles: dict[tuple[int, int], bytes] = {}

    class Store:
        def read_tile(self, level: int, index: int) -> bytes:
            return tiles.get((level, index), b"")

        def write_tile(self, level: int, index: int, hashes: bytes) -> None:
            tiles[level, index] = hashes

    merkle.append_leaves(0, hash_entries(), Store())
    for (level, index), hashes in tiles.items():
        if level in levels:
            run(
                'UPDATE proofs_tile SET hashes = %s WHERE level = %s AND "index" = %s',
                hashes,
                level,
                index,
            )


def _load_key() -> gatebook_verify.VerifierKey:
    [row] = signing_keys.load_signing_keys()
    return gatebook_verify.parse_key(format_verifier_key(signing_keys.to_note_key(row)))
