"""The job that publishes tree heads: what it publishes when, what it stores, and who hears of it."""

import json
import subprocess
import threading
import time
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import time_machine
from django.core.management import CommandError, call_command
from django.db import DatabaseError, connection, transaction
from pytest_django import DjangoAssertNumQueries, Settings

from config.checks import find_unusable_anchors
from db import jobs
from db.clock import now_us
from db.triggers import suspend_triggers
from monitoring import job_heartbeats
from proofs import signed_note
from proofs.anchors import anchors
from proofs.anchors.anchor_settings import KINDS
from proofs.anchors.published_head import find_notes
from proofs.models import Anchor, TreeHead
from tests.journal.committed import committed
from tests.proofs.small_tree import SmallTree
from tests.proofs.small_witness import Witness, run_witness

__all__ = ["committed"]
pytestmark = pytest.mark.django_db
MakeHead = Callable[[int], TreeHead]


@pytest.fixture
def make_head(monkeypatch: pytest.MonkeyPatch, settings: Settings, tmp_path: Path) -> MakeHead:
    """Store the next head of a tree in memory, which anchors read as that of the database."""
    settings.VAR_DIR = tmp_path / "var"
    tree = SmallTree(600)
    monkeypatch.setattr(anchors, "StoredTree", lambda: tree)

    def store(size: int) -> TreeHead:
        number = TreeHead.objects.count() + 1
        head = tree.make_head(number, size)
        return TreeHead.objects.create(
            id=number,
            size=size,
            root=head.root,
            made_at_us=now_us(),
            key_name=head.origin,
            key_id="00000000",
            note=head.note,
        )

    return store


def publish() -> dict[str, anchors.AnchorState]:
    """Publish what is due, in this thread; return the states by name."""
    for state in anchors.load_anchor_states():
        if state.is_due(now_us()):
            anchors.publish_now(state.target)
    return {state.target.name: state for state in anchors.load_anchor_states()}


