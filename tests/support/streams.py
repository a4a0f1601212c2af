"""A stream over corrupted images in a cache."""

from __future__ import annotations

import hashlib

from dab.data.corrupted_images import CorruptedImages
from dab.streams import Domain, Setting, Stream
from tests.support.pictures import LABELS, Pictures


def corrupted_domains(folder, clean):
    return [
        Domain(name, [CorruptedImages(clean, name, severity, folder) for severity in severities])
        for name, severities in (("gaussian_noise", [1, 5]), ("pixelate", [3]))
    ]


def corrupted_stream(folder, setting="mixed+correlated:0.5", seed=3, clean=None):
    domains = corrupted_domains(folder, clean or Pictures(LABELS))
    return Stream(domains, Setting.parse(setting), seed, batch_size=16)


def digest(stream):
    found = hashlib.sha256()
    for batch in stream:
        for tensor in batch:
            found.update(tensor.numpy().tobytes())
    return found.hexdigest()
