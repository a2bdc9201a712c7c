"""A new process of an agent that only has one id: `from_id.py URL TOKEN WORLD effects|gates ID`.

The script needs only the standard library.
"""

import http.client
import json
import signal
import sys
import time
import uuid
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

signal.alarm(300)
url, token, world, kind, subject_id = sys.argv[1:]


def ask(method: str, path: str, body: Any = None) -> tuple[int, Any]:
    """Send a request until it is answered, each time on a connection of its own."""
    headers = {"Authorization": f"Bearer {token}", "Idempotency-Key": uuid.uuid4().hex}
    headers["Content-Type"] = "application/json"
    while True:
        connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
        try:
            connection.request(
                method, f"/api/v1{path}", json.dumps(body) if body else None, headers
            )
            answer = connection.getresponse()
            payload = json.loads(answer.read())
        except (OSError, http.client.HTTPException):
            time.sleep(0.1)
            continue
        finally:
            connection.close()
        if answer.status != 503:
            return answer.status, payload
        time.sleep(float(answer.headers["Retry-After"]))


_, subject = ask("GET", f"/{kind}/{subject_id}")
gate = subject_id if kind == "gates" else subject["gate"]["id"]
effect = subject["effect"] if kind == "gates" else subject_id
sys.stdout.write(f"{effect} {gate}\n")
sys.stdout.flush()
version = 0
while True:
    _, answer = ask("POST", "/gates/wait", {"gates": {gate: version}, "wait": 30})
    version = answer["gates"][0]["version"]
    if answer["gates"][0]["status"] != "pending":
        break
_, planned = ask("GET", f"/effects/{effect}")
own = {"process": uuid.uuid4().hex, "intent_digest": planned["intent_digest"]}
status, begun = ask("POST", f"/effects/{effect}/dispatch", own)
if status == 200:
    with Path(world).open("a") as file:
        file.write(f"{effect}\n")
    ask("POST", f"/effects/{effect}/acknowledge", {"attempt": begun["attempt"], "outcome": "ok"})
sys.stdout.write(f"{begun.get('code', 'done')}\n")
