"""The one writer of CodeHostSource: webhooks of code hosts, and their secrets.

A secret is derived from the source's id and its generation, never stored. A rotation begins the
next generation; the one before is accepted until the end of the overlap.
"""

import base64
import hashlib
import hmac
from collections.abc import Sequence
from typing import Final
from uuid import UUID

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import F, QuerySet

from accounts.audit_log import record_admin_entry
from accounts.models import Project
from db.clock import now_us
from db.errors import ChangeRefused
from db.row_changes import RowChange, write_row_changes
from hooks.code_hosts.signatures import SECRET_PREFIX
from hooks.models import CodeHostSource
from ledger.states import CODE_HOSTS

MAX_SOURCES: Final = 100  # of a project
MAX_SOURCES_TRIED: Final = 16  # at the common address of a host
OVERLAP_HOURS: Final = (0, 1, 24, 168)
_HOUR_US: Final = 3_600_000_000


def derive_source_secret(source: UUID, generation: int) -> str:
    """Derive the secret of a source from the pepper."""
    parts = b"code-host" + source.bytes + generation.to_bytes(8, "big")
    digest = hmac.new(settings.GATEBOOK_PEPPER, parts, hashlib.sha256).digest()
    return SECRET_PREFIX + base64.b64encode(digest).decode()


def list_accepted_secrets(source: CodeHostSource, now: int) -> list[str]:
    """Return the secrets that sign a request now: the newest, and the one before if it counts."""
    generations = [source.secret_generation]
    if source.previous_until_us is not None and now < source.previous_until_us:
        generations.append(source.secret_generation - 1)
    return [derive_source_secret(source.id, generation) for generation in generations]


@transaction.atomic(savepoint=False)
def add_source(project: Project, host: str, name: str, *, actor: str) -> CodeHostSource:
    """Add a source. Raises ChangeRefused."""
    name = name.strip()
    if host not in CODE_HOSTS:
        raise ChangeRefused(f"{host} is not a known code host. Use {' or '.join(CODE_HOSTS)}.")
    if not name or len(name) > 100 or not name.isprintable():
        raise ChangeRefused("A webhook's name has 1 to 100 printable characters.")
    if project.archive:
        raise ChangeRefused("An archive contains imported bundles only. Choose another project.")
    if project.code_host_sources.count() >= MAX_SOURCES:
        raise ChangeRefused(f"A project has at most {MAX_SOURCES} sources. Use one of them.")
    source = CodeHostSource(
        project=project, host=host, name=name, created_by=actor, created_at_us=now_us()
    )
    if project.code_host_sources.filter(host=host, name=name).exists():
        raise ChangeRefused(f"{name} is already a webhook of {host}. Choose another name.")
    # The entry comes first: guards refuse a source without one (setting_guards.py).
    _record_source_entry(source, "admin.source_added", actor)
    try:
        source.save(force_insert=True)
    except IntegrityError:
        raise ChangeRefused(
            f"{name} is already a webhook of {host}. Choose another name."
        ) from None
    return source


@transaction.atomic(savepoint=False)
def rotate_source_secret(source: CodeHostSource, overlap_h: int, *, actor: str) -> CodeHostSource:
    """Begin the next secret; the present one counts for `overlap_h` more hours."""
    if overlap_h not in OVERLAP_HOURS:
        hours = ", ".join(str(hours) for hours in OVERLAP_HOURS)
        raise ChangeRefused(f"Choose an overlap of {hours} hours.")
    stored = CodeHostSource.objects.select_for_update().get(pk=source.pk)
    stored.secret_generation += 1
    stored.previous_until_us = now_us() + overlap_h * _HOUR_US if overlap_h else None
    _record_source_entry(stored, "admin.source_rotated", actor)
    stored.save(update_fields=["secret_generation", "previous_until_us"])
    return stored


@transaction.atomic(savepoint=False)
def switch_source(source: CodeHostSource, *, enabled: bool, actor: str) -> CodeHostSource:
    """Enable or disable a source; a disabled one refuses every request."""
    stored = CodeHostSource.objects.select_for_update().get(pk=source.pk)
    if stored.enabled != enabled:
        stored.enabled = enabled
        _record_source_entry(stored, "admin.source_changed", actor)
        stored.save(update_fields=["enabled"])
    return stored


def count_refusals(sources: list[CodeHostSource]) -> None:
    """Count a request with a wrong signature, at each source whose secret was tried."""
    ids = [source.id for source in sources]
    with transaction.atomic(durable=True):
        CodeHostSource.objects.filter(id__in=ids).update(
            refused_count=F("refused_count") + 1, last_refused_us=now_us()
        )


def find_sources(host: str, source: UUID | None) -> "QuerySet[CodeHostSource]":
    """Return the source with the id `source`, or the enabled ones of the host, oldest first.

    No project limits the search: the signature decides which source a request belongs to.
    """
    rows = CodeHostSource.objects.filter(host=host)
    if source is not None:
        return rows.filter(id=source)
    return rows.filter(enabled=True).order_by("created_at_us", "id")[: MAX_SOURCES_TRIED + 1]


def restore_sources(changes: Sequence[RowChange]) -> None:
    """Restore sources to what the journal gives (manage.py rebuild)."""
    write_row_changes(CodeHostSource, changes)


def _record_source_entry(source: CodeHostSource, kind: str, actor: str) -> None:
    facts: dict[str, str | int | None] = {
        "host": source.host,
        "enabled": int(source.enabled),
        "generation": source.secret_generation,
        "previous_until_us": source.previous_until_us,
        "created_at_us": source.created_at_us,
    }
    record_admin_entry(
        source.project_id,
        kind,
        actor=actor,
        subject=source.id,
        facts={name: value for name, value in facts.items() if value is not None},
        words={**facts, "name": source.name},
    )
