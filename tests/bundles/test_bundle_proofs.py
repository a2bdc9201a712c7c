"""A bundle carries its proofs: the verifier checks them without the installation."""

import hashlib
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import orjson
import pytest
from django.core.management import CommandError, call_command

from approvals.models import Exemption
from db.clock import now_us
from investigation.bundles import zip_writer
from journal import erasures
from journal.models import Entry
from proofs import signing_keys
from proofs.signed_note import format_verifier_key
from proofs.verifier import gatebook_verify
from sessions.models import Session
from tests.bundles.conftest import Origin, members, packed
from tests.bundles.test_refusals import summed
from tests.matrices import keep_core
from tests.proofs.sealing import seal_entries, verify_here

pytestmark = pytest.mark.django_db
Document = dict[str, Any]
CHANGES: Final[list[tuple[str, str, Callable[[Document, Document], object]]]] = [
    ("modified", "shows another kind", lambda shown, _: shown["entries"][3].update(kind="a.b")),
    ("modified", "shows another facts", lambda shown, _: shown["entries"][3].update(facts={})),
    (
        "modified",
        "does not contain it",
        lambda _, proofs: proofs["entries"][3]["entry"].update(actor="p_other"),
    ),
    (
        "modified",
        "not what the entry commits to",
        lambda _, proofs: proofs["entries"][3].update(text='{"forged":true}'),
    ),
    ("modified", "wrong signature", lambda _, proofs: _change_head(proofs)),
    ("missing", "does not show it", lambda shown, _: shown["entries"].pop(3)),
    ("missing", "has no proof in the bundle", lambda _, proofs: proofs["entries"].pop(3)),
    (
        "missing",
        "has no proof in the bundle",
        lambda shown, proofs: (
            proofs["entries"].pop(3),
            shown["entries"][3]["body"].update(text='{"forged":true}'),
        ),
    ),
    ("missing", "names no erasure", lambda _, proofs: proofs.update(erased=[])),
    (
        "missing",
        "no entry in it records",
        lambda _, proofs: proofs["erased"][0].update(by=proofs["entries"][0]["log_index"]),
    ),
]


def _change_head(proofs: Document) -> None:
    size = proofs["head"].split("\n")[1]
    proofs["head"] = proofs["head"].replace(f"\n{size}\n", f"\n{int(size) + 1}\n", 1)


def test_a_bundle_proves_its_entries_to_a_stranger(origin: Origin, tmp_path: Path) -> None:
    seal_entries()
    bundle = origin.export()
    path = tmp_path / "whole.zip"
    path.write_bytes(bundle)
    [key] = map(signing_keys.to_note_key, signing_keys.load_signing_keys())
    pinned = gatebook_verify.parse_key(format_verifier_key(key))
    report, head = gatebook_verify.verify_bundle(path, [pinned])
    shown = json.loads(members(bundle)["bundle.json"])
    assert report.counts == {"ok": len(shown["entries"]), "erased": 1}
    assert report.facts["withheld"] == 2  # bodies with pseudonyms in place of names
    assert any(note.endswith("be compared with their entries: 2.") for note in report.notes)
    assert report.exit_code(True) == 0
    assert head.size == report.facts["size"]
    seal_entries()  # a later head changes nothing: the first that covers the entries counts
    assert origin.export() == bundle

    stranger = gatebook_verify.make_key(key.name, b"k" * 32)
    with pytest.raises(gatebook_verify.Unusable, match=r"Nothing was proved: unknown key"):
        gatebook_verify.verify_bundle(path, [stranger])
    files = members(bundle)
    for number, (finding, sentence, change) in enumerate(CHANGES):
        documents = [orjson.loads(files[name]) for name in ("bundle.json", "proof.json")]
        change(*documents)
        forged = {
            **files,
            "bundle.json": orjson.dumps(documents[0]),
            "proof.json": orjson.dumps(documents[1]),
        }
        place = packed(summed(forged), tmp_path / f"{number}.zip")
        report, _ = gatebook_verify.verify_bundle(place, [pinned])
        assert {row.finding for row in report.findings} - {"erased"} == {finding}, sentence
        assert any(sentence in row.detail for row in report.findings), report.findings
    report, _ = gatebook_verify.verify_bundle(packed(forged, tmp_path / "sums.zip"), [pinned])
    assert "another hash than the bundle states" in report.findings[0].detail
    with pytest.raises(CommandError, match="not what its journal sealed"):
        call_command("import_bundle", str(place), administrator="archivist")
    call_command("import_bundle", str(path), administrator="archivist")
    assert Session.objects.filter(project__archive=True).count() == 1
    seal_entries()
    report = verify_here()  # also of the archive, where positions are others
    assert report.counts["erased"] == 2
    assert {"missing", "modified"}.isdisjoint(report.counts), report.findings
    imported = tmp_path / "imported.zip"
    zip_writer.write_bundle(Session.objects.get(project__archive=True), imported)
    report, _ = gatebook_verify.verify_bundle(imported, [pinned])
    assert report.counts["erased"] == 1, "the imported entry names the position at its origin"
    assert not report.is_broken, report.findings
    files = members(imported.read_bytes())
    document = orjson.loads(files["proof.json"])
    document["entries"] = [
        row for row in document["entries"] if row["log_index"] != document["erased"][0]["by"]
    ]
    lacking = {**files, "proof.json": orjson.dumps(document)}
    report, _ = gatebook_verify.verify_bundle(
        packed(summed(lacking), tmp_path / "lacking.zip"), [pinned]
    )
    assert report.counts["missing"] == 2, report.findings
    assert "erased" not in report.counts
    assert "no entry in it records that it was executed" in report.findings[0].detail
    assert "has no proof in the bundle" in report.findings[1].detail


