"""Anchor: a webhook that receives each tree head, signed like the webhooks of notifications.

The secret is derived from the pepper and the anchor's name; `manage.py anchor_heads --secret NAME`
prints it for the receiver.
"""

import base64
import hashlib
import hmac
import time
from collections.abc import Iterator, Sequence

import orjson
from django.conf import settings

from notifications.webhooks import SIGNATURE, sign_webhook
from proofs.anchors.operator_http import parse_operator_url, post_to_operator_url
from proofs.anchors.published_head import (
    AnchorFailed,
    AnchorTarget,
    LastReceipt,
    PublishedHead,
    TreeReader,
    write_receipt,
)


def publish_to_webhook(
    target: AnchorTarget,
    heads: Sequence[PublishedHead],
    _last: LastReceipt | None,
    _tree: TreeReader,
) -> Iterator[str]:
    """POST each of `heads`; yield a receipt for each that was taken. Raises AnchorFailed."""
    host = parse_operator_url(target.address).host
    for head in heads:
        body = build_webhook_body(head)
        sent_at_s = int(time.time())
        headers = {
            SIGNATURE: sign_webhook(derive_anchor_secret(target.name), body, sent_at_s),
            "Gatebook-Notification": f"tree-head:{head.origin}:{head.number}",
        }
        status = post_to_operator_url(target.address, body, headers).status
        if not 200 <= status < 300:
            raise AnchorFailed(f"{host} answered {status}. Check the receiver; it is tried again.")
        yield write_receipt(host=host, status=status, sent_at_s=sent_at_s)


def build_webhook_body(head: PublishedHead) -> bytes:
    """Return the JSON of a tree head; `note` is all that a verifier needs."""
    return orjson.dumps(
        {
            "event": "tree_head.made",
            "id": f"tree-head:{head.origin}:{head.number}",
            "head": head.number,
            "origin": head.origin,
            "size": head.size,
            "root": base64.b64encode(head.root).decode(),
            "made_at_us": head.made_at_us,
            "note": head.note,
        }
    )


def derive_anchor_secret(name: str) -> str:
    """Derive the secret that signs an anchor's webhooks; no table stores it."""
    return hmac.new(
        settings.GATEBOOK_PEPPER, b"anchor webhook " + name.encode(), hashlib.sha256
    ).hexdigest()


def find_webhook_faults(target: AnchorTarget) -> list[str]:
    """Return why the URL cannot be an anchor."""
    try:
        parse_operator_url(target.address)
    except AnchorFailed as fault:
        return [str(fault)]
    return []
