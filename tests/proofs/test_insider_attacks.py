"""More of what the owner of the database may try, each with the findings that name it.

tests/proofs/test_insider.py has the cases of docs/how-to/insider.md. All attacks start from one
sealed journal, and each is rolled back.
"""

from collections.abc import Callable
from typing import Any, Final
from uuid import UUID

import pytest
from django.db import connection, transaction

from db.ids import new_uuid7
from journal import entries, erasures
from journal.models import Entry
from proofs import sealer, signing_keys, tree_heads
from proofs.models import Tile, TreeHead
from proofs.signed_note import format_head_text, sign_note
from proofs.tree_store import SealDamageError
from proofs.verifier import gatebook_verify
from tests.journal.drafts import NOW_US, draft, new_project
from tests.proofs.sealing import KEY, keep_head, reseal_entries, seal_entries, verify_here
from tests.proofs.test_insider import (
    OTHER_KEY,
    _insert_entry,
    change_entry,
    cut_tree,
    delete_entries,
    list_places,
    position_at,
    run,
)
from tests.proofs.test_insider import head as head

pytestmark = pytest.mark.django_db

Place = tuple[str, str, int | None, int | None]
ENTRY_7: Final = "UPDATE journal_entry SET {} WHERE position = %s"


def change_column(assignment: str) -> Callable[[], None]:
    """Return an attack that changes one column of the entry at log index 7."""
    return lambda: change_rows(ENTRY_7.format(assignment), position_at(7))


def change_rows(statement: str, *values: Any) -> None:
    run(statement, *values)


def exchange_bodies() -> None:
    first, second = position_at(5), position_at(9)
    for old, new in ((first, -1), (second, first), (-1, second)):
        run("UPDATE journal_body SET entry_id = %s WHERE entry_id = %s", new, old)


def exchange_places() -> None:
    first, second = position_at(5), position_at(9)
    for old, new in ((first, -1), (second, first), (-1, second)):
        run("UPDATE proofs_sealedentry SET entry_id = %s WHERE entry_id = %s", new, old)


def change_salt() -> None:
    run("UPDATE journal_body SET salt = %s WHERE entry_id = %s", b"s" * 32, position_at(7))


def drop_commitment() -> None:
    run("DELETE FROM journal_body WHERE entry_id = %s", position_at(7))
    run(ENTRY_7.format("body_commit = NULL"), position_at(7))


def hide_erasure() -> None:
    """Erase as the rules say, and then let the record name another entry."""
    project, at = Entry.objects.values_list("project", "position").order_by("position")[7]
    erasures.erase_body(project, at, reason="request 17", actor="p_1", now_us=NOW_US + 300)
    seal_entries()
    facts = f'{{"entry":{position_at(8)}}}'
    run("UPDATE journal_entry SET facts = %s WHERE kind = 'erasure.executed'", facts)


def delete_erasure() -> None:
    """Erase as the rules say, and then delete the record."""
    project, at = Entry.objects.values_list("project", "position").order_by("position")[7]
    erasures.erase_body(project, at, reason="request 17", actor="p_1", now_us=NOW_US + 300)
    seal_entries()
    delete_entries(300, 301, with_seal=False)


def claim_erasure() -> None:
    """Delete a body, and let an agent's report claim that it was erased."""
    project, at = Entry.objects.values_list("project", "position").order_by("position")[7]
    claim = draft("claim", project=project, facts=f'{{"entry":{at}}}')
    claim.kind = "erasure.executed"
    entries.append_entries([claim], NOW_US + 300)
    seal_entries()
    run("DELETE FROM journal_body WHERE entry_id = %s", at)


def write_head(size: int, root: bytes, key: Any, made_at_us: int) -> None:
    """Sign a head and store it after all others."""
    last = TreeHead.objects.order_by("-id").first()
    assert last is not None
    text = format_head_text(last.key_name, size, root, made_at_us)
    TreeHead.objects.create(
        id=last.id + 1,
        size=size,
        root=root,
        made_at_us=made_at_us,
        key_name=last.key_name,
        key_id=last.key_id,
        note=sign_note(text, [(last.key_name, key)]),
    )


def sign_again(key: Any, root: bytes = b"r" * 32) -> Callable[[], None]:
    """Return an attack that signs another root of the same size."""

    def attack() -> None:
        last = TreeHead.objects.order_by("-id")[0]
        write_head(last.size, root or bytes(last.root), key, last.made_at_us + 1)

    return attack


