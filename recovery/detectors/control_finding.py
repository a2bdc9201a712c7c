"""What a detector finds about a session."""

from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

MAX_FINDINGS: Final = 20  # findings of one kind that are returned


@dataclass(frozen=True, slots=True)
class ControlFinding:
    """One active control with its sentence and what it is about (ids and handles)."""

    control: str
    key: str  # distinguishes findings of one control
    sentence: str
    about: dict[str, Any] = field(default_factory=dict)
    effect: UUID | None = None
    subject: UUID | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the finding as JSON."""
        return {"control": self.control, "sentence": self.sentence, **self.about}
