"""Slow twins of the buffer policies, written with lists."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from dab.buffers import Placement


class SlowBalanced:
    """Algorithm 1's buffer, as a list of (label, insertion number), oldest anywhere."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.items: list[list[int]] = []
        self.insertions = 0

    def place(self, label: int) -> tuple[int, int | None]:
        if len(self.items) < self.capacity:
            slot, evicted = len(self.items), None
            self.items.append([label, self.insertions])
        else:
            counts: dict[int, int] = {}
            for held, _ in self.items:
                counts[held] = counts.get(held, 0) + 1
            largest = max(counts.values())
            slot = -1
            for index, (held, inserted) in enumerate(self.items):
                if counts[held] == largest and (slot < 0 or inserted < self.items[slot][1]):
                    slot = index
            evicted = self.items[slot][0]
            self.items[slot] = [label, self.insertions]
        self.insertions += 1
        return slot, evicted


@dataclass
class Item:
    slot: int
    label: int
    U: float
    age: int = 0


class SlowCSTU:
    """The memory as a list of items for each class."""

    def __init__(self, M: int, C: int) -> None:
        self.M, self.C = M, C
        self.memory: list[list[Item]] = [[] for _ in range(C)]

    def score(self, A: int, U: float) -> float:
        return 1 / (1 + math.exp(-A / self.M)) + U / math.log(self.C)

    def items(self) -> list[Item]:
        return [item for items in self.memory for item in items]

    def place(self, label: int, U: float) -> Placement | None:
        placement = self.decide(label, U)
        if placement is not None:
            self.memory[label].append(Item(placement.slot, label, U))
        for item in self.items():
            item.age += 1
        return placement

    def decide(self, label: int, U: float) -> Placement | None:
        occupied = len(self.items())
        if len(self.memory[label]) < self.M / self.C:
            if occupied < self.M:
                return Placement(occupied, None)
            most = max(len(items) for items in self.memory)
            candidates = [item for items in self.memory if len(items) == most for item in items]
        else:
            candidates = self.memory[label]
        victim, highest = None, -math.inf
        for item in candidates:
            if self.score(item.age, item.U) >= highest:
                victim, highest = item, self.score(item.age, item.U)
        assert victim is not None, "there is always somebody to contest"
        if highest <= self.score(0, U):
            return None
        self.memory[victim.label].remove(victim)
        return Placement(victim.slot, victim.label)

    def by_slot(self) -> list[Item]:
        return sorted(self.items(), key=lambda item: item.slot)


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


class SlowPBRS:
    """The memory as a list of labels, one for each slot."""

    def __init__(self, M: int, C: int, seed: int) -> None:
        self.M, self.C = M, C
        self.generator = generator(seed)
        self.labels: list[int] = []
        self.n = [0] * C

    def draw(self, high: int) -> int:
        return int(torch.randint(high, (1,), generator=self.generator))

    def place(self, c: int) -> Placement | None:
        self.n[c] += 1
        if len(self.labels) < self.M:
            self.labels.append(c)
            return Placement(len(self.labels) - 1, None)
        m = [self.labels.count(k) for k in range(self.C)]
        largest = [k for k in range(self.C) if m[k] == max(m)]
        candidates = []
        for k in [c] if c in largest else largest:
            for slot, label in enumerate(self.labels):
                if label == k:
                    candidates.append(slot)
        number = self.draw(self.n[c] if c in largest else len(candidates))
        if number >= len(candidates):
            return None
        slot = candidates[number]
        evicted, self.labels[slot] = self.labels[slot], c
        return Placement(slot, evicted)
