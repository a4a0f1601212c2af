"""Streams that are dealt out to several adapters, against plain loops over the whole stream."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import dab
from dab.benchmark import Cell
from dab.benchmark.results.shards import pooled
from dab.benchmark.results.summary import summarize
from dab.benchmark.running.run import stream_of
from dab.cli import main
from dab.streams import Domain, Setting, Shard, Stream
from tests.support.benchmark_task import CORRUPTIONS, pictures, run, tiny_cell, tiny_task
from tests.support.cli import HERE, STREAM, error_of

KINDS = ["interleaved", "consecutive"]


def owners(samples: int, pieces: int, kind: str) -> list[int]:
    """Which piece each image belongs to, one at a time."""
    if kind == "interleaved":
        return [image % pieces for image in range(samples)]
    sizes = [samples // pieces + (piece < samples % pieces) for piece in range(pieces)]
    return [piece for piece, size in enumerate(sizes) for _ in range(size)]


@given(
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    pieces=st.integers(1, 5),
    kind=st.sampled_from(KINDS),
    setting=st.sampled_from(["continual", "correlated", "mixed"]),
    batch_size=st.integers(1, 4),
)
def test_pieces_deal_out_every_image_once_and_in_order(sizes, pieces, kind, setting, batch_size):
    domains = [Domain(f"d{number}", [pictures(size)]) for number, size in enumerate(sizes)]
    whole = Stream(domains, Setting.parse(setting), 3, batch_size)
    images = [(part, index) for part, index in zip(whole._part, whole._index, strict=True)]
    if len(images) < pieces:
        with pytest.raises(ValueError, match=f"cannot split .* images into {pieces} pieces"):
            Stream(domains, Setting.parse(setting), 3, batch_size, Shard(0, pieces, kind))
        return
    of = owners(len(images), pieces, kind)
    for shard in Shard.parse(f"{pieces}:{kind}"):
        stream = Stream(domains, Setting.parse(setting), 3, batch_size, shard)
        expected = [image for image, owner in zip(images, of, strict=True) if owner == shard.number]
        found = [(part, index) for part, index in zip(stream._part, stream._index, strict=True)]
        assert found == expected
        batches = list(stream)
        assert sum(len(batch.labels) for batch in batches) == stream.samples
        assert all(len(batch.labels) <= batch_size for batch in batches)
        if setting != "mixed":
            assert all(len(batch.domains.unique()) == 1 for batch in batches)


def pieces_of(cell: Cell, text: str) -> list[Cell]:
    return [replace(cell, shard=shard) for shard in Shard.parse(text)]


@pytest.mark.parametrize("kind", KINDS)
def test_pooled_figures_are_those_of_plain_loops(kind, tmp_path):
    task, cell = tiny_task(), tiny_cell("tent", "correlated")
    stream = stream_of(cell, task, tmp_path / "cache")
    images = list(stream)
    domain = stream.domain.tolist()
    of = owners(stream.samples, 4, kind)
    found = [
        run(one, task, tmp_path / "out", cache=tmp_path / "cache")
        for one in [*pieces_of(cell.source(), f"4:{kind}"), *pieces_of(cell, f"4:{kind}")]
    ]
    wrong = dict.fromkeys(CORRUPTIONS, 0)
    shown = dict.fromkeys(CORRUPTIONS, 0)
    every = np.concatenate([batch.images.numpy() for batch in images])
    labels = stream.labels.tolist()
    for piece in range(4):
        adapter = dab.create("tent", task.model(), **cell.options)
        mine = [image for image, owner in enumerate(of) if owner == piece]
        while mine:  # batches end where domains do
            batch = [image for image in mine[:16] if domain[image] == domain[mine[0]]]
            mine = mine[len(batch) :]
            answers = adapter(torch.tensor(every[batch])).argmax(dim=1).tolist()
            for image, answer in zip(batch, answers, strict=True):
                shown[CORRUPTIONS[domain[image]]] += 1
                wrong[CORRUPTIONS[domain[image]]] += answer != labels[image]
    source, tent = pooled(found)
    errors = {name: 100 * wrong[name] / shown[name] for name in CORRUPTIONS}
    assert tent.errors == errors
    assert tent.error == pytest.approx(sum(errors.values()) / 3, rel=1e-12)
    assert tent.card.data.samples == 210
    # The source model does not care with whom it shares a stream.
    alone = run(cell.source(), task, tmp_path / "alone", cache=tmp_path / "cache")
    assert source.errors == alone.errors
    assert tent.card.source_error == source.error
    rows = summarize(found)
    assert [row.method for row in rows] == ["source", "tent"]
    assert {row.setting for row in rows} == {f"correlated, 4 {kind} pieces"}
    assert rows[1].source_error == source.error


def test_pieces_are_runs_of_their_own_and_belong_together_only_when_all_are_there(tmp_path):
    task, cell = tiny_task(), tiny_cell("source")
    cache = tmp_path / "cache"
    shards = [*Shard.parse("3"), *Shard.parse("3:consecutive"), *Shard.parse("2")]
    results = [run(replace(cell, shard=shard), task, tmp_path, cache=cache) for shard in shards]
    results.append(run(cell, task, tmp_path, cache=cache))
    assert len(list(tmp_path.glob("*/result.json"))) == 9
    assert [row.setting for row in summarize(results)] == [
        *("continual, 3 interleaved pieces", "continual, 3 consecutive pieces"),
        *("continual, 2 interleaved pieces", "continual"),
    ]
    assert [row.setting for row in summarize(results[1:7])] == ["continual, 3 consecutive pieces"]


@pytest.mark.usefixtures("tiny")
def test_bench_reports_the_pieces_of_a_stream_together(capsys):
    command = ["bench", *HERE, *STREAM, "--method", "tent", "--seeds", "0", "1"]
    assert main([*command, "--shard-streams", "3:consecutive", "--domains"]) == 0
    captured = capsys.readouterr()
    assert len(list(Path("results").glob("*/result.json"))) == 2 * 2 * 3
    line = "tent, tiny, correlated, consecutive piece 2 of 3, seed 1: error "
    assert line in captured.err
    assert "correlated, 3 consecutive pieces" in captured.out
    lines = list(csv.DictReader(Path("results/table.csv").read_text().splitlines()))
    assert [(line["method"], line["seeds"]) for line in lines] == [
        ("source", "0 1"),
        ("tent", "0 1"),
    ]
    assert all(line["contrast"] and line["brightness"] for line in lines)


@pytest.mark.usefixtures("tiny")
def test_more_pieces_than_images_are_refused(capsys):
    assert main(["bench", *STREAM, "--samples", "4", "--shard-streams", "9"]) == 2
    assert "cannot split 8 images into 9 pieces" in error_of(capsys)


@pytest.mark.parametrize("text", ["0", "-1", "x", "2:sorted", ""])
def test_pieces_that_make_no_sense_are_named(text, capsys):
    with pytest.raises(SystemExit):
        main(["bench", f"--shard-streams={text}"])
    assert f"invalid pieces '{text}'" in capsys.readouterr().err
