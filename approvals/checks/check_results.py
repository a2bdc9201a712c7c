"""What a check of a request reports. Pure; imports no Django.

A check compares a request with the journal and with declarations, never with a model's opinion. It
can only warn: no result lowers a risk or a proof.
"""

from dataclasses import dataclass, field
from typing import Final

# From the gravest. "danger" and "warning" are counted on the Approve button, keep a request out of
# a batch, and raise the proof where the rule says so; "notice" does none of this.
LEVELS: Final = ("danger", "warning", "notice")


@dataclass(frozen=True, slots=True)
class Compared:
    """One value that a check compared.

    `value` is agent text, `note` is ours. `marked` are the offsets of the characters of `value`
    that differ, which the page shows reversed.
    """

    label: str
    value: str
    note: str = ""
    marked: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One warning of one check.

    `short` is for list rows, at most 28 characters. `title` and `sentence` name what was compared.
    They may quote agent text, so pages show them as untrusted text. `concerns` is the dot path of
    the fact beside which the page shows the warning: `arguments.to.0`, `target.ref`, `changes`
    (`changes.<path>` for one file), `evidence`, `request` for the whole. `phrase` are the start and
    end of the words of the claim that the result contradicts.
    """

    check: str  # a key of approvals/checks/run_checks.py: CHECKS
    level: str
    short: str
    title: str
    sentence: str = ""
    concerns: str = "request"
    compared: tuple[Compared, ...] = field(default=())
    phrase: tuple[int, int] | None = None
    gate: str = ""  # handle of another request that the page links: g_2107

    @property
    def is_warning(self) -> bool:
        """True if it counts as a warning and not only as a notice."""
        return self.level != "notice"
