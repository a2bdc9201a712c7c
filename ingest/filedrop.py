"""Messages as files, for agents that have a file system and nothing else: `messages/for_X/`, `messages/shared/`.

One round takes each folder in turn: what was dropped there is sent; what was put away is marked as read; what was read
elsewhere is put away; what is unread is written as a file. A round that is killed at any place is mended by the next:
messages have ids that follow from folder, name and content, and a file is known again by its name and its content.
"""

import hashlib
import hmac
import re
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from uuid import UUID

from django.conf import settings
from django.db import transaction

from ingest import folders, redaction
from ingest.folders import Refused, Unsettled
from journal import entries
from sessions import deliveries, messages
from sessions.models import Agent, Project
from sessions.models_messages import Message

AT_ONCE: Final = 500  # files of one folder in one round, in either direction
_FOR: Final = "for_"
_OURS: Final = re.compile(r"(\d{12})-[a-z0-9-]*(?:-[0-9a-f]{8})?\.md")


@dataclass(slots=True)
class Told:
    """What a round did, in numbers, and a line for each thing that it did not take."""

    sent: int = 0
    written: int = 0
    read: int = 0
    put_away: int = 0
    lines: list[str] = field(default_factory=list)

    @property
    def summary(self) -> str:
        """One line."""
        return (
            f"{self.sent} sent from files, {self.written} written as files, {self.read} marked as read, "
            f"{self.put_away} put away."
        )


@dataclass(slots=True)
class Folder:
    """An open folder and whose box it is; `recipient` is None for that of all."""

    name: str
    descriptor: int
    mark: UUID
    recipient: Agent | None

    @property
    def box(self) -> str:
        """What ids are made of."""
        return self.recipient.id.hex if self.recipient is not None else messages.SHARED


