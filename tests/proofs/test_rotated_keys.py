"""Heads, proofs and databases after the key was replaced, for readers who trust one key or another."""

import base64
import html
import json
import re
import shlex
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from django.test import Client
from django.urls import reverse
from pytest_django import Settings

from accounts.models import Project
from journal import entries
from journal.models import Entry
from proofs import entry_proof, signing_keys, tree_heads
from proofs.management.commands import verify
from proofs.models import SigningKey, Tile, TreeHead
from proofs.signed_note import NoteKey, format_verifier_key, read_public_key, sign_note
from proofs.verifier import gatebook_verify
from proofs.verifier.gatebook_verify import IS_BROKEN, IS_UNUSABLE
from tests.journal.committed import committed
from tests.journal.drafts import NOW_US, draft
from tests.pages.people import Organization
from tests.proofs.sealing import KEY, read_clock, seal_entries

__all__ = ["committed"]
pytestmark = pytest.mark.usefixtures("committed")
NEXT_KEY: Final = Ed25519PrivateKey.from_private_bytes(b"n" * 32)
THIRD_KEY: Final = Ed25519PrivateKey.from_private_bytes(b"t" * 32)
STRANGER: Final = Ed25519PrivateKey.from_private_bytes(b"s" * 32)
LOG: Final = "http://gatebook.example/proofs/log"
Verify = Callable[..., tuple[int, dict[str, Any]]]


@dataclass
class Rotated:
    """Two heads under an old key, one that both keys signed, and one under the new key."""

    project: Project
    folder: Path

    def seal(self, number: int, key: Ed25519PrivateKey) -> TreeHead:
        """Seal new entries under a head of a key."""
        start = Entry.objects.count()
        items = [draft(f"e{start + n}", project=self.project.id) for n in range(number)]
        entries.append_entries(items, NOW_US)
        return seal_entries(key=key)

    def keep(self, number: int) -> Path:
        """Return the file of a tree head."""
        path = self.folder / f"head-{number}.txt"
        path.write_text(TreeHead.objects.get(id=number).note)
        return path

    def save_proof(self, position: int) -> Path:
        """Return the proof file of an entry."""
        proof = entry_proof.load_entry_proof(self.project, position)
        assert proof is not None
        path = self.folder / f"entry-{position}.json"
        path.write_text(json.dumps(entry_proof.build_entry_document(proof)))
        return path


def rotate(new: Ed25519PrivateKey, old: Ed25519PrivateKey | None) -> TreeHead:
    """Replace the key as `rotate_seal_key` does, at the time of the entries."""
    others = [old] if old is not None else []
    with ExitStack() as clocks:
        for module in (signing_keys, tree_heads):
            clocks.enter_context(patch.object(module, "now_us", read_clock))
        signing_keys.store_next_key(new, old)
        return tree_heads.sign_tree_head(signing_keys.load_origin(), new, others)


def show_key(key: Ed25519PrivateKey) -> str:
    """Return a key as verifiers take it."""
    return format_verifier_key(NoteKey(signing_keys.load_origin(), read_public_key(key)))


@pytest.fixture
def rotated(committed: None, organization: Organization, tmp_path: Path) -> Rotated:
    made = Rotated(organization.project, tmp_path)
    made.seal(200, KEY)
    made.seal(100, KEY)
    rotate(NEXT_KEY, KEY)
    made.seal(40, NEXT_KEY)
    return made


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Verify:
    """Run the command; its requests reach the views, as those of a stranger."""
    fetch, stranger = gatebook_verify.fetch_bytes, Client()

    def fetch_page(address: str) -> bytes:
        if not address.startswith("http"):
            return fetch(address)
        answer = stranger.get(urllib.parse.urlsplit(address).path)
        if answer.status_code != 200:
            raise gatebook_verify.Unusable(f"{address} answers {answer.status_code}.")
        return bytes(answer.content)

    monkeypatch.setattr(gatebook_verify, "fetch_bytes", fetch_page)

    def call(*arguments: str | Path, keys: tuple[Ed25519PrivateKey, ...] = ()) -> Any:
        named = [part for key in keys for part in ("--key", show_key(key))]
        code = gatebook_verify.main([*map(str, arguments), *named, "--json"])
        return code, json.loads(capsys.readouterr().out)

    return call


