"""Deliveries to the real web server, which reads no large body of an unknown sender."""

import hashlib
import hmac
import json
import re
import uuid
from concurrent.futures import ThreadPoolExecutor

import httpx

from tests.config.server import Server
from tests.hooks.code_hosts.code_host import build_push


def test_the_server_takes_large_deliveries_without_a_token(live_server_process: Server) -> None:
    project = f"code-host-{uuid.uuid4().hex[:8]}"
    live_server_process.run(
        "from django.db import transaction; from accounts import projects\n"
        f"with transaction.atomic(): projects.create_project('{project}')"
    )
    printed = live_server_process.manage(
        "code_host_source", "add", "github", "acme", "--project", project
    )
    source = re.search(r"hooks/github/([0-9a-f-]{36})", printed)
    secret = re.search(r"whsec_\S+", printed)
    assert source
    assert secret
    body = json.dumps(build_push(padding="x" * 3_000_000)).encode()
    signed = hmac.new(secret[0].encode(), body, hashlib.sha256).hexdigest()
    address = f"{live_server_process.url}/api/v1/hooks/github"
    headers = {
        "Content-Type": "application/json",
        "X-GitHub-Event": "push",
        "X-GitHub-Delivery": uuid.uuid4().hex,
        "X-Hub-Signature-256": f"sha256={signed}",
    }
    with httpx.Client(timeout=60) as client:
        answer = client.post(f"{address}/{source[1]}", content=body, headers=headers)
        assert (answer.status_code, answer.json()["understood"]) == (200, True)
        again = client.post(f"{address}/{source[1]}", content=body, headers=headers)
        assert (again.status_code, again.content) == (200, answer.content)
        small = json.dumps(build_push()).encode()
        signed = hmac.new(secret[0].encode(), small, hashlib.sha256).hexdigest()
        headers |= {"X-Hub-Signature-256": f"sha256={signed}", "X-GitHub-Delivery": "other"}
        assert client.post(address, content=small, headers=headers).status_code == 200
        taken = json.dumps(build_push(ref="refs/heads/taken")).encode()
        signed = hmac.new(secret[0].encode(), taken, hashlib.sha256).hexdigest()
        headers |= {"X-Hub-Signature-256": f"sha256={signed}"}

        def send_again(number: int) -> tuple[int, bytes]:
            sent = headers | {"X-GitHub-Delivery": f"again-{number}"}
            answer = client.post(f"{address}/{source[1]}", content=taken, headers=sent)
            return answer.status_code, answer.content

        with ThreadPoolExecutor(8) as pool:  # one body at once, under eight ids
            ((status, _content),) = set(pool.map(send_again, range(8)))
        assert status == 200
        headers |= {"X-Hub-Signature-256": f"sha256={'0' * 64}"}
        refused = client.post(f"{address}/{source[1]}", content=small, headers=headers)
        assert (refused.status_code, refused.json()["code"]) == (401, "signature_invalid")
        huge = b"x" * 20_000_000
        too_large = client.post(f"{address}/{source[1]}", content=huge, headers=headers)
        assert (too_large.status_code, too_large.json()["code"]) == (413, "body_too_large")
        unknown = client.post(f"{address}/{uuid.uuid4()}", content=small, headers=headers)
        assert unknown.status_code == 404
    listed = live_server_process.manage("code_host_source", "list", "--project", project)
    assert "1 refused" in listed
