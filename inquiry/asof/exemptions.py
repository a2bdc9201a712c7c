"""Exemptions as of a cut: what they cover never changes; their uses and their revocation are told again."""

import copy
from collections.abc import Iterable
from typing import Final
from uuid import UUID

import orjson

from approvals.models import Exemption, ExemptionVote
from approvals.quorum import GRANTING
from inquiry.asof import told
from inquiry.asof.cut import Cut
from inquiry.indexes import IS_OF_A_RARE_KIND
from journal.models import Entry

KINDS: Final = (
    *("exemption.used", "exemption.revoked", "exemption.expired", "exemption.confirmed", "exemption.granted"),
)


def exemptions(project: UUID, ids: Iterable[UUID], cut: Cut) -> dict[UUID, Exemption]:
    """The exemptions of `ids` in the state as of `cut`, not saved; those that were not granted yet are absent."""
    found: dict[UUID, Exemption] = {}
    for part in told.parts(ids):
        for row in Exemption.objects.filter(id__in=part):
            if row.project_id == project and row.opened_position <= cut.position:
                found[row.id] = copy.copy(row)
    for row in found.values():
        row.uses, row.used_at_us, row.revoked_at_us, row.expired_position = 0, None, None, None
        row.in_force_at_us = None
    _count_grantors(project, found, cut)
    # By their kind, of which there are few: no index leads from an exemption to its entries.
    said = Entry.objects.filter(IS_OF_A_RARE_KIND, project=project, kind__in=KINDS, lane="system")
    for part in told.parts(found):
        entries = said.filter(subject__in=part, position__lte=cut.position).order_by("position")
        for position, kind, subject, received_us in entries.values_list("position", "kind", "subject", "received_us"):
            row = found[subject]  # type: ignore[index]  # asked for by their ids
            if kind == "exemption.used":
                row.uses, row.used_at_us = row.uses + 1, received_us
            elif kind == "exemption.granted":
                row.in_force_at_us = received_us
            elif kind == "exemption.revoked":
                row.revoked_at_us = received_us
            else:
                row.expired_position = position
    return found


def _count_grantors(project: UUID, found: dict[UUID, Exemption], cut: Cut) -> None:
    """Let each exemption say as `present` how many of those who had granted it by then could grant one then."""
    roles: dict[str, str | None] = {}
    told = Entry.objects.filter(IS_OF_A_RARE_KIND, project=project, kind__in=_OF_MEMBERS, position__lte=cut.position)
    for kind, facts in told.order_by("position").values_list("kind", "facts"):
        said = orjson.loads(facts)
        roles[said["person"]] = None if kind == "admin.member_removed" else said["role"]
    votes = ExemptionVote.objects.filter(exemption__in=found, position__lte=cut.position)
    for row in found.values():
        row.present = 0  # type: ignore[attr-defined]
    for exemption, actor in votes.values_list("exemption", "actor"):
        found[exemption].present += roles.get(actor, GRANTING[0]) in GRANTING  # type: ignore[attr-defined]


_OF_MEMBERS: Final = ("admin.member_added", "admin.member_changed", "admin.member_removed")
