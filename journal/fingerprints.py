"""The one writer of Fingerprint: identifies the installation and its keys.

A replaced key would make every agent's token invalid and change every intent digest. So the
database stores a fingerprint of each key, which does not reveal the key, and Gatebook refuses to
start with another key.
"""

import hashlib
import hmac
import secrets
from typing import Final

from django.conf import settings
from django.db import connection, transaction

from db.clock import now_us
from journal.models import Fingerprint

INSTALLATION_NAME: Final = "installation"
KEY_NAMES: Final = ("secret_key", "pepper")
FINGERPRINT_TABLE: Final = "journal_fingerprint"


def compute_fingerprint(name: str) -> str:
    """Return the fingerprint of the key `name` of this process."""
    key = (
        bytes.fromhex(str(settings.SECRET_KEY))
        if name == "secret_key"
        else settings.GATEBOOK_PEPPER
    )
    return hmac.new(key, f"gatebook fingerprint of {name}".encode(), hashlib.sha256).hexdigest()


def load_fingerprints() -> dict[str, str]:
    """Return the stored fingerprints by name; empty if the database was never set up."""
    if FINGERPRINT_TABLE not in connection.introspection.table_names():
        return {}
    return dict(Fingerprint.objects.values_list("name", "value"))


def load_installation_id() -> str | None:
    """Return the id of the installation, 64 hex digits; None before `setup`."""
    row = Fingerprint.objects.filter(name=INSTALLATION_NAME).values_list("value", flat=True)
    return row.first()


def find_changed_keys(recorded_values: dict[str, str] | None = None) -> list[str]:
    """Return the names of this process's keys that differ from the stored ones."""
    values = (
        dict(Fingerprint.objects.values_list("name", "value"))
        if recorded_values is None
        else recorded_values
    )
    return [
        name
        for name in KEY_NAMES
        if name in values and not hmac.compare_digest(values[name], compute_fingerprint(name))
    ]


@transaction.atomic(savepoint=False)
def record_fingerprints() -> dict[str, str]:
    """Store missing fingerprints and the installation's id; return all stored ones."""
    wanted = {
        INSTALLATION_NAME: secrets.token_hex(32),
        **{name: compute_fingerprint(name) for name in KEY_NAMES},
    }
    for name, value in wanted.items():
        Fingerprint.objects.get_or_create(
            name=name, defaults={"value": value, "recorded_at_us": now_us()}
        )
    return load_fingerprints()


def replace_fingerprint(name: str) -> None:
    """Replace the stored fingerprint of the key `name` by that of this process."""
    Fingerprint.objects.update_or_create(
        name=name, defaults={"value": compute_fingerprint(name), "recorded_at_us": now_us()}
    )
