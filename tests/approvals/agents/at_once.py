"""An agent that does several things at once under asyncio: `at_once.py URL TOKEN WORLD KEY…`."""

import asyncio
import signal
import sys
import uuid
from pathlib import Path
from typing import Any

import httpx

signal.alarm(300)
url, token, world, *keys = sys.argv[1:]


async def ask(
    client: httpx.AsyncClient, method: str, path: str, body: Any = None
) -> httpx.Response:
    """One request, under one key, until it is answered."""
    headers = {"Idempotency-Key": uuid.uuid4().hex}
    while True:
        try:
            answer = await client.request(method, path, json=body, headers=headers)
        except httpx.TransportError:
            await asyncio.sleep(0.1)
            continue
        if answer.status_code != 503:
            return answer
        await asyncio.sleep(float(answer.headers["Retry-After"]))


async def do(client: httpx.AsyncClient, key: str) -> str:
    """Plan, wait for the gate's next version until people have ruled, dispatch, act, acknowledge."""
    plan = {"session": "s-1", "effect_key": key, "tool": "file.edit", "arguments": {"line": key}}
    effect = (await ask(client, "POST", "/effects", plan)).json()
    sys.stdout.write(f"{effect['id']} {effect['gate']['id']}\n")
    sys.stdout.flush()
    gate = {"version": 0, "status": "pending"}
    while gate["status"] == "pending":
        path = f"/gates/{effect['gate']['id']}?wait=30&since={gate['version']}"
        gate = (await ask(client, "GET", path)).json()
    own = {"process": uuid.uuid4().hex, "intent_digest": effect["intent_digest"]}
    begun = await ask(client, "POST", f"/effects/{effect['id']}/dispatch", own)
    if begun.status_code == 200:
        with Path(world).open("a") as file:
            file.write(f"{effect['id']}\n")
        report = {"attempt": begun.json()["attempt"], "outcome": "ok"}
        await ask(client, "POST", f"/effects/{effect['id']}/acknowledge", report)
    return str(begun.json().get("code", "done"))


async def main() -> None:
    """All of them together."""
    headers = {"Authorization": f"Bearer {token}"}
    async with httpx.AsyncClient(base_url=f"{url}/api/v1", headers=headers, timeout=60) as client:
        for line in await asyncio.gather(*(do(client, key) for key in keys)):
            sys.stdout.write(f"{line}\n")


asyncio.run(main())