def test_entries_that_wait_for_their_seal_are_counted(origin: Origin, tmp_path: Path) -> None:
    path = tmp_path / "new.zip"
    path.write_bytes(origin.export())
    with zipfile.ZipFile(path) as file:
        assert "proof.json" not in file.namelist()
    with pytest.raises(gatebook_verify.Unusable, match="Export it again"):
        gatebook_verify.verify_bundle(path, ())
    seal_entries()
    origin.inbox.agent.plan("later", str(origin.exported.session), tool="file.read")
    path.write_bytes(origin.export())
    report, _ = gatebook_verify.verify_bundle(path, ())
    assert report.counts["unsealed_tail"] == 1
    assert not report.is_broken
    # It may be forged: such a bundle never passes as proved.
    assert report.exit_code(False) == 4
    assert "entries without a proof remain" in gatebook_verify.write_report(report, 4)


def test_a_bundle_whose_proofs_were_dropped_does_not_pass(origin: Origin, tmp_path: Path) -> None:
    seal_entries()
    files = members(origin.export())
    shown, proofs = (orjson.loads(files[name]) for name in ("bundle.json", "proof.json"))
    proofs.update(entries=[], erased=[])
    for entry in shown["entries"]:
        entry["actor"] = "p_forged"
    codes = []
    for moved_by in (0, 1_000_000):  # also with positions above that of the tree head
        for entry in shown["entries"]:
            entry["position"] += moved_by
        forged = {
            name: orjson.dumps(value)
            for name, value in (("bundle.json", shown), ("proof.json", proofs))
        }
        path = packed(summed({**files, **forged}), tmp_path / f"{moved_by}.zip")
        report, _ = gatebook_verify.verify_bundle(path, ())
        codes.append(report.exit_code(False))
    assert codes == [1, 4]


def test_a_bundle_proves_an_erasure_that_another_part_of_the_journal_records(
    origin: Origin, tmp_path: Path
) -> None:
    """The reason of an exemption is erased after the last entry of the session was sealed."""
    seal_entries()
    path = tmp_path / "erased.zip"
    requested = Entry.objects.get(position=Exemption.objects.get().opened_position)
    erasures.erase_body(
        requested.project, requested.position, reason="ticket 9", actor="p_1", now_us=now_us()
    )
    path.write_bytes(origin.export())
    report, _ = gatebook_verify.verify_bundle(path, ())
    [missing] = [row for row in report.findings if row.finding == "missing"]
    erasing = Entry.objects.filter(kind="erasure.executed").latest("position")
    assert f"entry {erasing.position} records its erasure" in missing.detail
    assert "export it again" in missing.detail
    seal_entries()
    path.write_bytes(origin.export())
    report, _ = gatebook_verify.verify_bundle(path, ())
    assert "missing" not in report.counts, report.findings
    assert report.counts["erased"] == 2


@pytest.mark.parametrize(
    ("change", "finding", "sentence"),
    keep_core(
        [
            ("other bytes", "modified", "has other bytes than it names"),
            ("another file", "modified", "shows an artifact that no entry records"),
            ("no file", "missing", "is not in the bundle"),
            ("an added file", "modified", "no entry records the bytes of artifacts/"),
            ("an odd row", "modified", "shows an artifact that no entry records: [1]"),
            ("a hidden body", "modified", "shows another body than was sealed"),
        ],
        one_in=3,
    ),
)
def test_an_artifact_or_a_body_that_a_bundle_replaces_is_named(
    origin: Origin, tmp_path: Path, change: str, finding: str, sentence: str
) -> None:
    """The sums of a bundle are no secret: who changes a file computes them again."""
    seal_entries()
    files = members(origin.export())
    shown, proofs = (orjson.loads(files[name]) for name in ("bundle.json", "proof.json"))
    stored = next(name for name in sorted(files) if name.startswith("artifacts/"))
    other = hashlib.sha256(b"other").hexdigest()
    if change == "other bytes":
        files[stored] = b"other"
    elif change == "another file":
        del files[stored]
        files[f"artifacts/{other}"] = b"other"
        for row in shown["artifacts"]:
            if stored.endswith(row["sha256"]):
                row["sha256"] = other
    elif change == "an odd row":
        shown["artifacts"].append([1])
    elif change == "no file":
        del files[stored]
    elif change == "an added file":
        files[f"artifacts/{other}"] = b"other"
    else:
        shown["entries"][3]["body"] = None
        proofs["entries"][3].update(text=None, salt=None, withheld=True)
    files |= {"bundle.json": orjson.dumps(shown), "proof.json": orjson.dumps(proofs)}
    path = packed(summed(files), tmp_path / "changed.zip")
    report, _ = gatebook_verify.verify_bundle(path, ())
    assert {row.finding for row in report.findings} - {"erased"} == {finding}
    assert any(sentence in row.detail for row in report.findings), report.findings
    with pytest.raises(CommandError):
        call_command("import_bundle", str(path), administrator="archivist")
