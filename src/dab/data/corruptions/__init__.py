"""The corruptions of ImageNet-C and CIFAR-10-C (Hendrycks and Dietterich, 2019) for any image.

Constants and steps are those of the scripts that made the two data sets; where a function departs
from them, its docstring says so. Lengths are in pixels, whatever the size of the image, except in
`elastic_transform`, whose lengths grow with the image. The files of ImageNet-C have besides been
saved as JPEG of quality 85, which is left out here.

>>> import numpy as np
>>> image = np.full((48, 64, 3), 128, np.uint8)
>>> corrupt(image, "fog", severity=5, rng=np.random.default_rng(0)).shape
(48, 64, 3)
"""

from dab.data.corruptions import blur, digital, noise, weather
from dab.data.corruptions.registry import corrupt

__all__ = ["CORRUPTIONS", "HELD_OUT", "blur", "corrupt", "digital", "noise", "weather"]

CORRUPTIONS = (
    "gaussian_noise",
    "shot_noise",
    "impulse_noise",
    "defocus_blur",
    "glass_blur",
    "motion_blur",
    "zoom_blur",
    "snow",
    "frost",
    "fog",
    "brightness",
    "contrast",
    "elastic_transform",
    "pixelate",
    "jpeg_compression",
)
"""The fifteen that methods are compared on, in the order of the benchmark."""

HELD_OUT = ("speckle_noise", "gaussian_blur", "spatter", "saturate")
"""The four to choose hyper-parameters on."""
