"""Limits on pictures, checked before they are decoded."""

MAX_BYTES = 32 << 20
"""Bytes of a file."""
MAX_PIXELS = 64_000_000
"""Pixels of a picture, by the size that its file names: a file of a few kilobytes may name any."""
MAX_SIDE = 16_384
"""Pixels of a side."""
MAX_SCANS = 100
"""Scans of a JPEG file, which has some ten: each may be a few bytes, and is a pass over the whole picture."""
LOW_SIDE = 512
"""Side of the square whose area a picture with less detail has at most, in families without tiles."""
MAX_IMAGES = 64
"""Pictures of one prompt."""
IMAGE_CACHE = 256
"""MiB of encoder rows that a bundle keeps by default for pictures that come again."""
ENCODER_BYTES = IMAGE_CACHE << 20
"""Bytes of encoder rows that a bundle keeps by default."""
