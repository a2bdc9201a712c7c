"""The checks of the tables that follow from the journal, one module per subject."""

from rebuild.checks import effect_checks, gate_checks


def register_row_checks() -> None:
    """Register every check, the tables that others refer to first."""
    effect_checks.register_effect_checks()
    gate_checks.register_gate_checks()
