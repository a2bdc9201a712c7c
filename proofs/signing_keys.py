"""The one writer of SigningKey: Ed25519 keys that sign tree heads.

The private key is outside the database, in `<var>/keys/seal_key` or GATEBOOK_SEAL_KEY. Only the
process that signs reads it. The database holds the public keys, each endorsed by the one before.
"""

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from django.conf import settings
from django.db import transaction

from db import key_files
from db.clock import now_us
from journal import fingerprints
from proofs.models import SigningKey
from proofs.signed_note import (
    NoteError,
    NoteKey,
    format_verifier_key,
    parse_verifier_key,
    read_public_key,
    sign_note,
    verify_note,
)

KEY_NAME: Final = "seal_key"
KEY_VARIABLE: Final = "GATEBOOK_SEAL_KEY"
NEXT_KEY_NAME: Final = "seal_key.next"  # while `rotate_seal_key` runs
SEED_BYTES: Final = 32
_ENDORSEMENT: Final = "gatebook seal key"


class SealKeyError(LookupError):
    """The private key is missing, or is not the one in use. The text says what to do."""


def load_origin() -> str:
    """Return the origin of this installation's tree heads, which is also the name of its keys.

    Raises LookupError where `manage.py setup` did not run.
    """
    identity = fingerprints.load_installation_id()
    if identity is None:
        raise LookupError("Nothing is set up in this database. Run `manage.py setup`.")
    return f"gatebook/{identity[:16]}"


def build_private_key(key: bytes) -> Ed25519PrivateKey:
    """Return the private key of a key file's bytes: 32 are the seed, others are hashed to one."""
    seed = key if len(key) == SEED_BYTES else hashlib.sha256(b"gatebook seal key\0" + key).digest()
    return Ed25519PrivateKey.from_private_bytes(seed)


def key_folder() -> Path:
    """Return the folder of key files."""
    return Path(settings.VAR_DIR) / "keys"


def load_configured_key() -> Ed25519PrivateKey | None:
    """Return the private key of the variable or the file, or None.

    Raises ValueError if it is too short.
    """
    if text := os.environ.get(KEY_VARIABLE):
        return build_private_key(key_files.decode_key(text, KEY_VARIABLE))
    return load_key_file(key_folder() / KEY_NAME)


def load_key_file(path: Path) -> Ed25519PrivateKey | None:
    """Return the private key of a file, or None. Raises ValueError if it is too short."""
    if not path.exists():
        return None
    return build_private_key(key_files.decode_key(path.read_text(encoding="ascii"), str(path)))


def load_private_key() -> Ed25519PrivateKey:
    """Return the private key in use. Raises SealKeyError.

    Finishes a rotation that was killed after the database had the new key.
    """
    current = load_current_key()
    if current is None:
        raise SealKeyError(_explain_retirement(load_last_key()))
    return load_private_half(current)


def _explain_retirement(last: SigningKey | None) -> str:
    if last is None:
        return "No key signs tree heads yet. Run `manage.py setup`."
    return (
        f"No key signs tree heads: {last.key_id} is retired, and no key follows it. Gatebook"
        " retires a key only when it stores the next one, so somebody changed proofs_signingkey."
        " `manage.py verify` says what differs. `manage.py rotate_seal_key` makes the next key,"
        " endorsed by this one."
    )


def load_private_half(current: SigningKey) -> Ed25519PrivateKey:
    """Return the private key of a stored key, from where it is configured. Raises SealKeyError."""
    configured = load_configured_key()
    if configured is not None and is_private_half(configured, current):
        return configured
    following = load_key_file(key_folder() / NEXT_KEY_NAME)
    if following is not None and is_private_half(following, current):
        if not os.environ.get(KEY_VARIABLE):
            key_files.replace_key_file(key_folder(), KEY_NAME, NEXT_KEY_NAME)
        return following
    place = KEY_VARIABLE if os.environ.get(KEY_VARIABLE) else str(key_folder() / KEY_NAME)
    if configured is not None:
        for stored in SigningKey.objects.filter(retired_at_us__isnull=True, id__lt=current.id)[
            :100
        ]:
            if is_private_half(configured, stored):
                raise SealKeyError(
                    f"No tree head is signed: proofs_signingkey has {current.key_id} after the key"
                    f" in {place}, {stored.key_id}, which was never retired. Somebody added that"
                    " row. `manage.py verify` names it; the owner of the database removes it."
                )
    fault = "is not the one in use" if configured else "is missing"
    raise SealKeyError(
        f"The key in {place} {fault}: tree heads are signed with {current.key_id}. Restore it from"
        " the backup. If it is lost for good, `manage.py rotate_seal_key --lost` says what is lost"
        " with it."
    )


