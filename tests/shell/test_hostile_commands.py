"""Every spelling of a push is a push; what is not understood is the worst case."""

import pytest

from shell.command_effects import RUNS, UNPARSED
from shell.map_command import map_command
from shell.mapping import load_default_mapping
from tests.shell.hostile_commands import DISGUISED, HARMLESS, PUSHES, WORST

pytestmark = pytest.mark.once


@pytest.mark.parametrize("command", PUSHES)
def test_a_push_is_a_push_however_it_is_written(command: str) -> None:
    mapped = map_command(command, mapping=load_default_mapping())
    assert "git.push" in {part.tool for part in mapped.parts}
    assert mapped.changes_outside


@pytest.mark.parametrize("command", WORST)
def test_what_is_not_understood_is_the_worst_case(command: str) -> None:
    mapped = map_command(command, mapping=load_default_mapping())
    assert mapped.effect in (RUNS, UNPARSED), mapped.parts
    assert mapped.changes_outside


@pytest.mark.parametrize("command", DISGUISED)
def test_what_only_looks_like_reading_changes_something_outside(command: str) -> None:
    assert map_command(command, mapping=load_default_mapping()).changes_outside


@pytest.mark.parametrize("command", HARMLESS)
def test_words_that_only_look_like_a_push_change_nothing_outside(command: str) -> None:
    mapped = map_command(command, mapping=load_default_mapping())
    assert not mapped.changes_outside, mapped.parts
    assert mapped.parsed
