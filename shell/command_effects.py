"""What a part of a command does to the outside world, from the mildest."""

from typing import Final

READS: Final = "reads"  # changes nothing
LOCAL: Final = "local"  # changes files of this machine, or runs code of the working copy
CHANGES: Final = "changes"  # changes something outside
DESTROYS: Final = "destroys"  # changes something outside so that it cannot be brought back
RUNS: Final = "runs"  # what it does is not known
UNPARSED: Final = "unparsed"  # not even what runs

EFFECTS: Final = (READS, LOCAL, CHANGES, DESTROYS, RUNS, UNPARSED)
OUTSIDE: Final = frozenset({CHANGES, DESTROYS, RUNS, UNPARSED})

# Tools of parts that no usage line maps.
READ_TOOL: Final = "shell.read"
EDIT_TOOL: Final = "shell.edit"
DELETE_TOOL: Final = "shell.delete"
CODE_TOOL: Final = "shell.code"
RUN_TOOL: Final = "shell.run"
UNPARSED_TOOL: Final = "shell.unparsed"


def is_graver(effect: str, other: str) -> bool:
    """True if `effect` comes after `other` in the order of EFFECTS."""
    return EFFECTS.index(effect) > EFFECTS.index(other)
