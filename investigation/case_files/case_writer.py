"""Write a case file as a zip: the document, every table as CSV and JSON, exhibits, proofs.

SHA256SUMS comes last with the hash of every other member; `gatebook_verify.py bundle` checks it and
the proofs. The making is recorded in the journal before the first byte is sent.
"""

import csv
import hashlib
import io
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Final
from uuid import UUID

import orjson

from accounts.models import Project
from display import access_log
from investigation.bundles.collect import is_enclosed, is_erased, prove_erasures
from investigation.case_files.case_contents import CaseFile, CaseTable
from investigation.exports.export_writer import escape_formula
from journal.models import Entry
from proofs import proof_document
from proofs.verifier import gatebook_verify
from sessions.artifacts import artifact_path

MAX_EXHIBIT_BYTES: Final = 256 << 20  # of all enclosed exhibits
_OPTIONS: Final = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE
_CHUNK: Final = 1 << 20
_AT_ONCE: Final = 500


class _HashedZip:
    """A zip file that hashes every member."""

    def __init__(self, file: zipfile.ZipFile) -> None:
        self._file = file
        self.sums: list[str] = []

    def add(self, name: str, pieces: Iterator[bytes]) -> None:
        """Write a member from its pieces."""
        digest = hashlib.sha256()
        with self._file.open(name, "w", force_zip64=True) as member:
            for piece in pieces:
                digest.update(piece)
                member.write(piece)
        self.sums.append(f"{digest.hexdigest()}  {name}")


def write_case_zip(case: CaseFile, page: bytes) -> IO[bytes]:
    """Return an open temporary file with the zip of a case file; `page` is its document."""
    target = tempfile.TemporaryFile()  # noqa: SIM115 - the response closes it
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as file:
        hashed = _HashedZip(file)
        hashed.add("README.txt", iter([_readme(case).encode()]))
        hashed.add("case.html", iter([page]))
        hashed.add("case.json", iter([orjson.dumps(describe_case(case), option=_OPTIONS)]))
        for table in case.tables:
            hashed.add(f"tables/{table.name}.csv", iter([format_table_csv(table)]))
            hashed.add(
                f"tables/{table.name}.json", iter([orjson.dumps(table.rows, option=_OPTIONS)])
            )
        for digest, pieces in _exhibit_files(case):
            hashed.add(f"exhibits/{digest}", pieces)
        if case.head is not None:
            hashed.add("proof.json", _proof_pieces(case))
            verifier = Path(gatebook_verify.__file__).read_bytes()
            hashed.add("gatebook_verify.py", iter([verifier]))
        file.writestr("SHA256SUMS", "".join(f"{line}\n" for line in hashed.sums))
    target.seek(0)
    return target


def record_case_file(case: CaseFile, form: str, content: IO[bytes], subject: UUID) -> str:
    """Write the making of a case file into the journal; return the SHA-256 of `content`."""
    digest = hashlib.sha256()
    while chunk := content.read(_CHUNK):
        digest.update(chunk)
    content.seek(0)
    facts = {
        "what": "case_file",
        "format": form,
        "effects": len(case.selection.effects),
        "as_of": case.position,
        "sha256": digest.hexdigest(),
    }
    access_log.record_export_access(
        case.project.id, case.pseudonym, case.selection.source, facts, subject=subject
    )
    return digest.hexdigest()


def describe_case(case: CaseFile) -> dict[str, Any]:
    """Return what case.json states: origin, maker, moment, seal, and which texts are missing."""
    project: Project = case.project
    return {
        "gatebook_case_file": 1,
        "title": case.title,
        "project": {"id": str(project.id), "name": project.name},
        "source": case.selection.source,
        "made_at": case.made_at,
        "made_by": {"name": case.made_by, "pseudonym": case.pseudonym},
        "as_of_entry": case.position,
        "sealed_to_entry": case.sealed_to,
        "tree_head": case.head.id if case.head is not None else None,
        "rows": {table.name: len(table.rows) for table in case.tables},
        "further_effects": case.selection.more,
        "earlier_entries": case.is_timeline_cut,
        "missing_texts": case.missing,
    }


def format_table_csv(table: CaseTable) -> bytes:
    """Return a table as CSV with a heading line; no cell is a formula to a spreadsheet."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow([name for name, _ in table.columns])
    for row in table.rows:
        writer.writerow([escape_formula(row[name]) for name, _ in table.columns])
    return out.getvalue().encode("utf-8", "backslashreplace")


def _exhibit_files(case: CaseFile) -> Iterator[tuple[str, Iterator[bytes]]]:
    """Yield hash and content of the stored exhibits, each hash once, up to the limit."""
    done: set[str] = set()
    remaining = MAX_EXHIBIT_BYTES
    for row in case.artifacts:
        if row.sha256 in done or row.size > remaining or not is_enclosed(row):
            continue
        done.add(row.sha256)
        remaining -= row.size
        yield row.sha256, _read_pieces(artifact_path(row.project_id, row.sha256))


def _read_pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            yield chunk


def _proof_pieces(case: CaseFile) -> Iterator[bytes]:
    """Yield proof.json: every entry of the timeline that the head covers, with its text."""
    head = case.head
    assert head is not None  # noqa: S101 - written only with a head
    yield orjson.dumps(proof_document.describe_head(head))[:-1] + b',"entries":['
    positions = [entry.position for entry in case.entries]
    separator, erased, proved = b"\n", list[Entry](), dict[int, int]()
    for start in range(0, len(positions), _AT_ONCE):
        part = positions[start : start + _AT_ONCE]
        rows = Entry.objects.filter(project=case.project.id, position__in=part)
        batch = list(rows.select_related("body", "erasure").order_by("position"))
        erased += [entry for entry in batch if is_erased(entry)]
        for row in proof_document.prove_entries(head, batch):
            proved[row["position"]] = row["log_index"]
            yield separator + orjson.dumps(row)
            separator = b",\n"
    erasures = []
    for row in prove_erasures(head, erased, proved):
        if "erased" in row:
            erasures.append(row["erased"])
            continue
        yield separator + orjson.dumps(row)
        separator = b",\n"
    yield b'],\n"erased":' + orjson.dumps(erasures) + b"}\n"


def _readme(case: CaseFile) -> str:
    sealed = (
        f"The entries up to #{case.sealed_to} are sealed under tree head {case.head.id} of\n"
        f"{case.head.key_name}. Check this file without Gatebook (Python 3.11, `pip install\n"
        "cryptography`):\n\n"
        "    python3 gatebook_verify.py bundle THIS_FILE.zip --key KEY\n\n"
        "KEY is the public key of the installation. Get it from its operators, not from here.\n"
        "A verifier that you got another way is better than the enclosed one. Only the entries in\n"
        "proof.json are proved; the tables follow from them.\n"
        if case.head is not None
        else "No entry was sealed yet, so this file has no proofs.\n"
    )
    return (
        f"Case file: {case.title}\n\n"
        f"Project: {case.project.name}\n"
        f"From: {case.selection.label}\n"
        f"Made by {case.made_by} ({case.pseudonym}) at {case.made_at}, as of entry"
        f" #{case.position}.\n"
        "The journal records that this file was made.\n\n"
        "case.html       the document; open it in a browser and print it\n"
        "case.json       what this file is, and which texts are missing\n"
        "tables/         every table as CSV and JSON\n"
        "exhibits/       stored artifacts, named by their SHA-256\n"
        "proof.json      the journal entries with their proofs\n"
        "SHA256SUMS      the hash of every other file\n\n"
        f"{sealed}"
    )
