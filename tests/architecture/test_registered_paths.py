"""Apps register functions by their paths. A wrong path would fail only when it is first used."""

from collections.abc import Iterable

import pytest
from django.utils.module_loading import import_string

from accounts import header_counts
from display import access_log
from journal import outbox
from notifications import message_text

SENDERS = [path for paths in outbox._senders.values() for path in paths]


@pytest.mark.parametrize(
    "paths",
    [
        header_counts._parts.values(),
        access_log._cleaners,
        SENDERS,
        message_text._text_builders.values(),
    ],
    ids=["header", "access log", "senders", "texts"],
)
def test_each_path_leads_to_a_function(paths: Iterable[str]) -> None:
    functions = [import_string(path) for path in paths]
    assert functions
    assert all(map(callable, functions))
