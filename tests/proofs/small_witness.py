"""A small C2SP witness on loopback, with a tree of rules of its own: it trusts nothing it is sent.

Its check of consistency proofs follows RFC 9162, 2.1.4.2, and shares no code with the product.
"""

import base64
import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey


class Witness:
    """State of the witness: for each origin the size and the root that it cosigned last."""

    def __init__(self, trusted: dict[str, bytes], seed: bytes = bytes(32)) -> None:
        self.trusted = trusted
        self.name = "witness.example/w1"
        self.key = Ed25519PrivateKey.from_private_bytes(seed)
        self.seen: dict[str, tuple[int, bytes]] = {}
        self.requests: list[bytes] = []
        self.lock = threading.Lock()
        self.url = ""

    @property
    def verifier_key(self) -> str:
        raw = b"\x04" + self.key.public_key().public_bytes_raw()
        return f"{self.name}+{_key_id(self.name, raw).hex()}+{base64.b64encode(raw).decode()}"

    def add_checkpoint(self, body: bytes) -> tuple[int, str, str]:
        """Return status, content type and content of the answer."""
        self.requests.append(body)
        head, _, note = body.decode().partition("\n\n")
        first, *proof_lines = head.split("\n")
        word, old = first.split(" ")
        assert word == "old"
        assert old == str(int(old))
        proof = [base64.b64decode(line, validate=True) for line in proof_lines]
        text, _, signatures = note.partition("\n\n")
        # It signs extension lines and says nothing about them (c2sp.org/tlog-cosignature).
        origin, size_line, root_line, *_extensions = text.split("\n")
        size, root, text = int(size_line), base64.b64decode(root_line), f"{text}\n"
        public = self.trusted.get(origin)
        if public is None:
            return 404, "text/plain", "unknown log\n"
        if not _is_signed(text, signatures, origin, public):
            return 403, "text/plain", "no signature of a trusted key\n"
        if int(old) > size:
            return 400, "text/plain", "old is larger\n"
        with self.lock:
            seen_size, seen_root = self.seen.get(origin, (0, b""))
            if int(old) != seen_size:
                return 409, "text/x.tlog.size", f"{seen_size}\n"
            if seen_size == size and seen_root != root:
                return 409, "text/plain", "another root\n"
            if seen_size and not _is_consistent(seen_size, size, seen_root, root, proof):
                return 422, "text/plain", "the proof does not verify\n"
            assert seen_size or not proof, "a proof from nothing"
            self.seen[origin] = (size, root)
        return 200, "text/plain", self.cosign(text)

    def cosign(self, text: str, at_s: int = 1_700_000_000) -> str:
        """Return the signature line of cosignature/v1."""
        raw = b"\x04" + self.key.public_key().public_bytes_raw()
        signature = self.key.sign(f"cosignature/v1\ntime {at_s}\n{text}".encode())
        blob = _key_id(self.name, raw) + at_s.to_bytes(8, "big") + signature
        return f"— {self.name} {base64.b64encode(blob).decode()}\n"


@contextmanager
def run_witness(witness: Witness) -> Iterator[Witness]:
    """Serve the witness on a port of this machine and set its `url`."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status, kind, content = (
                witness.add_checkpoint(body)
                if self.path == "/log/add-checkpoint"
                else (404, "text/plain", "")
            )
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content.encode())))
            self.end_headers()
            self.wfile.write(content.encode())

        def log_message(self, *_arguments: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    witness.url = f"http://127.0.0.1:{server.server_port}/log"
    try:
        yield witness
    finally:
        server.shutdown()
        server.server_close()


def _key_id(name: str, raw: bytes) -> bytes:
    return hashlib.sha256(name.encode() + b"\n" + raw).digest()[:4]


def _is_signed(text: str, signatures: str, origin: str, public: bytes) -> bool:
    for line in signatures.splitlines():
        dash, name, blob = line.split(" ")
        raw = base64.b64decode(blob)
        assert dash == "—"
        if (name, raw[:4]) != (origin, _key_id(origin, b"\x01" + public)):
            continue
        try:
            Ed25519PublicKey.from_public_bytes(public).verify(raw[4:], text.encode())
        except InvalidSignature:
            return False
        return True
    return False


def _is_consistent(
    old: int, new: int, old_root: bytes, new_root: bytes, proof: list[bytes]
) -> bool:
    if old == new:
        return not proof and old_root == new_root
    if not proof:
        return False
    path = [old_root, *proof] if old & (old - 1) == 0 else proof
    fn, sn = old - 1, new - 1
    while fn & 1:
        fn, sn = fn >> 1, sn >> 1
    fr = sr = path[0]
    for node in path[1:]:
        if sn == 0:
            return False
        if fn & 1 or fn == sn:
            fr, sr = _join(node, fr), _join(node, sr)
            while fn and not fn & 1:
                fn, sn = fn >> 1, sn >> 1
        else:
            sr = _join(sr, node)
        fn, sn = fn >> 1, sn >> 1
    return sn == 0 and fr == old_root and sr == new_root


def _join(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\x01" + left + right).digest()
