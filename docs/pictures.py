"""Pictures of the documentation, as small files."""

from __future__ import annotations

import io
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.figure import Figure
from PIL import Image, PngImagePlugin

__all__ = ["read_note", "save"]


def save(
    figure: Figure, file: Path, *, dpi: float = 150, colors: int = 256, note: str = ""
) -> None:
    """Write a figure with few colors, since noise does not compress, and a note in the file."""
    drawn = io.BytesIO()
    figure.savefig(drawn, dpi=dpi)
    plt.close(figure)
    text = PngImagePlugin.PngInfo()
    text.add_text("note", note)
    picture = Image.open(drawn).convert("RGB").quantize(colors)
    picture.save(file, optimize=True, pnginfo=text if note else None)


def read_note(file: Path) -> str:
    """The note in a picture that `save` wrote."""
    with Image.open(file) as picture:
        return str(picture.info.get("note", ""))
