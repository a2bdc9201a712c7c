"""Run one agent in a plain loop over httpx: `loop.py URL TOKEN WORLD KEY [pause]`.

The agent acts once on the world, with permission. With `pause` it stops after it receives its
permission and before it uses it.
"""

import signal
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import httpx

signal.alarm(300)
url, token, world, key, *how = sys.argv[1:]
client = httpx.Client(
    base_url=f"{url}/api/v1", headers={"Authorization": f"Bearer {token}"}, timeout=60
)


def ask(method: str, path: str, body: Any = None) -> httpx.Response:
    """Send a request under one key until it is answered."""
    headers = {"Idempotency-Key": uuid.uuid4().hex}
    while True:
        try:
            answer = client.request(method, path, json=body, headers=headers)
        except httpx.TransportError:
            time.sleep(0.1)
            continue
        if answer.status_code != 503:
            return answer
        time.sleep(float(answer.headers["Retry-After"]))


plan = {"session": "s-1", "effect_key": key, "tool": "file.edit", "arguments": {"line": key}}
effect = ask("POST", "/effects", plan).json()
sys.stdout.write(f"{effect['id']} {effect['gate']['id']}\n")
sys.stdout.flush()
while effect["answer"] == "wait":
    gate = ask("GET", f"/gates/{effect['gate']['id']}?wait=30").json()
    if gate["proceed"] or gate["status"] != "pending":
        break
if how:
    sys.stdout.write("may\n")
    sys.stdout.flush()
    signal.pause()
begun = ask(
    "POST",
    f"/effects/{effect['id']}/dispatch",
    {"process": uuid.uuid4().hex, "arguments": {"line": key}},
)
if begun.status_code == 200:
    with Path(world).open("a") as file:
        file.write(f"{effect['id']}\n")
    ask(
        "POST",
        f"/effects/{effect['id']}/acknowledge",
        {"attempt": begun.json()["attempt"], "outcome": "ok"},
    )
sys.stdout.write(f"{begun.json().get('code', 'done')}\n")
