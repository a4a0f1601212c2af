"""The corruptions of ImageNet-C and CIFAR-10-C (Hendrycks and Dietterich, 2019) for any image.

Constants and steps are those of the published scripts; docstrings name the exceptions. Lengths are
in pixels regardless of the image size, except in `elastic_transform`, where they scale with it. The
files of ImageNet-C were also saved as JPEG of quality 85; that is not done here.

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
"""The 15 corruptions of the benchmark, in its order."""

HELD_OUT = ("speckle_noise", "gaussian_blur", "spatter", "saturate")
"""The four corruptions for choosing hyperparameters."""
