"""What tests of the command line share."""

from __future__ import annotations

from pathlib import Path

import pytest

from dab.cli import main

HERE = ["--jobs", "1"]  # other processes do not know the tiny task
STREAM = ["--data", "tiny", "--corruptions", "contrast", "brightness", "--batch-size", "16"]


def help_of(capsys: pytest.CaptureFixture[str], *command: str) -> str:
    with pytest.raises(SystemExit) as caught:
        main([*command, "--help"])
    assert caught.value.code == 0
    return capsys.readouterr().out


def error_of(capsys: pytest.CaptureFixture[str]) -> str:
    """The one line that is there of an error."""
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("dab: ")
    assert captured.err.count("\n") == 1
    return captured.err


def in_progress(out: Path) -> list[Path]:
    """The folders of runs that have left a checkpoint and no result yet."""
    begun = [file.parent for file in out.glob("*/checkpoint.pt")]
    return [folder for folder in begun if not (folder / "result.json").exists()]
