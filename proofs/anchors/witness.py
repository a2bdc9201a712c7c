"""Anchor: a C2SP witness (c2sp.org/tlog-witness), which cosigns only what extends what it saw.

The request has the size that the witness cosigned last, a consistency proof and the signed note.
Of the answer, cosignatures of the configured key are verified and stored; others are ignored.
"""

import base64
import hashlib
import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from notifications.outbound_http import HttpAnswer
from proofs.anchors.operator_http import parse_operator_url, post_to_operator_url
from proofs.anchors.published_head import (
    AnchorContradicts,
    AnchorFailed,
    AnchorTarget,
    LastReceipt,
    PublishedHead,
    TreeReader,
    write_receipt,
)

COSIGNATURE_TYPE: Final = 0x04  # Ed25519 cosignature/v1 of c2sp.org/tlog-cosignature
SIZE_TYPE: Final = "text/x.tlog.size"
_ANSWER_BYTES: Final = 65_536
_MAX_PROOF: Final = 63
_LINE: Final = re.compile(r"— (?P<name>[^ ]+) (?P<signature>[A-Za-z0-9+/]+={0,2})")


class WitnessKey(NamedTuple):
    """The key of a witness: its name, key id and Ed25519 public key."""

    name: str
    key_id: bytes
    public: bytes


def publish_to_witness(
    target: AnchorTarget,
    heads: Sequence[PublishedHead],
    last: LastReceipt | None,
    tree: TreeReader,
) -> Iterator[str]:
    """Have the witness cosign each of `heads`; yield a receipt with the cosignature.

    Raises AnchorFailed where it refuses. Two sizes are tried: the one that it cosigned for us last,
    and the one that it names.
    """
    key = parse_witness_key(target.key)
    url = f"{target.address.rstrip('/')}/add-checkpoint"
    old_size = last.size if last is not None else 0
    for head in heads:
        old_size = min(old_size, head.size)
        answer = _ask_for_cosignature(url, old_size, head, tree)
        if answer.status == 409 and answer.content_type.startswith(SIZE_TYPE):
            old_size = _read_size(key.name, answer, head)
            answer = _ask_for_cosignature(url, old_size, head, tree)
        if answer.status != 200:
            refusal = AnchorContradicts if answer.status in (409, 422) else AnchorFailed
            raise refusal(_explain_refusal(key.name, answer, old_size, head))
        line, cosigned_at_s = find_cosignature(key, head.note, answer.content)
        old_size = head.size
        yield write_receipt(
            witness=key.name, cosignature=line, cosigned_at_s=cosigned_at_s, key=target.key
        )


def build_add_checkpoint(old_size: int, proof: Sequence[bytes], note: str) -> bytes:
    """Return the body of a request to `add-checkpoint`."""
    lines = [f"old {old_size}", *(base64.b64encode(digest).decode() for digest in proof), ""]
    return ("\n".join(lines) + "\n" + note).encode()


def find_cosignature(key: WitnessKey, note: str, content: bytes) -> tuple[str, int]:
    """Return the line of the key's cosignature of `note`, and its time in seconds.

    Raises AnchorFailed where there is none that verifies.
    """
    body = note[: note.rindex("\n\n") + 1]
    public = Ed25519PublicKey.from_public_bytes(key.public)
    for line in content.decode(errors="replace").splitlines():
        match = _LINE.fullmatch(line)
        if match is None or match["name"] != key.name:
            continue
        try:
            raw = base64.b64decode(match["signature"], validate=True)
        except ValueError:
            continue
        if raw[:4] != key.key_id or len(raw) != 4 + 8 + 64:
            continue
        at_s = int.from_bytes(raw[4:12], "big")
        if not any(_verifies(public, raw[12:], at_s, text) for text in _list_cosigned_texts(body)):
            raise AnchorFailed(
                f"The cosignature of {key.name} does not verify. Compare the key in "
                "GATEBOOK_ANCHORS with the one that the witness publishes."
            )
        return line, at_s
    raise AnchorFailed(
        f"{key.name} answered without a cosignature of the key in GATEBOOK_ANCHORS. Compare the "
        "key with the one that the witness publishes."
    )


