"""Each kind of anchor, tried on the real thing: files, git, sockets and HTTP servers."""

import base64
import json
import os
import re
import resource
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from pytest_django import Settings

from notifications.webhooks import sign_webhook
from proofs import signed_note
from proofs.anchors.anchor_settings import KINDS
from proofs.anchors.published_head import (
    AnchorFailed,
    AnchorTarget,
    LastReceipt,
    PublishedHead,
    find_notes,
)
from proofs.anchors.webhook import derive_anchor_secret
from tests.proofs.small_tree import ORIGIN, SmallTree, read_last
from tests.proofs.small_witness import Witness, run_witness

pytestmark = pytest.mark.once


def publish(
    target: AnchorTarget,
    heads: list[PublishedHead],
    last: LastReceipt | None = None,
    tree: SmallTree | None = None,
) -> list[dict[str, Any]]:
    """Publish heads as the job does; return the receipts."""
    receipts: Any = KINDS[target.kind].publish(target, heads, last, tree or SmallTree(40))
    return [json.loads(receipt) for receipt in receipts]


def test_a_file_keeps_every_note_and_shows_each_change(tmp_path: Path) -> None:
    tree, path = SmallTree(40), tmp_path / "heads"
    target = AnchorTarget("file", "file", str(path))
    heads = [tree.make_head(1, 3), tree.make_head(2, 9)]
    receipts = publish(target, heads)
    content = path.read_bytes()
    assert content == b"".join(head.note.encode() + b"\n" for head in heads)
    for head, receipt in zip(heads, receipts, strict=True):
        start = receipt["offset"]
        assert content[start : start + receipt["bytes"]].decode() == head.note
    last = read_last(heads[1], receipts[1])
    # An unchanged tree is published again: it proves silence.
    silent = tree.make_head(3, 9)
    (receipt,) = publish(target, [silent], last)
    assert len(find_notes(path.read_bytes())) == 3
    # A receipt that a crash lost is written again, and the note is not.
    assert publish(target, [silent], last) == [receipt]
    assert len(find_notes(path.read_bytes())) == 3
    last = read_last(silent, receipt)
    # What an insider can do to it: each is named, and nothing is appended.
    whole = path.read_bytes()
    for changed in (whole[:-100], whole.replace(b"\n9\n", b"\n8\n"), b""):
        path.write_bytes(changed)
        with pytest.raises(AnchorFailed, match="no longer holds tree head 3"):
            publish(target, [tree.make_head(4, 12)], last)
        assert path.read_bytes() == changed
    path.write_bytes(whole)
    # A restored backup has lost the receipts too. Fewer entries, or others, contradict the file.
    with pytest.raises(AnchorFailed, match="holds a tree head of 9 entries"):
        publish(target, [tree.make_head(2, 5)])
    with pytest.raises(AnchorFailed, match="another history"):
        publish(target, [tree.make_head(4, 12)], tree=SmallTree(40, b"rewritten"))


def test_a_full_disk_leaves_no_piece_of_a_note(tmp_path: Path) -> None:
    tree, path = SmallTree(40), tmp_path / "heads"
    target = AnchorTarget("file", "file", str(path))
    first, second = tree.make_head(1, 3), tree.make_head(2, 9)
    (receipt,) = publish(target, [first])
    before = path.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    # The kernel writes the part that fits and refuses the rest, as on a full disk.
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 70, limits[1]))
    try:
        with pytest.raises(AnchorFailed, match="cannot be written"):
            publish(target, [second], read_last(first, receipt))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == before
    # Where the piece stays (chattr +a), it is ended and skipped.
    path.write_bytes(before + second.note.encode()[:-20])
    publish(target, [second], read_last(first, receipt))
    notes = [note.text for note in find_notes(path.read_bytes())]
    assert (notes[0], notes[-1]) == (first.note, second.note)


