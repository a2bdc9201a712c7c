"""The target of an import: the archive project and the files of artifacts."""

from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from accounts import people, projects
from accounts.models import Project
from db.errors import ChangeRefused
from db.ids import new_uuid7
from importers.bundles.zip_reader import OpenBundle
from sessions import artifacts, lookup
from sessions.models import Artifact


@dataclass(slots=True)
class TargetArchive:
    """The project to import into; `project` is None if it must be created."""

    identity: UUID
    name: str
    project: Project | None
    administrator: str
    password: str | None = None


def choose_archive(
    opened: OpenBundle, name: str | None, administrator: str | None
) -> TargetArchive:
    """Return the archive `name`, or one named after the session. Raises ChangeRefused."""
    origin = opened.document["origin"]
    archive_name = (
        name or f"{origin['project_name'][:30]} {origin['handle'][:21]} {opened.sha256[:8]}"
    )
    if not 1 <= len(archive_name) <= 64 or not archive_name.isprintable():
        raise ChangeRefused(
            "The archive's name is not 1 to 64 printable characters. Give one with --project."
        )
    project = projects.find_project(archive_name)
    if project is not None:
        if not project.archive:
            raise ChangeRefused(
                f"{archive_name} is not an archive; agents work in it. Give another --project."
            )
        if project.sessions.filter(
            id=lookup.derive_session_id(project.id, opened.document["session"]["key"])
        ).exists():
            raise ChangeRefused(
                f"{archive_name} already has a session with this key from another file."
                " Give another --project."
            )
        return TargetArchive(project.id, archive_name, project, "")
    if not administrator:
        raise ChangeRefused(
            f"The archive {archive_name} does not exist. Name the administrator of a new one with"
            " --administrator."
        )
    password = None if people.has_username(administrator) else people.generate_password()
    return TargetArchive(new_uuid7(), archive_name, None, administrator, password)


def store_artifact_files(opened: OpenBundle, archive: TargetArchive) -> dict[str, Path]:
    """Store the enclosed bytes on disk by hash; return the files that are new.

    Runs before the transaction, in which it would make every other writer wait.
    """
    new_files: dict[str, Path] = {}
    try:
        for sha256, size in opened.enclosed().items():
            path = artifacts.artifact_path(archive.identity, sha256)
            if not path.exists():
                artifacts.receive_content(
                    Artifact(project_id=archive.identity, sha256=sha256, size=size),
                    opened.artifact(sha256),
                )
                new_files[sha256] = path
    except BaseException:
        for file in new_files.values():
            file.unlink(missing_ok=True)
        raise
    return new_files
