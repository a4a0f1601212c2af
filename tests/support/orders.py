"""Orders of images, written with loops over lists."""

from __future__ import annotations

import random

import numpy as np
import torch

Labels = list[int]


def generator(seed: int | list[int]) -> np.random.Generator:
    return np.random.default_rng(seed)


def twin_shuffled(labels: Labels, rng: np.random.Generator) -> list[int]:
    return rng.permutation(len(labels)).tolist()


def twin_correlated(labels: Labels, rng: np.random.Generator) -> list[int]:
    shuffle = twin_shuffled(labels, rng)
    return [image for label in sorted(set(labels)) for image in shuffle if labels[image] == label]


def twin_dirichlet(labels: Labels, rng: np.random.Generator, delta: float) -> list[int]:
    shuffle = twin_shuffled(labels, rng)
    classes = sorted(set(labels))
    slots: list[list[list[int]]] = [[] for _ in classes]
    for label in classes:
        images = [image for image in shuffle if labels[image] == label]
        done, share = 0, 0.0
        for slot, more in zip(slots, rng.dirichlet([delta] * len(classes)).tolist(), strict=True):
            share += more
            until = len(images) if slot is slots[-1] else round(share * len(images))
            slot.append(images[done:until])
            done = until
    order = []
    for slot in slots:
        for run in rng.permutation(len(slot)).tolist():
            order += slot[run]
    return order


def twin_by_track(tracks: list[int], rng: np.random.Generator) -> list[int]:
    distinct = sorted(set(tracks))
    rank = rng.permutation(len(distinct)).tolist()
    in_order = sorted(distinct, key=lambda track: rank[distinct.index(track)])
    return [image for track in in_order for image, of in enumerate(tracks) if of == track]


def global_draws() -> tuple[object, ...]:
    """Where the random generators are that everybody shares."""
    numpy_state = np.random.get_bit_generator().state["state"]
    return (
        *(numpy_state["key"].tobytes(), numpy_state["pos"]),
        *(torch.get_rng_state().numpy().tobytes(), random.getstate()),
    )