def exchange_notes() -> None:
    notes = dict(TreeHead.objects.values_list("id", "note"))
    first, second = sorted(notes)[:2]
    run("UPDATE proofs_treehead SET note = %s WHERE id = %s", notes[second], first)
    run("UPDATE proofs_treehead SET note = %s WHERE id = %s", notes[first], second)


def cut_tile() -> None:
    run('UPDATE proofs_tile SET hashes = substr(hashes, 1, 32) WHERE level = 0 AND "index" = 1')


def flip_tile() -> None:
    """Change one byte of a hash in the tile of the leaves; every entry is intact."""
    hashes = bytearray(Tile.objects.get(level=0, index=0).hashes)
    hashes[7 * 32] ^= 1
    run('UPDATE proofs_tile SET hashes = %s WHERE level = 0 AND "index" = 0', bytes(hashes))


def forget_tail() -> None:
    """Forget where the newest entries are in the tree, so that they look unsealed."""
    run("DELETE FROM proofs_sealedentry WHERE log_index >= 290")


def _list_columns() -> list[dict[str, Any]]:
    rows = list(Entry.objects.order_by("position").values())
    return [{name: value for name, value in row.items() if name != "txid"} for row in rows]


def unseal_tail() -> None:
    """Bring the tree back to an earlier head, but keep the entries to change them."""
    kept = _list_columns()[256:300]
    cut_tree(256)
    for values in kept:
        Entry.objects.create(**{**values, "body_commit": None, "facts": '{"n":-1}'})
    seal_entries()


def add_twin() -> None:
    """Write an entry a second time, under a name of its own, and have it sealed."""
    values = _list_columns()[7]
    values |= {"position": position_at(299) + 1, "event_id": "twin"}
    values |= {"received_us": NOW_US - 3_600_000_000, "body_commit": None}
    Entry.objects.create(**values)
    seal_entries()


def drop_unsealed() -> None:
    """Delete an entry within the second before its seal."""
    project = new_project()
    numbered = [draft(f"s{n}", project=project, producer_seq=n) for n in (1, 2, 3)]
    results = entries.append_entries(numbered, NOW_US)
    run("DELETE FROM journal_body WHERE entry_id = %s", results[1].position)
    run("DELETE FROM journal_entry WHERE position = %s", results[1].position)
    seal_entries()


def add_unsealed() -> None:
    entries.append_entries([draft("late", project=new_project())], NOW_US)


def renumber() -> None:
    for table, column in (
        ("journal_entry", "position"),
        ("journal_body", "entry_id"),
        ("proofs_sealedentry", "entry_id"),
    ):
        run(f"UPDATE {table} SET {column} = {column} + 1000")


def delete_heads() -> None:
    run("DELETE FROM proofs_treehead WHERE size > 100")


def delete_all_heads() -> None:
    run("DELETE FROM proofs_anchor")
    run("DELETE FROM proofs_treehead")


def rewrite_and_drop_receipts() -> None:
    run("DELETE FROM proofs_anchor")
    change_entry(7)
    reseal_entries(KEY)


