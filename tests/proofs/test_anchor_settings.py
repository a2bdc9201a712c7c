"""GATEBOOK_ANCHORS: what it means, and what is wrong with it."""

from pathlib import Path

import pytest
from pytest_django import Settings

from proofs.anchors.anchor_settings import load_anchor_settings, parse_anchors
from proofs.anchors.published_head import AnchorTarget
from tests.proofs.small_witness import Witness

pytestmark = pytest.mark.once
KEY = Witness({}).verifier_key
OTHER_TYPE = "w.example+deadbeef+AXN0YXJ0c3RhcnRzdGFydHN0YXJ0c3RhcnRzdGFydHM="


def test_every_kind_has_its_options() -> None:
    parsed = parse_anchors(
        "file:/srv/anchors/heads; git:robot@host.example:heads.git branch=gatebook every=300\n"
        "siem=syslog:tcp://[::1]:601; syslog:unix:///dev/log;"
        f" webhook:https://example.org/heads?a=1 ; w1=witness:https://w.example/log key={KEY}"
    )
    assert parsed.faults == []
    assert parsed.targets == [
        AnchorTarget("file", "file", "/srv/anchors/heads", "tree-heads"),
        AnchorTarget("git", "git", "robot@host.example:heads.git", "gatebook", every_s=300),
        AnchorTarget("siem", "syslog", "tcp://[::1]:601", "tree-heads"),
        AnchorTarget("syslog", "syslog", "unix:///dev/log", "tree-heads"),
        AnchorTarget("webhook", "webhook", "https://example.org/heads?a=1", "tree-heads"),
        AnchorTarget("w1", "witness", "https://w.example/log", "tree-heads", key=KEY),
    ]
    assert parse_anchors("none") == ([], [])


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("/srv/anchors/heads", "not of the form"),
        ("Big=file:/srv/a", "A name has lower-case letters"),
        ("ftp:/srv/a", "Use one of file, git, syslog, webhook, witness"),
        ("file:heads", "Write one, as file:/srv/anchors/heads"),
        ("file:/tmp", "Name a file in it"),
        ("file:/srv/a branch=b", "Write every=…"),
        ("file:/srv/a every=-1", "from 0 to 86400"),
        ("file:/srv/a every=1 every=2", "Keep one"),
        ("file:/srv/a; file:/srv/b", "file-2=file:…"),
        ("git:--upload-pack=evil", "no git remote"),
        ("git:ext::sh", "no git remote"),
        ("git:/srv/a branch=-f", "no name of a branch"),
        ("syslog:udp://", "Write syslog:udp://HOST:514"),
        ("syslog:tls://host:6514", "syslog:unix:///dev/log"),
        ("webhook:http://example.org/", "begins with https://"),
        ("webhook:https://user:secret@example.org/", "Write one as https://example.org/heads"),
        ("witness:https://w.example/", "key=NAME+HASH+KEY"),
        (f"witness:https://w.example/ key={KEY[:-8]}AAAAAAAA", "Copy the whole key again"),
        (f"witness:https://w.example/ key={OTHER_TYPE}", "no Ed25519 cosignature key"),
    ],
)
def test_a_fault_says_what_to_write(text: str, advice: str) -> None:
    fault, *_ = parse_anchors(text).faults
    assert fault.startswith("GATEBOOK_ANCHORS, anchor ")
    assert advice in fault
    assert "secret" not in fault


def test_without_the_setting_anchors_lie_beside_the_installation(
    tmp_path: Path, settings: Settings
) -> None:
    settings.GATEBOOK_ANCHORS, settings.VAR_DIR = "", tmp_path / "var"
    folder = tmp_path / "var-anchors"
    assert [(target.kind, target.address) for target in load_anchor_settings().targets] == [
        ("file", f"{folder}/heads"),
        ("git", f"{folder}/heads.git"),
    ]
    settings.VAR_DIR = tmp_path / "none" / "var"  # nobody can write beside it
    assert load_anchor_settings().targets[0].address == f"{tmp_path}/none/var/anchors/heads"
