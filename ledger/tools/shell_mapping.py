"""The mapping of shell commands of a project: its declared usage lines, then the default ones."""

import threading
from collections.abc import Mapping
from typing import Final, NamedTuple
from uuid import UUID

from ledger.tools import cache
from ledger.tools.cache import CachedDeclaration
from shell.command_effects import CHANGES, READS
from shell.mapping import ShellMapping, extend_mapping, load_default_mapping


class _KeptMapping(NamedTuple):
    declarations: Mapping[str, CachedDeclaration]
    mapping: ShellMapping


_lock: Final = threading.Lock()
_kept: dict[UUID, _KeptMapping] = {}


def load_shell_mapping(project: UUID) -> ShellMapping:
    """Return the mapping of a project, as old as its cached declarations: five seconds at most.

    A command of a declared usage line only reads if its tool is declared read_only.
    """
    declarations = cache.load_tools(project)
    kept = _kept.get(project)
    if kept is not None and kept.declarations is declarations:
        return kept.mapping
    mapping = build_shell_mapping(declarations)
    with _lock:
        _kept[project] = _KeptMapping(declarations, mapping)
    return mapping


def build_shell_mapping(declarations: Mapping[str, CachedDeclaration]) -> ShellMapping:
    """Return the default mapping with the usage lines of declarations before it."""
    lines = [
        (name, READS if declaration.tool_class == "read_only" else CHANGES, line)
        for name, declaration in sorted(declarations.items())
        for line in declaration.shell
        if isinstance(line, str)
    ]
    return extend_mapping(load_default_mapping(), lines) if lines else load_default_mapping()
