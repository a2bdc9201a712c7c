"""The one writer of TreeHead: signed statements of the size and the root of the tree."""

from collections.abc import Sequence
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from django.db import transaction

from db.clock import now_us
from journal import fingerprints
from proofs import signing_keys
from proofs.merkle import compute_root
from proofs.models import TreeHead
from proofs.signed_note import NoteKey, format_head_text, read_public_key, sign_note
from proofs.tree_store import (
    SealDamageError,
    check_tree_end,
    load_tree_end,
    lock_tree,
    open_tiles,
)

GROWN_EVERY_US: Final = 10_000_000
# A head of an unchanged tree shows that nothing was written in that hour.
UNCHANGED_EVERY_US: Final = 3_600_000_000


def load_last_head() -> TreeHead | None:
    """Return the newest tree head, or None."""
    return TreeHead.objects.order_by("-id").first()


def is_head_due(
    last: TreeHead | None, size: int, now: int, grown_every_us: int = GROWN_EVERY_US
) -> bool:
    """Return whether a head of a tree of `size` leaves is due at `now`.

    After the clock was set back, a head is due at once.
    """
    if last is None:
        return True
    every_us = grown_every_us if size > last.size else UNCHANGED_EVERY_US
    return not 0 <= now - last.made_at_us < every_us


def sign_due_head(grown_every_us: int = GROWN_EVERY_US) -> TreeHead | None:
    """Sign a head of the tree if one is due. Raises SealKeyError and SealDamageError.

    With 0, a head is due whenever the tree has grown. An installation that `manage.py setup` did
    not prepare has no origin, and no heads.
    """

    def is_due() -> bool:
        size = load_tree_end().size
        return is_head_due(load_last_head(), size, now_us(), grown_every_us)

    if fingerprints.load_installation_id() is None or not is_due():
        return None
    private_key = signing_keys.load_private_key()
    with transaction.atomic():
        if not (lock_tree() and is_due()):
            return None
        return sign_tree_head(signing_keys.load_origin(), private_key)


def sign_tree_head(
    origin: str, private_key: Ed25519PrivateKey, others: Sequence[Ed25519PrivateKey] = ()
) -> TreeHead:
    """Sign and store a head of the tree as it is now; `others` sign it too.

    Needs `lock_tree` in a transaction, so that heads are numbered without gaps. Raises
    SealDamageError.
    """
    end = load_tree_end()
    size, read_tile = end.size, open_tiles()
    check_tree_end(end, read_tile)
    try:
        root = compute_root(size, read_tile)
    except ValueError as error:
        raise SealDamageError(
            f"No tree head is signed: {error} It was cut. `manage.py verify` names the fault; the"
            " owner of the database restores a backup."
        ) from None
    key = NoteKey(origin, read_public_key(private_key))
    made_at_us = now_us()
    note = sign_note(
        format_head_text(origin, size, root, made_at_us, end.position),
        [(origin, signer) for signer in (private_key, *others)],
    )
    last = load_last_head()
    return TreeHead.objects.create(
        id=last.id + 1 if last else 1,
        size=size,
        root=root,
        made_at_us=made_at_us,
        key_name=key.name,
        key_id=key.key_id,
        note=note,
    )
