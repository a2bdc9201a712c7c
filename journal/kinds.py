"""Kinds of entries that only Gatebook itself can vouch for: reported by an agent, they are no more than its claim.

An agent may report an entry of any kind. It is stored as it was sent, in the lane `evidence`, and stays findable there.
"""

from typing import Final

_FAMILIES: Final = frozenset(
    {
        *(
            "access",
            "admin",
            "alert",
            "control",
            "erasure",
            "exemption",
            "gate",
            "hold",
            "incident",
            "integrity",
        ),
        *("lease", "policy", "query"),
    }
)
_KINDS: Final = frozenset(
    {
        *(
            "effect.granted",
            "effect.withheld",
            "effect.replanned",
            "effect.resolved",
            "effect.named",
        ),
        *(
            "session.silent",
            "session.heard",
            "session.resumed",
            "session.stuck",
            "session.recovered",
            "session.named",
        ),
    }
)


def is_own(kind: str) -> bool:
    """Whether entries of this kind count only where Gatebook wrote them: not in the lane `evidence`."""
    return kind.partition(".")[0] in _FAMILIES or kind in _KINDS
