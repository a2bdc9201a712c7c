"""Celery task that seals the journal. `manage.py seal_journal` does the same."""

import threading
from typing import Any, Final

from celery import shared_task
from celery.signals import worker_shutting_down

from proofs import sealer

MOST_S: Final = 600.0  # a run ends earlier when no entries arrive
_stop: Final = threading.Event()


@worker_shutting_down.connect
def _stop_sealer(**_signal: Any) -> None:
    """End the run that stays for more entries, so that the worker can end."""
    _stop.set()


@shared_task
def seal_journal() -> int:
    """Seal new entries while they arrive; return their number."""
    return sealer.run_sealer(_stop, MOST_S)
