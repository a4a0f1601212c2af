"""The worker process of the local engine."""

from __future__ import annotations

import os
import pickle
import signal
import threading
from contextlib import suppress
from multiprocessing.connection import Connection
from queue import SimpleQueue

from dab.benchmark.engines.job import work
from dab.benchmark.running.run import Interrupted

__all__ = ["serve"]


def serve(handle: int) -> None:
    """Run jobs as they arrive over a connection, one at a time, until its other end closes.

    If that happens during a run, on request or because the other process was killed, the run saves
    a checkpoint.
    """
    connection = Connection(handle)
    messages: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=_listen, args=(connection, messages), daemon=True).start()
    with suppress(Interrupted, BrokenPipeError):
        while True:
            connection.send(work(pickle.loads(messages.get())))


def _listen(connection: Connection, messages: SimpleQueue[bytes]) -> None:
    try:
        while True:
            messages.put(connection.recv_bytes())
    except (EOFError, OSError):
        os.kill(os.getpid(), signal.SIGTERM)  # asks a run to stop; without one the process ends
