"""A whole AstrBot in a process of its own, spoken to over its dashboard's HTTP API."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
import socket
import sys
import zipfile
from pathlib import Path
from typing import Any

import httpx

from tests.support.bot import base_config, write_config

PLUGIN = "astrbot_plugin_toolcall_guard"
USER = "astrbot"
LISTENING = b"Running on"


class RunningAstrBot:
    """One AstrBot root; its process can be started and stopped again and again.

    Args:
        root: An empty folder.
        api_base: Where its two providers are.
        package: The plugin's archive.
    """

    def __init__(self, root: Path, api_base: str, package: Path) -> None:
        self.root = root
        self._password = f"Aa1{secrets.token_hex(8)}"
        self._process: asyncio.subprocess.Process | None = None
        self._output: asyncio.Task[bytes] | None = None
        self._client: httpx.AsyncClient | None = None
        (root / ".astrbot").touch()
        for folder in ("plugins", "config"):  # as `astrbot init` does
            (root / "data" / folder).mkdir(parents=True)
        write_config(root, base_config(api_base) | {"admins_id": [USER]})
        with zipfile.ZipFile(package) as archive:
            archive.extractall(root / "data" / "plugins")

    async def start(self) -> None:
        """Start it, wait until it listens, and log in."""
        port = _free_port()
        self._process = await asyncio.create_subprocess_exec(
            Path(sys.executable).with_name("astrbot"),
            "run",
            cwd=self.root,
            env={
                **os.environ,
                "ASTRBOT_ROOT": str(self.root),
                "ASTRBOT_DISABLE_METRICS": "1",
                "ASTRBOT_DASHBOARD_INITIAL_PASSWORD": self._password,
                "DASHBOARD_HOST": "127.0.0.1",
                "DASHBOARD_PORT": str(port),
            },
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            # A job in the background is started with this signal ignored, and all below it.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        output = self._process.stdout
        assert output is not None
        seen: list[bytes] = []
        while LISTENING not in (line := await output.readline()):
            seen.append(line)
            assert line, b"".join(seen).decode()
        # Left unread, its log would fill the pipe and stop it.
        self._output = asyncio.create_task(output.read())
        self._client = httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{port}/api/v1", timeout=60, trust_env=False
        )
        login = await self._call(
            "POST", "/auth/login", {"username": USER, "password": self._password}
        )
        self._client.headers["Authorization"] = f"Bearer {login['token']}"

    async def stop(self) -> str:
        """End it as an operator does, with Ctrl-C; return what it printed since it listened."""
        process, client, output = self._process, self._client, self._output
        self._process = self._client = self._output = None
        if client is not None:
            await client.aclose()
        if process is not None and process.returncode is None:
            process.send_signal(signal.SIGINT)
            await process.wait()
        return (await output).decode() if output is not None else ""

    async def new_session(self) -> str:
        """Begin a chat in the WebUI; return its id."""
        return (await self._call("GET", "/chat/sessions/new"))["session_id"]

    async def say(self, session: str, text: str, *, streaming: bool = True) -> str:
        """Send a message as the WebUI's user; return everything that was answered."""
        assert self._client is not None
        response = await self._client.post(
            "/chat",
            json={
                "session_id": session,
                "message": [{"type": "plain", "text": text}],
                "enable_streaming": streaming,
            },
        )
        response.raise_for_status()
        events = [
            json.loads(line.removeprefix("data:"))
            for line in response.text.splitlines()
            if line.startswith("data:")
        ]
        return "".join(
            str(event.get("data") or "") for event in events if event.get("type") == "plain"
        )

    async def config(self) -> dict[str, Any]:
        """Return the plugin's configuration as its panel shows it."""
        return (await self._call("GET", f"/plugins/{PLUGIN}/config"))["config"]

    async def save(self, config: dict[str, Any]) -> None:
        """Save the plugin's panel."""
        await self._call("PUT", f"/plugins/{PLUGIN}/config", {"config": config})

    async def _call(self, method: str, path: str, body: Any = None) -> Any:
        assert self._client is not None
        response = await self._client.request(method, path, json=body)
        answer = response.json()
        assert answer["status"] == "ok", answer
        return answer.get("data")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
