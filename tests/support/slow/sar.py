"""SAR's slow twin: written with loops, from the paper."""

from __future__ import annotations

import math
from collections import Counter

from torch import Tensor, nn

from tests.support.twins import Twin, entropy


class SlowSAR(Twin):
    def __init__(
        self,
        model: nn.Module,
        lr: float,
        rho: float,
        reset_below: float,
        entropy_below: float = 0.4,
    ) -> None:
        self.entropy_below = entropy_below
        super().__init__(model, lr, nesterov=False)
        self.rho, self.reset_below = rho, reset_below
        self.e: float | None = None
        self.happened: Counter[str] = Counter()

    def step(self, images: Tensor) -> Tensor:
        z = self.net(images)
        threshold = self.entropy_below * math.log(z.shape[1])
        H = [entropy(row) for row in z]
        certain = [i for i in range(len(z)) if H[i] < threshold]
        moving = any(v.abs().max() > 0 for v in self.velocity.values())
        if not certain:
            self.happened["S1 empty" + " with momentum" * moving] += 1
            return z
        self.happened["S1 smaller"] += len(certain) < len(z)

        uphill = self.gradients(sum(H[i] for i in certain) / len(certain))
        norm = math.sqrt(sum(float(x) ** 2 for g in uphill.values() for x in g.flatten()))
        here = {name: p.data for name, p in self.theta.items()}
        for name, g in uphill.items():
            self.theta[name].data = here[name] + self.rho * g / (norm + 1e-12)
        H = [entropy(row) for row in self.net(images)]
        still = [i for i in certain if H[i] < threshold]
        if still:
            loss = sum(H[i] for i in still) / len(still)
            # The gradient of the moved weights is applied to those from before.
            moved = {name: p.data for name, p in self.theta.items()}
            self.descend(loss)
            for name, p in self.theta.items():
                p.data = here[name] + (p.data - moved[name])
            self.follow(loss.item())
        else:
            for name, p in self.theta.items():
                p.data = here[name]
            self.happened["S2 empty" + " with momentum" * moving] += 1
        self.happened["S2 smaller"] += 0 < len(still) < len(certain)
        return z

    def follow(self, loss: float) -> None:
        self.happened["e from before"] += self.e is not None
        self.e = loss if self.e is None else 0.9 * self.e + 0.1 * loss
        if self.e < self.reset_below:
            self.happened["started over"] += 1
            self.happened["updated after starting over"] = 0
            for name, p in self.theta.items():
                p.data = self.source[name].clone()
            self.velocity, self.e = {}, None
        elif self.happened["started over"]:
            self.happened["updated after starting over"] += 1
