"""The Open Inference Protocol, version 2, with the binary tensors of Triton's clients.

A request is JSON, followed by the bytes of tensors that are not in the JSON. The header
`Inference-Header-Content-Length` then says where the JSON ends. So is a response.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dab.serve.errors import TooLargeError
from dab.utils.typed_json import parse

__all__ = ["HEADER_LENGTH", "OUTPUTS", "Inference", "metadata", "respond", "understand"]

HEADER_LENGTH = "inference-header-content-length"
INPUT = "images"
OUTPUTS = ("logits", "probabilities")
DTYPES: Mapping[str, np.dtype[Any]] = {"FP32": np.dtype("<f4"), "UINT8": np.dtype("u1")}
DEFAULT_STREAM = "default"
KINDS: Mapping[type[Any], str] = {dict: "an object", list: "a list", str: "a string"}


@dataclass(frozen=True)
class Inference:
    """A request for inference."""

    stream: str
    images: Tensor  # uint8, or float32 in [0, 1]
    outputs: Mapping[str, bool]  # whether to return it as binary data, by name
    id: str | None = None


def metadata(name: str, *, side: int, classes: int) -> dict[str, Any]:
    """What clients may know about the model."""
    outputs = [{"name": o, "datatype": "FP32", "shape": [-1, classes]} for o in OUTPUTS]
    return {
        "name": name,
        "versions": ["1"],
        "platform": "dab_pytorch",
        "inputs": [{"name": INPUT, "datatype": "FP32", "shape": [-1, 3, side, side]}],
        "outputs": outputs,
    }


def understand(content: bytes, header_length: str | None, *, side: int, most: int) -> Inference:
    """Read a request; a ValueError names what is wrong with it.

    Args:
        content: the body.
        header_length: of the JSON, if binary data follow.
        side: of the images that the model takes.
        most: how many of them.
    """
    length = _length(header_length, len(content))
    request = _a(dict, parse(content[:length]), "the request")
    parameters = _a(dict, request.get("parameters", {}), "parameters")
    inputs = _a(list, request.get("inputs"), "inputs")
    if len(inputs) != 1:
        raise ValueError(f"the model has one input, {INPUT!r}, got {len(inputs)}")
    images = _images(_a(dict, inputs[0], "inputs[0]"), content[length:], side, most)
    request_id = request.get("id")
    return Inference(
        stream=_a(str, parameters.get("stream", DEFAULT_STREAM), "parameters.stream"),
        images=images,
        outputs=_outputs(request.get("outputs"), bool(parameters.get("binary_data_output"))),
        id=None if request_id is None else _a(str, request_id, "id"),
    )


def respond(
    inference: Inference, name: str, logits: Tensor, parameters: Mapping[str, Any]
) -> tuple[bytes, int | None]:
    """The body of a response, and the length of its JSON if binary data follow."""
    values = {"logits": logits.float(), "probabilities": logits.double().softmax(1).float()}
    outputs, binary = [], []
    for output, as_binary in inference.outputs.items():
        array: NDArray[np.float32] = values[output].cpu().numpy().astype("<f4")
        entry: dict[str, Any] = {"name": output, "datatype": "FP32", "shape": list(array.shape)}
        if as_binary:
            entry["parameters"] = {"binary_data_size": array.nbytes}
            binary.append(array.tobytes())
        else:
            entry["data"] = [_number(value) for value in array.ravel().tolist()]
        outputs.append(entry)
    response: dict[str, Any] = {
        "model_name": name,
        "model_version": "1",
        "outputs": outputs,
        "parameters": dict(parameters),
    }
    if inference.id is not None:
        response["id"] = inference.id
    head = json.dumps(response, allow_nan=False).encode()
    return b"".join([head, *binary]), len(head) if binary else None


def _number(value: float) -> float | None:
    return value if np.isfinite(value) else None  # JSON has no others


def _length(header_length: str | None, size: int) -> int:
    if header_length is None:
        return size
    if not (header_length.isdecimal() and int(header_length) <= size):
        raise ValueError(f"{HEADER_LENGTH} must be at most the {size} bytes of the body")
    return int(header_length)


def _images(tensor: Mapping[str, Any], binary: bytes, side: int, most: int) -> Tensor:
    if tensor.get("name") != INPUT:
        raise ValueError(f"the model's input is {INPUT!r}, got {tensor.get('name')!r}")
    kind = _a(str, tensor.get("datatype"), "datatype")
    if kind not in DTYPES:
        raise ValueError(f"datatype must be one of {', '.join(DTYPES)}, got {kind!r}")
    dtype, shape = DTYPES[kind], tensor.get("shape")
    expected = [3, side, side]
    if not (isinstance(shape, list) and shape[1:] == expected and type(shape[0]) is int):
        raise ValueError(f"shape must be [n, 3, {side}, {side}], got {shape}")
    if not 1 <= shape[0] <= most:
        raise TooLargeError(f"a request may have 1 to {most} images, got {shape[0]}")
    parameters = _a(dict, tensor.get("parameters", {}), "inputs[0].parameters")
    count = shape[0] * 3 * side * side
    if (size := parameters.get("binary_data_size")) is None:
        array = _from_json(tensor.get("data"), dtype, count)
    elif size != len(binary) or size != count * dtype.itemsize:
        raise ValueError(
            f"binary_data_size must be {count * dtype.itemsize}, as {kind} {shape} "
            f"takes, got {size} with {len(binary)} bytes of data"
        )
    else:
        array = np.frombuffer(binary, dtype)
    images = torch.from_numpy(array.reshape(shape).astype(dtype.newbyteorder("="), copy=True))
    if not torch.isfinite(images).all():
        raise ValueError("the images have pixels that are not finite")
    return images


def _from_json(data: Any, dtype: np.dtype[Any], count: int) -> NDArray[Any]:
    try:
        array = np.asarray(_a(list, data, "inputs[0].data"), np.float64).ravel()
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError("inputs[0].data must be a list of numbers, nested or flat") from error
    if array.size != count:
        raise ValueError(f"inputs[0].data must have {count} numbers, got {array.size}")
    with np.errstate(over="ignore"):
        converted = array.astype(dtype)
    if dtype.kind == "u" and not np.array_equal(converted, array):
        raise ValueError("inputs[0].data must be integers from 0 to 255")
    return converted


def _outputs(requested: Any, binary: bool) -> dict[str, bool]:
    if not requested:
        return dict.fromkeys(OUTPUTS, binary)
    chosen = {}
    for number, output in enumerate(_a(list, requested, "outputs")):
        name = _a(dict, output, f"outputs[{number}]").get("name")
        if name not in OUTPUTS:
            raise ValueError(f"the model's outputs are {', '.join(OUTPUTS)}, got {name!r}")
        parameters = _a(dict, output.get("parameters", {}), f"outputs[{number}].parameters")
        chosen[name] = bool(parameters.get("binary_data", binary))
    return chosen


def _a(kind: type[Any], value: Any, name: str) -> Any:
    if not isinstance(value, kind):
        raise ValueError(f"{name} must be {KINDS[kind]}, got {str(value)[:60]!r}")
    return value