# The signed text of a head has the position of its last entry.
RENUMBERED: Final[set[Place]] = {("reordered", "tree head", at, at) for at in (99, 255, 299)}
TAIL: Final[Place] = ("unsealed_tail", "entry", None, None)
CHANGED: Final[Place] = ("modified", "entry", 7, 7)
GONE: Final[Place] = ("missing", "body", 7, 7)
UNTRUSTED: Final[Place] = ("modified", "tree head", None, None)
FORKED: Final[Place] = ("fork", "tree head", 0, 299)
# What a kept head and an anchor add where the database alone looks whole.
OUTSIDE: Final[set[Place]] = {FORKED, ("anchor_mismatch", "tree head", 0, 299)}
LOST: Final[set[Place]] = {("missing", "tree head", None, None)}
# Title, the attack, and what the verifier names.
ATTACKS: Final[tuple[tuple[str, Callable[[], None], set[Place]], ...]] = (
    (
        "backdate an entry",
        change_column("received_us = received_us - 3600000000"),
        {CHANGED, ("reordered", "entry", 7, 7)},
    ),
    ("another actor", change_column("actor = 'p_2'"), {CHANGED}),
    ("another kind", change_column("kind = 'effect.denied'"), {CHANGED}),
    ("another lane", change_column("lane = 'claim'"), {CHANGED}),
    ("another key", change_column("id = 'other'"), {CHANGED}),
    ("another project", change_column(f"project = '{new_uuid7().hex}'"), {CHANGED}),
    ("into a session", change_column(f"session = '{new_uuid7().hex}'"), {CHANGED}),
    ("another number", change_column("producer_seq = 9"), {CHANGED}),
    ("drop a commitment with its body", drop_commitment, {CHANGED}),
    (
        "exchange two bodies",
        exchange_bodies,
        {("modified", "body", 5, 5), ("modified", "body", 9, 9)},
    ),
    ("change a salt", change_salt, {("modified", "body", 7, 7)}),
    (
        "exchange two places in the tree",
        exchange_places,
        # The entry between them stands before one that was sealed earlier.
        {("reordered", "entry", 5, 5), ("reordered", "entry", 6, 6), ("reordered", "entry", 9, 9)},
    ),
    (
        "let an erasure name another entry",
        hide_erasure,
        {GONE, ("modified", "entry", 300, 300)},
    ),
    ("delete the record of an erasure", delete_erasure, {GONE, ("missing", "entry", 300, 300)}),
    ("claim an erasure as an agent", claim_erasure, {GONE}),
    ("sign another root with the stolen key", sign_again(KEY), {FORKED}),
    ("sign another root with a new key", sign_again(OTHER_KEY), {FORKED, UNTRUSTED}),
    ("sign the true root with a new key", sign_again(OTHER_KEY, b""), {UNTRUSTED}),
    ("exchange the notes of two heads", exchange_notes, {UNTRUSTED}),
    ("cut a tile", cut_tile, {("missing", "tile", 257, 299)}),
    (
        "delete all tiles",
        lambda: change_rows("DELETE FROM proofs_tile"),
        {("missing", "tile", 0, 255), ("missing", "tile", 256, 299)},
    ),
    ("forget where the tail is sealed", forget_tail, {("missing", "entry", 290, 299), TAIL}),
    ("write an entry twice", add_twin, {("reordered", "entry", 300, 300)}),
    ("delete before the seal", drop_unsealed, {("producer_gap", "sequence", None, None)}),
    ("leave an entry unsealed", add_unsealed, {TAIL}),
    ("write the tail again from an older tree", unseal_tail, OUTSIDE),
    ("rewrite all and drop the receipts", rewrite_and_drop_receipts, OUTSIDE),
    ("renumber all positions", renumber, RENUMBERED),
    ("delete the newest heads", delete_heads, LOST),
    ("flip a byte of a tile", flip_tile, {("modified", "tile", 7, 7)}),
)


def test_every_attack_is_named(head: TreeHead) -> None:
    kept, anchored = keep_head(head), keep_head(head, "anchor")
    wrong = []
    for title, attack, expected in ATTACKS:
        with transaction.atomic():
            attack()
            is_outside = expected in (OUTSIDE, LOST)
            shown = list_places(verify_here([kept, anchored] if is_outside else []))
            if is_outside and list_places(verify_here()):
                wrong.append(f"{title}: the database alone names it")
            transaction.set_rollback(True)
        if set(shown) != expected:
            wrong.append(f"{title}: {shown}")
    if wrong:
        pytest.fail("\n".join(wrong))
    assert verify_here([kept, anchored]).counts == {"ok": 300}


def test_a_journal_without_any_head_is_named(head: TreeHead) -> None:
    kept = keep_head(head)
    delete_all_heads()
    without, with_kept = verify_here(), verify_here([kept])
    assert set(list_places(without)) == set(list_places(with_kept)) == LOST
    assert "300 sealed entries and no tree head" in without.findings[0].detail
    assert any("kept.note" in finding.detail for finding in with_kept.findings)
    # With nothing but a head that was kept, an entry that was changed is named too.
    change_entry(7)
    reseal_tree()
    assert FORKED in list_places(verify_here([kept]))


@pytest.mark.skipif(connection.vendor == "postgresql", reason="has a type for UUIDs and for bytes")
def test_the_same_uuid_in_another_spelling_is_named(head: TreeHead) -> None:
    """The product compares text: such an entry is on no page, and `rebuild` does not read it."""
    for column in ("project", "session", "effect", "subject"):
        [(stored,)] = run(
            f"SELECT {column} FROM journal_entry WHERE position = %s", position_at(45)
        )
        value = stored or new_uuid7().hex
        for spelling in (str(UUID(value)), value.upper(), f"{{{value}}}", value.encode()):
            with transaction.atomic():
                run(ENTRY_7.format(f"{column} = %s"), spelling, position_at(45))
                [finding] = verify_here().findings
                transaction.set_rollback(True)
            assert (finding.finding, finding.what, finding.first) == ("modified", "entry", 45)
            assert f"its {column} is not written as 32 lower-case hexadecimal" in finding.detail


