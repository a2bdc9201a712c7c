"""The published vectors hold for the sealer's code and for the verifier, which share none."""

import json
from typing import Any, Final
from uuid import UUID

import pytest

from proofs import leaf, merkle, signed_note
from proofs.verifier import gatebook_verify
from tests.proofs.vectors import SIZES, VECTORS, build_vectors, format_vectors

pytestmark = pytest.mark.once
_DOCUMENT: Final[dict[str, Any]] = json.loads(VECTORS.read_text())
_INTEGERS: Final = (
    *("attempt", "lease_epoch", "occurred_us", "producer_seq", "received_us", "schema_version"),
)
_UUIDS: Final = ("effect", "project", "session", "subject")


def _holds(case: dict[str, Any]) -> bool:
    holds: bool = case["holds"]
    return holds


def _read_columns(case: dict[str, Any], *, dashes: bool = True) -> dict[str, Any]:
    columns = dict(case["columns"])
    for name in _INTEGERS:
        columns[name] = None if columns[name] is None else int(columns[name])
    for name in _UUIDS:
        if not dashes and columns[name] is not None:
            columns[name] = columns[name].replace("-", "")
    commit = columns["body_commit"]
    return columns | {"body_commit": commit and bytes.fromhex(commit)}


def test_the_published_file_is_what_other_implementations_compute() -> None:
    assert VECTORS.read_text() == format_vectors(build_vectors())


@pytest.mark.parametrize("case", _DOCUMENT["leaves"], ids=lambda case: case["what"])
def test_both_implementations_encode_the_same_leaf(case: dict[str, Any]) -> None:
    columns = _read_columns(case, dashes=False)
    encoded = leaf.encode_leaf(columns)
    assert encoded.decode() == case["leaf"]
    assert leaf.hash_leaf(encoded).hex() == case["hash"]
    assert gatebook_verify.hash_leaf_object(json.loads(case["leaf"])).hex() == case["hash"]
    for dashes, vendor in ((True, "postgresql"), (False, "sqlite")):
        row = _read_columns(case, dashes=dashes)
        names = gatebook_verify.LEAF_NAMES
        values = (0, 1, 1, *(row[name] for name in names), None, None, None)
        part = gatebook_verify.Part(0, 1)
        assert gatebook_verify.hash_rows(part, [values], vendor) == [bytes.fromhex(case["hash"])]
    with_objects = columns | {n: columns[n] and UUID(columns[n]) for n in _UUIDS}
    assert leaf.encode_leaf(with_objects) == encoded


def test_both_implementations_compute_the_roots_of_every_size() -> None:
    tiles: dict[tuple[int, int], bytes] = {}

    class Store:
        def read_tile(self, level: int, index: int) -> bytes:
            return tiles.get((level, index), b"")

        def write_tile(self, level: int, index: int, hashes: bytes) -> None:
            tiles[level, index] = hashes

    class Tiles:
        def read_tile(self, level: int, index: int, width: int) -> bytes:
            return tiles[level, index][: width * 32]

    roots, size = _DOCUMENT["tree"]["roots"], 0
    for wanted in SIZES:
        added = [leaf.hash_leaf(f"leaf {number}".encode()) for number in range(size, wanted)]
        size = merkle.append_leaves(size, added, Store())
        root = merkle.compute_root(size, Store().read_tile)
        assert root.hex() == roots[str(size)], size
        tree = gatebook_verify.TreeOfTiles(Tiles(), size)
        assert tree.compute_range(0, size) == root
        for old in range(size + 1) if size < 10 else (1, 2, 200, size - 1):
            growth = merkle.build_consistency_proof(old, size, Store().read_tile)
            assert tree.prove_growth(old) == growth, (old, size)


@pytest.mark.parametrize("case", _DOCUMENT["inclusion"], ids=lambda case: case["what"])
def test_both_implementations_judge_inclusion_proofs_alike(case: dict[str, Any]) -> None:
    leaf_hash, root = bytes.fromhex(case["leaf_hash"]), bytes.fromhex(case["root"])
    path = [bytes.fromhex(part) for part in case["proof"]]
    given = (leaf_hash, case["index"], case["size"], path, root)
    assert merkle.verify_inclusion(*given) is _holds(case)
    assert gatebook_verify.verify_inclusion_path(*given) is _holds(case)


@pytest.mark.parametrize("case", _DOCUMENT["consistency"], ids=lambda case: case["what"])
def test_both_implementations_judge_consistency_proofs_alike(case: dict[str, Any]) -> None:
    old, new = case["old_size"], case["new_size"]
    old_root, new_root = bytes.fromhex(case["old_root"]), bytes.fromhex(case["new_root"])
    path = [bytes.fromhex(part) for part in case["proof"]]
    assert merkle.verify_consistency(old, new, old_root, new_root, path) is _holds(case)
    judged = gatebook_verify.verify_consistency_path(old, old_root, new, new_root, path)
    assert judged is _holds(case)


@pytest.mark.parametrize("case", _DOCUMENT["notes"]["cases"], ids=lambda case: case["what"])
def test_both_implementations_judge_signed_notes_alike(case: dict[str, Any]) -> None:
    text = _DOCUMENT["notes"]["key"]
    key = gatebook_verify.parse_key(text)
    assert str(key) == text
    [head] = gatebook_verify.find_heads(f"before\n\n{case['note']}\nafter", "file")
    assert (gatebook_verify.check_head_signature(head, [key]) == "") is _holds(case)
    try:
        signed, _ = signed_note.verify_note(case["note"], [signed_note.parse_verifier_key(text)])
    except signed_note.NoteError:
        assert not _holds(case)
    else:
        assert _holds(case)
        assert signed_note.parse_head_text(signed)[:3] == (head.origin, head.size, head.root)
