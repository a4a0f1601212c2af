"""Glyphs: small color images of 100 letters from many alphabets, drawn on demand.

Nothing is downloaded: the fonts are part of matplotlib.
"""

from __future__ import annotations

import math
from functools import cache, cached_property
from pathlib import Path
from typing import Literal, get_args

import matplotlib
import numpy as np
import PIL
from matplotlib.ft2font import FT2Font
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont, features

from dab.data.images import Indices
from dab.utils.fingerprint import fingerprint

__all__ = ["CHARACTERS", "Glyphs", "Split"]

# No two look alike at 32 pixels: only one of Latin A, Greek Alpha and Cyrillic A is included, and
# only one case of letters whose cases differ in size alone. Written as code points unless Latin,
# because many look like Latin letters in a source file.
CHARACTERS = "".join(
    (
        "ABCDEFGHJKLMNPQRSTUVWXYZ",
        "abdefghimnqrt",
        "\u00c6",  # AE
        "\u0393\u0394\u0398\u039b\u039e\u03a0\u03a3\u03a6\u03a8\u03a9",  # Greek capitals
        "\u03b2\u03b4\u03b5\u03b6\u03bb\u03bc\u03be\u03c3\u03c9",  # Greek small letters
        "\u0411\u0414\u0416\u0417\u0418\u0426\u0427\u0428",  # Cyrillic capitals
        "\u042a\u042b\u042d\u042e\u042f\u0402\u040a",
        "\u05d0\u05d2\u05d8\u05dc\u05de\u05e2\u05e6\u05e9",  # Hebrew
        "\u053d\u053e\u0543\u0556\u053a\u0539\u054b\u0554",  # Armenian
        "\u10df\u10e4\u10ed\u10f0\u10da\u10d7\u10e7\u10e9",  # Georgian
        "\u0639\u0633\u0637\u0643",  # Arabic
    )
)

FONTS = (
    *("DejaVuSans", "DejaVuSans-Bold", "DejaVuSans-Oblique", "DejaVuSans-BoldOblique"),
    *("DejaVuSansMono", "DejaVuSansMono-Bold"),
    *("DejaVuSansMono-Oblique", "DejaVuSansMono-BoldOblique"),
    *("DejaVuSerif", "DejaVuSerif-Bold", "DejaVuSerif-Italic", "DejaVuSerif-BoldItalic"),
    *("STIXGeneral", "STIXGeneralBol", "STIXGeneralItalic", "STIXGeneralBolIta"),
)
# The encoding of Computer Modern agrees with Unicode for ASCII letters only.
ASCII_FONTS = ("cmb10", "cmmi10", "cmr10", "cmss10", "cmti10", "cmtt10")

SIZE = 32
SUPERSAMPLING = 2  # for smooth edges

Split = Literal["train", "test"]
Background = Literal["plain", "gradient", "blobs", "stripes"]

_LUMA = np.array([0.299, 0.587, 0.114], np.float32)
_LABELS, _IMAGES = range(2)  # separate random streams
_ROWS, _COLUMNS = np.mgrid[-1 : 1 : SIZE * 1j, -1 : 1 : SIZE * 1j].astype(np.float32)


