"""What loaders give and models return is taken, or refused with the remedy."""

from __future__ import annotations

import logging

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import dab
from dab.testing import SIZE, net, same, stream
from tests.support.adapters import METHODS, quick


def eight_bit() -> torch.Tensor:
    return (stream()[0] * 255).round().to(torch.uint8)


def test_batches_of_every_kind_are_the_same_images():
    expected = dab.DAB(net("layernorm"), 8)
    logits = expected(stream()[0])
    pictures = [Image.fromarray(image.permute(1, 2, 0).numpy()) for image in eight_bit()]
    labels = torch.zeros(8, dtype=torch.int64)
    for batch in (
        eight_bit(),
        [stream()[0], labels],
        (eight_bit(), labels),
        [stream()[0]],
        [stream()[0], list(range(8))],
        (stream()[0], labels, torch.arange(8)),
        {"image": stream()[0], "label": labels},
        {"pixel_values": eight_bit(), "labels": labels},
        pictures,
        (pictures, labels),
        stream()[0].double(),
    ):
        adapter = dab.DAB(net("layernorm"), 8)
        assert same(adapter.predict(batch), logits)
        assert same(adapter(batch), logits)
        assert same(adapter.state_dict(), expected.state_dict())
        assert adapter.buffer.storage.dtype == torch.uint8
    assert dab.DAB(net("layernorm"), 8)(pictures[0]).shape == (1, 6)
    assert dab.DAB(net("layernorm"), 8)(pictures[0].convert("L")).shape == (1, 6)


@pytest.mark.parametrize(
    ("batch", "remedy"),
    [
        (np.zeros((2, 3, SIZE, SIZE), np.float32), r"torch\.from_numpy"),
        (list(torch.zeros(2, 3, SIZE, SIZE)), r"torch\.stack"),
        ([torch.zeros(2, 3, SIZE, SIZE), torch.zeros(2, 3, SIZE, SIZE)], "pass one of them"),
        (torch.zeros(2, 3, SIZE, SIZE, device="meta"), "without pixels"),
        (torch.zeros(3, SIZE, SIZE), r"images\[None\]"),
        ([], r"torch\.stack"),
        ({"x": torch.zeros(2, 3, SIZE, SIZE)}, r"dictionary with \['x'\]: pass the entry"),
        ("images", "must be a tensor, got str"),
        (None, "must be a tensor, got NoneType"),
        (torch.zeros(2, 3, SIZE, SIZE, dtype=torch.int32), r"images\.float\(\) / 255"),
        ([Image.new("RGB", (8, 8)), Image.new("RGB", (9, 8))], "resize them first"),
    ],
)
def test_other_batches_are_refused_with_the_remedy(batch, remedy):
    adapter = dab.DAB(net("layernorm"), 8)
    for call in (adapter, adapter.predict):
        with pytest.raises((TypeError, ValueError), match=remedy):
            call(batch)
    assert adapter.totals.calls == 0


class Returns(nn.Module):
    def __init__(self, shape) -> None:
        super().__init__()
        self.model, self.shape = net("layernorm"), shape

    def forward(self, images):
        return self.shape(self.model(images))


@pytest.mark.parametrize(
    "shape",
    [
        lambda logits: {"loss": None, "logits": logits},
        lambda logits: (logits, torch.zeros(3)),
        lambda logits: [logits],
    ],
)
@pytest.mark.parametrize("method", ["dab", "tent", "rotta"])
def test_models_may_return_logits_in_a_dict_or_first_in_a_tuple(method, shape):
    expected = [dab.create(method, net("layernorm"))(images) for images in stream()[:1]]
    assert same([dab.create(method, Returns(shape))(images) for images in stream()[:1]], expected)


@pytest.mark.parametrize(
    "shape",
    [
        lambda logits: {"scores": logits},
        lambda logits: (None, 1),
    ],
)
def test_other_outputs_are_refused_with_the_remedy(shape):
    with pytest.raises(ValueError, match=r'must return .8, classes. logits.*key "logits"'):
        dab.DAB(Returns(shape))(stream()[0])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("method", ["dab", "tent", "cotta"])
def test_a_half_precision_model_takes_float32_images(method, dtype):
    adapter = dab.create(method, net("layernorm").to(dtype))
    twin = dab.create(method, net("layernorm").to(dtype))
    for images in stream():
        assert same(adapter(images), twin(images.to(dtype)))


