"""Opens an untrusted bundle: checks members, checksums, document and schema.

Every fault is a ChangeRefused that names the member. Member names are never used as paths: they are
compared with the few allowed names, and only hashes determine where bytes are stored.
"""

import re
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson
from django.conf import settings

from api.problems import Problem
from api.strictjson import parser
from db.errors import ChangeRefused
from importers.bundles import checksums, json_schema
from investigation.bundles.schema import FORMAT, VERSION, bundle_schema
from investigation.bundles.zip_writer import NAMES, PROOF_NAMES
from proofs.verifier import gatebook_verify

MIB: Final = 1 << 20
MAX_DOCUMENT_BYTES: Final = 128 * MIB  # needs about thirteen times its size in memory
MAX_TEXT_BYTES: Final = 64 * MIB  # of any other member except artifacts
MAX_MEMBERS: Final = 100_000
MAX_UNPACKED_BYTES: Final = 16 << 30
_CHUNK: Final = 1 << 20
_NUL: Final = re.compile(r"(?<!\\)(?:\\\\)*+\\u0000")


@dataclass(frozen=True, slots=True)
class OpenBundle:
    """A verified bundle: hash of the file, document, and zip with artifacts."""

    sha256: str
    document: dict[str, Any]
    zip: zipfile.ZipFile

    def artifact(self, sha256: str) -> Iterator[bytes]:
        """Yield the bytes of an enclosed artifact in chunks."""
        with self.zip.open(f"artifacts/{sha256}") as file:
            while chunk := file.read(_CHUNK):
                yield chunk

    def enclosed(self) -> dict[str, int]:
        """Return the hashes and sizes of the enclosed artifacts."""
        sizes = (
            (checksums.MEMBER.fullmatch(member.filename), member.file_size)
            for member in self.zip.infolist()
        )
        return {match[1]: size for match, size in sizes if match and match[1]}


@contextmanager
def open_bundle(path: Path, sha256: str) -> Iterator[OpenBundle]:
    """Verify every byte of the bundle at `path` with hash `sha256`, and yield it."""
    try:
        with zipfile.ZipFile(path) as file:
            _check_members(file)
            sums = checksums.read_checksums(file)
            document = _read_document(file)
            checksums.verify_checksums(file, sums)
            _verify_proofs(path, file)
            yield OpenBundle(sha256, document, file)
    except (
        zipfile.BadZipFile,
        zlib.error,
        EOFError,
        NotImplementedError,
        UnicodeDecodeError,
    ) as error:
        raise ChangeRefused(f"{path.name} is not a bundle, or is damaged: {error}.") from error


def _check_members(file: zipfile.ZipFile) -> None:
    """Check the table of contents: allowed names, each once, within the size limits."""
    members = file.infolist()
    if len(members) > MAX_MEMBERS:
        raise ChangeRefused(
            f"The bundle has {len(members):,} members; at most {MAX_MEMBERS:,} are allowed."
        )
    names = [member.filename for member in members]
    for name in NAMES:
        if names.count(name) != 1:
            raise ChangeRefused(
                f"This file is not a bundle: it has {names.count(name)} members named {name}, not"
                " 1."
            )
    for member in members:
        match = checksums.MEMBER.fullmatch(member.filename)
        if member.filename not in (*NAMES, *PROOF_NAMES) and match is None:
            raise ChangeRefused(f"The bundle has an unexpected member {member.filename[:80]!r}.")
        if member.flag_bits & 0x1 or member.compress_type not in (
            zipfile.ZIP_STORED,
            zipfile.ZIP_DEFLATED,
        ):
            raise ChangeRefused(
                f"{member.filename} is encrypted, or uses an unsupported compression method."
            )
        is_artifact = match is not None and match[1]
        is_document = member.filename in ("bundle.json", "proof.json")
        limit = MAX_DOCUMENT_BYTES if is_document else MAX_TEXT_BYTES
        limit = settings.GATEBOOK_ARTIFACT_BYTES if is_artifact else limit
        if member.file_size > limit:
            raise ChangeRefused(
                f"{member.filename} unpacks to {member.file_size:,} bytes; at most {limit:,} are"
                " allowed."
            )
    if len(set(names)) < len(names):
        raise ChangeRefused(
            "A name is repeated in the table of contents, so the bundle is ambiguous."
        )
    if sum(member.file_size for member in members) > MAX_UNPACKED_BYTES:
        raise ChangeRefused(f"The bundle unpacks to more than {MAX_UNPACKED_BYTES:,} bytes.")


def _verify_proofs(path: Path, file: zipfile.ZipFile) -> None:
    """Run the verifier on a bundle that has proofs. Its key is the one that the bundle names."""
    if "proof.json" not in file.namelist():
        return
    try:
        report, _ = gatebook_verify.verify_bundle(path, ())
    except gatebook_verify.Unusable as error:
        raise ChangeRefused(f"The proofs of the bundle cannot be read: {error}") from error
    for finding in report.findings:
        if finding.finding in gatebook_verify.BROKEN:
            raise ChangeRefused(
                f"The bundle is not what its journal sealed: {finding.what}"
                f" {finding.finding}, {finding.detail}."
            )


def _read_document(file: zipfile.ZipFile) -> dict[str, Any]:
    """Parse bundle.json strictly and check its version and schema."""
    try:
        parsed = parser.parse_object(file.read("bundle.json"))
    except Problem as problem:
        place = f" (at {problem.pointer})" if problem.pointer else ""
        raise ChangeRefused(f"bundle.json cannot be read{place}: {problem.detail}") from problem
    document = parsed.value
    if document.get("format") != FORMAT:
        raise ChangeRefused(
            f"bundle.json has format {str(document.get('format'))[:60]!r}, not {FORMAT!r}."
        )
    version = document.get("version")
    if isinstance(version, int) and version > VERSION:
        raise ChangeRefused(
            f"The bundle has format version {version}; this Gatebook reads at most version"
            f" {VERSION}."
            " Import it into a Gatebook at least as new as the one that exported it."
        )
    json_schema.validate_schema(document, bundle_schema())
    try:
        orjson.dumps(document)
    except TypeError:  # numbers of any size occur only in the texts of bodies
        sentence = (
            "bundle.json contains an integer of more than 64 bits, which no column can store."
        )
        raise ChangeRefused(f"{sentence} Export the bundle again.") from None
    if _NUL.search(parsed.text):
        raise ChangeRefused(
            "bundle.json contains a NUL character outside bodies, which no column can store."
        )
    return document
