"""Opens an untrusted bundle: checks members, hashes, document and schema.

Every fault is a ChangeRefused that names the member. Member names are never used as paths: they are
compared with the few allowed names, and only hashes determine where bytes are stored.
"""

import hashlib
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
from importers.bundles import json_schema
from investigation.bundles.schema import FORMAT, VERSION, bundle_schema
from investigation.bundles.zip_writer import NAMES

MIB: Final = 1 << 20
MAX_DOCUMENT_BYTES: Final = 128 * MIB  # needs about thirteen times its size in memory
MAX_TEXT_BYTES: Final = 64 * MIB  # of any other member except artifacts
MAX_MEMBERS: Final = 100_000
MAX_UNPACKED_BYTES: Final = 16 << 30
_CHUNK: Final = 1 << 20
_MEMBER: Final = re.compile(r"diffs/e_[0-9]{1,19}\.diff|artifacts/([0-9a-f]{64})")
_NUL: Final = re.compile(r"(?<!\\)(?:\\\\)*+\\u0000")
_CHECKSUM_LINE: Final = re.compile(r"([0-9a-f]{64})  (\S+)")


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
            (_MEMBER.fullmatch(member.filename), member.file_size) for member in self.zip.infolist()
        )
        return {match[1]: size for match, size in sizes if match and match[1]}


def hash_file(path: Path) -> str:
    """Return the SHA-256 of a file in hex. Raises ChangeRefused if it cannot be read."""
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
    except OSError as error:
        raise ChangeRefused(f"{path} cannot be read: {error.strerror}.") from error
    return digest.hexdigest()


@contextmanager
def open_bundle(path: Path, sha256: str) -> Iterator[OpenBundle]:
    """Verify every byte of the bundle at `path` with hash `sha256`, and yield it."""
    try:
        with zipfile.ZipFile(path) as file:
            _check_members(file)
            sums = _read_checksums(file)
            document = _read_document(file)
            _verify_members(file, sums)
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
        match = _MEMBER.fullmatch(member.filename)
        if member.filename not in NAMES and match is None:
            raise ChangeRefused(f"The bundle has an unexpected member {member.filename[:80]!r}.")
        if member.flag_bits & 0x1 or member.compress_type not in (
            zipfile.ZIP_STORED,
            zipfile.ZIP_DEFLATED,
        ):
            raise ChangeRefused(
                f"{member.filename} is encrypted, or uses an unsupported compression method."
            )
        is_artifact = match is not None and match[1]
        limit = MAX_DOCUMENT_BYTES if member.filename == "bundle.json" else MAX_TEXT_BYTES
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


def _read_checksums(file: zipfile.ZipFile) -> dict[str, str]:
    """Parse SHA256SUMS, which must list exactly the other members."""
    sums: dict[str, str] = {}
    for line in file.read("SHA256SUMS").decode("utf-8").splitlines():
        match = _CHECKSUM_LINE.fullmatch(line)
        if match is None or match[2] in sums:
            raise ChangeRefused(f"SHA256SUMS has a line that cannot be read: {line[:80]!r}.")
        sums[match[2]] = match[1]
    names = {member.filename for member in file.infolist()} - {"SHA256SUMS"}
    for name in sorted(names ^ sums.keys()):
        fault = "is missing" if name in sums else "is not in SHA256SUMS"
        raise ChangeRefused(f"{name[:90]} {fault}; the bundle was changed after it was written.")
    return sums


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


def _verify_members(file: zipfile.ZipFile, sums: dict[str, str]) -> None:
    """Compare member hashes, artifact names and the published schema."""
    for name, expected in sums.items():
        digest = hashlib.sha256()
        with file.open(name) as stream:
            while chunk := stream.read(_CHUNK):
                digest.update(chunk)
        if digest.hexdigest() != expected:
            raise ChangeRefused(
                f"{name} differs from SHA256SUMS; the bundle was changed after it was written."
            )
        match = _MEMBER.fullmatch(name)
        if match is not None and match[1] and match[1] != expected:
            raise ChangeRefused(f"{name} has other content than its name indicates.")
    try:
        published = orjson.loads(file.read("schema.json"))
    except orjson.JSONDecodeError:
        published = None
    if published != bundle_schema():
        raise ChangeRefused(f"schema.json is not the schema of version {VERSION} of the format.")