def _list_cosigned_texts(body: str) -> tuple[str, str]:
    """Return the texts that a witness may sign: the whole body, or origin, size and root.

    The specification has the whole body. Some witnesses, such as litewitness 0.5, leave out the
    extension lines, of which a cosignature states nothing in both cases.
    """
    return body, "".join(body.splitlines(keepends=True)[:3])


def _verifies(public: Ed25519PublicKey, signature: bytes, at_s: int, text: str) -> bool:
    try:
        public.verify(signature, f"cosignature/v1\ntime {at_s}\n{text}".encode())
    except InvalidSignature:
        return False
    return True


def parse_witness_key(text: str) -> WitnessKey:
    """Parse a verifier key, `<name>+<key id in hex>+<base64>`. Raises AnchorFailed."""
    name, _, rest = text.partition("+")
    digits, _, encoded = rest.partition("+")
    try:
        key_id, raw = bytes.fromhex(digits), base64.b64decode(encoded, validate=True)
    except ValueError:
        key_id, raw = b"", b""
    if not name or len(key_id) != 4 or not raw:
        raise AnchorFailed(
            "The key of a witness is missing or garbled. Write it as the witness publishes it: "
            "key=NAME+HASH+KEY"
        )
    if raw[0] != COSIGNATURE_TYPE or len(raw) != 33:
        raise AnchorFailed(
            f"The key of {name} is no Ed25519 cosignature key (type 4). Use the witness's Ed25519 "
            "key"
        )
    if hashlib.sha256(name.encode() + b"\n" + raw).digest()[:4] != key_id:
        raise AnchorFailed(f"The key of {name} does not match its hash. Copy the whole key again")
    return WitnessKey(name, key_id, raw[1:])


def find_witness_faults(target: AnchorTarget) -> list[str]:
    """Return why URL or key cannot be used."""
    try:
        parse_operator_url(target.address)
        parse_witness_key(target.key)
    except AnchorFailed as fault:
        return [str(fault)]
    return []


def _ask_for_cosignature(
    url: str, old_size: int, head: PublishedHead, tree: TreeReader
) -> HttpAnswer:
    proof = tree.prove_consistency(old_size, head.size) if 0 < old_size < head.size else []
    if len(proof) > _MAX_PROOF:  # no tree with sizes below 2^63 has a longer one
        raise AnchorFailed("The consistency proof is too long. Run `manage.py verify`.")
    body = build_add_checkpoint(old_size, proof, head.note)
    headers = {"Content-Type": "text/plain; charset=utf-8"}
    return post_to_operator_url(url, body, headers, most_bytes=_ANSWER_BYTES)


def _read_size(name: str, answer: HttpAnswer, head: PublishedHead) -> int:
    text = answer.content.decode("ascii", "replace").strip()
    if not (text.isdigit() and len(text) < 19):
        raise AnchorFailed(f"{name} answered 409 without a size. Ask the operator of the witness.")
    size = int(text)
    if size > head.size:
        raise AnchorContradicts(
            f"{name} has cosigned a tree of {size} entries, and this database has sealed "
            f"{head.size}: entries that were sealed are gone. An old backup was restored, or "
            "history was cut. Run `manage.py verify`."
        )
    return size


def _explain_refusal(name: str, answer: HttpAnswer, old_size: int, head: PublishedHead) -> str:
    reasons = {
        404: f"does not know the log {head.origin}. Ask its operator to add it, with the key that "
        "`manage.py anchor_heads --keys` prints",
        403: "does not know the key that signed the tree head. Give its operator the key that "
        "`manage.py anchor_heads --keys` prints",
        409: f"has cosigned another history of {old_size} entries: this database was rewritten, or "
        "holds a restored backup. Run `manage.py verify`",
        422: f"refuses the proof from {old_size} to {head.size} entries: what it cosigned is not "
        "the beginning of this history. Run `manage.py verify`",
    }
    reason = reasons.get(answer.status, f"answered {answer.status}. It is tried again")
    return f"{name} {reason}."
