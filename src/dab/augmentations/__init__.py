"""Random views of a batch of images in [0, 1], drawn from a given generator."""

from dab.augmentations.views import augment, strong, weak

__all__ = ["augment", "strong", "weak"]
