"""The one writer of TreeHead: signed statements of the size and the root of the tree."""

from collections.abc import Sequence

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from db.clock import now_us
from proofs.merkle import compute_root
from proofs.models import TreeHead
from proofs.signed_note import NoteKey, format_head_text, read_public_key, sign_note
from proofs.tree_store import load_tree_end, open_tiles


def load_last_head() -> TreeHead | None:
    """Return the newest tree head, or None."""
    return TreeHead.objects.order_by("-id").first()


def sign_tree_head(
    origin: str, private_key: Ed25519PrivateKey, others: Sequence[Ed25519PrivateKey] = ()
) -> TreeHead:
    """Sign and store a head of the tree as it is now; `others` sign it too.

    Needs `lock_tree` in a transaction, so that heads are numbered without gaps.
    """
    size = load_tree_end().size
    root = compute_root(size, open_tiles())
    key = NoteKey(origin, read_public_key(private_key))
    note = sign_note(
        format_head_text(origin, size, root),
        [(origin, signer) for signer in (private_key, *others)],
    )
    last = load_last_head()
    return TreeHead.objects.create(
        id=last.id + 1 if last else 1,
        size=size,
        root=root,
        made_at_us=now_us(),
        key_name=key.name,
        key_id=key.key_id,
        note=note,
    )
