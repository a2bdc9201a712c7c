"""Commands that `gatebook resume-runner` started: their start, their output and their end.

A command runs in a process group of its own and outlives the runner: it is an agent at work. Its
output goes into a file per gate that only its owner may read.
"""

import os
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

from gatebook_client.connections import get_state_folder
from gatebook_client.resume_claims import Claim
from gatebook_client.resume_rules import Command
from gatebook_client.types import Json


class StartFailed(Exception):
    """The command did not start; the text says why."""


@dataclass
class Continuation:
    """A started command, and what of it is not reported yet."""

    name: str
    gate: Json
    session: Json
    claim: Claim
    lease: Json
    process: "subprocess.Popen[bytes]"
    facts: Json
    started_reported: bool = False
    worker_reported: bool = False
    beaten_at: float = field(default_factory=time.monotonic)


def get_log_path(gate: Json) -> Path:
    """Return the file with the output of a gate's command."""
    name = "".join(letter for letter in str(gate["id"]) if letter.isalnum() or letter == "-")
    return Path(get_state_folder()) / "resume" / f"{name}.log"


def start_command(command: Command, log: Path) -> "subprocess.Popen[bytes]":
    """Start a command. Raises StartFailed, which means that nothing of it ran."""
    try:
        log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        output = os.open(log, flags, 0o600)
    except OSError as error:
        raise StartFailed(f"its output cannot be kept: {error}") from error
    try:
        return subprocess.Popen(
            command.arguments,
            cwd=command.folder or None,
            env=os.environ | dict(command.environment),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise StartFailed(f"{error}") from error
    finally:
        os.close(output)