def test_by_default_a_file_and_git_keep_the_heads(
    make_head: MakeHead, settings: Settings, tmp_path: Path
) -> None:
    settings.GATEBOOK_ANCHORS = ""
    make_head(1)
    with time_machine.travel(now_us() / 1_000_000, tick=False) as clock:
        make_head(3)
        publish()
        for size in (9, 12):
            clock.shift(10)
            make_head(size)
            states = publish()
        folder = tmp_path / "var-anchors"
        notes = find_notes((folder / "heads").read_bytes())
        # A new anchor begins with the newest head, which covers every entry before it.
        assert [note.size for note in notes] == [3, 9, 12]
        # A commit every 10 s would be millions a year.
        assert (states["file"].last.tree_head_id, states["git"].last.tree_head_id) == (4, 2)  # type: ignore[union-attr]
        clock.shift(60)
        assert publish()["git"].last.tree_head_id == 4  # type: ignore[union-attr]
    command = ["git", "--git-dir", str(folder / "heads.git"), "log", "--format=%s", "tree-heads"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert done.stdout.splitlines() == ["Tree head 4: 12 entries", "Tree head 2: 3 entries"]
    assert not Anchor.objects.exclude(error="").exists()
    assert json.loads(Anchor.objects.get(name="file", tree_head=3).receipt)["offset"] > 0
    publish()
    assert Anchor.objects.count() == 5  # nothing is published twice


def test_a_failing_anchor_waits_longer_each_time_and_alarms(
    make_head: MakeHead, settings: Settings, tmp_path: Path
) -> None:
    path = tmp_path / "outside" / "heads"
    settings.GATEBOOK_ANCHORS = f"far=file:{path}; near=file:{tmp_path}/near"
    make_head(3)
    with time_machine.travel(now_us() / 1_000_000, tick=False) as clock:
        waits = []
        for _ in range(4):
            state = publish()["far"]
            waits.append((state.retry_at_us - now_us()) // 1_000_000)
            before = Anchor.objects.count()
            clock.shift(waits[-1] - 0.01)
            publish()
            assert Anchor.objects.count() == before
            clock.shift(0.02)
        assert waits == [5, 10, 20, 40]
        assert (state.is_alarmed, state.failures, state.last) == (True, 4, None)
        assert state.failure is not None
        assert "cannot be opened for appending: No such file or directory" in state.failure.error
        # A clock that is set back delays no attempt.
        with time_machine.travel(now_us() / 1_000_000 - 3600, tick=False):
            assert state.is_due(now_us())
        # The others go on; the failing one takes all it missed when it is back, in order.
        for size in (5, 9):
            make_head(size)
        assert publish()["near"].last.tree_head_id == 3  # type: ignore[union-attr]
        path.parent.mkdir()
        clock.shift(3600)
        state = publish()["far"]
        assert (state.failures, state.is_alarmed) == (0, False)
    assert [note.size for note in find_notes(path.read_bytes())] == [9]
    assert anchors.find_retry_delay_us(1000) == anchors.MAX_DELAY_US
    make_head(10)
    path.write_bytes(b"")
    make_head(11)
    state = publish()["far"]  # shown and alarmed at once
    assert state.failure is not None
    assert state.failure.error.startswith(f"Contradiction: {path} no longer holds tree head 3")
    assert (state.failures, state.is_alarmed, state.contradicts) == (1, True, True)


def test_anchors_that_missed_heads_take_them_in_order(
    make_head: MakeHead, settings: Settings, tmp_path: Path
) -> None:
    settings.GATEBOOK_ANCHORS = f"file:{tmp_path}/heads"
    make_head(1)
    publish()
    for size in range(2, 253):
        make_head(size)
    publish()
    notes = find_notes((tmp_path / "heads").read_bytes())
    assert [note.size for note in notes] == list(range(1, 253))


@pytest.mark.usefixtures("committed")  # the job's threads have connections of their own
def test_the_job_waits_for_no_anchor_and_reports_those_that_fail(
    make_head: MakeHead,
    settings: Settings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings.GATEBOOK_ANCHORS = f"slow=webhook:http://127.0.0.1:1/; bad=file:{tmp_path}/none/heads"
    go_on = threading.Event()

    def wait_for_word(*_arguments: Any) -> Any:
        go_on.wait(60)
        yield '{"host":"x"}'

    slow = KINDS["webhook"]._replace(publish=wait_for_word)
    monkeypatch.setitem(KINDS, "webhook", slow)
    monkeypatch.setattr(anchors, "WAIT_S", 0.1)
    make_head(3)
    assert anchors.publish_due_heads() == 2  # and it returns, while one anchor hangs
    deadline = time.monotonic() + 60  # a busy machine may need longer than WAIT_S for the other
    while not Anchor.objects.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert list(Anchor.objects.values_list("name", flat=True)) == ["bad"]
    go_on.set()
    join_publishing()
    assert Anchor.objects.filter(name="slow", error="").count() == 1
    state = {job.name: job for job in job_heartbeats.load_lateness()}["anchors"]
    assert not state.failing  # one failure is tried again before anybody is alarmed
    row = Anchor.objects.get(name="bad")
    for at_us in (row.anchored_at_us - 1, row.anchored_at_us):
        Anchor.objects.create(
            tree_head_id=1, name="bad", kind="file", anchored_at_us=at_us, error="again"
        )
    anchors.publish_due_heads()
    join_publishing()
    state = {job.name: job for job in job_heartbeats.load_lateness()}["anchors"]
    assert (state.failing, state.error) == (True, "AnchorsFailing")
    assert jobs.JOBS["anchors"].label == "Anchors"


def join_publishing() -> None:
    """Wait for the threads of the job, which write after it has returned."""
    for work in threading.enumerate():
        if work is not threading.current_thread() and work.daemon and "publish" in work.name:
            work.join(60)


def test_states_take_two_queries_however_much_was_published(
    make_head: MakeHead,
    settings: Settings,
    tmp_path: Path,
    django_assert_num_queries: DjangoAssertNumQueries,
) -> None:
    settings.GATEBOOK_ANCHORS = ";".join(f"a{number}=file:{tmp_path}/{number}" for number in "123")
    make_head(3)
    publish()
    make_head(5)
    publish()
    with django_assert_num_queries(1):  # raw SQL is not counted
        states = anchors.load_anchor_states()
    assert [state.last.tree_head_id for state in states if state.last] == [2, 2, 2]


def test_rows_of_anchors_never_change(make_head: MakeHead) -> None:
    make_head(3)
    row = Anchor.objects.create(
        tree_head_id=1, name="file", kind="file", anchored_at_us=1, receipt="{}"
    )
    connection.check_constraints()  # PostgreSQL truncates nothing while checks are pending
    statements = [
        "UPDATE proofs_anchor SET anchored_at_us = 0",
        "DELETE FROM proofs_anchor",
        *(["TRUNCATE proofs_anchor"] if connection.vendor == "postgresql" else []),
    ]
    for statement in statements:
        with (
            pytest.raises(DatabaseError, match="append-only"),
            transaction.atomic(),
            connection.cursor() as cursor,
        ):
            cursor.execute(statement)
    if connection.vendor == "sqlite":
        with connection.cursor() as cursor:
            cursor.execute(
                "INSERT OR REPLACE INTO proofs_anchor"
                " (id, tree_head_id, name, kind, anchored_at_us, receipt, error)"
                " VALUES (99, 1, 'file', 'file', 7, '{\"forged\":1}', '')"
            )
    assert Anchor.objects.get().anchored_at_us == row.anchored_at_us


def test_the_command_publishes_prints_and_refuses(
    make_head: MakeHead, settings: Settings, tmp_path: Path
) -> None:
    def run(*arguments: str) -> str:
        output = StringIO()
        call_command("anchor_heads", *arguments, stdout=output)
        return output.getvalue()

    settings.GATEBOOK_ANCHORS = f"file:{tmp_path}/heads; hook=webhook:http://127.0.0.1:1/"
    assert "no tree head yet" in run("file")
    make_head(3)
    assert run("file") == "file: holds tree head 1\n"
    (tmp_path / "heads").write_bytes(b"")  # what its row says is not repeated as a fact
    assert run("file") == (
        "file: nothing to publish. Tree head 1 was published earlier; --check looks whether the"
        " anchor still holds it\n"
    )
    with pytest.raises(CommandError, match="Not every anchor holds the newest tree head"):
        run()
    assert len(run("--secret", "hook").strip()) == 64
    for arguments, reason in ((["--secret", "file"], "no webhook"), (["other"], "file, hook")):
        with pytest.raises(CommandError, match=reason):
            run(*arguments)
    settings.GATEBOOK_ANCHORS = "none"
    assert "no tree head leaves" in run()
    settings.GATEBOOK_ANCHORS = f"witness:https://w.example/ key={Witness({}).verifier_key}x"
    assert find_unusable_anchors()
    with pytest.raises(CommandError, match="GATEBOOK_ANCHORS, anchor witness"):
        run()


def test_rows_that_claim_another_anchor_or_are_gone_are_named(
    make_head: MakeHead, settings: Settings, tmp_path: Path
) -> None:
    """The owner of the database removes the triggers; what anchors hold is not theirs."""

    def check() -> list[str]:
        output = StringIO()
        try:
            call_command("anchor_heads", "--check", stdout=output)
        except CommandError:
            output.write("differ")
        return output.getvalue().splitlines()

    first = make_head(3)
    public = signed_note.read_public_key(SmallTree(1).key)
    with run_witness(Witness({first.key_name: public})) as witness:
        places = {"file": f"file:{tmp_path}/heads", "git": f"git:{tmp_path}/heads.git"}
        settings.GATEBOOK_ANCHORS = "; ".join(
            (*places.values(), f"witness:{witness.url} key={witness.verifier_key}")
        )
        subprocess.run(["git", "init", "-q", "--bare", str(tmp_path / "heads.git")], check=True)
        publish()
        for size in (9, 12, 40):
            make_head(size)
            publish()
    number = {name: Anchor.objects.filter(name=name).count() for name in ("file", "git", "witness")}
    assert number == dict.fromkeys(number, 4)
    assert [line.partition(" rows")[0] for line in check()] == [f"{name}: 4" for name in number]
    never = make_head(44)  # no anchor took it
    with transaction.atomic(), suspend_triggers(connection, ["proofs_anchor"]):
        for row in Anchor.objects.filter(tree_head=4):
            copied = {"kind": row.kind, "anchored_at_us": 7, "receipt": row.receipt}
            Anchor.objects.create(tree_head=never, name=row.name, **copied)
        Anchor.objects.filter(tree_head=2).delete()
        Anchor.objects.filter(tree_head=3, name="witness").update(receipt='{"path": "x"}')
    named = check()
    assert named[-1] == "differ"
    for text in (
        f"file: {tmp_path}/heads does not hold tree head 5 at byte ",
        f"file: no row says that {tmp_path}/heads holds the tree head of 9 entries at byte ",
        f"git: {tmp_path}/heads.git does not hold tree head 5 as commit ",
        f"git: no row says that {tmp_path}/heads.git holds commit ",
        f"witness: {witness.name} did not cosign tree head 5 as its row says",
        "witness: 3 rows compared, 1 cannot be: only the receiver knows",
    ):
        assert any(line.startswith(text) for line in named), (text, named)
    assert len(named) == 3 + 5 + 1
    (tmp_path / "heads").unlink()
    assert any("cannot be read: No such file" in line for line in check())
    settings.GATEBOOK_ANCHORS = f"file=webhook:https://hook.example/; {places['git']}"
    assert "file: 0 rows compared, 4 cannot be" in check()[0]


def test_heads_of_an_anchor_that_the_database_does_not_have_are_named(
    make_head: MakeHead, settings: Settings, tmp_path: Path
) -> None:
    """The newest heads are gone with their rows, as after the restore of an old backup."""
    settings.GATEBOOK_ANCHORS = f"file:{tmp_path}/heads; git:{tmp_path}/heads.git"
    subprocess.run(["git", "init", "-q", "--bare", str(tmp_path / "heads.git")], check=True)
    for size in (3, 9, 12):
        make_head(size)
        publish()
    with transaction.atomic(), suspend_triggers(connection, ["proofs_anchor"]):
        Anchor.objects.filter(tree_head=3).delete()
    output = StringIO()
    call_command("anchor_heads", "--check", stdout=output)  # the next run writes them again
    assert len(output.getvalue().splitlines()) == 2
    with transaction.atomic(), suspend_triggers(connection, ["proofs_treehead"]):
        TreeHead.objects.filter(id=3).delete()
    output = StringIO()
    with pytest.raises(CommandError):
        call_command("anchor_heads", "--check", stdout=output)
    named = [line for line in output.getvalue().splitlines() if "does not have" in line]
    assert len(named) == 2
    assert "file: this database does not have the tree head of 12 entries at byte " in named[0]
    assert "git: this database does not have Tree head 3: 12 entries of commit " in named[1]
