"""Requests and responses of the Open Inference Protocol, and files that want to do harm."""

from __future__ import annotations

import json
import struct
import zlib
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from dab.data.transform import Transform
from dab.serve.errors import TooLargeError
from dab.serve.protocol import Inference, respond, understand
from dab.serve.uploads import SCANS, decode_upload
from tests.support.serving import png

SIDE = 2
TRANSFORM = Transform(resize=8, crop=8)


def request(**changes: Any) -> dict[str, Any]:
    tensor = {"name": "images", "datatype": "FP32", "shape": [1, 3, SIDE, SIDE], "data": [0.5] * 12}
    top = {key: changes.pop(key) for key in ("parameters", "outputs", "id") if key in changes}
    return {"inputs": [{**tensor, **changes}], **top}


def read(content: Any, length: str | None = None) -> Inference:
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    return understand(body, length, side=SIDE, most=4)


@given(arrays.arrays(np.float32, (2, 3, SIDE, SIDE), elements=st.floats(0, 1, width=32)))
def test_tensors_as_numbers_and_as_bytes_are_the_same(images):
    flat = request(shape=[2, 3, SIDE, SIDE], data=images.ravel().tolist())
    nested = request(shape=[2, 3, SIDE, SIDE], data=images.tolist())
    binary = request(shape=[2, 3, SIDE, SIDE], parameters={})
    del binary["inputs"][0]["data"]
    binary["inputs"][0]["parameters"] = {"binary_data_size": images.nbytes}
    head = json.dumps(binary).encode()
    for found in (read(flat), read(nested), read(head + images.tobytes(), str(len(head)))):
        assert np.array_equal(found.images.numpy(), images)


def test_bytes_of_pixels_stay_bytes():
    found = read(request(datatype="UINT8", data=[*range(244, 256)]))
    assert found.images.dtype == torch.uint8
    assert found.images.flatten().tolist() == [*range(244, 256)]


def test_defaults_and_choices():
    assert (read(request()).stream, read(request()).id) == ("default", None)
    assert read(request()).outputs == {"logits": False, "probabilities": False}
    chosen = request(
        parameters={"stream": "cam-1", "binary_data_output": True},
        id="7",
        outputs=[
            {"name": "logits"},
            {"name": "probabilities", "parameters": {"binary_data": False}},
        ],
    )
    found = read(chosen)
    assert (found.stream, found.id) == ("cam-1", "7")
    assert found.outputs == {"logits": True, "probabilities": False}


WRONG = {
    "must be an object": [1],
    "inputs must be a list": {"inputs": 3},
    "one input": {"inputs": []},
    "'images'": request(name="pixels"),
    "datatype must be": request(datatype="FP64"),
    "shape must be": request(shape=[1, 3, SIDE, 5]),
    "shape must be [n": request(shape=[True, 3, SIDE, SIDE]),
    "must have 12 numbers": request(data=[0.5]),
    "list of numbers": request(data=[[0.5], [0.5, 1.0]]),
    "not finite": request(data=[1e300] * 12),
    "integers from 0 to 255": request(datatype="UINT8", data=[256] * 12),
    "binary_data_size must be 48": {
        "inputs": [{**request()["inputs"][0], "parameters": {"binary_data_size": 7}}]
    },
    "parameters.stream must be a string": request(parameters={"stream": 7}),
    "outputs are": request(outputs=[{"name": "features"}]),
    "id must be a string": request(id=7),
}


@pytest.mark.parametrize("said", WRONG)
def test_wrong_requests_are_named(said):
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        read(WRONG[said])
    assert said in str(caught.value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)


@given(st.sampled_from(["inputs", "parameters", "outputs", "id"]), JSON)
def test_any_value_in_a_request_is_understood_or_refused(key, value):
    with suppress(ValueError, TooLargeError):
        read(request() | {key: value})


@given(st.sampled_from(["name", "datatype", "shape", "data", "parameters"]), JSON)
def test_any_value_in_a_tensor_is_understood_or_refused(key, value):
    with suppress(ValueError, TooLargeError):
        read({"inputs": [request()["inputs"][0] | {key: value}]})


