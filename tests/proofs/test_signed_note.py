"""Signed notes and tree heads in the form of C2SP."""

import base64

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from proofs import signed_note
from proofs.signed_note import NoteError, NoteKey

pytestmark = pytest.mark.once
# The note, the verifier key and the secret of golang.org/x/mod/sumdb/note's documentation.
VERIFIER = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW"
SEED = "AYEKFALVFGyNhPJEMzD1QIDr+Y7hfZx09iUvxdXHKDFz"
TEXT = (
    "If you think cryptography is the answer to your problem,\n"
    "then you don't know what your problem is.\n"
)
NOTE = (
    f"{TEXT}\n"
    "— PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb"
    "6KE6RyyBwJnAM=\n"
)


def test_notes_equal_those_of_the_reference_implementation() -> None:
    key = signed_note.parse_verifier_key(VERIFIER)
    assert signed_note.format_verifier_key(key) == VERIFIER
    assert signed_note.verify_note(NOTE, [key]) == (TEXT, [key])
    private = Ed25519PrivateKey.from_private_bytes(base64.b64decode(SEED)[1:])
    assert signed_note.sign_note(TEXT, [("PeterNeumann", private)]) == NOTE


def test_a_wrong_signature_is_refused_and_one_of_an_unknown_key_ignored() -> None:
    private, stranger = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
    key = NoteKey("gatebook/1", signed_note.read_public_key(private))
    text = signed_note.format_head_text("gatebook/1", 20, b"r" * 32, 1_795_428_000_000_001)
    note = signed_note.sign_note(text, [("gatebook/1", private), ("elsewhere", stranger)])
    assert signed_note.verify_note(note, [key]) == (text, [key])
    assert signed_note.parse_head_text(text) == (
        *("gatebook/1", 20, b"r" * 32),
        ("signed_at 2026-11-23T10:00:00.000001Z",),
    )
    with pytest.raises(NoteError, match="None of the given keys"):
        signed_note.verify_note(note, [NoteKey("other", key.public_key)])
    with pytest.raises(NoteError, match="is wrong"):
        signed_note.verify_note(note.replace("\n20\n", "\n21\n"), [key])


@pytest.mark.parametrize(
    "note",
    [
        "",
        "text\n",
        "text\n\n",
        "text\n\n— name AAAAAAAA",
        "text\n\n- name AAAAAAAA\n",
        "text\n\n— na+me AAAAAAAA\n",
        "text\n\n— name !!!\n",
        "te\x07xt\n\n— name AAAAAAAA\n",
        "text\n\n" + "— name AAAAAAAA\n" * 101,
    ],
)
def test_malformed_notes_are_refused(note: str) -> None:
    with pytest.raises(NoteError):
        signed_note.parse_note(note)


@pytest.mark.parametrize(
    "text", ["o\n1\n", "o\n01\nAAAA\n", "o\n-1\nAAAA\n", "\n1\nAAAA\n", "o\n1\nAAAA\n", "o\n1\n!\n"]
)
def test_malformed_tree_heads_are_refused(text: str) -> None:
    with pytest.raises(NoteError):
        signed_note.parse_head_text(text)
