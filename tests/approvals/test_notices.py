"""Who is told of gates and breaches, when, in which words, and what becomes of it when something fails."""

import hashlib
import hmac
import io
import json
import re
from collections.abc import Callable
from typing import Any

import pytest
import time_machine
from django.core import mail
from django.core.management import call_command
from django.db import transaction
from pytest_django import Settings

from approvals import channels, delivery, gates, notices, outside, seen
from approvals.models import Gate
from approvals.models_notices import Notice, NoticeChannel
from approvals.states import US
from journal import outbox
from journal.clock import now_us
from journal.models import Outbox
from sessions import people
from sessions.refused import RefusedError
from tests.approvals.story import Desk

ADDRESS = "https://hooks.example.org/gates"
SECRET_ARGUMENT = "do-not-tell-anybody"


@pytest.fixture(autouse=True)
def _outside(settings: Settings) -> None:
    settings.GATEBOOK_WEBHOOK_HOSTS = frozenset({"hooks.example.org"})
    settings.EMAIL_BACKEND = "django.core.mail.backends.locmem.EmailBackend"


@pytest.fixture
def posted(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, Any], dict[str, str]]]:
    """What went out by HTTP: address, body, headers."""
    sent: list[tuple[str, dict[str, Any], dict[str, str]]] = []

    def post(url: str, body: bytes, headers: dict[str, str]) -> None:
        sent.append((url, json.loads(body), dict(headers)))

    monkeypatch.setattr(outside, "post", post)
    return sent


@pytest.fixture
def hears(desk: Desk) -> Callable[..., NoticeChannel]:
    """Add a channel that hears of everything."""

    def add(kind: str = "email", target: str = "", **options: Any) -> NoticeChannel:
        address = target or ("team@example.org" if kind == "email" else ADDRESS)
        topics = {**dict.fromkeys(channels.SWITCHES, True), **options}
        return channels.add(desk.project, kind, address, desk.user("administrator"), **topics)

    return add


def risky(desk: Desk, risk: str, effect_key: str = "e-1") -> Gate:
    """A gate of that risk: what the server computes of a tool's declaration and its target."""
    reversibility = {"critical": "irreversible", "high": "irreversible", "medium": "compensable", "low": "reversible"}
    name = f"tool-{risk}"
    if not desk.project.tools.filter(name=name).exists():
        desk.declare(name, reversibility[risk])
    target = {"environment": "production"} if risk == "critical" else {}
    arguments = {"n": effect_key, "note": SECRET_ARGUMENT}
    gate = desk.gate(desk.plan(effect_key, tool=name, arguments=arguments, target=target))
    assert gate.risk == risk
    return gate


def tick(after_s: float = 0) -> int:
    """What the worker does every five seconds, so much later."""
    with time_machine.travel(now_us() / US + after_s + 0.001, tick=False):
        outbox.deliver_due()
        return notices.send_due()


def test_a_request_of_high_risk_is_told_at_once_in_words_of_the_server(
    desk: Desk, hears: Callable[..., NoticeChannel]
) -> None:
    hears()
    gate = risky(desk, "high")
    assert tick() == 1
    (letter,) = mail.outbox
    assert letter.to == ["team@example.org"]
    assert letter.subject == f"Gatebook: high: tool-high by deploy-7 (g_{gate.opened_position}) waits for a ruling"
    assert f"/approvals/{gate.id}/" in letter.body
    assert "To be decided by" in letter.body
    assert SECRET_ARGUMENT not in letter.subject + str(letter.body)
    assert tick() == 0
    assert len(mail.outbox) == 1


def test_a_message_to_a_chat_is_plain_text_whatever_a_tool_is_called(
    desk: Desk, hears: Callable[..., NoticeChannel], posted: list[Any]
) -> None:
    hears("slack")
    desk.rules("name: house\nrules:\n  - {id: all, title: All, match: {}, outcome: require}\n")
    desk.plan(tool="<!channel> <https://evil.example|click>", arguments={"note": SECRET_ARGUMENT})
    assert tick() == 1
    ((url, body, _headers),) = posted
    assert url == ADDRESS
    assert "&lt;!channel&gt;" in body["text"]
    assert "<" not in body["text"]
    assert body["mrkdwn"] is False
    assert SECRET_ARGUMENT not in json.dumps(body)


