"""300 recorded commands, drawn with seed 14, map as a person checked by hand.

`recorded_commands.jsonl` holds the text of commands and nothing else of the sessions, from
marot/spotter, princeton-nlp/intercode, gruckion/mini-swe-agent, All-Hands-AI/OpenHands,
badlogic/pi-mono and SWE-agent/SWE-agent, all under the MIT licence. To draw them again:
`manage.py check_recorded_commands FOLDER --sample 300`.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from shell.map_command import map_command
from shell.mapping import load_default_mapping

pytestmark = pytest.mark.once
_FILE = Path(__file__).with_name("recorded_commands.jsonl")


def read_rows() -> list[dict[str, Any]]:
    return [json.loads(line) for line in _FILE.read_text(encoding="utf-8").splitlines()]


def test_every_recorded_command_maps_as_checked_by_hand() -> None:
    rows = read_rows()
    assert len(rows) == 300
    different = {}
    for row in rows:
        mapped = map_command(row["command"], mapping=load_default_mapping())
        parts = [[part.tool, part.effect] for part in mapped.parts]
        if (mapped.tool, mapped.effect, parts) != (row["tool"], row["effect"], row["parts"]):
            different[row["command"]] = (mapped.tool, parts)
    assert different == {}


def test_the_sample_has_every_kind_of_result() -> None:
    tools = {row["tool"] for row in read_rows()}
    assert {"git.push", "git.read", "shell.code", "shell.edit", "shell.read"} <= tools
    assert {"shell.run", "shell.unparsed", "shell.delete", "ssh.copy"} <= tools
