"""Images: the default preset, folders of pictures, first fills and random masks."""

from mcflow.images.masks import hide_blocks, hide_halves, hide_pixels, mask_images
from mcflow.images.nearest import fill_nearest

__all__ = ["fill_nearest", "hide_blocks", "hide_halves", "hide_pixels", "mask_images"]
