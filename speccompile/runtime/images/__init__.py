"""Pictures for a target: decoded, cut into tiles, encoded, and put in the place of a prompt's placeholders.

In: paths, bytes of files or arrays, and `plan.images` of a manifest. Out: an encoder's rows for the windows of a round.
Imported by `runtime` and the rooms above; needs numpy, and Pillow for files.

decode    files and arrays -> uint8 [height, width, 3], within `limits`; `resize`: Pillow's resampling in integers
tiles     families: pictures -> tiles and the text that stands for them; `prompts`: placeholders, expanded or escaped
encoder   tiles -> rows, kept by content; `media`: rows, places and identity of one sequence
reader    all of it for an open bundle
"""