def test_a_full_and_a_read_only_disk_are_explained(tmp_path: Path) -> None:
    if subprocess.run(["unshare", "-Urm", "true"], capture_output=True).returncode:
        pytest.skip("this machine lets nobody mount a file system")
    command = ["unshare", "-Urm", sys.executable, "-m", "tests.proofs.full_disk", str(tmp_path)]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        cwd=Path(__file__).resolve().parents[2],
        env={**os.environ, "DJANGO_SETTINGS_MODULE": "config.settings"},
    )
    assert done.returncode == 0, done.stderr
    full, read_only = done.stdout.splitlines()
    assert "No space left on device. Make room on its disk" in full
    assert "Read-only file system. Make it and its folder writable" in read_only


def test_git_keeps_a_commit_a_head_and_shows_a_rewritten_branch(
    tmp_path: Path, settings: Settings
) -> None:
    settings.VAR_DIR = tmp_path / "var"
    remote, tree = tmp_path / "heads.git", SmallTree(40)
    target = AnchorTarget("git", "git", str(remote), branch="tree-heads")
    heads = [tree.make_head(1, 3), tree.make_head(2, 9)]
    receipts = publish(target, heads)

    def git(*arguments: str) -> str:
        command = ["git", "--git-dir", str(remote), *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    file_name = "gatebook-0123456789abcdef.checkpoint"
    log = git("log", "--reverse", "--format=%H %s", "tree-heads").splitlines()
    assert log == [
        f"{receipts[0]['commit']} Tree head 1: 3 entries",
        f"{receipts[1]['commit']} Tree head 2: 9 entries",
    ]
    assert git("show", f"{receipts[0]['commit']}:{file_name}") == heads[0].note
    # Lost receipts are written again without new commits, then the next head follows.
    again = publish(target, [*heads, tree.make_head(3, 12)], None)
    assert again[1]["commit"] == receipts[1]["commit"]
    assert git("show", f"tree-heads:{file_name}") == tree.make_head(3, 12).note
    assert git("rev-list", "--count", "tree-heads") == "3\n"
    last = read_last(tree.make_head(3, 12), again[2])
    # Another writer's commit on top is no harm, and stays: the clone may even be gone.
    (tmp_path / "var" / "anchors" / "git.git").rename(tmp_path / "old")
    other = tmp_path / "work"
    subprocess.run(["git", "clone", "-q", "-b", "tree-heads", remote, other], check=True)
    (other / "NOTES").write_text("kept\n")
    identity = ["-c", "user.name=o", "-c", "user.email=o@example.org"]
    for words in (["add", "."], [*identity, "commit", "-qm", "notes"], ["push", "-q"]):
        subprocess.run(["git", "-C", other, *words], check=True)
    (receipt,) = publish(target, [tree.make_head(4, 20)], last)
    assert git("show", "tree-heads:NOTES") == "kept\n"
    last = read_last(tree.make_head(4, 20), receipt)
    # Back by force: the repository that Gatebook made refuses. Its owner can delete the branch.
    forced = subprocess.run(
        ["git", "-C", other, "push", "-q", "--force", "origin", f"{log[0][:40]}:tree-heads"],
        capture_output=True,
    )
    assert forced.returncode
    git("update-ref", "refs/heads/tree-heads", log[0][:40])
    with pytest.raises(AnchorFailed, match=r"no longer holds commit \w+ with tree head 4"):
        publish(target, [tree.make_head(5, 22)], last)
    git("update-ref", "-d", "refs/heads/tree-heads")
    with pytest.raises(AnchorFailed, match="somebody deleted or rewrote it"):
        publish(target, [tree.make_head(5, 22)], last)
    git("update-ref", "refs/heads/tree-heads", receipt["commit"])
    with pytest.raises(AnchorFailed, match="another history"):
        publish(target, [tree.make_head(5, 22)], last, SmallTree(40, b"rewritten"))
    publish(target, [tree.make_head(5, 22)], last)


def test_git_tells_what_a_remote_answers_and_no_password(
    tmp_path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.VAR_DIR = tmp_path / "var"
    head = SmallTree(40).make_head(1, 3)
    address = "https://robot:secret-word@127.0.0.1:1/heads.git"
    target = AnchorTarget("git", "git", address, branch="tree-heads")
    with pytest.raises(AnchorFailed, match=r"https://127\.0\.0\.1:1/heads\.git") as failed:
        publish(target, [head])
    assert "secret-word" not in str(failed.value)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(AnchorFailed, match="Install it, or remove the anchor"):
        publish(target, [head])


@contextmanager
def receive_syslog(kind: str, path: Path) -> Iterator[tuple[str, Callable[[int], list[bytes]]]]:
    """Run a receiver of syslog; yield its address and a function that waits for messages."""
    family = socket.AF_UNIX if kind.startswith("unix") else socket.AF_INET
    is_stream = kind in ("tcp", "unix-stream")
    receiver = socket.socket(family, socket.SOCK_STREAM if is_stream else socket.SOCK_DGRAM)
    receiver.bind(str(path) if family == socket.AF_UNIX else ("127.0.0.1", 0))
    receiver.settimeout(30)
    messages: list[bytes] = []

    def read_stream() -> None:
        connection, _ = receiver.accept()
        with connection, connection.makefile("rb") as stream:
            while digits := re.match(rb"\d+", stream.peek(1)) and _read_length(stream):
                messages.append(stream.read(digits))

    def wait_for(number: int) -> list[bytes]:
        while not is_stream and len(messages) < number:
            messages.append(receiver.recv(65_536))
        if is_stream:
            reader.join(30)
        return messages

    reader = threading.Thread(target=read_stream if is_stream else lambda: None)
    if is_stream:
        receiver.listen()
    reader.start()
    with receiver:
        port = 0 if family == socket.AF_UNIX else receiver.getsockname()[1]
        yield f"unix://{path}" if not port else f"{kind}://127.0.0.1:{port}", wait_for


def _read_length(stream: Any) -> int:
    digits = b""
    while (sign := stream.read(1)) != b" ":
        digits += sign
    return int(digits)


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A folder whose path fits into the 107 bytes of the address of a socket."""
    with tempfile.TemporaryDirectory(prefix="gb-", dir="/tmp") as folder:
        yield Path(folder)


@pytest.mark.parametrize("kind", ["udp", "tcp", "unix-datagram", "unix-stream"])
def test_syslog_receives_the_whole_note(kind: str, short_path: Path) -> None:
    tree = SmallTree(40)
    heads = [tree.make_head(1, 3), tree.make_head(2, 9)]
    with receive_syslog(kind, short_path / "log") as (address, wait_for):
        target = AnchorTarget("syslog", "syslog", address)
        assert KINDS["syslog"].find_faults(target) == []
        assert [receipt["sent_to"] for receipt in publish(target, heads)] == [address] * 2
        messages = wait_for(2)
    for head, message in zip(heads, messages, strict=True):
        # RFC 5424: priority of "log audit, notice", version, time, host, app, process, message id.
        match = re.fullmatch(
            r"<109>1 \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z \S+ gatebook \d+ tree-head "
            r'\[gatebook@32473 head="(\d+)" note="([^"]+)"\] [^\n]+',
            message.decode(),
        )
        assert match, message
        assert (int(match[1]), base64.b64decode(match[2]).decode()) == (head.number, head.note)
        assert len(message) < 1024
    with pytest.raises(AnchorFailed, match="Start its receiver or check its address"):
        publish(AnchorTarget("syslog", "syslog", f"unix://{short_path}/none"), heads)


def test_a_webhook_is_signed_and_refusals_are_shown() -> None:
    received: list[tuple[dict[str, str], bytes]] = []
    statuses = [204, 500]

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            received.append((dict(self.headers), body))
            self.send_response(statuses[len(received) - 1])
            self.end_headers()

        def log_message(self, *_arguments: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    target = AnchorTarget("hook", "webhook", f"http://127.0.0.1:{server.server_port}/heads")
    tree = SmallTree(40)
    receipts: Any = KINDS["webhook"].publish(
        target, [tree.make_head(1, 3), tree.make_head(2, 9)], None, tree
    )
    try:
        assert json.loads(next(receipts))["status"] == 204
        with pytest.raises(AnchorFailed, match="answered 500"):
            next(receipts)
    finally:
        server.shutdown()
        server.server_close()
    headers, body = received[0]
    sent = json.loads(body)
    assert (sent["note"], sent["head"]) == (tree.make_head(1, 3).note, 1)
    signature = headers["Gatebook-Signature"]
    at_s = int(re.fullmatch(r"t=(\d+),v1=[0-9a-f]{64}", signature)[1])  # type: ignore[index]
    assert signature == sign_webhook(derive_anchor_secret("hook"), body, at_s)
    with pytest.raises(AnchorFailed, match="it is tried again"):
        publish(target, [tree.make_head(3, 9)])


def _keep_three(text: str) -> str:
    assert text.count("\n") > 3, "no extension lines"
    return "".join(text.splitlines(keepends=True)[:3])


def test_a_witness_cosigns_only_what_extends_what_it_saw() -> None:
    tree = SmallTree(40)
    public = signed_note.read_public_key(tree.key)
    with run_witness(Witness({ORIGIN: public})) as witness:
        target = AnchorTarget("w", "witness", witness.url, key=witness.verifier_key)
        assert KINDS["witness"].find_faults(target) == []
        heads = [tree.make_head(1, 3), tree.make_head(2, 9), tree.make_head(3, 9)]
        receipts = publish(target, heads, None, tree)
        assert [request.split(b"\n")[0] for request in witness.requests] == [
            b"old 0",
            b"old 3",
            b"old 9",
        ]
        # The cosignature belongs below the note: one more signature of the same text.
        text = heads[1].note.partition("\n\n")[0] + "\n"
        assert f"{receipts[1]['cosignature']}\n" == witness.cosign(text)
        # It names its size to whom lost the receipt, and every size gets its proof.
        del witness.requests[:]
        last = read_last(heads[0], receipts[0])
        publish(target, [tree.make_head(4, 21)], last, tree)
        assert [request.split(b"\n")[0] for request in witness.requests] == [b"old 3", b"old 9"]
        for size in (22, 32, 33, 40):
            publish(target, [tree.make_head(5, size)], None, tree)
        # Rewritten, and restored from a backup.
        other = SmallTree(40, b"rewritten")
        with pytest.raises(AnchorFailed, match="another history of 40 entries"):
            publish(target, [other.make_head(6, 40)], None, other)
        with pytest.raises(AnchorFailed, match="cosigned a tree of 40 entries"):
            publish(target, [tree.make_head(6, 30)], None, tree)
        longer = SmallTree(50, b"rewritten")
        with pytest.raises(AnchorFailed, match="is not the beginning of this history"):
            publish(target, [longer.make_head(6, 50)], None, longer)
        # Who answers with another key anchors nothing.
        stranger = Witness({}, b"another" + bytes(25))
        forged = AnchorTarget("w", "witness", witness.url, key=stranger.verifier_key)
        with pytest.raises(AnchorFailed, match="without a cosignature of the key"):
            publish(forged, [tree.make_head(7, 40)], None, tree)
        # litewitness 0.5 leaves out the extension lines.
        witness.cosign = lambda text, at_s=1: Witness.cosign(witness, _keep_three(text), at_s)  # type: ignore[method-assign]
        publish(target, [tree.make_head(7, 40)], None, tree)
        witness.cosign = lambda text, at_s=1: Witness.cosign(witness, f"x{text}", at_s)  # type: ignore[method-assign]
        with pytest.raises(AnchorFailed, match="does not verify"):
            publish(target, [tree.make_head(7, 40)], None, tree)
        witness.trusted[ORIGIN] = bytes(32)
        with pytest.raises(AnchorFailed, match="does not know the key"):
            publish(target, [tree.make_head(7, 40)], None, tree)
        witness.trusted.clear()
        with pytest.raises(AnchorFailed, match="does not know the log"):
            publish(target, [tree.make_head(7, 40)], None, tree)
