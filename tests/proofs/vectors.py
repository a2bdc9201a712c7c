"""Builds docs/reference/proofs/vectors.json without Gatebook's own code.

Leaves are encoded by the package rfc8785, trees are built by pymerkle and signatures made by
cryptography. Run `python -m tests.proofs.vectors` to write the file again.
"""

import base64
import hashlib
import json
from pathlib import Path
from typing import Any, Final

import pymerkle
import rfc8785
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

VECTORS: Final = Path(__file__).parents[2] / "docs" / "reference" / "proofs" / "vectors.json"
ORIGIN: Final = "gatebook/0123456789abcdef"
SIZES: Final = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 255, 256, 257, 511, 512, 513, 700)
_LEAVES: Final = 700
_EXACT: Final = 2**53 - 1

_PLAIN: Final[dict[str, Any]] = {
    "actor": "p_0a1b2c3d4e5f6071",
    "attempt": 1,
    "body_commit": hashlib.sha256(bytes(range(32)) + b'{"kind":"effect.dispatched"}').hexdigest(),
    "claimed_source": "",
    "effect": "0192a7c4-5b6d-7e8f-9012-3456789abcde",
    "facts": '{"attempt":1,"tool":"git.push"}',
    "id": "4711",
    "kind": "effect.dispatched",
    "lane": "command",
    "lease_epoch": 3,
    "occurred_us": 1795454096000001,
    "producer_seq": 0,
    "project": "0192a7c4-0000-7000-8000-000000000001",
    "received_us": 1795454096123456,
    "schema_version": 1,
    "session": "0192a7c4-1111-7111-8111-111111111111",
    "source": "deploy-bot",
    "subject": "0192a7c4-2222-7222-8222-222222222222",
}
_NOTHING: Final = dict.fromkeys(
    ("attempt", "body_commit", "effect", "lease_epoch", "occurred_us", "producer_seq", "session")
)
_ENTRIES: Final[tuple[tuple[str, dict[str, Any]], ...]] = (
    ("every column has a value", {}),
    ("columns without a value are null", {**_NOTHING, "subject": None}),
    (
        "escapes: quotes, backslash, control characters; all else is UTF-8",
        {"id": 'a"b\\c/\b\t\n\f\r\u0000\u001f\u007f', "facts": '{"é":"€ 😀 \u2028","a":"\\u0001"}'},
    ),
    (
        "integers beyond 2^53-1 are decimal strings",
        {"lease_epoch": 2**53, "producer_seq": 2**63 - 1, "occurred_us": -(2**63)},
    ),
    (
        "the largest integers that stay numbers",
        {"lease_epoch": _EXACT, "producer_seq": _EXACT, "occurred_us": -_EXACT},
    ),
)


def build_vectors() -> dict[str, Any]:
    """Return the published test vectors."""
    tree = pymerkle.InmemoryTree(algorithm="sha256")
    data = [f"leaf {number}".encode() for number in range(_LEAVES)]
    for item in data:
        tree.append_entry(item)
    return {
        "about": "Test vectors of docs/reference/proofs.md. Bytes are in hex, keys and notes as C2SP.",
        "leaves": [_build_leaf(what, {**_PLAIN, **changed}) for what, changed in _ENTRIES],
        "tree": {
            "data": "the leaf of number n is the ASCII text `leaf n`",
            "roots": {str(size): tree.get_root(size).hex() for size in SIZES},
        },
        "inclusion": _build_inclusions(tree, data),
        "consistency": _build_consistencies(tree, data),
        "notes": _build_notes(tree),
    }


def _build_leaf(what: str, columns: dict[str, Any]) -> dict[str, Any]:
    leaf = {
        name: str(value) if isinstance(value, int) and abs(value) > _EXACT else value
        for name, value in columns.items()
    }
    encoded = rfc8785.dumps(leaf)
    return {
        "what": what,
        # Readers of JSON may round long numbers: they are texts.
        "columns": {n: str(v) if isinstance(v, int) else v for n, v in columns.items()},
        "leaf": encoded.decode(),
        "hash": hashlib.sha256(b"\x00" + encoded).hexdigest(),
    }


def _build_inclusions(tree: Any, data: list[bytes]) -> list[dict[str, Any]]:
    cases = []
    for index, size in ((0, 1), (0, 2), (1, 2), (2, 3), (4, 7), (6, 7), (255, 257), (256, 257)):
        path = [part.hex() for part in tree.prove_inclusion(index + 1, size).path[1:]]
        cases.append(_build_inclusion(tree, data, index, size, path, True, "in the tree"))
    path = [part.hex() for part in tree.prove_inclusion(700, 700).path[1:]]
    cases.append(_build_inclusion(tree, data, 699, 700, path, True, "in the tree"))
    wrong = [
        (698, 700, path, "another index"),
        (699, 699, path, "index not below the size"),
        (699, 700, path[:-1], "a path that is too short"),
        (699, 700, [*path, path[0]], "a path that is too long"),
        (699, 700, [path[1], path[0], *path[2:]], "a path in another order"),
        (699, 700, [_flip(path[0]), *path[1:]], "a changed path"),
    ]
    for index, size, changed, what in wrong:
        case = _build_inclusion(tree, data, index, size, changed, False, what)
        cases.append(case | {"leaf_hash": cases[8]["leaf_hash"], "root": cases[8]["root"]})
    return cases


