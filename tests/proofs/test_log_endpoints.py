"""The sealed log as a C2SP client reads it: checkpoint, tiles, and bundles of entries."""

import ast
import hashlib
import struct
from pathlib import Path

import pytest
from cryptography.exceptions import InvalidSignature
from django.test import Client
from django.urls import reverse

from accounts.models import Membership, Project
from journal import entries
from proofs import entry_bundles, merkle, sealer, signed_note, signing_keys, tree_heads, tree_store
from proofs.leaf import hash_leaf
from proofs.models import SealedEntry
from tests.journal.drafts import draft, new_project
from tests.pages.people import Organization
from tests.proofs import tlog_client
from tests.proofs.test_sealer import read_leaf
from tests.proofs.test_tree_heads import keys
from tests.rows_with_entries import add_row

__all__ = ["keys"]
pytestmark = pytest.mark.django_db
LOG = "/proofs/log/"
FULL_TILES = 2  # of the larger tree, and a partial one


def seal(count: int, project: Project | None = None) -> None:
    """Seal new entries by hand, and sign a head."""
    ids = [f"{project} {index}" for index in range(count)]
    owner = project.id if project else new_project()
    entries.append_entries([draft(name, project=owner) for name in ids], 1)
    sealer.seal_journal()
    tree_heads.sign_tree_head(signing_keys.load_origin(), signing_keys.load_private_key())


def join(organization: Organization, name: str, project: Project) -> None:
    """Make a person a member of one more project."""
    user = organization.members[name].user
    add_row(Membership(project=project, user=user, role="viewer"))


def test_a_stranger_audits_the_tree_by_its_tiles(keys: object) -> None:
    """As a client of tlog-tiles: the tiles that the size requires give the root of the note."""
    seal(600)
    client = Client()
    answer = client.get(f"{LOG}checkpoint")
    assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"
    verified = [signing_keys.to_note_key(key) for key in signing_keys.load_signing_keys()]
    text, _ = signed_note.verify_note(answer.content.decode(), verified)
    head = signed_note.parse_head_text(text)
    assert head.size == tree_store.load_tree_end().size >= 600

    def fetch_tile(level: int, index: int) -> bytes:
        width = merkle.count_tile_hashes(head.size, level, index)
        name = f"{index:03}" if width == 256 else f"{index:03}.p/{width}"
        tile = client.get(f"{LOG}tile/{level}/{name}")
        assert tile.headers["Content-Type"] == "application/octet-stream"
        assert tile.headers["Cache-Control"] == "public, max-age=31536000, immutable"
        assert len(tile.content) == width * 32
        return bytes(tile.content)

    assert merkle.compute_root(head.size, fetch_tile) == head.root
    assert client.post(f"{LOG}checkpoint").status_code == 405


def test_a_client_that_knows_only_the_specification_audits_the_log(
    keys: object, organization: Organization
) -> None:
    """It follows the log from one checkpoint to the next, and reads every entry of both."""
    source = Path(tlog_client.__file__).read_text()
    imported = {
        name.split(".")[0]
        for node in ast.walk(ast.parse(source))
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert imported <= {"base64", "collections", "cryptography", "dataclasses", "hashlib"}
    stranger, member = Client(), organization.client("viewer")
    verifier_key = signed_note.format_verifier_key(
        signing_keys.to_note_key(signing_keys.load_signing_keys()[0])
    )

    def open_log() -> tuple[tlog_client.Checkpoint, tlog_client.Log]:
        note = stranger.get(f"{LOG}checkpoint").content
        checkpoint = tlog_client.open_checkpoint(note, verifier_key)
        return checkpoint, tlog_client.Log(checkpoint.size, fetch)

    def fetch(path: str) -> bytes:
        client = member if path.startswith("tile/entries/") else stranger
        answer = client.get(LOG + path)
        assert answer.status_code == 200, path
        return bytes(answer.content)

    seal(530, organization.project)
    for project in Project.objects.exclude(pk=organization.project.pk):
        join(organization, "viewer", project)
    sealer.seal_journal()
    tree_heads.sign_tree_head(signing_keys.load_origin(), signing_keys.load_private_key())
    older, log = open_log()
    assert log.hash_range(0, older.size) == older.root
    seal(300, organization.other)
    newer, log = open_log()
    assert newer.size >= older.size + 300 > FULL_TILES * 256
    assert log.hash_range(0, newer.size) == newer.root
    assert log.hash_range(0, older.size) == older.root, "the newer log extends the older one"
    for number in range(-(-newer.size // 256)):
        tile = log.read_tile(0, number)
        hashes = [hashlib.sha256(b"\0" + leaf).digest() for leaf in log.read_entries(number)]
        assert b"".join(hashes) == tile
    forged = stranger.get(f"{LOG}checkpoint").content.replace(
        str(newer.size).encode(), str(newer.size - 1).encode(), 1
    )
    with pytest.raises(InvalidSignature):
        tlog_client.open_checkpoint(forged, verifier_key)


@pytest.mark.parametrize(
    "name",
    [
        *("0/001.p/256", "0/1", "0/0001", "0/x000/000", "0/000.p/0", "0/000.p/01", "0/000.p/256"),
        *("0/999", "64/000", "63/000", "0/000/", "0/x999/x999/x999/x999/x999/999", "0/٠٠٠"),
    ],
)
def test_only_existing_tiles_have_a_name(keys: object, name: str) -> None:
    seal(3)
    assert Client().get(f"{LOG}tile/{name}").status_code == 404


def test_an_installation_without_heads_has_no_checkpoint() -> None:
    assert Client().get(f"{LOG}checkpoint").status_code == 404


def test_entries_are_for_members_of_all_their_projects(
    keys: object, organization: Organization
) -> None:
    person = organization.client("viewer")
    seal(20, organization.project)
    end = tree_store.load_tree_end().size
    url = reverse("proofs_entry_tile", args=[f"000.p/{end}"])
    assert url == f"{LOG}tile/entries/000.p/{end}"
    hidden = person.get(url)
    assert (hidden.status_code, b"not a member of" in hidden.content) == (403, True)
    join(organization, "viewer", organization.other)
    answer = person.get(url)
    assert answer.headers["Cache-Control"] == "private, max-age=31536000, immutable"
    rest, leaves = answer.content, []
    while rest:
        (length,) = struct.unpack(">H", rest[:2])
        leaves.append(rest[2 : 2 + length])
        rest = rest[2 + length :]
    sealed = SealedEntry.objects.select_related("entry").order_by("log_index")
    assert leaves == [read_leaf(row.entry) for row in sealed]
    assert tree_store.load_tile(0, 0) == b"".join(map(hash_leaf, leaves))
    assert person.get(f"{LOG}tile/entries/000.p/{end + 1}").status_code == 404
    anonymous = Client().get(url)
    assert anonymous.status_code == 302
    assert anonymous.headers["Location"].startswith("/sign-in/")


def test_a_leaf_too_long_for_the_format_is_refused_with_what_to_do(
    keys: object, organization: Organization, monkeypatch: pytest.MonkeyPatch
) -> None:
    seal(1, organization.project)
    join(organization, "viewer", organization.other)
    end = tree_store.load_tree_end().size
    monkeypatch.setattr(entry_bundles, "MAX_LEAF_BYTES", 10)
    answer = organization.client("viewer").get(f"{LOG}tile/entries/000.p/{end}")
    assert answer.status_code == 404
