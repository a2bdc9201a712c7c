"""Template tags of seals and proofs."""

from uuid import UUID

from django import template

from db.clock import now_us
from proofs.seal_line import load_seal_line

register = template.Library()


@register.inclusion_tag("proofs/_sealed_under_head.html")
def seal_line(subject: str, key: UUID | int) -> dict[str, object]:
    """`{% seal_line "effect" effect.id %}`: one quiet line on how far it is sealed.

    One query. Subjects: `effect`, `session`, `entry` and `until` (a position).
    """
    now = now_us()
    line = load_seal_line(subject, key)
    return {
        "line": line,
        "subject": subject,
        "age_us": max(now - line.received_us, 0) if line is not None else 0,
        "is_late": line is not None and line.is_late(now),
    }