def _build_inclusion(
    tree: Any, data: list[bytes], index: int, size: int, path: list[str], holds: bool, what: str
) -> dict[str, Any]:
    return {
        "what": what,
        "index": index,
        "size": size,
        "leaf_hash": hashlib.sha256(b"\x00" + data[index]).hexdigest(),
        "root": tree.get_root(size).hex(),
        "proof": path,
        "holds": holds,
    }


def _build_consistencies(tree: Any, data: list[bytes]) -> list[dict[str, Any]]:
    hashes = [hashlib.sha256(b"\x00" + item).digest() for item in data]
    cases = []
    for old, new in ((1, 2), (3, 7), (4, 7), (6, 8), (8, 8), (255, 257), (256, 512), (511, 700)):
        path = [part.hex() for part in _prove_growth(old, hashes[:new], True)] if old < new else []
        cases.append(_build_consistency(tree, old, new, path, True, "an extension"))
    path = cases[1]["proof"]
    for old, new, changed, what in (
        (4, 7, path, "another old size"),
        (3, 8, path, "another new size"),
        (3, 7, path[:-1], "a path that is too short"),
        (3, 7, [*path, path[0]], "a path that is too long"),
        (3, 7, [_flip(path[0]), *path[1:]], "a changed path"),
        (7, 3, path, "a tree that shrank"),
    ):
        cases.append(_build_consistency(tree, old, new, changed, False, what))
    case = _build_consistency(tree, 3, 7, path, False, "another old root")
    cases.append(case | {"old_root": _flip(case["old_root"])})
    return cases


def _build_consistency(
    tree: Any, old: int, new: int, path: list[str], holds: bool, what: str
) -> dict[str, Any]:
    roots = {"old_root": tree.get_root(old).hex(), "new_root": tree.get_root(new).hex()}
    return {"what": what, "old_size": old, "new_size": new, **roots, "proof": path, "holds": holds}


def _prove_growth(old: int, hashes: list[bytes], is_whole: bool) -> list[bytes]:
    """Return SUBPROOF of RFC 6962, 2.1.2, as it is written there."""
    if old == len(hashes):
        return [] if is_whole else [_hash_tree(hashes)]
    half = 1 << (len(hashes) - 1).bit_length() - 1
    if old <= half:
        return [*_prove_growth(old, hashes[:half], is_whole), _hash_tree(hashes[half:])]
    return [*_prove_growth(old - half, hashes[half:], False), _hash_tree(hashes[:half])]


def _hash_tree(hashes: list[bytes]) -> bytes:
    if len(hashes) == 1:
        return hashes[0]
    half = 1 << (len(hashes) - 1).bit_length() - 1
    return hashlib.sha256(b"\x01" + _hash_tree(hashes[:half]) + _hash_tree(hashes[half:])).digest()


def _build_notes(tree: Any) -> dict[str, Any]:
    root = base64.b64encode(tree.get_root(700)).decode()
    key, other = _make_key(1), _make_key(2)
    text = f"{ORIGIN}\n700\n{root}\n"
    note = _sign(text, key)
    changed = note.replace("\n700\n", "\n701\n")
    timed = _sign(f"{text}signed_at 2026-11-23T10:00:00.000001Z\n", key)
    later = timed.replace("10:00:00.000001", "11:00:00.000001")
    return {
        "seed": bytes([1] * 32).hex(),
        "key": _format_key(key),
        "cases": [
            {"what": "signed by the key", "note": note, "holds": True},
            {"what": "signed by two keys", "note": note + _sign_line(text, other), "holds": True},
            {"what": "with the time of the signature", "note": timed, "holds": True},
            {"what": "another time than was signed", "note": later, "holds": False},
            {"what": "another size than was signed", "note": changed, "holds": False},
            {"what": "signed by another key only", "note": _sign(text, other), "holds": False},
            {
                "what": "another key's signature under this key's id",
                "note": f"{text}\n{_sign_line(text, other, _key_id(key))}",
                "holds": False,
            },
        ],
    }


def _make_key(number: int) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(bytes([number] * 32))


def _read_public(key: Ed25519PrivateKey) -> bytes:
    return key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)


def _key_id(key: Ed25519PrivateKey) -> bytes:
    return hashlib.sha256(ORIGIN.encode() + b"\n\x01" + _read_public(key)).digest()[:4]


def _format_key(key: Ed25519PrivateKey) -> str:
    encoded = base64.b64encode(b"\x01" + _read_public(key)).decode()
    return f"{ORIGIN}+{_key_id(key).hex()}+{encoded}"


def _sign(text: str, key: Ed25519PrivateKey) -> str:
    return f"{text}\n{_sign_line(text, key)}"


def _sign_line(text: str, key: Ed25519PrivateKey, key_id: bytes | None = None) -> str:
    signature = (key_id or _key_id(key)) + key.sign(text.encode())
    return f"— {ORIGIN} {base64.b64encode(signature).decode()}\n"


def _flip(digest: str) -> str:
    return f"{int(digest[0], 16) ^ 1:x}{digest[1:]}"


def format_vectors(vectors: dict[str, Any]) -> str:
    """Return the text of the file."""
    return json.dumps(vectors, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    VECTORS.write_text(format_vectors(build_vectors()))
