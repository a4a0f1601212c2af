"""`dab watch`: the page of a report while runs are in progress."""

from __future__ import annotations

import argparse
from contextlib import suppress

from dab.cli.options import Commands, at_least, command, folder_or_url
from dab.utils.imports import require

__all__ = ["add", "main"]

EXAMPLES = """examples:
  dab watch results                serve a page that stays up to date
  dab watch results --port 8001    on another port
  dab watch s3://bucket/results    watch runs on other machines

The page is that of `dab report`. It is served to this machine only; to open it on another one, use
ssh -L 8000:127.0.0.1:8000 THIS-MACHINE.
"""


def add(commands: Commands) -> None:
    parser = command(commands, "watch", "watch runs in progress in a browser", EXAMPLES, main)
    parser.add_argument(
        "results", type=folder_or_url, help="folder of the results; it may still be empty"
    )
    parser.add_argument("--host", default="127.0.0.1", help="(default: 127.0.0.1, this machine)")
    parser.add_argument(
        "--port", type=at_least(0, 65_535), default=8000, help="0: any free port (default: 8000)"
    )
    parser.add_argument(
        "--every",
        type=at_least(1),
        default=3,
        metavar="SECONDS",
        help="time between updates of the page (default: 3)",
    )


def main(chosen: argparse.Namespace) -> int:
    for package in ("starlette", "uvicorn"):
        require(package, extra="watch")
    from dab.report.watch import serve
    from dab.utils.web.server import listen

    with listen(chosen.host, chosen.port) as listening:
        host, port = listening.getsockname()[:2]
        print(
            f"Watching {chosen.results} on http://{host}:{port}/ (press Ctrl-C to stop)", flush=True
        )
        with suppress(KeyboardInterrupt):
            serve(chosen.results, listening, host=chosen.host, every=chosen.every)
    return 0
