"""Random views of a batch of images in [0, 1], drawn from a given generator."""

from dab.augmentations.views import augment, mild, shuffle_patches, strong, weak

__all__ = ["augment", "mild", "shuffle_patches", "strong", "weak"]
