"""The server on a Ray cluster: the same routes, and one model in each of several replicas."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from dab.serve.build import Plan, create
from dab.serve.shared_folder import shareable
from dab.utils.ray_cluster import connect
from dab.utils.web.server import LOOPBACK

__all__ = ["run"]


def run(
    plan: Plan,
    *,
    replicas: int,
    address: str | None = None,
    host: str = LOOPBACK,
    port: int = 8000,
    token: str | None = None,
    imports: Sequence[str] = (),
    log_level: str = "info",
) -> None:
    """Serve on a Ray cluster until SIGINT or SIGTERM, then save.

    Args:
        plan: what is served, and how; its folder is mounted by all machines.
        replicas: of the model, and of what answers HTTP requests.
        address: of a cluster, as for `ray.init`; None: one on this machine, for this server only.
        host: address that Ray Serve's proxies listen on, on each machine.
        port: of the proxies.
        token: that requests must have; None: anyone may ask.
        imports: modules that register methods.
        log_level: of the replicas.
    """
    assert plan.folder is not None
    plan = replace(plan, folder=str(shareable(plan.folder)))
    _, served = create(replace(plan, device="cpu"), None)  # what is wrong is said here, at once
    if plan.device.startswith("cuda:"):
        raise ValueError("Ray gives each replica a GPU of its own: pass --device cuda")
    # Ray kills a proxy that takes longer to start, by default 5 seconds; a loaded machine does.
    os.environ.setdefault("RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S", "60")
    cluster = connect(address, cpus=replicas * ((plan.threads or 1) + 1))
    gpus = replicas if plan.device == "cuda" else 0
    if (found := cluster.cluster_resources().get("GPU", 0)) < gpus:
        raise ValueError(f"{gpus} replicas need {gpus} GPUs, but there are {found:g}: use fewer")
    # Not before: a cluster listens on loopback only if Ray was told so when it was imported.
    from ray import serve
    from ray.serve.schema import LoggingConfig

    from dab.serve.replicas import APPLICATION, deployed

    if serve.status().proxies:
        raise ValueError(
            f"Ray Serve runs on {address} already and would keep its host and port: stop it first"
        )
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)  # also while it deploys
    logging.getLogger("ray.serve").setLevel(logging.WARNING)
    quiet = LoggingConfig(log_level="WARNING", enable_access_log=False)
    try:
        with suppress(KeyboardInterrupt):
            serve.start("EveryNode", {"host": host, "port": port}, logging_config=quiet)
            serve.run(
                deployed(
                    plan,
                    served,
                    replicas=replicas,
                    token=token,
                    hosts=(host.lower(),),
                    imports=imports,
                    log_level=log_level,
                ),
                name=APPLICATION,
                route_prefix="/",
            )
            print(
                f"Serving {plan.model} on http://{host}:{port}/ (press Ctrl-C to stop)", flush=True
            )
            threading.Event().wait()
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)  # the end must save
        serve.delete(APPLICATION)  # waits until the replicas have saved
        serve.shutdown()  # type: ignore[no-untyped-call]
        cluster.shutdown()
