"""What other processes import to know the tiny task, and methods that take their time or fail."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import dab
from dab.methods.source import Source
from dab.methods.tent import TENT
from tests.support import benchmark_task

__all__ = ["benchmark_task"]  # which registers the tiny task


@dab.register("slow")
class Slow(TENT):
    """TENT that waits."""

    def adapt(self, images: Any, logits: Any) -> Any:
        time.sleep(float(os.environ.get("SECONDS_A_BATCH", "0")))
        return super().adapt(images, logits)


@dab.register("broken")
class Broken(Source):
    """Adapts to nothing."""

    def adapt(self, images: Any, logits: Any) -> Any:
        raise RuntimeError("out of luck")


@dab.register("deadly")
class Deadly(Source):
    """Takes its process with it."""

    def adapt(self, images: Any, logits: Any) -> Any:
        os.kill(os.getpid(), signal.SIGKILL)