class Glyphs:
    """Images of letters. Each image and label depends on the seed and the index alone.

    Every 100 consecutive images contain each class once. Font, size, position, rotation, colors
    and background are random. The letter always differs from its background in brightness.

    >>> data = Glyphs(seed=0, size=1000)
    >>> image, label = data[7]
    >>> image.shape, image.dtype, bool(label == data.labels[7])
    ((32, 32, 3), dtype('uint8'), True)
    """

    def __init__(self, seed: int, size: int) -> None:
        if size < 1:
            raise ValueError(f"size must be at least 1, got {size}")
        self.seed = seed
        classes = len(CHARACTERS)
        rounds = [
            np.random.default_rng([seed, _LABELS, number]).permutation(classes)
            for number in range(-(-size // classes))
        ]
        self.labels: NDArray[np.int64] = np.concatenate(rounds)[:size]

    @classmethod
    def of_split(cls, split: Split, size: int) -> Glyphs:
        """Returns images of the split that the shipped model is trained or tested on."""
        if split not in get_args(Split):
            raise ValueError(f"split must be one of {get_args(Split)}, got {split!r}")
        return cls(get_args(Split).index(split), size)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[NDArray[np.uint8], int]:
        index = range(len(self))[index]
        label = int(self.labels[index])
        rng = np.random.default_rng([self.seed, _IMAGES, index])
        return _draw(CHARACTERS[label], rng), label

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the labels, of a few images, and of the code and fonts that draw them."""
        probes = np.linspace(0, len(self) - 1, 32).astype(np.int64)
        return fingerprint(f"glyphs {self.seed} {_version()}", self.labels, self.batch(probes))

    def batch(self, indices: Indices) -> NDArray[np.uint8]:
        """Returns the images at these indices, stacked."""
        images = np.empty((len(indices), SIZE, SIZE, 3), np.uint8)
        for row, index in enumerate(indices):
            images[row], _ = self[int(index)]
        return images


@cache
def _version() -> str:
    """A hash of what draws the letters: this file, Pillow, FreeType and the fonts."""
    fonts = [np.frombuffer(_file(font).read_bytes(), np.uint8) for font in FONTS + ASCII_FONTS]
    libraries = f"{np.__version__} {PIL.__version__} {features.version('freetype2')}"
    return fingerprint(Path(__file__).read_text(), libraries, *fonts)


def _draw(character: str, rng: np.random.Generator) -> NDArray[np.uint8]:
    fonts = fonts_with(character)
    ink = _ink(character, fonts[rng.integers(len(fonts))], rng)[..., None]
    dark, light = _brightnesses(rng)
    paper, pen = (dark, light) if rng.random() < 0.5 else (light, dark)
    first, second = _color(paper, rng), _color(paper + rng.uniform(-0.08, 0.08), rng)
    background = first + _mixture(rng)[..., None] * (second - first)
    image = background + ink * (_color(pen, rng) - background)
    return np.rint(255 * image).astype(np.uint8)


def _brightnesses(rng: np.random.Generator) -> tuple[float, float]:
    """Draws a dark and a light brightness with enough contrast to read."""
    contrast = rng.uniform(0.25, 0.6)
    dark = rng.uniform(0.05, 0.95 - contrast)
    return dark, dark + contrast


def _color(brightness: float, rng: np.random.Generator) -> NDArray[np.float32]:
    """Draws a color of this brightness, at most as saturated as the brightness allows."""
    brightness = min(max(brightness, 0.0), 1.0)
    tint = rng.random(3, dtype=np.float32)
    tint -= _LUMA @ tint
    saturation = min(1.0, (1 - brightness) / tint.max(), -brightness / tint.min())
    color: NDArray[np.float32] = brightness + np.float32(saturation) * tint
    return color


def _mixture(rng: np.random.Generator) -> NDArray[np.float32]:
    """Draws the share of the background's second color in each pixel, in [0, 1]."""
    kind: Background = get_args(Background)[rng.integers(len(get_args(Background)))]
    if kind == "plain":
        return np.zeros((SIZE, SIZE), np.float32)
    if kind == "blobs":
        coarse = Image.fromarray(rng.random((5, 5), dtype=np.float32))
        return np.asarray(coarse.resize((SIZE, SIZE), Image.Resampling.BICUBIC)).clip(0, 1)
    angle = rng.uniform(0, 2 * math.pi)
    along: NDArray[np.float32] = math.cos(angle) * _COLUMNS + math.sin(angle) * _ROWS
    if kind == "gradient":
        return along * np.float32(1 / math.sqrt(8)) + np.float32(0.5)
    waves: NDArray[np.float32] = np.sin(rng.uniform(4, 14) * along + rng.uniform(0, 2 * math.pi))
    return (waves + 1) * np.float32(0.5)


def _ink(character: str, font: str, rng: np.random.Generator) -> NDArray[np.float32]:
    """Draws how much of each pixel the letter covers: rotated, stretched and moved at random."""
    mask = _mask(character, font)
    width, height = mask.size
    side = SIZE * SUPERSAMPLING
    scale = rng.uniform(13, 22) * SUPERSAMPLING / max(width, height)  # pixels of the longer side
    stretch = rng.uniform(0.85, 1.15)
    across, down = scale * stretch, scale / stretch
    angle = math.radians(rng.uniform(-15, 15))
    cos, sin = math.cos(angle), math.sin(angle)
    room_x = max(0, side - across * width * cos - down * height * abs(sin)) / 2
    room_y = max(0, side - across * width * abs(sin) - down * height * cos) / 2
    x = side / 2 + rng.uniform(-room_x, room_x)
    y = side / 2 + rng.uniform(-room_y, room_y)
    # Pillow takes the inverse map, from a pixel of the result to one of the mask.
    back = (
        *(cos / across, sin / across, width / 2 - (cos * x + sin * y) / across),
        *(-sin / down, cos / down, height / 2 - (cos * y - sin * x) / down),
    )
    ink = mask.transform(
        (side, side), Image.Transform.AFFINE, back, resample=Image.Resampling.BILINEAR
    )
    return np.asarray(ink.reduce(SUPERSAMPLING), np.float32) / np.float32(255)


@cache
def fonts_with(character: str) -> tuple[str, ...]:
    """Returns the fonts that have a character."""
    candidates = FONTS + ASCII_FONTS if character.isascii() else FONTS
    found = tuple(font for font in candidates if _face(font).get_char_index(ord(character)))
    if not found:
        raise ValueError(
            f"no font of matplotlib {matplotlib.__version__} has U+{ord(character):04X}: "
            "install another version of matplotlib"
        )
    return found


def _file(font: str) -> Path:
    return Path(matplotlib.get_data_path(), "fonts", "ttf", f"{font}.ttf")


@cache
def _face(font: str) -> FT2Font:
    return FT2Font(_file(font))


@cache
def _pen(font: str) -> ImageFont.FreeTypeFont:
    return ImageFont.truetype(_file(font), 64, layout_engine=ImageFont.Layout.BASIC)


@cache
def _mask(character: str, font: str) -> Image.Image:
    """Renders the letter in white on black, with a margin of one pixel for soft edges."""
    left, top, right, bottom = _pen(font).getbbox(character)
    mask = Image.new("L", (round(right - left) + 2, round(bottom - top) + 2))
    ImageDraw.Draw(mask).text((1 - left, 1 - top), character, fill=255, font=_pen(font))
    return mask
