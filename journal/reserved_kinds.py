"""Kinds of entries that count only when Gatebook itself writes them.

An agent may report an entry of any kind. It is stored as sent, in the lane `evidence`, and stays
searchable there, but is only a claim.
"""

from typing import Final

_FAMILIES: Final = frozenset(
    {
        "access",
        "admin",
        "alert",
        "code_host",
        "control",
        "erasure",
        "exemption",
        "gate",
        "stop",
        "incident",
        "integrity",
        "lease",
        "policy",
        "query",
        "retention",
    }
)
_KINDS: Final = frozenset(
    {
        "artifact.stored",
        "artifact.removed",
        "effect.granted",
        "effect.withheld",
        "effect.replanned",
        "effect.resolved",
        "effect.confirmed",
        "effect.unconfirmed",
        "effect.named",
        "session.silent",
        "session.silence_ended",
        "session.resumed",
        "session.stuck",
        "session.recovered",
        "session.named",
    }
)


def is_system_kind(kind: str) -> bool:
    """True if entries of this kind count only when written by Gatebook."""
    return kind.partition(".")[0] in _FAMILIES or kind in _KINDS