def build_endorsement(origin: str, key: NoteKey, old: Ed25519PrivateKey) -> str:
    """Return the note in which the old key of `origin` names its successor."""
    text = f"{_ENDORSEMENT}\n{origin}\n{format_verifier_key(key)}\n"
    return sign_note(text, [(origin, old)])


def read_endorsement(note: str, old: NoteKey) -> NoteKey:
    """Return the key that `old` names as its successor. Raises NoteError."""
    text, _ = verify_note(note, [old])
    lines = text.split("\n")
    if len(lines) != 4 or lines[0] != _ENDORSEMENT or lines[1] != old.name:
        raise NoteError("The note endorses no key.")
    return parse_verifier_key(lines[2])


def load_current_key() -> SigningKey | None:
    """Return the public key in use, or None before the first."""
    return SigningKey.objects.filter(retired_at_us__isnull=True).order_by("-id").first()


def load_last_key() -> SigningKey | None:
    """Return the newest public key, also if it is retired, or None before the first."""
    return SigningKey.objects.order_by("-id").first()


def load_signing_keys() -> list[SigningKey]:
    """Return all public keys, the first one first."""
    return list(SigningKey.objects.order_by("id")[:1000])


def find_chain_end(keys: Sequence[SigningKey], key_id: str) -> SigningKey | None:
    """Return the last key to which endorsements lead from one of `keys`; None without that key."""
    end = None
    for key in keys:
        if key.key_id == key_id or (end is not None and key.endorsement):
            end = key
        elif end is not None:  # the key before it was lost
            break
    return end


def list_chain_ends(keys: Sequence[SigningKey]) -> list[SigningKey]:
    """Return the keys that endorse no other, the one in use first.

    It is one, unless a key was lost. A verifier that has all of them checks the heads of all keys.
    """
    continued = [bool(key.endorsement) for key in keys[1:]]
    ends = [key for key, leads_on in zip(keys, continued, strict=False) if not leads_on]
    return [*keys[-1:], *ends[::-1]]


def format_key_chain(keys: Sequence[SigningKey]) -> str:
    """Return all public keys, a line each, and the notes in which a key names the next one.

    An empty line follows the keys, and each note, as in an anchor file.
    """
    listed = "".join(f"{format_verifier_key(to_note_key(key))}\n" for key in keys)
    return f"{listed}\n" + "".join(f"{key.endorsement}\n" for key in keys if key.endorsement)


def to_note_key(key: SigningKey) -> NoteKey:
    """Return a stored key as verifiers use it."""
    return NoteKey(key.name, bytes(key.public_key))


def is_private_half(private_key: Ed25519PrivateKey, key: SigningKey) -> bool:
    """Return whether the private key belongs to the public `key`."""
    return read_public_key(private_key) == bytes(key.public_key)


@transaction.atomic
def store_first_key(private_key: Ed25519PrivateKey) -> SigningKey:
    """Store the public key of a new installation, unless one is stored; return the stored one."""
    current = load_current_key() or load_last_key()
    return current or _store_key(NoteKey(load_origin(), read_public_key(private_key)), "")


@transaction.atomic
def store_next_key(private_key: Ed25519PrivateKey, old: Ed25519PrivateKey | None) -> SigningKey:
    """Retire the last key and store its successor, endorsed by `old` unless that is lost.

    Raises ValueError if `old` is not the key in use or the new key was used before.
    """
    origin, now = load_origin(), now_us()
    key = NoteKey(origin, read_public_key(private_key))
    current = load_last_key()
    if current is not None:
        if old is not None and not is_private_half(old, current):
            raise ValueError("The old key is not the one in use.")
        SigningKey.objects.filter(id=current.id, retired_at_us__isnull=True).update(
            retired_at_us=max(now, current.first_used_us)
        )
    if SigningKey.objects.filter(public_key=key.public_key).exists():
        raise ValueError("The new key was in use before. Make another.")
    return _store_key(key, build_endorsement(origin, key, old) if old is not None else "")


def _store_key(key: NoteKey, endorsement: str) -> SigningKey:
    return SigningKey.objects.create(
        name=key.name,
        key_id=key.key_id,
        public_key=key.public_key,
        first_used_us=now_us(),
        endorsement=endorsement,
    )
