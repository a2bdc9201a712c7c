"""Celery tasks of the API. Each is also a management command."""

from celery import shared_task

from api import idempotency
from db import jobs
from db.clock import now_us
from sessions import artifacts, heartbeats


@shared_task
@jobs.record_run("pruning")
def prune_idempotency_keys() -> int:
    """Delete old stored responses, files of aborted uploads and old heartbeats."""
    return (
        idempotency.prune_responses()
        + artifacts.remove_abandoned_uploads(now_us())
        + heartbeats.prune_heartbeat_minutes()
    )