class Filedrop:
    """The bridge between one project and one directory. Raises Refused where the directory cannot be used."""

    def __init__(self, project: Project, directory: Path) -> None:
        self.project = project
        self.directory = directory
        self.known: dict[tuple[UUID, str], tuple[int, int, int]] = {}  # files that need no second look
        secret = hmac.new(settings.GATEBOOK_PEPPER, b"redaction" + project.id.bytes, hashlib.sha256).digest()
        self.redaction_key = secret if project.redacts else None

    def round(self) -> Told:
        """Go through every folder once."""
        told = Told()
        with ExitStack() as stack:
            root = stack.enter_context(folders.opened(str(self.directory / "messages")))
            stack.enter_context(folders.alone(root))
            found = list(self._folders(root, told, stack))
            shared = next((one for one in found if one.recipient is None), None)
            for folder in found:
                try:
                    self._send(folder, told)
                    self._follow(folder, root, told)
                    if shared is not None and folder.recipient is not None:
                        self._follow_shared(folder, folder.recipient, shared, told)
                    self._deliver(folder, told)
                except OSError as fault:
                    told.lines.append(f"{folder.name}: {_words(fault)}; the rest of it comes next time.")
        return told

    def _folders(self, root: int, told: Told, stack: ExitStack) -> Iterator[Folder]:
        for name in folders.names_in(root):
            if name != messages.SHARED and not name.startswith(_FOR):
                continue
            recipient = None
            if name != messages.SHARED:
                recipient = Agent.objects.filter(project=self.project, name=name.removeprefix(_FOR)).first()
                if recipient is None or recipient.name == messages.SHARED:
                    told.lines.append(f"{_plain(name)}: the project has no such agent; nothing in it was read.")
                    continue
            try:
                descriptor = stack.enter_context(folders.opened(name, root))
                yield Folder(name, descriptor, folders.mark_of(descriptor, self.project.id), recipient)
            except (Refused, OSError) as fault:
                told.lines.append(f"{_plain(name)}: {_words(fault)}; nothing in it was read.")

    # What was dropped

    def _send(self, folder: Folder, told: Told) -> None:
        """Send what lies in the folder and is not known, in the order of its names."""
        names = [name for name in folders.names_in(folder.descriptor) if name != "done"]
        lying = deliveries.of_files(folder.mark, [name for name in names if name.isprintable()])
        sent = 0
        for name in names:
            looks = folders.looks(folder.descriptor, name)
            if looks is None or self.known.get((folder.mark, name)) == looks or self._is_ours(name, lying):
                continue
            if sent == AT_ONCE:
                told.lines.append(f"{folder.name}: more than {AT_ONCE} files are new; the rest comes next time.")
                break
            try:
                sent += self._send_one(folder, name, lying.get(name, set()))
            except Unsettled:
                continue
            except Refused as refused:
                told.lines.append(f"{folder.name}/{_plain(name)}: {refused}; it was not sent.")
            self.known[folder.mark, name] = looks
        told.sent += sent

    def _is_ours(self, name: str, lying: dict[str, set[UUID]]) -> bool:
        """Whether a message was written under this name: its name begins with the message's position."""
        if not (said := _OURS.fullmatch(name)) or name not in lying:
            return False
        return Message.objects.filter(id__in=lying[name], opened_position=int(said[1])).exists()

    def _send_one(self, folder: Folder, name: str, lying: set[UUID]) -> bool:
        """Send one file, unless it was sent or written here before. Raises Refused, Unsettled."""
        folders.check_name(name)
        content = folders.read(folder.descriptor, name)
        if (said := _OURS.fullmatch(name)) and not lying:
            left = deliveries.at(self.project.id, folder.recipient, int(said[1]))
            if left is not None and content == _as_file(left)[1]:  # of a run that was killed before it noted it
                with transaction.atomic(durable=True):
                    deliveries.note(folder.mark, {left.id: name})
                return False
        try:
            body = content.decode()
        except UnicodeDecodeError as error:
            raise Refused("is not text in UTF-8") from error
        if not body.strip():
            raise Refused("is empty")
        if len(body) > messages.MOST_CHARACTERS:
            raise Refused(f"has more than {messages.MOST_CHARACTERS:,} characters")
        before = deliveries.gone_before(folder.mark, name)
        digest = hashlib.sha256(content).hexdigest()
        event_id = entries.keyed_digest("file", folder.box, name, digest, *([str(before)] if before else []))
        said_text = self._redacted({"subject": name[: messages.MOST_SUBJECT], "body": body})
        with transaction.atomic(durable=True):
            message, created = messages.dropped(
                self.project.id, event_id, folder.recipient, said_text["subject"], said_text["body"]
            )
            deliveries.note(folder.mark, {message.id: name})
        return created

    def _redacted(self, value: dict[str, str]) -> dict[str, str]:
        if self.redaction_key is None:
            return value
        clean: dict[str, str] = redaction.redact(value, self.redaction_key)[0]
        return clean

    # What became of what lies there

    def _follow(self, folder: Folder, root: int, told: Told) -> None:
        """Mark as read what was put away, and put away what was read elsewhere. Of the shared folder, only note it."""
        lying = deliveries.lying(folder.mark, folder.recipient)
        gone = [one for one in lying if not folders.is_there(folder.descriptor, one.file)]
        # Looked at last: in a folder that was taken away meanwhile nothing is there, and nobody has read anything.
        if gone and not folders.is_still(folder.descriptor, folder.name, root):
            told.lines.append(f"{folder.name}: the folder was replaced meanwhile; nothing was marked as read.")
            return
        absent = {one.id for one in gone}
        for one in lying:
            if one.id in absent:
                with transaction.atomic(durable=True):
                    if folder.recipient is not None:
                        told.read += messages.mark_put_away(one.message, folder.recipient.id)
                    deliveries.end(one)
            elif one.message.read_at_us is not None:
                try:
                    folders.put_away(folder.descriptor, one.file, f"{one.message.opened_position:012d}-{one.file}")
                except (OSError, Refused) as fault:
                    told.lines.append(f"{folder.name}/{_plain(one.file)}: cannot be put away: {_words(fault)}.")
                    continue
                with transaction.atomic(durable=True):
                    deliveries.end(one)
                told.put_away += 1

    def _follow_shared(self, folder: Folder, agent: Agent, shared: Folder, told: Told) -> None:
        """Mark as read by an agent what it has in its own `done/` under the name of a shared file."""
        if not folders.is_there(folder.descriptor, "done"):
            return
        try:
            with folders.opened("done", folder.descriptor) as done:
                kept = [one for one in deliveries.unread_of_all(shared.mark, agent) if folders.is_there(done, one.file)]
        except Refused as refused:
            told.lines.append(f"{folder.name}/done: {refused}.")
            return
        for one in kept:
            with transaction.atomic(durable=True):
                told.read += messages.mark_put_away(one.message, agent.id)

    # What is to be written

    def _deliver(self, folder: Folder, told: Told) -> None:
        """Write what was never in the folder. It is noted once it cannot be lost any more."""
        missing = deliveries.missing(folder.mark, self.project.id, folder.recipient, AT_ONCE)
        files: dict[UUID, str] = {}
        for message in missing:
            name, content = _as_file(message)
            if folders.is_there(folder.descriptor, name):
                name = f"{name.removesuffix('.md')}-{message.id.hex[-8:]}.md"  # somebody took it
            try:
                folders.write(folder.descriptor, name, content)
            except OSError as fault:
                told.lines.append(f"{folder.name}: {name} cannot be written: {_words(fault)}.")
                break
            files[message.id] = name
        if files:
            folders.settle(folder.descriptor)
            with transaction.atomic(durable=True):
                deliveries.note(folder.mark, files)
        told.written += len(files)


def _as_file(message: Message) -> tuple[str, bytes]:
    """The name and the content of a message as a file. Names sort as messages follow each other.

    Above the first blank line stands who says it, and of what; no text below can forge that.
    """
    (letter,) = messages.letters([message], None)
    slug = re.sub(r"[^a-z0-9]+", "-", (letter.subject or "").lower()).strip("-")[:40].strip("-")
    sent = datetime.fromtimestamp(message.sent_at_us / 1_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    sender = "a person of the project" if message.from_user_id else "a file"
    if message.from_agent is not None:
        sender = f"the agent {message.from_agent.name}"
    head = [f"From: {sender}", f"Sent: {sent}", f"Message: {message} {message.id}"]
    if message.session is not None:
        head.append(f"Session: {message.session} {message.session_id}")
    if message.in_reply_to is not None:
        head.append(f"In reply to: {message.in_reply_to} {message.in_reply_to_id}")
    if letter.subject:
        head.append(f"Subject: {' '.join(letter.subject.split())}")
    body = letter.body if letter.body is not None else "(The text of this message was erased.)"
    name = f"{message.opened_position:012d}-{slug or 'message'}.md"
    return name, ("\n".join([*head, "", body]) + "\n").encode("utf-8", "replace")


def _words(fault: Exception) -> str:
    return (fault.strerror or "it cannot be used").lower() if isinstance(fault, OSError) else str(fault)


def _plain(name: str) -> str:
    """A name that somebody chose, as one harmless word of a line."""
    shown = name if name.isprintable() else ascii(name)
    return shown if len(shown) <= 120 else f"{shown[:120]}…"