def test_the_log_lists_its_keys_and_who_endorsed_them(rotated: Rotated) -> None:
    rotate(THIRD_KEY, NEXT_KEY)
    answer = Client().get(reverse("proofs_keys"))
    assert reverse("proofs_keys") == "/proofs/log/keys"
    assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert answer.headers["Cache-Control"] == "no-cache"
    first, second, third = map(show_key, (KEY, NEXT_KEY, THIRD_KEY))
    notes = [key.endorsement for key in signing_keys.load_signing_keys() if key.endorsement]
    assert answer.text == f"{first}\n{second}\n{third}\n\n{notes[0]}\n{notes[1]}\n"
    assert notes[1].startswith(f"gatebook seal key\n{signing_keys.load_origin()}\n{third}\n\n— ")
    pinned = [gatebook_verify.parse_key(first)]
    assert [str(key) for key in gatebook_verify.extend_keys(pinned, [answer.text])] == [
        *(first, second, third)
    ]


def test_an_installation_without_keys_lists_none(committed: None) -> None:
    SigningKey.objects.all()._raw_delete(SigningKey.objects.db)
    assert Client().get("/proofs/log/keys").status_code == 404


@pytest.mark.parametrize("key", [KEY, NEXT_KEY, THIRD_KEY], ids=["old", "next", "newest"])
def test_two_heads_hold_for_a_reader_of_any_key(
    rotated: Rotated, run: Verify, key: Ed25519PrivateKey
) -> None:
    kept = [rotated.keep(number) for number in (1, 3)]  # by the old key; by both
    rotate(THIRD_KEY, NEXT_KEY)
    rotated.seal(5, THIRD_KEY)
    log = rotated.folder / "log"
    for tile in Tile.objects.all():
        hashes = bytes(tile.hashes)
        path = log / gatebook_verify.name_tile(tile.level, tile.index, len(hashes) // 32)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(hashes)
    (log / "keys").write_bytes(Client().get("/proofs/log/keys").content)
    database = verify.describe_database()
    new = rotated.keep(TreeHead.objects.count())
    for old in kept:
        for places in (
            [f"{LOG}/checkpoint"],
            [f"{LOG}/checkpoint", "--tiles", LOG],
            [f"{LOG}/checkpoint", "--tiles", database],
            [new, "--tiles", database],
            [new, "--tiles", log],
        ):
            code, report = run("heads", old, *places, keys=(key,))
            assert (code, report.get("counts")) == (0, {"ok": 1}), (places, report)
    is_vouched = any("vouches for its entries" in note for note in report["notes"])
    assert is_vouched == (key is THIRD_KEY)


def test_a_head_of_an_unknown_key_proves_nothing(rotated: Rotated, run: Verify) -> None:
    old, new = rotated.keep(1), f"{LOG}/checkpoint"
    code, report = run("heads", old, new, keys=(STRANGER,))
    assert (code, report["exit_code"]) == (IS_UNUSABLE, IS_UNUSABLE)
    assert report["error"].startswith("Nothing was proved: unknown key. ")
    assert f"{LOG}/keys" in report["error"]
    # A key was lost: nothing leads from one to the other, in either direction.
    rotate(THIRD_KEY, None)
    rotated.seal(5, THIRD_KEY)
    for key in (KEY, NEXT_KEY, THIRD_KEY):
        code, report = run("heads", old, new, keys=(key,))
        assert (code, "unknown key" in report["error"]) == (IS_UNUSABLE, True)
    assert run("heads", old, new, keys=(NEXT_KEY, THIRD_KEY))[0] == 0
    position = Entry.objects.earliest("position").position
    for key, expected in ((STRANGER, 2), (THIRD_KEY, 2), (NEXT_KEY, 0), (KEY, 0)):
        code, report = run("proof", rotated.save_proof(position), keys=(key,))
        assert code == expected, report
    # A log of an older Gatebook, or of other software, lists no keys.
    missing = rotated.folder / "none"
    missing.mkdir()
    code, report = run("heads", rotated.keep(2), rotated.keep(4), "--tiles", missing, keys=(KEY,))
    assert (code, "none/keys cannot be read" in report["error"]) == (IS_UNUSABLE, True)


def list_places(document: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of each text in a document."""
    if isinstance(document, str):
        yield place
    if isinstance(document, dict | list):
        parts = document.items() if isinstance(document, dict) else enumerate(document)
        for name, part in parts:
            yield from list_places(part, (*place, name))


@pytest.mark.parametrize("sign", [0xDCFF, 0xD800])
def test_a_text_of_a_proof_that_is_no_utf8_is_no_crash(
    rotated: Rotated, run: Verify, sign: int
) -> None:
    path = rotated.save_proof(Entry.objects.earliest("position").position)
    text = path.read_text()
    for *parents, last in list_places(json.loads(text)):
        document = json.loads(text)
        part = document
        for name in parents:
            part = part[name]
        part[last] = chr(sign) + part[last]
        path.write_text(json.dumps(document))
        code, _report = run("proof", path)
        assert code in (0, IS_BROKEN, IS_UNUSABLE), (*parents, last)


@pytest.mark.parametrize("number", [1, 4])
def test_a_wrong_signature_of_a_known_key_is_modified(
    rotated: Rotated, run: Verify, number: int
) -> None:
    heads = [rotated.keep(1), rotated.keep(4)]
    forged = rotated.keep(number)
    forged.write_text(re.sub(r"signed_at 20\d\d", "signed_at 2019", forged.read_text()))
    for key in (KEY, NEXT_KEY):
        code, report = run("heads", *heads, "--tiles", LOG, keys=(key,))
        assert code == IS_BROKEN
        details = [row["detail"] for row in report["findings"] if row["finding"] == "modified"]
        assert len(details) == 1
        assert "does not verify over this text" in details[0]


def test_a_key_that_endorses_yours_is_not_trusted_for_that(rotated: Rotated, run: Verify) -> None:
    """Anybody can make such a key; only a head of your key makes its heads count."""
    origin = signing_keys.load_origin()
    position = Entry.objects.earliest("position").position
    file = rotated.save_proof(position)
    document = json.loads(file.read_text())
    true_note, extended_by = document["head"], document["extended_by"]
    public = gatebook_verify.parse_key(show_key(NEXT_KEY)).public
    document["keys"].insert(0, show_key(STRANGER))
    document["endorsements"].append(
        signing_keys.build_endorsement(origin, NoteKey(origin, public), STRANGER)
    )
    entry = document["entries"][0]
    entry["entry"]["actor"] = "forged"
    root = gatebook_verify.hash_leaf_object(entry["entry"])
    entry |= {"log_index": 0, "proof": []}
    text = gatebook_verify.find_heads(true_note, "")[0].signed.decode().split("\n")
    text[1], text[2] = "1", base64.b64encode(root).decode()
    document["head"] = sign_note("\n".join(text), [(origin, STRANGER)])
    for extension, expected in ((None, IS_UNUSABLE), ({}, IS_UNUSABLE), (extended_by, IS_BROKEN)):
        file.write_text(json.dumps(document | {"extended_by": extension}))
        code, report = run("proof", file, keys=(NEXT_KEY,))
        assert code == expected, report
    # Neither does the log at that moment, which has another root.
    file.write_text(json.dumps(document | {"extended_by": None}))
    code, report = run("proof", file, "--tiles", LOG, keys=(NEXT_KEY,))
    assert (code, report["counts"]["fork"]) == (IS_BROKEN, 1)


def test_an_earlier_key_signs_no_newer_head(rotated: Rotated, run: Verify) -> None:
    """The old key may be stolen: a head after its successor needs that one."""
    old = rotated.keep(4)
    rotated.seal(9, KEY)
    code, report = run("heads", old, f"{LOG}/checkpoint", keys=(NEXT_KEY,))
    assert (code, "unknown key" in report["error"]) == (IS_UNUSABLE, True)
    database = verify.describe_database()
    code, report = run("database", database, keys=(NEXT_KEY,))
    assert (code, report["counts"]["modified"]) == (IS_BROKEN, 1)
    assert "no tree head of a key that you trust covers it" in report["findings"][0]["detail"]


@pytest.mark.parametrize("key", [KEY, NEXT_KEY], ids=["old", "new"])
def test_a_database_holds_for_a_reader_of_any_key(
    rotated: Rotated, run: Verify, key: Ed25519PrivateKey
) -> None:
    anchor = rotated.folder / "heads"
    anchor.write_text("".join(f"{head.note}\n" for head in TreeHead.objects.order_by("id")))
    code, report = run(
        *("database", verify.describe_database(), "--head", rotated.keep(1)),
        *("--anchor", anchor, "--jobs", "1"),
        keys=(key,),
    )
    assert (code, report["heads"]) == (0, 4), report
    assert set(report["counts"]) == {"ok"}


@pytest.mark.parametrize("key", [KEY, NEXT_KEY, THIRD_KEY], ids=["old", "next", "newest"])
def test_a_proof_holds_for_a_reader_of_any_key(
    rotated: Rotated, run: Verify, key: Ed25519PrivateKey
) -> None:
    first, last = (getattr(Entry.objects, name)("position") for name in ("earliest", "latest"))
    early = rotated.save_proof(first.position)
    early = early.rename(early.with_name("early.json"))
    rotate(THIRD_KEY, NEXT_KEY)
    rotated.seal(5, THIRD_KEY)
    for position in (first.position, last.position):
        file = rotated.save_proof(position)
        document = json.loads(file.read_text())
        assert document["extended_by"]["head_number"] == 5
        code, report = run("proof", file, keys=(key,))
        assert (code, report.get("counts")) == (0, {"ok": 1}), report
        # A file of an older Gatebook needs the log.
        file.write_text(json.dumps({k: v for k, v in document.items() if k != "extended_by"}))
        for place in (LOG, verify.describe_database()):
            assert run("proof", file, "--tiles", place, keys=(key,))[0] == 0
    newest = Entry.objects.latest("position").position
    document = json.loads(rotated.save_proof(newest).read_text())
    assert document["extended_by"] is None
    # A file from before the rotations names no later key.
    code, report = run("proof", early, "--tiles", LOG, keys=(key,))
    assert (code, report["counts"]) == (0, {"ok": 1})


def read_commands(page: str) -> list[list[str]]:
    """Return the commands of a page that run the verifier, without the program."""
    blocks = re.findall(r'<pre class="command"[^>]*>([^<]*)</pre>', page)
    texts = [html.unescape(block).replace("\\\n", " ") for block in blocks]
    lines = [shlex.split(line) for text in texts for line in text.strip().splitlines()]
    return [line[2:] for line in lines if line[:2] == ["python3", "gatebook-verify.py"]]


def test_the_commands_of_an_entry_hold_after_a_rotation(
    rotated: Rotated,
    organization: Organization,
    run: Verify,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings.GATEBOOK_URL = "http://gatebook.example"
    monkeypatch.chdir(rotated.folder)
    kept = [rotated.keep(number) for number in (1, 2, 4)]
    anchor = rotated.folder / "heads"
    anchor.write_text("".join(f"{path.read_text()}\n" for path in kept))
    member = organization.client("administrator")
    for name, key, sentence in (
        ("earliest", KEY, "The one below signed head 1; it was replaced 20"),
        ("latest", NEXT_KEY, "The one below signed head 4; it is the one in use here."),
    ):
        position = getattr(Entry.objects, name)("position").position
        rotated.save_proof(position)
        page = member.get(reverse("proof", args=[position])).text
        assert sentence in " ".join(re.sub(r"<[^>]+>", "", page).split())
        alone, compared = read_commands(page)
        assert compared[compared.index("--key") + 1] == alone[-1] == show_key(key)
        assert run(*alone)[0] == 0
        for path in kept:
            code, report = run(*(str(path) if part == "FILE" else part for part in compared))
            assert (code, report.get("counts")) == (0, {"ok": 1}), report
        words = {"FILE": str(anchor), "--head": "--anchor"}
        assert run(*(words.get(part, part) for part in compared))[0] == 0


@pytest.mark.parametrize("is_lost", [False, True], ids=["replaced", "lost"])
def test_the_commands_of_the_page_hold_after_a_rotation(
    rotated: Rotated,
    organization: Organization,
    run: Verify,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    is_lost: bool,
) -> None:
    settings.GATEBOOK_URL = "http://gatebook.example"
    monkeypatch.chdir(rotated.folder)
    member = organization.client("viewer")
    before = read_commands(member.get(reverse("proofs")).text)
    rotated.keep(1)
    rotated.keep(4)
    rotate(THIRD_KEY, None if is_lost else NEXT_KEY)
    rotated.seal(5, THIRD_KEY)
    after = read_commands(member.get(reverse("proofs")).text)
    assert [command[0] for command in after] == ["heads", "database"]
    assert after[0].count("--key") == (2 if is_lost else 1)
    for command in after if is_lost else [*before, *after]:
        newest = next(part for part in command if part.startswith("head-"))
        for kept in ("head-1.txt", "head-4.txt"):
            words = {newest: kept, "DATABASE_URL": verify.describe_database()}
            code, report = run(*(words.get(part, part) for part in command))
            assert code == 0, (command, report)
