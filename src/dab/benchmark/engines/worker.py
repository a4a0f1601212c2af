"""What a worker process of the local engine does."""

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
    """Run jobs one after the other, as they come over a connection, until its other end closes.

    That may be in the middle of a run, on request or because the other process has been killed:
    then the run leaves a checkpoint.
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
        os.kill(os.getpid(), signal.SIGTERM)  # a run takes this for a request; without one it ends