def test_a_program_gets_ids_and_a_signature_that_it_can_check(
    desk: Desk, hears: Callable[..., NoticeChannel], posted: list[Any]
) -> None:
    channel = hears("webhook")
    gate = risky(desk, "low")
    tick()
    desk.answer(gate, "reviewer")
    tick()
    asked, ruled = posted
    assert asked[1] == {
        "id": f"gate.requested:{gate.id.hex}",
        "event": "gate.requested",
        "gate": str(gate.id),
        "version": 1,
    }
    _url, body, headers = ruled
    assert body["event"] == "gate.resolved"
    assert body["gate"] == str(gate.id)
    assert body["version"] == Gate.objects.get(id=gate.id).version
    seconds, told = re.fullmatch(r"t=(\d+),v1=([0-9a-f]{64})", headers[delivery.SIGNATURE]).groups()  # type: ignore[union-attr]
    secret, text = channels.secret_of(channel.id), json.dumps(body, separators=(",", ":"))
    assert hmac.new(secret.encode(), f"{seconds}.{text}".encode(), hashlib.sha256).hexdigest() == told


@pytest.mark.parametrize(("risk", "after_s"), [("critical", 0), ("high", 0), ("medium", 15 * 60)])
def test_how_soon_people_are_told_follows_the_risk(
    desk: Desk, hears: Callable[..., NoticeChannel], risk: str, after_s: int
) -> None:
    hears()
    risky(desk, risk)
    with time_machine.travel((now_us() // US // 900 + 1) * 900 + 1, tick=False):
        if after_s:
            assert tick() == 0
            assert tick(after_s - 2) == 0
        assert tick(after_s) == 1


def test_lesser_requests_come_together_in_one_letter(desk: Desk, hears: Callable[..., NoticeChannel]) -> None:
    hears()
    made = [risky(desk, "medium", f"e-{number}") for number in range(3)]
    assert tick() == 0
    assert tick(15 * 60) == 3
    (letter,) = mail.outbox
    assert "3 requests wait" in letter.subject
    assert all(f"/approvals/{gate.id}/" in letter.body for gate in made)


def test_a_gate_that_ended_before_anybody_was_told_is_not_told_of(
    desk: Desk, hears: Callable[..., NoticeChannel]
) -> None:
    hears(rulings=False)
    gate = risky(desk, "medium")
    tick()
    desk.answer(gate, "reviewer", "deny")
    assert tick(15 * 60) == 0
    assert mail.outbox == []
    assert Notice.objects.get().state == "quiet"


def test_a_gate_that_ended_while_its_notice_was_due_is_not_told_of(
    desk: Desk, hears: Callable[..., NoticeChannel]
) -> None:
    hears(rulings=False)
    gate = risky(desk, "high")
    outbox.deliver_due()
    desk.answer(gate, "reviewer", "deny")
    assert notices.send_due() == 0
    assert Notice.objects.get().state == "quiet"


@pytest.mark.parametrize(("answer", "words"), [("approve", "was approved"), ("deny", "was denied")])
def test_who_was_asked_hears_how_it_ended_though_they_do_not_listen_for_rulings(
    desk: Desk, hears: Callable[..., NoticeChannel], answer: str, words: str
) -> None:
    hears(rulings=False)
    gate = risky(desk, "high")
    tick()
    assert desk.answer(gate, "reviewer", answer, step_up="typed_digest").refusal is None
    assert tick() == 1
    assert mail.outbox[1].subject.endswith(f"(g_{gate.opened_position}) {words}")


@pytest.mark.parametrize("answer", ["approve", "deny", "return"])
def test_whose_it_is_and_who_voted_hear_what_became_of_it(
    desk: Desk, hears: Callable[..., NoticeChannel], answer: str
) -> None:
    silent = dict.fromkeys(channels.SWITCHES, False) | {"minimum_risk": "critical"}
    desk.agent.session("s-1", on_behalf_of="viewer")
    for name in ("viewer", "reviewer", "administrator", "operator"):
        hears(target=f"{name}@example.org", person=desk.user(name), **silent)
    hears(target="off@example.org", **silent)
    gate = risky(desk, "medium")
    assert tick(15 * 60) == 0
    assert desk.answer(gate, "reviewer", answer, "agreed in INC-204").refusal is None
    assert tick() == 2
    assert {letter.to[0] for letter in mail.outbox} == {"viewer@example.org", "reviewer@example.org"}
    assert tick() == 0


def test_whose_it_is_hears_that_it_expired(desk: Desk, hears: Callable[..., NoticeChannel]) -> None:
    desk.agent.session("s-1", on_behalf_of="viewer")
    hears(person=desk.user("viewer"), **dict.fromkeys(channels.SWITCHES, False))
    risky(desk, "medium")
    with time_machine.travel(now_us() / US + 3_700, tick=False):
        gates.sweep()
        tick()
    assert mail.outbox[0].subject.endswith("expired: nobody ruled in time")


def test_who_left_the_project_hears_nothing_of_it(desk: Desk, hears: Callable[..., NoticeChannel]) -> None:
    desk.agent.session("s-1", on_behalf_of="viewer")
    hears(person=desk.user("viewer"), **dict.fromkeys(channels.SWITCHES, False))
    gate = risky(desk, "medium")
    people.remove(desk.person("viewer"), actor="tests")
    desk.answer(gate, "reviewer")
    assert tick() == 0


def test_expiry_is_told_to_who_listens_for_it(
    desk: Desk, hears: Callable[..., NoticeChannel], posted: list[Any]
) -> None:
    hears("webhook", requests=False, rulings=False)
    risky(desk, "high")
    with time_machine.travel(now_us() / US + 3_700, tick=False):
        gates.sweep()
        tick()
    ((_url, body, _headers),) = posted
    assert body["event"] == "gate.expired"


def test_lesser_risks_than_asked_for_are_not_told(desk: Desk, hears: Callable[..., NoticeChannel]) -> None:
    hears(minimum_risk="high")
    risky(desk, "medium", "e-1")
    risky(desk, "high", "e-2")
    tick()
    tick(15 * 60)
    assert [letter.subject.split(": ")[1] for letter in mail.outbox] == ["high"]


def test_what_ran_without_leave_is_told_at_once(desk: Desk, hears: Callable[..., NoticeChannel]) -> None:
    hears()
    effect = desk.plan()
    desk.agent.report(
        [{"id": "ran", "kind": "effect.acknowledged", "session": "s-1", "effect_key": "e-1", "outcome": "ok"}]
    )
    assert desk.effect(effect).leave == "bypassed"
    tick()
    assert any("must not pass in silence" in letter.subject for letter in mail.outbox)


def test_a_failure_is_kept_tried_again_and_takes_no_gate_with_it(
    desk: Desk, hears: Callable[..., NoticeChannel], monkeypatch: pytest.MonkeyPatch
) -> None:
    hears("webhook")

    def away(*_arguments: Any) -> None:
        raise outside.Failed("hooks.example.org answered 500.")

    monkeypatch.setattr(outside, "post", away)
    gate = risky(desk, "high")
    assert tick() == 0
    notice = Notice.objects.get()
    assert (notice.state, notice.tries, notice.last_error) == ("due", 1, "hooks.example.org answered 500.")
    assert Gate.objects.get(id=gate.id).status == "pending"
    assert tick(29) == 0
    assert Notice.objects.get().tries == 1, "half a minute is the least between two tries"
    monkeypatch.setattr(outside, "post", lambda *_: None)
    assert tick(31) == 1
    assert (Notice.objects.get().state, Notice.objects.get().last_error) == ("sent", "")


def test_a_notice_that_never_arrives_is_given_up_and_says_so(
    desk: Desk, hears: Callable[..., NoticeChannel], monkeypatch: pytest.MonkeyPatch
) -> None:
    hears("webhook", requests=False)

    def away(*_arguments: Any) -> None:
        raise outside.Refused("hooks.example.org leads to 10.0.0.1, which is no public address.")

    monkeypatch.setattr(outside, "post", away)
    desk.answer(risky(desk, "high"), "reviewer", "deny")
    for hour in range(notices.MOST_TRIES + 5):
        tick(3_700 * hour)
    notice = Notice.objects.get()
    assert (notice.state, notice.tries) == ("failed", notices.MOST_TRIES)
    assert "no public address" in notice.last_error


def test_a_broken_channel_does_not_silence_the_others(
    desk: Desk, hears: Callable[..., NoticeChannel], monkeypatch: pytest.MonkeyPatch
) -> None:
    hears("webhook")
    hears("email")

    def away(*_arguments: Any) -> None:
        raise RuntimeError("anything at all")

    monkeypatch.setattr(outside, "post", away)
    risky(desk, "high")
    assert tick() == 1
    assert len(mail.outbox) == 1


class Killed(BaseException):
    """Stands for SIGKILL: no handler runs."""


@pytest.mark.parametrize("point", ["cut", "claim", "deliver", "mark"])
def test_a_kill_at_any_point_sends_it_again_under_the_same_key(
    desk: Desk, hears: Callable[..., NoticeChannel], posted: list[Any], monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    hears("webhook")
    gate = risky(desk, "high")
    owner, name = {
        "cut": (notices, "_write"),
        "claim": (notices, "_claim"),
        "deliver": (delivery, "deliver"),
        "mark": (notices, "_mark"),
    }[point]
    whole = getattr(owner, name)

    def half(*arguments: Any, **values: Any) -> None:
        if point == "claim":
            whole(*arguments, **values)
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(owner, name, half)
        with pytest.raises(Killed):
            tick()
    tick(61)
    tick(200)
    keys = {body["id"] for _url, body, _headers in posted}
    assert keys == {f"gate.requested:{gate.id.hex}"}
    assert len(posted) == (2 if point == "mark" else 1)
    assert Notice.objects.get().state == "sent"


def test_two_workers_send_a_notice_once(
    desk: Desk, hears: Callable[..., NoticeChannel], posted: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    hears("webhook")
    risky(desk, "high")
    outbox.deliver_due()
    whole = notices._grouped

    def overtaken(due: Any) -> Any:
        found = list(whole(due))
        with monkeypatch.context() as patched:
            patched.setattr(notices, "_grouped", whole)
            assert notices.send_due() == 1, "the other worker is quicker"
        return found

    monkeypatch.setattr(notices, "_grouped", overtaken)
    assert notices.send_due() == 0
    assert len(posted) == 1


def test_nobody_looked_for_half_of_its_time_and_that_is_told_once(
    desk: Desk, hears: Callable[..., NoticeChannel]
) -> None:
    hears()
    risky(desk, "high")
    tick()
    assert tick(1_790) == 0
    assert tick(1_810) == 1
    assert "nobody who may rule has opened it" in mail.outbox[1].subject
    assert tick(1_900) == 0


def test_many_that_nobody_asked_to_hear_of_do_not_stand_before_one_that_somebody_did(
    desk: Desk, hears: Callable[..., NoticeChannel], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notices, "UNSEEN_AT_ONCE", 2)
    hears(minimum_risk="critical")
    for number in range(3):
        risky(desk, "high", f"h-{number}")
    critical = risky(desk, "critical", "c-1")
    tick()
    assert tick(1_810) == 1
    assert Notice.objects.get(topic="gate.unseen").gate == critical.id


@pytest.mark.parametrize(("person", "role", "told"), [("reviewer", "reviewer", 0), ("viewer", "viewer", 1)])
def test_only_a_look_of_somebody_who_may_rule_counts(
    desk: Desk, hears: Callable[..., NoticeChannel], person: str, role: str, told: int
) -> None:
    hears()
    gate = risky(desk, "high")
    tick()
    seen.note(gate, desk.person(person, role))
    assert tick(1_810) == told


def test_a_channel_that_is_off_or_of_another_project_hears_nothing(
    desk: Desk, hears: Callable[..., NoticeChannel]
) -> None:
    off = hears()
    channels.change(off, desk.user("administrator"), enabled=False)
    everything: dict[str, Any] = dict.fromkeys(channels.SWITCHES, True)
    channels.add(desk.house.other, "email", "other@example.org", desk.house.neighbour.user, **everything)
    risky(desk, "high")
    tick()
    assert mail.outbox == []
    assert not Notice.objects.exists()


@pytest.mark.parametrize(
    ("kind", "target"),
    [
        ("email", "nobody"),
        ("email", "a@example.org\nBcc: b@example.org"),
        ("webhook", "http://hooks.example.org/"),
        ("webhook", "https://10.0.0.1/"),
        ("slack", "https://elsewhere.example.org/"),
        ("pager", "x"),
    ],
)
def test_an_address_that_cannot_be_is_refused(hears: Callable[..., NoticeChannel], kind: str, target: str) -> None:
    with pytest.raises(RefusedError), transaction.atomic():
        hears(kind, target)
    assert not NoticeChannel.objects.exists()


def test_the_secret_of_a_webhook_stands_in_no_table(hears: Callable[..., NoticeChannel]) -> None:
    channel = hears("webhook")
    stored = str(list(NoticeChannel.objects.values())) + str(list(Outbox.objects.values()))
    assert channels.secret_of(channel.id) not in stored


def test_the_command_does_the_same_from_one_process(desk: Desk, hears: Callable[..., NoticeChannel]) -> None:
    hears()
    risky(desk, "high")
    outbox.deliver_due()
    said = io.StringIO()
    call_command("send_notices", stdout=said)
    assert said.getvalue() == "1 sent\n"
