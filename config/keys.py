"""The installation's secrets: made once, by `manage.py setup` in an empty database, and never printed.

Two keys live in `<var>/keys/` (folder 0700, files 0600) unless the environment carries them:
`secret_key` signs people's sign-ins, `pepper` keys the hashes of agent tokens, the digests of intents and the marks of
redacted secrets. What is lost with each is written in docs/operating.md. A key that is not there is made up for this
process alone; whether it may be stored, config/installation.py decides, since the database may know another.
"""

import base64
import os
import secrets
from collections.abc import Mapping
from pathlib import Path

KEY_BYTES = 48
KEY_VARIABLES = {"secret_key": "GATEBOOK_SECRET_KEY", "pepper": "GATEBOOK_PEPPER"}


def load(folder: Path, environment: Mapping[str, str]) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """Return all keys by name, and those of them that are neither in the environment nor stored: random ones.

    Raises ValueError when a variable or a file holds no usable key.
    """
    found, new = {}, {}
    for name, variable in KEY_VARIABLES.items():
        path = folder / name
        if environment.get(variable):
            found[name] = decode(environment[variable], variable)
        elif path.exists():
            found[name] = decode(path.read_text(encoding="ascii"), str(path))
        else:
            found[name] = new[name] = secrets.token_bytes(KEY_BYTES)
    return found, new


def store(folder: Path, name: str, key: bytes) -> bytes:
    """Store `key` as the key `name` unless one is stored; return the one that is.

    Safe under a race of several processes: the file appears whole or not at all, and all are told the same key.
    Raises OSError when the folder cannot be written, ValueError when the file holds no usable key.
    """
    path = folder / name
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        _publish(path, key)
    return decode(path.read_text(encoding="ascii"), str(path))


def decode(text: str, origin: str) -> bytes:
    """Return the bytes behind a key written as URL-safe base64; `origin` names it in the error, the key never is.

    Text that is not base64 is taken as its own UTF-8 bytes, so an operator may also set any long random phrase.
    Raises ValueError when fewer than 32 bytes come out.
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


def _publish(path: Path, key: bytes) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(base64.urlsafe_b64encode(key) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        try:
            # A link, unlike a rename, never replaces the key another process has just published.
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
