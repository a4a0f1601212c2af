"""The comparison of an adapted with the source model, sample by sample."""

from __future__ import annotations

import math

from torch import Tensor

from dab.guard.signals import CLASSES, CONTEXT, GAINED, HELD, LOST, PRIOR, RECENT, SPREAD


def count_classes(labels: list[int]) -> float:
    shares = [labels.count(c) / len(labels) for c in set(labels)]
    return math.exp(-sum(share * math.log(share) for share in shares))


def count_soft_classes(rows: list[list[float]]) -> float:
    means = [sum(row[c] for row in rows) / len(rows) for c in range(len(rows[0]))]
    return math.exp(-sum(p * math.log(p) for p in means if p > 0))


class SlowComparison:
    """Keeps every sample in a list."""

    def __init__(self, temperature: float = 1.0) -> None:
        self.temperature = temperature
        self.samples: list[tuple[list[float], list[float], int, float]] = []
        self.recent = 0.0
        self.images = self.cleared = 0

    def add(self, adapted: Tensor, source: Tensor, chosen: list[int] | None = None) -> None:
        rows = adapted.tolist()
        sure = [certainty(self.softened(row)) for row in rows]
        kept = math.exp(-len(rows) / RECENT) if self.images else 0.0
        self.recent = kept * self.recent + (1 - kept) * sum(sure) / len(sure)
        self.images += len(rows)
        places = range(len(rows)) if chosen is None else chosen
        for i, s in zip(places, source.float().tolist(), strict=True):
            self.samples.append((rows[i], s, self.images, certainty(self.softened(s)) - sure[i]))
        self.samples = self.samples[-HELD:]

    def clear(self) -> None:
        self.cleared = self.images

    def last(self, span: int) -> list[tuple[list[float], list[float], int, float]]:
        newest = max(at for _, _, at, _ in self.samples)
        return [x for x in self.samples if x[2] > self.images - span or x[2] == newest]

    def softened(self, p: list[float]) -> list[float]:
        powers = [x ** (1 / self.temperature) for x in p]
        return [x / sum(powers) for x in powers]

    def opinion(self, span: int) -> dict[str, float]:
        window = [sample for sample in self.last(span) if sample[2] > self.cleared]
        n, C = len(window), len(window[0][0])
        y_a = [max(range(C), key=lambda c: a[c]) for a, *_ in window]
        y_s = [max(range(C), key=lambda c: s[c]) for _, s, *_ in window]
        context = count_soft_classes([s for _, s, *_ in self.last(CONTEXT)])
        shown = min(1.0, count_soft_classes([s for _, s, *_ in window]) / context)
        lost, gained, parts = [], [], []
        for i, (a, s, *_) in enumerate(window):
            lost.append(s[y_s[i]] - s[y_a[i]])
            gained.append(a[y_a[i]] - a[y_s[i]])
            classes = shown * math.log(y_a.count(y_a[i]) / y_s.count(y_s[i]))
            parts.append(LOST * lost[-1] - GAINED * gained[-1] + CLASSES * classes)
        lost_classes = shown * math.log(count_classes(y_s) / count_classes(y_a))
        added = LOST * sum(lost) / n - GAINED * sum(gained) / n + CLASSES * lost_classes
        squares = sum((part - added) ** 2 for part in parts) + PRIOR * SPREAD**2
        return {
            "samples": n,
            "agreement": sum(a == s for a, s in zip(y_a, y_s, strict=True)) / n,
            "lost": sum(lost) / n,
            "gained": sum(gained) / n,
            "source_classes": count_classes(y_s),
            "lost_classes": lost_classes,
            "added_error": added,
            "uncertainty": math.sqrt(squares / (n + PRIOR) / n),
            "certainty": self.recent + sum(more for *_, more in window) / n,
        }


def certainty(p: list[float]) -> float:
    return 1 + sum(x * math.log(x) for x in p if x > 0) / math.log(len(p))
