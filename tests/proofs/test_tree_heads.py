"""Tree heads: when they are signed, by which key, and what a rotation leaves verifiable."""

import base64
from pathlib import Path
from types import SimpleNamespace

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from django.conf import settings
from django.core.management import CommandError, call_command
from django.db import transaction
from django.db.models import F

from db import key_files
from db.clock import now_us
from journal import entries, fingerprints
from proofs import sealer, signing_keys, tree_heads
from proofs.models import SigningKey, TreeHead
from proofs.signed_note import NoteKey, parse_head_text, verify_note
from proofs.tree_store import load_tree_end
from proofs.verifier import gatebook_verify
from tests.journal.drafts import draft, new_project
from tests.proofs.sealing import verify_here

pytestmark = pytest.mark.django_db
S = 1_000_000


@pytest.fixture
def keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Set up an installation with a key; return the folder of its keys."""
    monkeypatch.setattr(settings, "VAR_DIR", tmp_path)
    monkeypatch.setattr(sealer, "load_running_writers", frozenset)
    fingerprints.record_fingerprints()
    folder = tmp_path / "keys"
    key = key_files.store_key(folder, "seal_key", b"k" * 32)
    signing_keys.store_first_key(signing_keys.build_private_key(key))
    return folder


def verify_last_head(*stored: SigningKey) -> TreeHead:
    """Check that the newest head is signed by exactly these keys, and names what it signs."""
    head = tree_heads.load_last_head()
    assert head is not None
    note_keys = [signing_keys.to_note_key(key) for key in stored]
    text, signers = verify_note(head.note, note_keys)
    assert signers == note_keys
    origin = signing_keys.load_origin()
    assert parse_head_text(text)[:3] == (origin, head.size, bytes(head.root))
    (parsed,) = gatebook_verify.find_heads(head.note, "")
    assert parsed.signed_at_us == head.made_at_us
    assert head.key_name == origin
    return head


def test_heads_are_signed_every_10_s_when_grown_and_hourly_when_not(
    keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimpleNamespace(us=1_900_000_000 * S)
    monkeypatch.setattr(tree_heads, "now_us", lambda: clock.us)
    (key,) = signing_keys.load_signing_keys()
    sealer.seal_journal()
    assert verify_last_head(key).id == 1
    grows = iter(range(100))
    steps = [
        (9, True, 1),  # seconds, whether an entry was written, the number of heads
        (1, False, 2),
        (3_599, False, 2),
        (1, False, 3),
        (5, True, 3),
        (-60, False, 4),  # the clock was set back: the next one is not due in an hour
    ]
    for seconds, is_written, heads in steps:
        clock.us += seconds * S
        if is_written:
            written = draft(f"entry {next(grows)}", project=new_project())
            entries.append_entries([written], clock.us)
        sealer.seal_journal()
        assert verify_last_head(key).id == heads, (seconds, heads)
    entries.append_entries([draft("last", project=new_project())], clock.us)
    sealer.seal_journal()
    assert verify_last_head(key).id == 4
    call_command("seal_journal")  # no job follows that would sign it ten seconds later
    assert verify_last_head(key).id == 5
    call_command("seal_journal")
    assert verify_last_head(key).id == 5
    sizes = list(TreeHead.objects.order_by("id").values_list("size", flat=True))
    assert [size - sizes[0] for size in sizes] == [0, 1, 1, 2, 3]


def test_without_its_key_the_journal_is_sealed_and_no_head_is_signed(keys: Path) -> None:
    (keys / "seal_key").unlink()
    entries.append_entries([draft("entry", project=new_project())], 1)
    with pytest.raises(signing_keys.SealKeyError, match="is missing: tree heads are signed with"):
        sealer.seal_journal()
    assert load_tree_end().size > 0
    assert tree_heads.load_last_head() is None
    (keys / "seal_key").write_text(base64.urlsafe_b64encode(b"x" * 32).decode())
    with pytest.raises(signing_keys.SealKeyError, match="is not the one in use"):
        sealer.seal_journal()


def test_the_old_key_signs_the_new_one_and_the_first_head(keys: Path) -> None:
    sealer.seal_journal()
    (first,) = signing_keys.load_signing_keys()
    call_command("rotate_seal_key")
    old, new = signing_keys.load_signing_keys()
    assert old.retired_at_us is not None
    endorsed = signing_keys.read_endorsement(new.endorsement, signing_keys.to_note_key(first))
    assert endorsed == signing_keys.to_note_key(new)
    assert verify_last_head(new, old).id == 2  # who has only the old key can follow
    assert verify_note(TreeHead.objects.get(id=1).note, [signing_keys.to_note_key(old)])
    assert sorted(path.name for path in keys.iterdir()) == ["seal_key"]
    assert signing_keys.is_private_half(signing_keys.load_private_key(), new)
    assert not verify_here().is_broken


def test_a_key_that_somebody_retired_is_named_and_signs_its_successor(keys: Path) -> None:
    sealer.seal_journal()
    SigningKey.objects.update(retired_at_us=F("first_used_us") + 1)  # no trigger refuses this
    entries.append_entries([draft("entry", project=new_project())], now_us())
    with pytest.raises(CommandError, match="is retired, and no key follows it"):
        call_command("seal_journal")
    assert "it is retired and no key follows it" in list_key_faults()
    call_command("rotate_seal_key")
    verify_last_head(*reversed(signing_keys.load_signing_keys()))
    call_command("seal_journal")
    assert not verify_here().is_broken


def test_a_key_that_somebody_added_is_named(keys: Path) -> None:
    sealer.seal_journal()
    (first,) = signing_keys.load_signing_keys()
    added = NoteKey(first.name, b"a" * 32)
    SigningKey.objects.create(
        name=added.name,
        key_id=added.key_id,
        public_key=added.public_key,
        first_used_us=first.first_used_us,
    )
    with pytest.raises(signing_keys.SealKeyError, match="Somebody added that row"):
        signing_keys.load_private_key()
    assert "which was never retired: the row was added" in list_key_faults()
    SigningKey.objects.filter(id=first.id).update(retired_at_us=first.first_used_us)
    assert "it signed no tree head" in list_key_faults()


def list_key_faults() -> str:
    """Return what the verifier says about the stored keys."""
    report = verify_here()
    assert report.is_broken
    return " | ".join(row.detail for row in report.findings if row.what == "key")


def test_a_rotation_killed_before_the_file_was_replaced_is_finished(
    keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(key_files, "replace_key_file", lambda *_: None)
        call_command("rotate_seal_key")
    assert sorted(path.name for path in keys.iterdir()) == ["seal_key", "seal_key.next"]
    new = signing_keys.load_signing_keys()[-1]
    assert signing_keys.is_private_half(signing_keys.load_private_key(), new)
    assert sorted(path.name for path in keys.iterdir()) == ["seal_key"]


def test_a_lost_key_is_replaced_without_endorsement(keys: Path) -> None:
    with pytest.raises(CommandError, match="is not lost"):
        call_command("rotate_seal_key", "--lost", "--accept-loss")
    (keys / "seal_key").unlink()
    with pytest.raises(CommandError, match="is missing"):
        call_command("rotate_seal_key")
    with pytest.raises(CommandError, match="To continue, add --accept-loss"):
        call_command("rotate_seal_key", "--lost")
    call_command("rotate_seal_key", "--lost", "--accept-loss")
    assert signing_keys.load_signing_keys()[-1].endorsement == ""
    verify_last_head(signing_keys.load_signing_keys()[-1])
    report = verify_here()
    assert not report.is_broken
    assert any("the key before it was lost" in note for note in report.notes)


def test_a_key_in_the_environment_is_rotated_with_the_old_one_from_a_file(
    keys: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (keys / "seal_key").rename(tmp_path / "old")
    monkeypatch.setenv("GATEBOOK_SEAL_KEY", base64.urlsafe_b64encode(b"n" * 32).decode())
    with pytest.raises(CommandError, match="name the file with --old-key-file"):
        call_command("rotate_seal_key")
    call_command("rotate_seal_key", "--old-key-file", str(tmp_path / "old"))
    old, new = signing_keys.load_signing_keys()
    verify_last_head(new, old)
    with pytest.raises(CommandError, match="The old key is not the one in use"):
        call_command("rotate_seal_key", "--old-key-file", str(tmp_path / "old"))
    used = Ed25519PrivateKey.from_private_bytes(b"n" * 32)
    with pytest.raises(ValueError, match="in use before"), transaction.atomic():
        signing_keys.store_next_key(used, used)
