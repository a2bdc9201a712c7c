"""Schemas of probe results."""

from typing import Any, Literal

import msgspec

from api.schemas.core import Count, Name300, Number, Strict, TimeUs

ProbeResult = Literal["hit", "miss", "error", "several"]


class ProbeFields(msgspec.Struct, kw_only=True):
    """Result of a probe.

    `result`: `hit` (it happened), `miss` (it did not happen), `several` (it happened more than
    once) or `error` (the probe failed; the outcome is still unknown). `began_us` is when the probe
    began, at best the `as_of_us` of the verdict that asked for it: a miss proves absence only if
    the probe began after every request had ended. `external_reference` is the id that the remote
    gives a hit.
    """

    result: ProbeResult
    external_reference: Name300 | None = None
    began_us: TimeUs | None = None
    detail: Any = None


class ProbeEffect(ProbeFields, Strict):
    """POST /effects/{id}/probe"""

    attempt: Number
    lease_epoch: Count | None = None


class ReportedProbe(ProbeFields):
    """A reported effect.probed."""


for _shape in (ProbeEffect, ReportedProbe):
    msgspec.json.Decoder(_shape)

REPORTED: dict[str, type[msgspec.Struct]] = {"effect.probed": ReportedProbe}
