"""Exemptions as of a cut. Their scope never changes; uses and revocations are counted again."""

import copy
from collections.abc import Iterable
from typing import Final
from uuid import UUID

import orjson

from approvals.models import Exemption, ExemptionVote
from approvals.voting.quorum import GRANTING_ROLES
from investigation.history import past_entries as history_entries
from investigation.history.moment import JournalCut
from journal.models import Entry
from ledger.partial_indexes import IS_OF_A_RARE_KIND

EXEMPTION_KINDS: Final = (
    "exemption.used",
    "exemption.revoked",
    "exemption.expired",
    "exemption.confirmed",
    "exemption.granted",
)


def rebuild_exemptions(
    project: UUID, ids: Iterable[UUID], cut: JournalCut
) -> dict[UUID, Exemption]:
    """Return the exemptions of `ids` as of `cut`, not saved. Later ones are absent."""
    exemptions_by_id: dict[UUID, Exemption] = {}
    for part in history_entries.split_ids(ids):
        for row in Exemption.objects.filter(id__in=part):
            if row.project_id == project and row.opened_position <= cut.position:
                exemptions_by_id[row.id] = copy.copy(row)
    for row in exemptions_by_id.values():
        row.uses, row.used_at_us, row.revoked_at_us, row.expired_position = 0, None, None, None
        row.in_force_at_us = None
    _count_grantors(project, exemptions_by_id, cut)
    # Selected by kind, of which there are few entries: no index leads from an exemption to its
    # entries.
    exemption_entries = Entry.objects.filter(
        IS_OF_A_RARE_KIND, project=project, kind__in=EXEMPTION_KINDS, lane="system"
    )
    for part in history_entries.split_ids(exemptions_by_id):
        entries = exemption_entries.filter(subject__in=part, position__lte=cut.position).order_by(
            "position"
        )
        for position, kind, subject, received_us in entries.values_list(
            "position", "kind", "subject", "received_us"
        ):
            row = exemptions_by_id[subject]  # type: ignore[index]  # asked for by their ids
            if kind == "exemption.used":
                row.uses, row.used_at_us = row.uses + 1, received_us
            elif kind == "exemption.granted":
                row.in_force_at_us = received_us
            elif kind == "exemption.revoked":
                row.revoked_at_us = received_us
            else:
                row.expired_position = position
    return exemptions_by_id


def _count_grantors(
    project: UUID, exemptions_by_id: dict[UUID, Exemption], cut: JournalCut
) -> None:
    """Set `present`: how many of an exemption's grantors were allowed to grant one then."""
    roles: dict[str, str | None] = {}
    member_entries = Entry.objects.filter(
        IS_OF_A_RARE_KIND, project=project, kind__in=_MEMBER_KINDS, position__lte=cut.position
    )
    for kind, facts in member_entries.order_by("position").values_list("kind", "facts"):
        member_facts = orjson.loads(facts)
        roles[member_facts["person"]] = (
            None if kind == "admin.member_removed" else member_facts["role"]
        )
    votes = ExemptionVote.objects.filter(exemption__in=exemptions_by_id, position__lte=cut.position)
    for row in exemptions_by_id.values():
        row.present = 0  # type: ignore[attr-defined]
    for exemption, actor in votes.values_list("exemption", "actor"):
        exemptions_by_id[exemption].present += roles.get(actor, GRANTING_ROLES[0]) in GRANTING_ROLES  # type: ignore[attr-defined]


_MEMBER_KINDS: Final = ("admin.member_added", "admin.member_changed", "admin.member_removed")