@pytest.mark.skipif(connection.vendor == "postgresql", reason="has a type for UUIDs and for bytes")
def test_an_entry_with_another_spelling_is_not_sealed(head: TreeHead) -> None:
    entries.append_entries([draft("late", project=new_project())], NOW_US)
    run("UPDATE journal_entry SET project = upper(project) WHERE id = 'late'")
    with pytest.raises(SealDamageError, match=r"Entry #\d+ cannot be sealed: its project"):
        sealer.seal_journal()
    assert verify_here(max_lag_s=1 << 40).counts == {"ok": 300, "unsealed_tail": 1}


@pytest.mark.skipif(connection.vendor == "postgresql", reason="has a type for texts and for bytes")
@pytest.mark.parametrize("assignment", ["text = CAST(text AS BLOB)", f"salt = '{'s' * 32}'"])
def test_a_body_of_another_type_is_named(head: TreeHead, assignment: str) -> None:
    run(f"UPDATE journal_body SET {assignment} WHERE entry_id = %s", position_at(7))
    assert list_places(verify_here()) == [("modified", "body", 7, 7)]


ADD_SEAL: Final = (
    "INSERT INTO proofs_sealedentry (log_index, entry_id)"
    " SELECT max(log_index) + {}, max(entry_id) + 100 FROM proofs_sealedentry"
)


def test_a_sealed_entry_without_an_entry_is_named_and_stops_the_seal(head: TreeHead) -> None:
    run(ADD_SEAL.format(1))
    report = verify_here()
    assert list_places(report) == [("missing", "entry", 300, 300)]
    assert "was added to the sealed entries" in report.findings[0].detail
    assert (report.counts, report.facts["size"]) == ({"ok": 300, "missing": 1}, 301)
    # Entries that follow wait for their seal, and are accused of nothing.
    project = new_project()
    entries.append_entries([draft(f"later {n}", project=project) for n in range(3)], NOW_US)
    assert list_places(verify_here()) == [("missing", "entry", 300, 300), TAIL]
    with pytest.raises(SealDamageError, match=r"up to log index 300 \(position \d+\)"):
        tree_heads.sign_tree_head(signing_keys.load_origin(), KEY)
    run("DELETE FROM proofs_sealedentry WHERE log_index = 300")
    seal_entries()
    assert verify_here().counts == {"ok": 303}


@pytest.mark.parametrize("index", [-1, 2_000_000_000])
def test_a_sealed_entry_far_from_the_tree_hides_no_other(head: TreeHead, index: int) -> None:
    """A row of a number that the tree does not have would hide an inserted entry."""
    for table, column in (
        ("journal_entry", "position"),
        ("journal_body", "entry_id"),
        ("proofs_sealedentry", "entry_id"),
    ):
        run(f"UPDATE {table} SET {column} = {column} + 1000 WHERE {column} > %s", position_at(8))
    _insert_entry(position_at(8) + 5, NOW_US)
    at = (index, position_at(8) + 5)
    run("INSERT INTO proofs_sealedentry (log_index, entry_id) VALUES (%s, %s)", *at)
    named = list_places(verify_here())
    assert ("missing", "entry", index, index) in named
    assert ("reordered", "entry", None, None) in named


def test_a_sealer_stops_before_hashes_that_it_did_not_write(head: TreeHead) -> None:
    twice = bytes(Tile.objects.get(level=1).hashes) * 2
    run("UPDATE proofs_tile SET hashes = %s WHERE level = 1", twice)
    entries.append_entries([draft("late", project=new_project())], NOW_US)
    with pytest.raises(SealDamageError, match="tile 1/0 has 2 hashes, and 300 sealed"):
        sealer.seal_batch(1 << 40)


