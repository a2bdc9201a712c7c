"""C2SP signed notes and the tree heads in them (c2sp.org/signed-note, c2sp.org/tlog-checkpoint).

A note is a text and signatures of it. The text of a tree head is its origin, size and root. This
module is pure.
"""

import base64
import binascii
import hashlib
import unicodedata
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final, NamedTuple

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

ED25519: Final = 0x01
MAX_SIGNATURES: Final = 100
LAST_POSITION: Final = "last_position "  # begins the extension line with the last entry's position
SIGNED_AT: Final = "signed_at "  # begins the extension line with the time
_DASH: Final = "\N{EM DASH} "


class NoteError(ValueError):
    """A note that is malformed, or that no given key signed."""


class NoteKey(NamedTuple):
    """A public Ed25519 key and the name under which it signs."""

    name: str
    public_key: bytes

    @property
    def key_id(self) -> str:
        """The 8 hex digits that signatures of this key begin with."""
        return compute_key_id(self.name, self.public_key).hex()


class NoteSignature(NamedTuple):
    """One signature line: the key's name and id (hex), and the signature."""

    name: str
    key_id: str
    signature: bytes


class SignedNote(NamedTuple):
    """A parsed note; nothing in it is verified."""

    text: str
    signatures: list[NoteSignature]


class HeadText(NamedTuple):
    """The text of a tree head; `extensions` are its further lines.

    One of them has the time of the signature, which the first heads lacked.
    """

    origin: str
    size: int
    root: bytes
    extensions: tuple[str, ...] = ()


def compute_key_id(name: str, public_key: bytes, kind: int = ED25519) -> bytes:
    """Return the 4 bytes that identify a key beside its name."""
    return hashlib.sha256(name.encode() + b"\n" + bytes([kind]) + public_key).digest()[:4]


def read_public_key(private_key: Ed25519PrivateKey) -> bytes:
    """Return the 32 bytes of the public key."""
    return private_key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)


def format_verifier_key(key: NoteKey) -> str:
    """Return a key as verifiers take it: name, id and base64, separated by `+`."""
    encoded = base64.b64encode(bytes([ED25519]) + key.public_key).decode()
    return f"{key.name}+{key.key_id}+{encoded}"


def parse_verifier_key(text: str) -> NoteKey:
    """Return the key of a verifier's text. Raises NoteError."""
    name, _, rest = text.strip().partition("+")
    key_id, _, encoded = rest.partition("+")
    try:
        data = base64.b64decode(encoded, validate=True)
    except binascii.Error as error:
        raise NoteError("The verifier key is not base64.") from error
    if not _is_key_name(name) or len(data) != 33 or data[0] != ED25519:
        raise NoteError("The verifier key is not a name with an Ed25519 key.")
    key = NoteKey(name, data[1:])
    if key.key_id != key_id.lower():
        raise NoteError("The verifier key does not have the id that it states.")
    return key


def sign_note(text: str, signers: Iterable[tuple[str, Ed25519PrivateKey]]) -> str:
    """Return the note of `text` (which ends in a newline), signed by each (name, key)."""
    if not text.endswith("\n") or any(ord(sign) < 32 and sign != "\n" for sign in text):
        raise NoteError("A note's text ends in a newline and has no other control characters.")
    lines = []
    for name, private_key in signers:
        if not _is_key_name(name):
            raise NoteError("A key's name has neither spaces nor a plus sign.")
        key_id = compute_key_id(name, read_public_key(private_key))
        signature = base64.b64encode(key_id + private_key.sign(text.encode())).decode()
        lines.append(f"{_DASH}{name} {signature}\n")
    if not lines:
        raise NoteError("A note needs a signature.")
    return f"{text}\n{''.join(lines)}"


def parse_note(note: str) -> SignedNote:
    """Return text and signatures of a note. Raises NoteError if it is malformed."""
    text, blank, signature_lines = note.rpartition("\n\n")
    if not blank or not signature_lines.endswith("\n"):
        raise NoteError("The note has no signatures.")
    if any(ord(sign) < 32 and sign != "\n" for sign in note):
        raise NoteError("The note has control characters.")
    lines = signature_lines[:-1].split("\n")
    if len(lines) > MAX_SIGNATURES:
        raise NoteError(f"The note has more than {MAX_SIGNATURES} signatures.")
    return SignedNote(f"{text}\n", [_parse_signature(line) for line in lines])


def _parse_signature(line: str) -> NoteSignature:
    name, space, encoded = line.removeprefix(_DASH).partition(" ")
    try:
        data = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        data = b""
    if not line.startswith(_DASH) or not space or not _is_key_name(name) or len(data) < 5:
        raise NoteError("A signature line of the note is malformed.")
    return NoteSignature(name, data[:4].hex(), data[4:])


def verify_note(note: str, keys: Iterable[NoteKey]) -> tuple[str, list[NoteKey]]:
    """Return the note's text and the keys among `keys` that signed it.

    Raises NoteError if none of them did, or if a signature in the name of one is wrong. Signatures
    of other keys are ignored.
    """
    text, signatures = parse_note(note)
    by_identity = {(key.name, key.key_id): key for key in keys}
    signers = []
    for signature in signatures:
        key = by_identity.get((signature.name, signature.key_id))
        if key is None or key in signers:
            continue
        try:
            Ed25519PublicKey.from_public_bytes(key.public_key).verify(
                signature.signature, text.encode()
            )
        except InvalidSignature as error:
            raise NoteError(f"The signature of {key.name}+{key.key_id} is wrong.") from error
        signers.append(key)
    if not signers:
        raise NoteError("None of the given keys signed the note.")
    return text, signers


def format_head_text(
    origin: str, size: int, root: bytes, signed_at_us: int, last_position: int = 0
) -> str:
    """Return the text of a tree head; its time is an extension line of the checkpoint."""
    head = f"{origin}\n{size}\n{base64.b64encode(root).decode()}\n"
    ends_at = f"{LAST_POSITION}{last_position}\n" if last_position else ""
    return f"{head}{SIGNED_AT}{format_signed_at(signed_at_us)}\n{ends_at}"


def format_signed_at(at_us: int) -> str:
    """Return a time as the extension line has it: UTC, with microseconds."""
    moment = datetime.fromtimestamp(at_us // 1_000_000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{at_us % 1_000_000:06d}Z"


def parse_head_text(text: str) -> HeadText:
    """Return the parts of a tree head's text. Raises NoteError."""
    lines = text.split("\n")
    if len(lines) < 4 or lines[-1] or not all(lines[:-1]):
        raise NoteError("The note is not a tree head: it needs origin, size and root.")
    origin, size, encoded = lines[:3]
    try:
        root = base64.b64decode(encoded, validate=True)
    except binascii.Error as error:
        raise NoteError("The root of the tree head is not base64.") from error
    is_number = size.isascii() and size.isdigit() and (size == "0" or size[0] != "0")
    if not is_number or len(root) != 32:
        raise NoteError("The tree head has no valid size and root.")
    return HeadText(origin, int(size), root, tuple(lines[3:-1]))


def _is_key_name(name: str) -> bool:
    return bool(name) and not any(
        sign == "+" or sign.isspace() or unicodedata.category(sign) in ("Zs", "Zl", "Zp")
        for sign in name
    )
