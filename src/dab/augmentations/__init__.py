"""Random views of a batch of images in [0, 1], drawn from a given generator."""

from dab.augmentations.views import augment, augmix, mild, shuffle_patches, strong, weak

__all__ = ["augment", "augmix", "mild", "shuffle_patches", "strong", "weak"]