@pytest.mark.skipif(connection.vendor == "postgresql", reason="every column has one type")
@pytest.mark.parametrize(
    ("statement", "what", "detail"),
    [
        (
            "UPDATE proofs_tile SET hashes = CAST(hashes AS TEXT) WHERE level = 0",
            "tile",
            "hashes is text and not blob",
        ),
        (
            "UPDATE proofs_tile SET level = '0x' WHERE level = 0",
            "tile",
            "level is text and not integer",
        ),
        (
            "UPDATE proofs_treehead SET size = 'many' WHERE id = 2",
            "tree head",
            "proofs_treehead, id 2: size is text and not integer",
        ),
        (
            "UPDATE proofs_treehead SET note = CAST(note AS BLOB), made_at_us = 0.5",
            "tree head",
            "made_at_us is real and not integer, note is blob and not text",
        ),
        (
            "UPDATE proofs_sealedentry SET entry_id = 'x' WHERE log_index = 7",
            "entry",
            "proofs_sealedentry, log_index 7: entry_id is text and not integer",
        ),
        (
            "UPDATE proofs_signingkey SET public_key = 'k', retired_at_us = 'never'",
            "key",
            "public_key is text and not blob, retired_at_us is text and not integer or null",
        ),
        ("UPDATE journal_entry SET received_us = 'now' WHERE id = 'e7'", "entry", "of a type that"),
        ("UPDATE journal_entry SET producer_seq = 'x' WHERE id = 'e7'", "entry", "of a type that"),
        (
            "UPDATE journal_entry SET facts = CAST(facts AS BLOB) WHERE id = 'e7'",
            "entry",
            "of a type that",
        ),
    ],
)
def test_a_value_of_another_type_is_named(
    head: TreeHead, statement: str, what: str, detail: str
) -> None:
    run("PRAGMA ignore_check_constraints = ON")
    try:
        run(statement)
    finally:
        run("PRAGMA ignore_check_constraints = OFF")
    report = verify_here()
    assert [row for row in report.findings if row.what == what and detail in row.detail]
    assert report.exit_code(False) == gatebook_verify.IS_BROKEN


def test_hashes_that_no_entry_has_are_named(head: TreeHead) -> None:
    tile = bytes(Tile.objects.get(level=0, index=1).hashes)
    run('UPDATE proofs_tile SET hashes = %s WHERE level = 0 AND "index" = 1', tile + b"x" * 32)
    report = verify_here()
    assert list_places(report) == [("missing", "entry", 300, 300)]
    assert "1 hash more than there are sealed entries" in report.findings[0].detail
    delete_entries(290, 300, with_seal=True)
    named = [(row.first, row.last, row.detail[:10]) for row in verify_here().findings]
    assert named == [(290, 299, "10 sealed "), (300, 300, "the last t")]


KEY_FAULTS: Final = (
    ("UPDATE proofs_signingkey SET retired_at_us = first_used_us + 1", "after it was retired at"),
    ("UPDATE proofs_signingkey SET retired_at_us = first_used_us + 1", "no key follows it"),
    (
        f"UPDATE proofs_signingkey SET first_used_us = {NOW_US * 2}",
        "signed tree head 1 and 2 more before its first use",
    ),
    ("UPDATE proofs_signingkey SET key_id = '0badcafe'", "its key id is 0badcafe"),
    ("UPDATE proofs_treehead SET key_id = '0badcafe' WHERE id = 2", "tree head 2 names the key"),
    (
        'INSERT INTO proofs_tile (level, "index", hashes)'
        ' SELECT 3, "index", hashes FROM proofs_tile WHERE level = 1',
        "tile 3/0 has hashes: 1, and a tree of 300 leaves needs 0",
    ),
    (
        'INSERT INTO proofs_tile (level, "index", hashes)'
        " SELECT 0, 900000, hashes FROM proofs_tile WHERE level = 1",
        "tile 0/900000 has hashes: 1, and a tree of 300 leaves needs 0",
    ),
    (
        "INSERT INTO proofs_sealprogress (id, position, writers) VALUES (1, 999999999, '')",
        "the job saw position 999999999",
    ),
)


def test_rows_around_the_tree_are_compared(head: TreeHead) -> None:
    for statement, expected in KEY_FAULTS:
        with transaction.atomic():
            run("DELETE FROM proofs_sealprogress")
            run(statement)
            report = verify_here()
            transaction.set_rollback(True)
        assert [row.finding for row in report.findings if expected in row.detail] == ["modified"]
        assert set(report.counts) == {"ok", "modified"}


def reseal_tree() -> None:
    """Build the tree again over the entries as they are now, and delete its heads."""
    for table in ("proofs_sealedentry", "proofs_tile"):
        run(f"DELETE FROM {table}")
    seal_entries()
    run("DELETE FROM proofs_treehead")
