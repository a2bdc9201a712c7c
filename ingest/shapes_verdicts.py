"""What agents may send of a look at the remote."""

from typing import Any, Literal

import msgspec

from ingest.shapes import Count, Moment, Name300, Number, Strict

Found = Literal["hit", "miss", "error", "several"]


class ProbeFields(msgspec.Struct, kw_only=True):
    """What a look found: it happened (hit), it did not (miss), it happened more than once, or nobody can say (error).

    `began_us` is when the look began, best the `as_of_us` of the verdict that asked for it: what began before every
    request had died proves no absence. Of a hit, `external_reference` is what the other side calls it.
    """

    found: Found
    external_reference: Name300 | None = None
    began_us: Moment | None = None
    detail: Any = None


class ProbeEffect(ProbeFields, Strict):
    """POST /effects/{id}/probe"""

    attempt: Number
    lease_epoch: Count | None = None


class ReportedProbe(ProbeFields):
    """effect.probed, reported."""


for _shape in (ProbeEffect, ReportedProbe):
    msgspec.json.Decoder(_shape)

REPORTED: dict[str, type[msgspec.Struct]] = {"effect.probed": ReportedProbe}
