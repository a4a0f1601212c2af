"""`dab serve`: one model for many streams, over HTTP."""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from dab.cli.options import Commands, add_imports, at_least, command, import_modules, share
from dab.guard.guard import Action
from dab.utils.imports import require
from dab.utils.text import parse_options

if TYPE_CHECKING:
    from dab.serve.build import Plan

__all__ = ["add", "main"]

EXAMPLES = """examples:
  dab serve --model timm/vit_tiny_patch16_224@weights.safetensors --guard
  dab serve --model hf/FOLDER --method "dab capacity=64 admission=running" --folder states
  dab serve --model mine.py:load --labels classes.txt --port 8080 --token-file token
  dab serve --model timm/NAME --engine ray --address 10.0.0.1:6379 --replicas 8 --folder /mnt/states

  curl -H "Content-Type: image/jpeg" --data-binary @frame.jpg \\
      http://127.0.0.1:8000/streams/cam-1/predict

The page at / shows all streams, /metrics is for Prometheus, and /v2 speaks the Open Inference
Protocol. It is served to this machine only; before you choose another --host, read docs/serve.md.
"""

PACKAGES = ("PIL", "prometheus_client", "simplejpeg", "starlette", "uvicorn")
RAY_PACKAGES = ("fastapi", "mmh3")  # of ray[serve]; ray itself is imported when it is configured
TOKEN = "DAB_SERVE_TOKEN"
REPLICAS = 2


def add(commands: Commands) -> None:
    parser = command(commands, "serve", "serve a model to many streams", EXAMPLES, main)
    parser.add_argument(
        "--model",
        required=True,
        help="torchvision/NAME or timm/NAME, both also with @WEIGHTS_FILE; hf/NAME; or "
        "MODULE:FUNCTION",
    )
    parser.add_argument(
        "--method",
        default="dab",
        metavar='"NAME OPTION=VALUE ..."',
        help="how streams adapt; it must train normalization layers only, or nothing, like "
        "`source` (default: dab)",
    )
    parser.add_argument(
        "--guard",
        nargs="?",
        const="rollback",
        choices=get_args(Action),
        help="notice without labels when adapting does harm, and do this (default: rollback)",
    )
    parser.add_argument("--name", help="of the model in URLs (default: from --model)")
    parser.add_argument("--labels", type=Path, metavar="FILE", help="names of the classes by line")
    parser.add_argument("--device", default="cpu", help="cpu (default), cuda, cuda:1 or mps")
    parser.add_argument("--threads", type=at_least(1), help="of torch (default: one per core)")
    add_imports(parser)

    where = parser.add_argument_group("where it runs")
    where.add_argument(
        "--engine",
        dest="runs_on",  # `engine` are those of grids (names.py)
        choices=["process", "ray"],
        default="process",
        help="process: this one (default); ray: Ray Serve, for more than one machine or device",
    )
    where.add_argument(
        "--replicas",
        type=at_least(1),
        help=f"of the model on Ray, each with some of the streams (default: {REPLICAS})",
    )
    where.add_argument(
        "--address",
        metavar="HOST:PORT",
        help="of a Ray cluster (default: one is started on this machine)",
    )

    states = parser.add_argument_group("states of streams")
    states.add_argument(
        "--folder",
        default="streams",
        help="where they are saved and resumed from, or a URL like s3://bucket/streams (default: "
        "streams)",
    )
    states.add_argument(
        "--save-every",
        type=at_least(1),
        default=10,
        metavar="UPDATES",
        help="of a stream (default: 10)",
    )
    states.add_argument(
        "--in-memory",
        type=at_least(1),
        default=256,
        metavar="STREAMS",
        help="the least recently used others are only in the folder (default: 256)",
    )

    network = parser.add_argument_group("network")
    network.add_argument("--host", default="127.0.0.1", help="(default: 127.0.0.1, this machine)")
    network.add_argument(
        "--port", type=at_least(0, 65_535), default=8000, help="0: any free port (default: 8000)"
    )
    network.add_argument(
        "--token-file",
        type=Path,
        metavar="FILE",
        help=f"holds the bearer token that requests must have (default: ${TOKEN}, if set)",
    )

    limits = parser.add_argument_group("limits")
    limits.add_argument(
        "--batch",
        type=at_least(1),
        default=64,
        metavar="IMAGES",
        help="in a batch, and in a request (default: 64)",
    )
    limits.add_argument(
        "--wait",
        type=share,
        default=3,
        metavar="MILLISECONDS",
        help="for requests of other streams to share a batch (default: 3)",
    )
    limits.add_argument(
        "--queue",
        type=at_least(1),
        default=512,
        metavar="REQUESTS",
        help="in progress; others are refused (default: 512)",
    )
    limits.add_argument(
        "--timeout", type=share, default=30, metavar="SECONDS", help="(default: 30)"
    )
    limits.add_argument("--max-streams", type=at_least(1), default=10_000, help="(default: 10000)")
    limits.add_argument(
        "--max-body", type=at_least(1), default=16, metavar="MB", help="(default: 16)"
    )
    limits.add_argument(
        "--max-pixels", type=at_least(1, 89), default=32, metavar="MILLIONS", help="(default: 32)"
    )
    parser.add_argument(
        "--log-level",
        choices=["debug", "info", "warning", "error"],
        default="info",
        help="debug also logs every request (default: info)",
    )


