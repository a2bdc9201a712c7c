"""Exemptions as of a cut: what they cover never changes; their uses and their revocation are told again."""

import copy
from collections.abc import Iterable
from typing import Final
from uuid import UUID

from approvals.models import Exemption
from inquiry.asof import told
from inquiry.asof.cut import Cut
from inquiry.indexes import IS_OF_A_RARE_KIND
from journal.models import Entry

KINDS: Final = ("exemption.used", "exemption.revoked", "exemption.expired")


def exemptions(project: UUID, ids: Iterable[UUID], cut: Cut) -> dict[UUID, Exemption]:
    """The exemptions of `ids` in the state as of `cut`, not saved; those that were not granted yet are absent."""
    found: dict[UUID, Exemption] = {}
    for part in told.parts(ids):
        for row in Exemption.objects.filter(id__in=part):
            if row.project_id == project and row.opened_position <= cut.position:
                found[row.id] = copy.copy(row)
    for row in found.values():
        row.uses, row.used_at_us, row.revoked_at_us, row.expired_position = 0, None, None, None
    # By their kind, of which there are few: no index leads from an exemption to its entries.
    said = Entry.objects.filter(IS_OF_A_RARE_KIND, project=project, kind__in=KINDS, lane="system")
    for part in told.parts(found):
        entries = said.filter(subject__in=part, position__lte=cut.position).order_by("position")
        for position, kind, subject, received_us in entries.values_list("position", "kind", "subject", "received_us"):
            row = found[subject]  # type: ignore[index]  # asked for by their ids
            if kind == "exemption.used":
                row.uses, row.used_at_us = row.uses + 1, received_us
            elif kind == "exemption.revoked":
                row.revoked_at_us = received_us
            else:
                row.expired_position = position
    return found
