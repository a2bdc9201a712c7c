"""Celery task of anchors; `manage.py anchor_heads` does the same."""

from celery import shared_task

from proofs.anchors import anchors


@shared_task
def anchor_heads() -> int:
    """Publish new tree heads to the anchors that are due."""
    return anchors.publish_due_heads()