@pytest.mark.parametrize("body", [b"", b"{", b"\xff\xfe", b"[" * 5000, b'{"inputs": NaN}'])
def test_what_is_not_json_is_refused(body):
    with pytest.raises(ValueError):  # noqa: PT011
        read(body)


@pytest.mark.parametrize("length", ["-1", "x", "99999", "1e3", ""])
def test_wrong_lengths_are_refused(length):
    with pytest.raises(ValueError, match="inference-header-content-length"):
        read(request(), length)


@pytest.mark.parametrize("count", [0, 5, 10**9, -1])
def test_the_number_of_images_is_limited(count):
    with pytest.raises(TooLargeError, match="1 to 4 images"):
        read(request(shape=[count, 3, SIDE, SIDE]))


def test_responses_hold_numbers_or_bytes():
    logits = torch.tensor([[0.0, 1.0, float("nan")]])
    asked = Inference("a", torch.zeros(1), {"logits": True, "probabilities": False}, id="7")
    body, length = respond(asked, "net", logits, {"stream": "a"})
    head = json.loads(body[:length])
    assert (head["model_name"], head["id"], head["parameters"]) == ("net", "7", {"stream": "a"})
    assert np.array_equal(np.frombuffer(body[length:], "<f4"), logits[0], equal_nan=True)
    assert head["outputs"][0]["parameters"] == {"binary_data_size": 12}
    assert head["outputs"][1]["data"] == [None, None, None]
    _, length = respond(Inference("a", torch.zeros(1), {"logits": False}), "net", logits, {})
    assert length is None


# Files.


def chunk(kind: bytes, content: bytes) -> bytes:
    checked = kind + content
    return struct.pack(">I", len(content)) + checked + struct.pack(">I", zlib.crc32(checked))


def declared_png(width: int, height: int) -> bytes:
    """A small file that declares an image of any size."""
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    pixels = chunk(b"IDAT", zlib.compress(bytes(1000)))
    return b"\x89PNG\r\n\x1a\n" + header + pixels + chunk(b"IEND", b"")


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_files_become_images(kind):
    pixels = np.full((8, 8, 3), 200, np.uint8)
    found = decode_upload(png(pixels, kind), TRANSFORM, pixels=64)
    assert found.shape == (1, 3, 8, 8)
    assert found.dtype == torch.uint8
    assert (found.int() - 200).abs().max() <= 2


@pytest.mark.parametrize(
    "size", [(9, 8), (100_000, 100_000), (2**31 - 1, 2**31 - 1), (1, 64), (64, 1)]
)
def test_bombs_are_refused_by_their_header(size, monkeypatch):
    monkeypatch.setattr("dab.serve.uploads.decode", None)  # it must not come to that
    with pytest.raises(TooLargeError):
        decode_upload(declared_png(*size), TRANSFORM, pixels=64)


def test_endless_progressive_files_are_refused(monkeypatch):
    monkeypatch.setattr("dab.serve.uploads.decode", None)
    content = png(np.zeros((8, 8, 3), np.uint8), "JPEG") + b"\xff\xda" * SCANS
    with pytest.raises(TooLargeError, match="scans"):
        decode_upload(content, TRANSFORM, pixels=64)


def files() -> dict[str, bytes]:
    pixels = np.zeros((8, 8, 3), np.uint8)
    return {
        "empty": b"",
        "text": b"hello",
        "gif": png(pixels, "GIF"),
        "svg": b"<svg xmlns='http://www.w3.org/2000/svg'/>",
        "cut png": png(pixels)[:40],
        "cut jpeg": png(pixels, "JPEG")[:200],
        "no pixels": declared_png(0, 0),
    }


@pytest.mark.parametrize("kind", files())
def test_other_files_are_refused(kind):
    with pytest.raises(ValueError, match="readable"):
        decode_upload(files()[kind], TRANSFORM, pixels=64)
