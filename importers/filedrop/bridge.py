"""Bridge between messages and files, for agents that only have a file system.

Folders are `messages/for_X/` and `messages/shared/`. One round processes each folder: dropped files
are sent; messages whose files were put away are marked as read; files of messages read elsewhere
are put away; unread messages are written as files. If a round is killed, the next one completes it:
message ids follow from folder, name and content, and files are recognized by name and content.
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

from accounts.models import Agent, Project
from api.redaction import redact
from importers.filedrop import safe_files
from importers.filedrop.safe_files import FileChanging, FileRefused
from journal import entries
from sessions import deliveries, messages
from sessions.models import Message

MAX_FILES_PER_ROUND: Final = 500  # files of one folder in one round, in either direction
_FOLDER_PREFIX: Final = "for_"
_WRITTEN_NAME: Final = re.compile(r"(\d{12})-[a-z0-9-]*(?:-[0-9a-f]{8})?\.md")


@dataclass(slots=True)
class RoundResult:
    """Counts of a round, and a line for each problem."""

    sent: int = 0
    written: int = 0
    read: int = 0
    put_away: int = 0
    lines: list[str] = field(default_factory=list)

    @property
    def summary(self) -> str:
        """The counts in one line."""
        return (
            f"{self.sent} sent from files, {self.written} written as files, {self.read} marked as"
            " read, "
            f"{self.put_away} put away."
        )


@dataclass(slots=True)
class Folder:
    """An open folder and its recipient; None for the shared inbox."""

    name: str
    descriptor: int
    mark: UUID
    recipient: Agent | None

    @property
    def box(self) -> str:
        """The part of message ids that names the inbox."""
        return self.recipient.id.hex if self.recipient is not None else messages.SHARED_INBOX


class Filedrop:
    """The bridge between one project and one directory. Raises Refused."""

    def __init__(self, project: Project, directory: Path) -> None:
        self.project = project
        self.directory = directory
        self.known: dict[tuple[UUID, str], tuple[int, int, int]] = {}  # files already processed
        secret = hmac.new(
            settings.GATEBOOK_PEPPER, b"redaction" + project.id.bytes, hashlib.sha256
        ).digest()
        self.redaction_key = secret if project.redacts else None

    def round(self) -> RoundResult:
        """Process every folder once."""
        result = RoundResult()
        with ExitStack() as stack:
            root = stack.enter_context(safe_files.open_folder(str(self.directory / "messages")))
            stack.enter_context(safe_files.lock_folder(root))
            open_folders = list(self._open_folders(root, result, stack))
            shared = next(
                (candidate for candidate in open_folders if candidate.recipient is None), None
            )
            for folder in open_folders:
                try:
                    self._send_files(folder, result)
                    self._sync_read_marks(folder, root, result)
                    if shared is not None and folder.recipient is not None:
                        self._sync_shared_read_marks(folder, folder.recipient, shared, result)
                    self._write_messages(folder, result)
                except OSError as fault:
                    result.lines.append(
                        f"{folder.name}: {_describe_fault(fault)}; the next round continues."
                    )
        return result

    def _open_folders(self, root: int, result: RoundResult, stack: ExitStack) -> Iterator[Folder]:
        for name in safe_files.list_message_names(root):
            if name != messages.SHARED_INBOX and not name.startswith(_FOLDER_PREFIX):
                continue
            recipient = None
            if name != messages.SHARED_INBOX:
                recipient = Agent.objects.filter(
                    project=self.project, name=name.removeprefix(_FOLDER_PREFIX)
                ).first()
                if recipient is None or recipient.name == messages.SHARED_INBOX:
                    shown = _printable_name(name)
                    result.lines.append(
                        f"{shown}: the project has no such agent; the folder was skipped."
                    )
                    continue
            try:
                descriptor = stack.enter_context(safe_files.open_folder(name, root))
                yield Folder(
                    name,
                    descriptor,
                    safe_files.ensure_folder_id(descriptor, self.project.id),
                    recipient,
                )
            except (FileRefused, OSError) as fault:
                result.lines.append(
                    f"{_printable_name(name)}: {_describe_fault(fault)}; the folder was skipped."
                )

    # Dropped files

    def _send_files(self, folder: Folder, result: RoundResult) -> None:
        """Send new files of the folder in the order of their names."""
        names = [
            name for name in safe_files.list_message_names(folder.descriptor) if name != "done"
        ]
        stored = deliveries.load_messages_by_file(
            folder.mark, [name for name in names if name.isprintable()]
        )
        sent = 0
        for name in names:
            state = safe_files.get_file_state(folder.descriptor, name)
            if (
                state is None
                or self.known.get((folder.mark, name)) == state
                or self._is_written_file(name, stored)
            ):
                continue
            if sent == MAX_FILES_PER_ROUND:
                result.lines.append(
                    f"{folder.name}: more than {MAX_FILES_PER_ROUND} new files; the next round "
                    "continues."
                )
                break
            try:
                sent += self._send_file(folder, name, stored.get(name, set()))
            except FileChanging:
                continue
            except FileRefused as refused:
                result.lines.append(
                    f"{folder.name}/{_printable_name(name)}: {refused}; it was not sent."
                )
            self.known[folder.mark, name] = state
        result.sent += sent

    def _is_written_file(self, name: str, stored: dict[str, set[UUID]]) -> bool:
        """Return whether Gatebook wrote this file, by the position in its name."""
        if not (match := _WRITTEN_NAME.fullmatch(name)) or name not in stored:
            return False
        return Message.objects.filter(id__in=stored[name], opened_position=int(match[1])).exists()

    def _send_file(self, folder: Folder, name: str, stored: set[UUID]) -> bool:
        """Send one file unless it was sent or written before. Raises Refused, FileChanging."""
        safe_files.check_file_name(name)
        content = safe_files.read_small_file(folder.descriptor, name)
        if (match := _WRITTEN_NAME.fullmatch(name)) and not stored:
            earlier = deliveries.find_message_in_inbox(
                self.project.id, folder.recipient, int(match[1])
            )
            if earlier is not None and content == _render_file(earlier)[1]:
                # Written by a run that was killed before it recorded the delivery.
                with transaction.atomic(durable=True):
                    deliveries.record_deliveries(folder.mark, {earlier.id: name})
                return False
        try:
            body = content.decode()
        except UnicodeDecodeError as error:
            raise FileRefused("is not text in UTF-8") from error
        if not body.strip():
            raise FileRefused("is empty")
        if len(body) > messages.MAX_BODY_CHARACTERS:
            raise FileRefused(f"has more than {messages.MAX_BODY_CHARACTERS:,} characters")
        previous = deliveries.count_ended_deliveries(folder.mark, name)
        digest = hashlib.sha256(content).hexdigest()
        event_id = entries.keyed_digest(
            "file", folder.box, name, digest, *([str(previous)] if previous else [])
        )
        cleaned = self._redact_text(
            {"subject": name[: messages.MAX_SUBJECT_CHARACTERS], "body": body}
        )
        with transaction.atomic(durable=True):
            message, created = messages.send_file_message(
                self.project.id, event_id, folder.recipient, cleaned["subject"], cleaned["body"]
            )
            deliveries.record_deliveries(folder.mark, {message.id: name})
        return created

    def _redact_text(self, value: dict[str, str]) -> dict[str, str]:
        if self.redaction_key is None:
            return value
        clean: dict[str, str] = redact.redact_value(value, self.redaction_key)[0]
        return clean

    # Files present

    def _sync_read_marks(self, folder: Folder, root: int, result: RoundResult) -> None:
        """Mark messages with removed files as read; put away files of read messages.

        For the shared folder, only the end of the delivery is recorded.
        """
        deliveries_present = deliveries.load_open_deliveries(folder.mark, folder.recipient)
        removed = [
            delivery
            for delivery in deliveries_present
            if not safe_files.has_name(folder.descriptor, delivery.file)
        ]
        # Checked last: if the folder was removed in the meantime, its files are absent although
        # nobody has read them.
        if removed and not safe_files.is_same_folder(folder.descriptor, folder.name, root):
            result.lines.append(
                f"{folder.name}: the folder was replaced during the round; nothing was marked as"
                " read."
            )
            return
        removed_ids = {delivery.id for delivery in removed}
        for delivery in deliveries_present:
            if delivery.id in removed_ids:
                with transaction.atomic(durable=True):
                    if folder.recipient is not None:
                        result.read += messages.mark_file_read(
                            delivery.message, folder.recipient.id
                        )
                    deliveries.end_delivery(delivery)
            elif delivery.message.read_at_us is not None:
                try:
                    safe_files.move_to_done(
                        folder.descriptor,
                        delivery.file,
                        f"{delivery.message.opened_position:012d}-{delivery.file}",
                    )
                except (OSError, FileRefused) as fault:
                    result.lines.append(
                        f"{folder.name}/{_printable_name(delivery.file)}: cannot be put away:"
                        f" {_describe_fault(fault)}."
                    )
                    continue
                with transaction.atomic(durable=True):
                    deliveries.end_delivery(delivery)
                result.put_away += 1

    def _sync_shared_read_marks(
        self, folder: Folder, agent: Agent, shared: Folder, result: RoundResult
    ) -> None:
        """Mark shared messages as read if the agent's `done/` has their file name."""
        if not safe_files.has_name(folder.descriptor, "done"):
            return
        try:
            with safe_files.open_folder("done", folder.descriptor) as done_folder:
                put_away = [
                    delivery
                    for delivery in deliveries.iterate_unread_shared_deliveries(shared.mark, agent)
                    if safe_files.has_name(done_folder, delivery.file)
                ]
        except FileRefused as refused:
            result.lines.append(f"{folder.name}/done: {refused}.")
            return
        for delivery in put_away:
            with transaction.atomic(durable=True):
                result.read += messages.mark_file_read(delivery.message, agent.id)

    # Messages to write

    def _write_messages(self, folder: Folder, result: RoundResult) -> None:
        """Write messages that were never in the folder; record them once they are durable."""
        unwritten = deliveries.load_undelivered_messages(
            folder.mark, self.project.id, folder.recipient, MAX_FILES_PER_ROUND
        )
        files: dict[UUID, str] = {}
        for message in unwritten:
            name, content = _render_file(message)
            if safe_files.has_name(folder.descriptor, name):
                name = f"{name.removesuffix('.md')}-{message.id.hex[-8:]}.md"  # the name is taken
            try:
                safe_files.write_file(folder.descriptor, name, content)
            except OSError as fault:
                result.lines.append(
                    f"{folder.name}: {name} cannot be written: {_describe_fault(fault)}."
                )
                break
            files[message.id] = name
        if files:
            safe_files.sync_folder(folder.descriptor)
            with transaction.atomic(durable=True):
                deliveries.record_deliveries(folder.mark, files)
        result.written += len(files)


def _render_file(message: Message) -> tuple[str, bytes]:
    """Return the file name and content of a message. Names sort in message order.

    Sender and references precede the first blank line, so the text below cannot forge them.
    """
    (letter,) = messages.load_message_views([message], None)
    slug = re.sub(r"[^a-z0-9]+", "-", (letter.subject or "").lower()).strip("-")[:40].strip("-")
    sent = datetime.fromtimestamp(message.sent_at_us / 1_000_000, UTC).strftime(
        "%Y-%m-%dT%H:%M:%SZ"
    )
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


def _describe_fault(fault: Exception) -> str:
    return (
        (fault.strerror or "it cannot be used").lower()
        if isinstance(fault, OSError)
        else str(fault)
    )


def _printable_name(name: str) -> str:
    """Return an untrusted name as harmless text for one line."""
    shown = name if name.isprintable() else ascii(name)
    return shown if len(shown) <= 120 else f"{shown[:120]}…"
