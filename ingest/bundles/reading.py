"""Opens a bundle without trusting it: its members, their hashes, the document and its schema. Writes nothing.

Every fault is a RefusedError whose sentence names the member. Nothing is unpacked to where its name says: names are
compared with the few that a bundle has, and only hashes decide where bytes will lie.
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

from ingest import strict
from ingest.bundles import shapes
from ingest.problems import Problem
from inquiry.bundles.shape import FORMAT, VERSION, schema
from inquiry.bundles.writing import NAMES
from sessions.refused import RefusedError

MIB: Final = 1 << 20
MOST_DOCUMENT: Final = 128 * MIB  # it is held in memory, some thirteen times as large
MOST_TEXT: Final = 64 * MIB  # of any other member that is no artifact
MOST_MEMBERS: Final = 100_000
MOST_UNPACKED: Final = 16 << 30
_CHUNK: Final = 1 << 20
_MEMBER: Final = re.compile(r"diffs/e_[0-9]{1,19}\.diff|artifacts/([0-9a-f]{64})")
_NUL: Final = re.compile(r"(?<!\\)(?:\\\\)*+\\u0000")
_SUM: Final = re.compile(r"([0-9a-f]{64})  (\S+)")


@dataclass(frozen=True, slots=True)
class Opened:
    """A bundle that is whole: the file's own hash, the document, and the zip for the bytes of artifacts."""

    sha256: str
    document: dict[str, Any]
    zip: zipfile.ZipFile

    def artifact(self, sha256: str) -> Iterator[bytes]:
        """The bytes of an enclosed artifact in pieces."""
        with self.zip.open(f"artifacts/{sha256}") as file:
            while chunk := file.read(_CHUNK):
                yield chunk

    def enclosed(self) -> dict[str, int]:
        """The hashes of the artifacts whose bytes are here, with their sizes."""
        found = ((_MEMBER.fullmatch(one.filename), one.file_size) for one in self.zip.infolist())
        return {match[1]: size for match, size in found if match and match[1]}


def hash_of(path: Path) -> str:
    """SHA-256 of a file, 64 hex characters. Raises RefusedError when it cannot be read."""
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
    except OSError as error:
        raise RefusedError(f"{path} cannot be read: {error.strerror}.") from error
    return digest.hexdigest()


@contextmanager
def opened(path: Path, sha256: str) -> Iterator[Opened]:
    """Open the bundle at `path`, whose hash is `sha256`, having looked at every byte of it."""
    try:
        with zipfile.ZipFile(path) as file:
            _look_at_members(file)
            sums = _sums(file)
            document = _document(file)
            _compare(file, sums)
            yield Opened(sha256, document, file)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, UnicodeDecodeError) as error:
        raise RefusedError(f"{path.name} is no bundle, or a broken one: {error}.") from error


def _look_at_members(file: zipfile.ZipFile) -> None:
    """By the table of contents alone: what a bundle may hold, each once, and no more than can be meant."""
    members = file.infolist()
    if len(members) > MOST_MEMBERS:
        raise RefusedError(f"The bundle has {len(members):,} members; at most {MOST_MEMBERS:,} are read.")
    names = [one.filename for one in members]
    for name in NAMES:
        if names.count(name) != 1:
            raise RefusedError(f"A bundle has one {name}; this file has {names.count(name)}, so it is none.")
    for one in members:
        match = _MEMBER.fullmatch(one.filename)
        if one.filename not in NAMES and match is None:
            raise RefusedError(f"A bundle holds nothing of the name {one.filename[:80]!r}.")
        if one.flag_bits & 0x1 or one.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise RefusedError(f"{one.filename} is encrypted, or packed in a way that bundles are not.")
        is_artifact = match is not None and match[1]
        most = MOST_DOCUMENT if one.filename == "bundle.json" else MOST_TEXT
        most = settings.GATEBOOK_ARTIFACT_BYTES if is_artifact else most
        if one.file_size > most:
            raise RefusedError(f"{one.filename} unpacks to {one.file_size:,} bytes; at most {most:,} are read.")
    if len(set(names)) < len(names):
        raise RefusedError("A name stands twice in the table of contents; what is meant cannot be told.")
    if sum(one.file_size for one in members) > MOST_UNPACKED:
        raise RefusedError(f"The bundle unpacks to more than {MOST_UNPACKED:,} bytes.")


def _sums(file: zipfile.ZipFile) -> dict[str, str]:
    """What SHA256SUMS says of each member; it must speak of every one, and of no other."""
    sums: dict[str, str] = {}
    for line in file.read("SHA256SUMS").decode("utf-8").splitlines():
        match = _SUM.fullmatch(line)
        if match is None or match[2] in sums:
            raise RefusedError(f"SHA256SUMS has a line that cannot be read: {line[:80]!r}.")
        sums[match[2]] = match[1]
    names = {one.filename for one in file.infolist()} - {"SHA256SUMS"}
    for name in sorted(names ^ sums.keys()):
        known = "is missing" if name in sums else "is not in SHA256SUMS"
        raise RefusedError(f"{name[:90]} {known}; the bundle was changed after it was written.")
    return sums


def _document(file: zipfile.ZipFile) -> dict[str, Any]:
    """bundle.json, strictly read, of a version that this Gatebook knows, and as its schema says."""
    try:
        parsed = strict.parse_object(file.read("bundle.json"))
    except Problem as problem:
        place = f" (at {problem.pointer})" if problem.pointer else ""
        raise RefusedError(f"bundle.json cannot be read{place}: {problem.detail}") from problem
    document = parsed.value
    if document.get("format") != FORMAT:
        raise RefusedError(f"bundle.json says that it is {str(document.get('format'))[:60]!r}, and not {FORMAT!r}.")
    version = document.get("version")
    if isinstance(version, int) and version > VERSION:
        raise RefusedError(
            f"The bundle is of version {version} of its format; this Gatebook reads version {VERSION} and none newer."
            " Import it into a Gatebook that is as new as the one that wrote it."
        )
    shapes.hold(document, schema())
    try:
        orjson.dumps(document)
    except TypeError:  # numbers of any size are agents' words, and stand in the texts of bodies
        sentence = "bundle.json holds an integer of more than 64 bits, which no column can."
        raise RefusedError(f"{sentence} Export the bundle again.") from None
    if _NUL.search(parsed.text):
        raise RefusedError("bundle.json holds a NUL character, which no column can; bodies hold it as an escape.")
    return document


def _compare(file: zipfile.ZipFile, sums: dict[str, str]) -> None:
    """Hash every member as it unpacks; an artifact's name is its hash too, and the schema is the published one."""
    for name, wanted in sums.items():
        digest = hashlib.sha256()
        with file.open(name) as stream:
            while chunk := stream.read(_CHUNK):
                digest.update(chunk)
        if digest.hexdigest() != wanted:
            raise RefusedError(f"{name} is not what SHA256SUMS says; the bundle was changed after it was written.")
        match = _MEMBER.fullmatch(name)
        if match is not None and match[1] and match[1] != wanted:
            raise RefusedError(f"{name} holds other bytes than its name says.")
    try:
        published = orjson.loads(file.read("schema.json"))
    except orjson.JSONDecodeError:
        published = None
    if published != schema():
        raise RefusedError(f"schema.json is not the schema of version {VERSION} of the format.")