def main(chosen: argparse.Namespace) -> int:
    for package in PACKAGES:
        require(package, extra="serve")
    from dab.serve.build import Plan
    from dab.serve.limits import Limits

    import_modules(chosen.imports)
    token = _token(chosen.token_file)
    method, options = _method(chosen.method, chosen.guard)
    plan = Plan(
        model=chosen.model,
        method=method,
        options=options,
        name=chosen.name,
        labels=None if chosen.labels is None else chosen.labels.read_text().splitlines(),
        device=chosen.device,
        threads=chosen.threads,
        folder=chosen.folder,
        in_memory=chosen.in_memory,
        save_every=chosen.save_every,
        limits=Limits(
            body=chosen.max_body << 20,
            pixels=chosen.max_pixels * 1_000_000,
            images=chosen.batch,
            streams=chosen.max_streams,
            queue=chosen.queue,
            wait=chosen.wait / 1000,
            timeout=chosen.timeout,
        ),
    )
    (_on_ray if chosen.runs_on == "ray" else _here)(plan, token, chosen)
    return 0


def _here(plan: Plan, token: str | None, chosen: argparse.Namespace) -> None:
    """Serve in this process."""
    from dab.serve.build import build
    from dab.serve.logs import log_as_json
    from dab.serve.server import run
    from dab.utils.web.server import listen

    for option in ("address", "replicas"):
        if getattr(chosen, option) is not None:
            raise ValueError(f"--{option} needs --engine ray")
    with listen(chosen.host, chosen.port) as listening:
        host, port = listening.getsockname()[:2]
        app = build(plan, token=token, hosts=(chosen.host.lower(), host))
        _warn(host, token)
        print(f"Serving {chosen.model} on http://{host}:{port}/ (press Ctrl-C to stop)", flush=True)
        log_as_json(chosen.log_level)
        with suppress(KeyboardInterrupt):
            run(app, listening)


def _on_ray(plan: Plan, token: str | None, chosen: argparse.Namespace) -> None:
    """Serve in the processes of a Ray cluster."""
    for package in RAY_PACKAGES:
        require(package, extra="serve-ray")
    from dab.serve.on_ray import run
    from dab.utils.web.server import listen

    with listen(chosen.host, chosen.port) as free:
        host, port = free.getsockname()[:2]
    _warn(host, token)
    run(
        plan,
        replicas=chosen.replicas or REPLICAS,
        address=chosen.address,
        host=host,
        port=port,
        token=token,
        imports=chosen.imports,
        log_level=chosen.log_level,
    )


def _warn(host: str, token: str | None) -> None:
    if token is None and not host.startswith("127."):
        print(
            "dab: anyone who can reach this host can use the server: set a token", file=sys.stderr
        )


def _method(text: str, guard: str | None) -> tuple[str, dict[str, Any]]:
    """The method, and its options."""
    name, choices = parse_options(text)
    for option, values in choices.items():
        if len(values) > 1:
            raise ValueError(f"{option} has {len(values)} values: a server has one method")
    options = {option: value for option, (value,) in choices.items()}
    return name, options if guard is None else {**options, "guard": guard}


def _token(file: Path | None) -> str | None:
    token = os.environ.get(TOKEN) if file is None else file.read_text().strip()
    if token is not None and not (token.isascii() and token.isprintable() and len(token) >= 16):
        raise ValueError(
            f"the token in {file or '$' + TOKEN} must have 16 or more ASCII characters"
        )
    return token
