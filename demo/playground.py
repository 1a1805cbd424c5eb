"""`make run`: AstrBot with its WebUI, the packaged plugin and an embedded model.

AstrBot runs as a process of its own with a root that is thrown away afterwards; the
model server runs in this one. Everything listens on loopback only. Ctrl-C ends it all.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support.bot import base_config, install_neighbour, write_config
from tests.support.model_server import ModelServer

from .script_model import HELP, answer

DIST = Path(__file__).resolve().parent.parent / "dist"
PACKAGE = DIST / "astrbot_plugin_toolcall_guard.zip"
LOG = DIST / "run.log"
USER = "astrbot"
DEFAULT_PORT = 6185
START_SECONDS = 120
STOP_SECONDS = 15


def main() -> int:
    """Run until Ctrl-C, SIGTERM or the end of AstrBot; return the exit status."""
    for ending in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, _interrupt)
    password = f"Aa1{secrets.token_urlsafe(9)}"
    url = f"http://127.0.0.1:{_free_port()}"
    with contextlib.suppress(KeyboardInterrupt), _bot(url, password) as process:
        print("Starting AstrBot …", flush=True)
        if not _wait_until_ready(url, process):
            print(f"AstrBot did not start; its log is {LOG.relative_to(DIST.parent)}.")
            return 1
        print(f"\n  WebUI     {url}\n  user      {USER}\n  password  {password}\n")
        print("Open the chat in the WebUI and type a line:\n")
        print(HELP)
        print("\nSwitch the plugin off under Plugins to see the same without the guard.")
        print(
            f"AstrBot's log is {LOG.relative_to(DIST.parent)}. Ctrl-C ends everything.", flush=True
        )
        process.wait()
        print("AstrBot has ended.")
        return 1
    print("\nEnded.")
    return 0


@contextlib.contextmanager
def _bot(url: str, password: str) -> Iterator[subprocess.Popen[bytes]]:
    LOG.parent.mkdir(exist_ok=True)
    with (
        tempfile.TemporaryDirectory(
            prefix="toolcall-guard-run-", ignore_cleanup_errors=True
        ) as folder,
        ModelServer.in_thread() as server,
        LOG.open("wb") as log,
    ):
        server.fallback = answer
        root = Path(folder)
        furnish(root, server.url)
        process = subprocess.Popen(
            [Path(sys.executable).with_name("astrbot"), "run"],
            cwd=root,
            env=_environment(url, password),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            # A group of its own: Ctrl-C comes to us, and we end AstrBot in our order.
            start_new_session=True,
        )
        try:
            yield process
        finally:
            _end(process)


def furnish(root: Path, api_base: str) -> None:
    """Make `root` a root of AstrBot, with the plugins installed."""
    plugins = root / "data" / "plugins"
    plugins.mkdir(parents=True)
    (root / ".astrbot").touch()
    config = base_config(api_base)
    config["admins_id"] = [USER]
    config["provider_settings"]["streaming_response"] = True
    write_config(root, config)
    install_neighbour(root)
    source = Path(__file__).with_name("plugin")
    target = plugins / "astrbot_plugin_playground"
    target.mkdir()
    for path in source.iterdir():
        if path.is_file():
            (target / path.name).write_bytes(path.read_bytes())
    with zipfile.ZipFile(PACKAGE) as package:
        package.extractall(plugins)


def _environment(url: str, password: str) -> dict[str, str]:
    host, _, port = url.removeprefix("http://").partition(":")
    return os.environ | {
        "ASTRBOT_DISABLE_METRICS": "1",
        "ASTRBOT_DASHBOARD_INITIAL_PASSWORD": password,
        "DASHBOARD_HOST": host,
        "DASHBOARD_PORT": port,
    }


def _free_port() -> int:
    for port in (DEFAULT_PORT, 0):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return probe.getsockname()[1]
    raise OSError("no free port")


def _wait_until_ready(url: str, process: subprocess.Popen[bytes]) -> bool:
    deadline = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(urllib.error.URLError, OSError), urllib.request.urlopen(url):
            return True
        time.sleep(0.2)
    return False


def _end(process: subprocess.Popen[bytes]) -> None:
    # A second Ctrl-C must not leave AstrBot behind.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for ask in (lambda: process.send_signal(signal.SIGINT), process.kill):
        if process.poll() is not None:
            return
        ask()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP_SECONDS)


def _interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
