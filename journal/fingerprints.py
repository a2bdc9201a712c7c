"""The one writer of Fingerprint: which installation a database belongs to, and under which keys its rows were written.

A key that is replaced in silence makes every agent's token wrong and every intent another. So the database holds a
fingerprint of each key, from which nobody can make the key, and whoever starts with another key is refused.
"""

import hashlib
import hmac
import secrets
from typing import Final

from django.conf import settings
from django.db import connection, transaction

from journal.clock import now_us
from journal.models import Fingerprint

INSTALLATION: Final = "installation"
KEYS: Final = ("secret_key", "pepper")
TABLE: Final = "journal_fingerprint"


def of_key(name: str) -> str:
    """The fingerprint of the key `name` of this process."""
    key = (
        bytes.fromhex(str(settings.SECRET_KEY))
        if name == "secret_key"
        else settings.GATEBOOK_PEPPER
    )
    return hmac.new(key, f"gatebook fingerprint of {name}".encode(), hashlib.sha256).hexdigest()


def recorded() -> dict[str, str]:
    """What the database holds, by name; empty where it was never set up."""
    if TABLE not in connection.introspection.table_names():
        return {}
    return dict(Fingerprint.objects.values_list("name", "value"))


def foreign_keys(recorded_values: dict[str, str] | None = None) -> list[str]:
    """Return the names of the keys of this process that are not those of the database. `known` is what it holds."""
    values = (
        dict(Fingerprint.objects.values_list("name", "value"))
        if recorded_values is None
        else recorded_values
    )
    return [
        name
        for name in KEYS
        if name in values and not hmac.compare_digest(values[name], of_key(name))
    ]


@transaction.atomic(savepoint=False)
def record() -> dict[str, str]:
    """Record what is not yet recorded: the keys of this process, and an id; return all that is recorded now."""
    wanted = {INSTALLATION: secrets.token_hex(32), **{name: of_key(name) for name in KEYS}}
    for name, value in wanted.items():
        Fingerprint.objects.get_or_create(
            name=name, defaults={"value": value, "recorded_at_us": now_us()}
        )
    return recorded()


def replace(name: str) -> None:
    """Let the key `name` of this process take the place of the one that the database knows."""
    Fingerprint.objects.update_or_create(
        name=name, defaults={"value": of_key(name), "recorded_at_us": now_us()}
    )
