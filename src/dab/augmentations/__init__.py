"""Random views of a batch of images in [0, 1], drawn from a generator of one's own."""

from dab.augmentations.views import augment, strong, weak

__all__ = ["augment", "strong", "weak"]
