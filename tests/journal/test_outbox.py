"""Messages about an entry are sent at least once, and only after its commit."""

from collections.abc import Callable
from uuid import UUID

import pytest
from django.db import transaction

from journal import entries, outbox
from journal.models import Outbox
from tests.journal.drafts import NOW_US, draft, new_project

pytestmark = pytest.mark.django_db
PROJECT = new_project()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Return a function that sets the outbox's clock to NOW_US plus microseconds."""

    def move(after_us: int) -> None:
        monkeypatch.setattr(outbox, "now_us", lambda: NOW_US + after_us)

    move(0)
    return move


class Receiver:
    """A sender that records what it sent, and fails on request."""

    def __init__(self) -> None:
        self.got: list[str] = []
        self.failure: BaseException | None = None

    def __call__(self, row: Outbox) -> None:
        if self.failure is not None:
            raise self.failure
        self.got.append(row.deduplication_key)


def _put(
    key: str = "k1", *, project: UUID = PROJECT, due_at_us: int = NOW_US, topic: str = "mail"
) -> None:
    entry = entries.append_entries([draft("a", project=project)], NOW_US)[0].position
    outbox.queue_delivery(
        project, entry=entry, topic=topic, deduplication_key=key, due_at_us=due_at_us
    )


def test_a_due_message_is_sent_once(clock: Callable[[int], None]) -> None:
    _put()
    receiver = Receiver()
    assert outbox.deliver_due({"mail": receiver}) == 1
    assert outbox.deliver_due({"mail": receiver}) == 0
    assert receiver.got == ["k1"]
    assert Outbox.objects.get().sent_at_us == NOW_US


def test_a_message_that_is_not_due_waits(clock: Callable[[int], None]) -> None:
    _put(due_at_us=NOW_US + 1)
    receiver = Receiver()
    assert outbox.deliver_due({"mail": receiver}) == 0
    clock(1)
    assert outbox.deliver_due({"mail": receiver}) == 1


def test_the_same_thing_is_noted_once_in_a_project() -> None:
    _put()
    _put()
    _put("k2")
    _put(project=new_project())
    assert Outbox.objects.filter(project=PROJECT).count() == 2
    assert Outbox.objects.count() == 3


def test_no_message_is_stored_without_its_entry() -> None:
    with transaction.atomic():
        _put()
        transaction.set_rollback(True)
    assert not Outbox.objects.exists()


def test_a_failing_sender_is_retried_with_growing_delays(clock: Callable[[int], None]) -> None:
    _put()
    receiver = Receiver()
    receiver.failure = ConnectionError("no route")
    waits, now = [], 0
    for _ in range(12):
        clock(now)
        assert outbox.deliver_due({"mail": receiver}) == 0
        row = Outbox.objects.get()
        waits.append(row.due_at_us - NOW_US - now)
        now = row.due_at_us - NOW_US
        clock(now - 1)
        assert outbox.deliver_due({"mail": Receiver()}) == 0
    assert waits[:4] == [outbox.BACKOFF_US * factor for factor in (1, 2, 4, 8)]
    assert waits[-1] == outbox.MAX_DELAY_US
    assert (row.tries, row.last_error, row.sent_at_us) == (12, "ConnectionError: no route", None)
    receiver.failure = None
    clock(now)
    assert outbox.deliver_due({"mail": receiver}) == 1
    assert Outbox.objects.get().last_error == ""


def test_a_broken_receiver_does_not_stop_the_others(clock: Callable[[int], None]) -> None:
    _put("k1", topic="webhook")
    _put("k2", topic="unknown topic")
    _put("k3")
    broken, receiver = Receiver(), Receiver()
    broken.failure = ValueError("x" * 500)
    assert outbox.deliver_due({"webhook": broken, "mail": receiver}) == 1
    assert receiver.got == ["k3"]
    assert len(Outbox.objects.get(deduplication_key="k1").last_error) == 200


def test_any_answer_of_a_remote_can_be_recorded(clock: Callable[[int], None]) -> None:
    _put()
    receiver = Receiver()
    receiver.failure = ValueError("nul \0, half a pair \ud800")
    assert outbox.deliver_due({"mail": receiver}) == 0
    assert Outbox.objects.get().last_error == "ValueError: nul \u2400, half a pair ?"


def test_a_kill_between_sending_and_marking_sends_again(
    clock: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    _put()
    receiver = Receiver()

    def killed(*_: object, **__: object) -> int:
        raise SystemExit

    with monkeypatch.context() as moment:
        moment.setattr(outbox, "_update", killed)
        with pytest.raises(SystemExit):
            outbox.deliver_due({"mail": receiver})
    assert outbox.deliver_due({"mail": receiver}) == 1
    assert receiver.got == ["k1", "k1"], "at least once, under one deduplication key"


def test_the_result_of_the_faster_of_two_workers_is_kept(clock: Callable[[int], None]) -> None:
    _put()
    slow = Receiver()

    def sends_while_another_does(row: Outbox) -> None:
        assert outbox.deliver_due({"mail": Receiver()}) == 1
        slow(row)

    assert outbox.deliver_due({"mail": sends_while_another_does}) == 0
    assert Outbox.objects.get().tries == 1


def test_the_oldest_messages_are_sent_up_to_the_limit(clock: Callable[[int], None]) -> None:
    for n in range(5):
        _put(f"k{n}", due_at_us=NOW_US - n)
    receiver = Receiver()
    assert outbox.deliver_due({"mail": receiver}, most=2) == 2
    assert receiver.got == ["k4", "k3"]