def test_pixels_up_to_255_are_pointed_out_once(caplog):
    adapter = dab.create("tent", net("layernorm"))
    for images in stream():
        adapter(images * 255)
    (record,) = caplog.records
    assert "divide by 255" in record.getMessage()


def test_normalized_images_are_pointed_out_once_with_the_size_of_the_buffer(caplog):
    adapter = dab.DAB(net("layernorm"), capacity=1000)
    for images in stream():
        adapter(images - 0.5)
    (record,) = caplog.records
    assert "takes 768 kB instead of 192 kB" in record.getMessage()
    assert adapter.buffer.nbytes == 1000 * 3 * SIZE * SIZE * 4


def test_ordinary_streams_are_not_commented_on(caplog):
    adapter = dab.DAB(net("layernorm"), 8)
    for images in stream():
        adapter(images)
    assert caplog.records == []
    assert adapter.buffer.nbytes == 8 * 3 * SIZE * SIZE


@pytest.mark.parametrize(("kind", "warned"), [("batchnorm", 1), ("layernorm", 0)])
def test_single_images_on_batch_statistics_are_warned_of_once(kind, warned, caplog):
    adapter = dab.create("tent", net(kind))
    for image in torch.cat(stream()[:2]):
        adapter(image[None])
    found = [r for r in caplog.records if r.levelno == logging.WARNING]
    assert len(found) == warned
    assert all("single image" in record.getMessage() for record in found)


class Double(Returns):
    def __init__(self) -> None:
        super().__init__(lambda logits: logits.double())


@pytest.mark.parametrize("method", ["dab", "tent", "roid", "rotta"])
@pytest.mark.parametrize("output", ["lame", "batch_prior", "causal_prior"])
def test_outputs_take_float64_logits_of_a_float32_model(method, output):
    adapter = dab.create(method, Double(), output=output)
    for images in stream():
        assert adapter(images).dtype == torch.float64


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("method", METHODS)
def test_a_compiled_adapter_gives_the_same_answers(method):
    adapter = quick(method, "layernorm").adapter()
    twin = quick(method, "layernorm").adapter()
    compiled = torch.compile(adapter, backend="eager")
    for images in stream()[:5]:
        assert same(compiled(images), twin(images))
    assert same(adapter.state_dict(), twin.state_dict())


@pytest.fixture
def fresh_compiler():
    """After eight graphs of one function, torch runs it eagerly; other tests have made some."""
    torch._dynamo.reset()


@pytest.mark.usefixtures("fresh_compiler")
def test_an_adapter_is_not_one_graph_and_the_error_says_what_to_compile():
    adapter = dab.create("source", net("layernorm"))
    compiled = torch.compile(adapter, backend="eager", fullgraph=True)
    with pytest.raises(torch._dynamo.exc.Unsupported, match=r"compile the model instead"):
        compiled(stream()[0])
    assert adapter.totals.calls == 0
    whole = dab.create(
        "source", torch.compile(net("layernorm").eval(), backend="eager", fullgraph=True)
    )
    torch.testing.assert_close(whole(stream()[0]), adapter(stream()[0]))


@pytest.mark.usefixtures("fresh_compiler")
def test_a_compiled_model_stays_compiled_inside_an_adapter():
    graphs = []

    def count(graph, inputs):
        graphs.append(graph)
        return graph.forward

    adapter = dab.create("source", torch.compile(net("layernorm").eval(), backend=count))
    adapter(stream()[0])
    assert len(graphs) == 1


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("model_dtype", [torch.float32, torch.bfloat16])
def test_images_of_any_floating_dtype_follow_the_model(dtype, model_dtype):
    adapter = dab.create("tent", net("layernorm").to(model_dtype))
    for images in stream()[:2]:
        assert adapter(images.to(dtype)).dtype == model_dtype
        assert adapter(images).dtype == model_dtype


def test_a_tuple_with_several_possible_logits_is_refused():
    adapter = dab.create("tent", Returns(lambda logits: (logits.repeat(1, 2), logits)))
    with pytest.raises(ValueError, match=r"several tensors .*\(8, 12\), \(8, 6\).*wrap it"):
        adapter(stream()[0])
