"""A Ray cluster: one that exists, or one on this machine that only this process uses."""

from __future__ import annotations

import logging
import os
import socket
from typing import Any

from dab.utils.imports import require

__all__ = ["connect"]

OBJECTS = 100 * 2**20  # bytes of shared memory; what is sent is small
ANSWER = 5.0  # seconds to wait for a cluster to answer


def connect(address: str | None, *, cpus: int) -> Any:
    """Connect to a cluster, and return the module `ray`.

    Args:
        address: as for `ray.init`; None starts a cluster that listens on loopback only.
        cpus: of that cluster.
    """
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    if address is None:  # Ray reads this on import, and then listens on loopback only
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    ray = require("ray", extra="ray")
    own: dict[str, Any] = {
        "num_cpus": cpus,
        "include_dashboard": False,
        "object_store_memory": OBJECTS,
        "_node_ip_address": "127.0.0.1",
    }
    if address is not None:
        _check_answer(address)
    try:
        ray.init(
            address=address or "local",
            log_to_driver=False,
            logging_level=logging.ERROR,
            **(own if address is None else {}),
        )
    except (RuntimeError, ConnectionError) as error:  # another version, say
        raise ValueError(f"could not start Ray: {str(error).splitlines()[0]}") from error
    return ray


def _check_answer(address: str) -> None:
    """Ray itself retries an address for minutes before it fails."""
    host, colon, port = address.rpartition("://")[2].rpartition(":")
    if not colon or not port.isdecimal():
        return  # "auto", or another form that Ray resolves
    try:
        socket.create_connection((host, int(port)), ANSWER).close()
    except OSError as error:
        raise ValueError(f"no Ray cluster answers at {address}: {error}") from error
