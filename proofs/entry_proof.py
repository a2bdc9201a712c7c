"""The proof of one entry: its leaf, its path to a tree head, and the file for the verifier."""

from dataclasses import dataclass
from typing import Any, NamedTuple

from accounts.models import Project
from journal.models import Entry
from proofs.inclusion import Inclusion, load_inclusion
from proofs.leaf import build_leaf, encode_leaf, hash_leaf
from proofs.merkle import hash_node
from proofs.models import SigningKey, TreeHead
from proofs.proof_document import describe_head, read_leaf_values, withhold_text


class PathStep(NamedTuple):
    """A step of the path: the sibling, on which side it is, and the hash of both."""

    sibling: bytes
    is_left: bool
    result: bytes


@dataclass(frozen=True, slots=True)
class EntryProof:
    """An entry with its proof, None while no head covers it."""

    entry: Entry
    leaf: bytes
    leaf_hash: bytes
    inclusion: Inclusion | None
    steps: list[PathStep]

    @property
    def is_proved(self) -> bool:
        """Whether the path leads from the leaf, as it is stored now, to the root of the head."""
        if self.inclusion is None:
            return False
        reached = self.steps[-1].result if self.steps else self.leaf_hash
        return reached == bytes(self.inclusion.head.root)


def load_entry_proof(project: Project, position: int) -> EntryProof | None:
    """Return the proof of an entry of the project; None if it has no such entry. Five queries."""
    entry = Entry.objects.filter(project=project.id, position=position).first()
    if entry is None:
        return None
    leaf = encode_leaf(read_leaf_values(entry))
    inclusion = load_inclusion(position)
    steps = _follow_path(hash_leaf(leaf), inclusion) if inclusion is not None else []
    return EntryProof(entry, leaf, hash_leaf(leaf), inclusion, steps)


def build_entry_document(proof: EntryProof) -> dict[str, Any]:
    """Return the proof file of one entry for the verifier, without the entry's text.

    The leaf holds the commitment to the text. Raises ValueError while no head covers the entry.
    """
    if proof.inclusion is None:
        raise ValueError(f"No tree head covers entry {proof.entry.position} yet.")
    row = {
        "position": proof.entry.position,
        "log_index": proof.inclusion.log_index,
        "entry": build_leaf(read_leaf_values(proof.entry)),
        "proof": [digest.hex() for digest in proof.inclusion.path],
    }
    return {**describe_head(proof.inclusion.head), "entries": [withhold_text(row)], "erased": []}


def find_head_key(head: TreeHead) -> SigningKey | None:
    """Return the key that signed `head`; None if it is not stored."""
    return SigningKey.objects.filter(name=head.key_name, key_id=head.key_id).first()


def _follow_path(leaf_hash: bytes, inclusion: Inclusion) -> list[PathStep]:
    """Compute the hashes from the leaf to the root (RFC 9162, 2.1.3.2)."""
    node, last, reached = inclusion.log_index, inclusion.size - 1, leaf_hash
    steps = []
    for sibling in inclusion.path:
        is_left = bool(node & 1) or node == last
        reached = hash_node(sibling, reached) if is_left else hash_node(reached, sibling)
        steps.append(PathStep(sibling, is_left, reached))
        if is_left:
            while not node & 1 and node:
                node, last = node >> 1, last >> 1
        node, last = node >> 1, last >> 1
    return steps
