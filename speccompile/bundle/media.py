"""The contract's inputs of a target that sees pictures.

An encoder, `ENCODE_IMAGE`, is one more graph, which runs before the rounds, once for each tile of a picture. The rows
that it gives stand where the prompt has placeholders: the round itself does not change.

media           float32 [media, W]      the encoder's rows for this window, of all slots together; one row of zeros in a
                                        window without pictures
media_rows      int64 [B, window]       0: the window's token; n: row n - 1 of media stands in its place
media_blocks    int64 [B, window]       of a target whose pictures' rows see each other in both directions. 0: a token;
                                        n: a row of the prompt's picture n, which sees all rows of this picture
media_offsets   int64 [B, 3, window]    of a target whose rows have a place in time, a row and a column (M-RoPE): what
                                        to add to a token's position on each of these axes
media_next      int64 [B, window]       of a drafter whose rows pair a feature with the next token. 0: the token after
                                        each of the window's; n: row n - 1 of media stands in its place
media_behind    int64 [B]               of a drafter whose own layers take positions on three axes: what to add, on
                                        each of them, to the position of every token behind the prompt

All zeros mean a window of text: a host that does not support pictures runs texts by leaving the buffers alone.
Drafts are always tokens.

The bundle's part is here; numbers and texts of a target are in `machine.formats.image_settings`.
"""

ENCODE_IMAGE = "encode_image"
"""Name of the graph that encodes a tile, pixels float32 [3, height, width], or a picture's patches -> rows float32
[rows, W]."""

PIXELS, ROWS = "pixels", "rows"
"""Its input and its output."""

PLACES, WINDOWS, NEAR, WEIGHTS = "places", "windows", "near", "weights"
"""Further inputs of encoders that read a picture's patches, pixels float32 [patches, P]. places int64 [patches, 2]: row
and column; windows int64 [patches]: patches with the same number see each other in layers with windows; near int64
[patches, 4], weights float32 [patches, 4]: entries of a table of positions around a patch."""

ROW_WEIGHTS, COLUMN_WEIGHTS = "row_weights", "column_weights"
"""Inputs of encoders that stretch a square table of positions over a picture, float32 [patches, side]: weights of the
table's rows and columns for each patch."""

MEDIA, MEDIA_ROWS, MEDIA_BLOCKS, MEDIA_OFFSETS, MEDIA_NEXT, MEDIA_BEHIND = MEDIA_INPUTS = (
    "media", "media_rows", "media_blocks", "media_offsets", "media_next", "media_behind"
)  # fmt: skip
"""Inputs of a round's graphs that pictures fill."""

PATCHES = "patches"
"""Name of the size that varies in inputs of encoders that read patches: their number; that of the rows is `ROWS`."""

AXES = 3
"""Axes of a row's position: time, row, column."""

IMAGES_FOLDER = "images"
"""Folder of a bundle with the encoder's graph and weights."""

PROOF_SHAPES = ((56, 84), (90, 40), (30, 240), (240, 30), (64, 64))
"""Height and width of a proof's pictures, in pixels. Only the last is square."""
