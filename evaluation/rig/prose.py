"""The words of docs/evaluation.md around the figures."""

from typing import Final

OPENING: Final = ""
MEANING: Final = ""
LIMITS: Final = ""
FAILURE_MODES: Final = ""
