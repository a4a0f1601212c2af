"""Promises that only another process can check, for all methods at once."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import torch

from dab.data.datasets.glyphs import Glyphs
from dab.testing import run, same
from tests.support.adapters import CASES
from tests.support.nets import stream
from tests.support.streams import corrupted_stream, digest

ROOT = Path(__file__).parent.parent.parent


def python(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script, *arguments], cwd=ROOT, capture_output=True, text=True
    )


RESUME = """
import sys, torch
from dab.testing import run, stream
from tests.support.adapters import CASES
states = torch.load(sys.argv[1], weights_only=True)
outputs = {}
for case in CASES:
    adapter = case.adapter()
    adapter.load_state_dict(states[repr(case)])
    outputs[repr(case)] = run(adapter, stream()[5:])
torch.save(outputs, sys.argv[1])
"""


def test_resuming_in_a_new_process_is_bit_identical(tmp_path: Path):
    states, expected = {}, {}
    for case in CASES:
        adapter = case.adapter()
        run(adapter, stream()[:5])
        states[repr(case)] = adapter.state_dict()
        expected[repr(case)] = run(adapter, stream()[5:])
    path = tmp_path / "states.pt"
    torch.save(states, path)
    result = python(RESUME, str(path))
    assert result.returncode == 0, result.stderr
    outputs = torch.load(path, weights_only=True)
    assert [case for case in expected if not same(outputs[case], expected[case])] == []
    assert len(outputs) == len(CASES)


LAYOUTS = """
import torch
from dab.testing import stream
from tests.support.adapters import CASES
for case in CASES:
    for weights in (torch.contiguous_format, torch.channels_last):
        print(case, weights, flush=True)
        adapter = case.adapter(case.model().to(memory_format=weights))
        for images in stream():
            adapter(images.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2))
        assert adapter.totals.calls == len(stream())
"""


def test_channels_last_images_and_weights_do_not_crash():
    # torch's GroupNorm backward segfaults on what a frozen channels-last conv net hands to it.
    result = python(LAYOUTS)
    assert result.returncode == 0, result.stdout[-200:] + result.stderr


OWN_NORMS = """
import torch, dab
from tests.support.nets import OwnNorms, stream
torch.manual_seed(0)
model = OwnNorms().to(memory_format=torch.channels_last)
adapter = dab.create("tent", model)
for images in stream():
    adapter(images.contiguous(memory_format=torch.channels_last))
assert adapter.totals.updates == len(stream())
"""


def test_norms_of_ones_own_do_not_crash_on_channels_last():
    result = python(OWN_NORMS)
    assert result.returncode == 0, result.stderr


RESIDENT = """
import psutil, torch
from dab.buffers import BalancedPolicy, Buffer, ImageStorage
torch.set_num_threads(1)
batch = torch.randint(0, 256, (4, 3, 224, 224), dtype=torch.uint8).float() / 255
for _ in range(9):  # warm: what torch itself allocates on the way
    Buffer(BalancedPolicy(16, 1000), ImageStorage(16)).insert(batch, range(4))
buffer = Buffer(BalancedPolicy(4096, 1000), ImageStorage(4096))
before = psutil.Process().memory_info().rss
for start in range(0, 5000, 4):
    buffer.insert(batch, [(start + row) % 1000 for row in range(4)])
print((psutil.Process().memory_info().rss - before) / 2**20)
"""


def test_4096_images_of_224_pixels_take_at_most_600_mib(monkeypatch):
    # Freed memory goes back to the system at once; otherwise some 10 MiB remain now and then.
    for name in ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_"):
        monkeypatch.setenv(name, str(2**16))
    result = python(RESIDENT)
    assert result.returncode == 0, result.stderr
    assert 550 < float(result.stdout) <= 600


STREAM = """
import sys
from pathlib import Path
from tests.support.streams import corrupted_stream, digest
print(digest(corrupted_stream(Path(sys.argv[1]))))
"""


def test_another_process_sees_the_same_stream(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("PYTHONHASHSEED", "12345")
    result = python(STREAM, str(tmp_path / "there"))
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == digest(corrupted_stream(tmp_path / "here"))


GLYPHS = """
import hashlib
from dab.data.datasets.glyphs import Glyphs
images = Glyphs(3, 300).batch(range(299, 199, -1))
print(hashlib.sha256(images.tobytes()).hexdigest())
"""


def test_another_process_draws_the_same_glyphs():
    result = python(GLYPHS)
    assert result.returncode == 0, result.stderr
    images = Glyphs(3, 300).batch(range(200, 300))[::-1]
    assert result.stdout.strip() == hashlib.sha256(images.tobytes()).hexdigest()


IMPORT = """
import sys, time, torch
start = time.process_time()
import dab
print(time.process_time() - start)
heavy = {"torchvision", "timm", "kornia", "scipy", "matplotlib", "cv2", "PIL", "rich", "simplejpeg"}
heavy |= {"upath", "ray", "submitit", "safetensors"}
heavy |= {"dab.models", "dab.data.datasets", "dab.data.corruptions"}
assert not heavy & sys.modules.keys(), heavy & sys.modules.keys()
"""


def test_importing_dab_is_quick_and_pulls_in_nothing_heavy():
    result = python(IMPORT)
    assert result.returncode == 0, result.stderr
    assert float(result.stdout) < 2
