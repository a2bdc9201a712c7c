"""Files of secret keys: read, and created once with the rights of their owner."""

import base64
import os
import secrets
from pathlib import Path


def store_key(folder: Path, name: str, key: bytes) -> bytes:
    """Store `key` as `name` unless a key is stored; return the stored key.

    Safe under a race of several processes: the file appears atomically, and all get the same key.
    Raises OSError when the folder cannot be written, ValueError when the file holds no usable key.
    """
    path = folder / name
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        _publish(path, key)
    return decode_key(path.read_text(encoding="ascii"), str(path))


def decode_key(text: str, origin: str) -> bytes:
    """Return the bytes of a key written as URL-safe base64.

    Other text is used as its UTF-8 bytes, so an operator may also set any long random phrase.
    `origin` names the source in the error; the key is never shown. Raises ValueError for fewer than
    32 bytes.
    """
    text = text.strip()
    try:
        key = base64.b64decode(text, altchars=b"-_", validate=True)
    except ValueError:
        key = text.encode()
    if len(key) < 32:
        raise ValueError(
            f"The key in {origin} is too short: it needs at least 32 random bytes. "
            "Make one with: python -c 'import secrets; print(secrets.token_urlsafe(48))'"
        )
    return key


def replace_key_file(folder: Path, name: str, new_name: str) -> None:
    """Put the key file `new_name` in the place of `name`. Raises OSError."""
    (folder / new_name).replace(folder / name)
    _sync_folder(folder)


def _publish(path: Path, key: bytes) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(base64.urlsafe_b64encode(key) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        try:
            # A link, unlike a rename, never replaces a key that another process has just stored.
            os.link(temporary, path)
        except FileExistsError:
            return
    finally:
        temporary.unlink(missing_ok=True)
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
