"""Checksums of an untrusted bundle: SHA256SUMS against the members and the published schema."""

import hashlib
import re
import zipfile
from pathlib import Path
from typing import Final

import orjson

from db.errors import ChangeRefused
from investigation.bundles.schema import VERSION, bundle_schema

MEMBER: Final = re.compile(r"diffs/e_[0-9]{1,19}\.diff|artifacts/([0-9a-f]{64})")
_CHUNK: Final = 1 << 20
_CHECKSUM_LINE: Final = re.compile(r"([0-9a-f]{64})  (\S+)")


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


def read_checksums(file: zipfile.ZipFile) -> dict[str, str]:
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


def verify_checksums(file: zipfile.ZipFile, sums: dict[str, str]) -> None:
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
        match = MEMBER.fullmatch(name)
        if match is not None and match[1] and match[1] != expected:
            raise ChangeRefused(f"{name} has other content than its name indicates.")
    try:
        published = orjson.loads(file.read("schema.json"))
    except orjson.JSONDecodeError:
        published = None
    if published != bundle_schema():
        raise ChangeRefused(f"schema.json is not the schema of version {VERSION} of the format.")
