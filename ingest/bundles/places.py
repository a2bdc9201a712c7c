"""Where a bundle goes: the archive that is meant or has to be made, and the files of its artifacts."""

from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from ingest.bundles.reading import Opened
from journal.ids import uuid7
from sessions import artifacts, people, projects, references
from sessions.models import Artifact, Project
from sessions.refused import RefusedError


@dataclass(slots=True)
class Archive:
    """The project that is brought into: `project` is None while it has yet to be made."""

    identity: UUID
    name: str
    project: Project | None
    administrator: str
    password: str | None = None


def choose(opened: Opened, name: str | None, administrator: str | None) -> Archive:
    """The archive called `name`, or one named after the session. Raises RefusedError."""
    origin = opened.document["origin"]
    wanted = name or f"{origin['project_name'][:30]} {origin['handle'][:21]} {opened.sha256[:8]}"
    if not 1 <= len(wanted) <= 64 or not wanted.isprintable():
        raise RefusedError("An archive's name is 1 to 64 printable characters; give one with --project.")
    project = projects.named(wanted)
    if project is not None:
        if not project.archive:
            raise RefusedError(f"Agents work in {wanted}; a bundle needs a project of its own. Give another --project.")
        if project.sessions.filter(id=references.identity(project.id, opened.document["session"]["key"])).exists():
            raise RefusedError(
                f"{wanted} holds a session of that key already, of another file. Give another --project for this one."
            )
        return Archive(project.id, wanted, project, "")
    if not administrator:
        raise RefusedError(f"The archive {wanted} has to be made: say with --administrator who may look at it.")
    password = None if people.known(administrator) else people.generated_password()
    return Archive(uuid7(), wanted, None, administrator, password)


def receive(opened: Opened, archive: Archive) -> dict[str, Path]:
    """Put the enclosed bytes on disk, by hash; return those files that were not there before.

    Runs before the transaction that names them: it would keep every other writer waiting.
    """
    new: dict[str, Path] = {}
    try:
        for sha256, size in opened.enclosed().items():
            place = artifacts.path(archive.identity, sha256)
            if not place.exists():
                artifacts.receive(
                    Artifact(project_id=archive.identity, sha256=sha256, size=size), opened.artifact(sha256)
                )
                new[sha256] = place
    except BaseException:
        for file in new.values():
            file.unlink(missing_ok=True)
        raise
    return new
