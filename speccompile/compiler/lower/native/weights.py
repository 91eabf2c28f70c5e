"""Bodies of the operators with weights, in ONNX: they convert the kernels' layout to a matrix, then multiply."""

# floats [tiles, K, 16] -> [K, columns], and the product.
PRODUCT = """
    turned = Transpose <perm = [1, 0, 2]> (floats)
    whole = Constant <value_ints = [0, -1]> ()
    filled = Reshape (turned, whole)
    none = Constant <value_ints = [0]> ()
    one = Constant <value_ints = [1]> ()
    columns_0d = Constant <value_int: int = @columns> ()
    end = Unsqueeze (columns_0d, none)
    matrix = Slice (filled, none, end, one)
    product = MatMul (x, matrix)
    y = Add (product, bias)
"""

# floats [tiles, K, 16] -> [tokens, K], and the rows of some.
ROWS = """
    turned = Transpose <perm = [0, 2, 1]> (floats)
    none = Constant <value_ints = [0]> ()
    all = Constant <value_ints = [-1]> ()
    depth_0d = Constant <value_int: int = @depth> ()
    width = Unsqueeze (depth_0d, none)
    shape = Concat <axis = 0> (all, width)
    table = Reshape (turned, shape)
    y = Gather <axis = 0> (table, ids)
"""

# numbers uint8 [tiles, K / 4, 16, 4], a scale a column; x in eight bits, a scale a row.
INT8 = """
    turned = Transpose <perm = [1, 3, 0, 2]> (numbers)
    all = Constant <value_ints = [-1]> ()
    filled_columns = Shape (scales)
    as_matrix = Concat <axis = 0> (all, filled_columns)
    filled = Reshape (turned, as_matrix)
    none = Constant <value_ints = [0]> ()
    both = Constant <value_ints = [0, 0]> ()
    axes = Constant <value_ints = [0, 1]> ()
    columns_0d = Constant <value_int: int = @columns> ()
    depth_0d = Constant <value_int: int = @depth> ()
    end = Unsqueeze (columns_0d, none)
    depth_1d = Unsqueeze (depth_0d, none)
    ends = Concat <axis = 0> (depth_1d, end)
    matrix = Slice (filled, both, ends, axes)
    own_scales = Slice (scales, none, end, none)

    magnitude = Abs (x)
    most = ReduceMax <keepdims = 1> (magnitude, all)
    tiny = Constant <value_float = 1e-30> ()
    largest = Max (most, tiny)
    share = Div (x, largest)
    steps = Constant <value_float = 127.0> ()
    step = Reciprocal (steps)
    middle = Constant <value = uint8 {128}> ()
    rows = QuantizeLinear (share, step, middle)
    sums = MatMulInteger (rows, matrix, middle, middle)
    whole = Cast <to = 1> (sums)
    by_column = Mul (whole, own_scales)
    row_scales = Mul (largest, step)
    product = Mul (by_column, row_scales)
    y = Add (product, bias)
"""

EMBED_INT8 = """
    turned = Transpose <perm = [0, 2, 1, 3]> (numbers)
    tokens = Shape (scales)
    all = Constant <value_ints = [-1]> ()
    shape = Concat <axis = 0> (tokens, all)
    table = Reshape (turned, shape)
    found = Gather <axis = 0> (table, ids)
    none = Constant <value_ints = [0]> ()
    depth_0d = Constant <value_int: int = @depth> ()
    end = Unsqueeze (depth_0d, none)
    rows = Slice (found, none, end, all)
    bytes = Cast <to = 1> (rows)
    middle = Constant <value_float = 128.0> ()
    centred = Sub (bytes, middle)
    factors = Gather <axis = 0> (scales, ids)
    spread = Unsqueeze (factors, all)
    y = Mul (centred, spread)
"""

# numbers in four bits [tiles, K / 8, 16, 4] -> [tiles, K / 8, 2, 16, 4].
_HALVES = """
    low_bits = Constant <value = uint8 {15}> ()
    four = Constant <value = uint8 {4}> ()
    low = BitwiseAnd (numbers, low_bits)
    high = BitShift <direction = "RIGHT"> (numbers, four)
    two = Constant <value_ints = [2]> ()
    low_5d = Unsqueeze (low, two)
    high_5d = Unsqueeze (high, two)
    halves = Concat <axis = 2> (low_5d, high_5d)
"""

# Numbers from 0 to 15, and their zero points, are converted to eight bits, in blocks of 32 for every block size.
INT4 = (
    _HALVES
    + """
    by_column = Transpose <perm = [0, 3, 1, 2, 4]> (halves)
    filled_columns = Shape (factors)
    all = Constant <value_ints = [-1]> ()
    small = Constant <value_ints = [32]> ()
    as_blocks = Concat <axis = 0> (filled_columns, all, small)
    blocks = Reshape (by_column, as_blocks)

    none = Constant <value_ints = [0]> ()
    one = Constant <value_ints = [1]> ()
    small_0d = Constant <value_int = 32> ()
    block_0d = Constant <value_int: int = @block_size> ()
    each_0d = Div (block_0d, small_0d)
    each = Unsqueeze (each_0d, none)
    as_column = Concat <axis = 0> (filled_columns, all, one)
    as_each = Concat <axis = 0> (one, one, each)
    as_matrix = Concat <axis = 0> (filled_columns, all)
    turned_zeros = Transpose <perm = [0, 2, 1]> (zero_points)
    own_zeros = Reshape (turned_zeros, as_column)
    spread_zeros = Expand (own_zeros, as_each)
    small_zeros = Reshape (spread_zeros, as_matrix)
    scales_f = Cast <to = 1> (scales)
    turned_scales = Transpose <perm = [0, 2, 1]> (scales_f)
    own_scales = Reshape (turned_scales, as_column)
    as_factors = Concat <axis = 0> (filled_columns, one, one)
    factors_3d = Reshape (factors, as_factors)
    scaled = Mul (own_scales, factors_3d)
    spread_scales = Expand (scaled, as_each)
    small_scales = Reshape (spread_scales, as_matrix)

    depth_0d = Constant <value_int: int = @depth> ()
    rounding = Constant <value_int = 31> ()
    rounded = Add (depth_0d, rounding)
    used_0d = Div (rounded, small_0d)
    used = Unsqueeze (used_0d, none)
    columns_0d = Constant <value_int: int = @columns> ()
    end = Unsqueeze (columns_0d, none)
    both = Constant <value_ints = [0, 0]> ()
    axes = Constant <value_ints = [0, 1]> ()
    ends = Concat <axis = 0> (end, used)
    weight = Slice (blocks, both, ends, axes)
    weight_scales = Slice (small_scales, both, ends, axes)
    weight_zeros = Slice (small_zeros, both, ends, axes)
    product = com.microsoft.MatMulNBits
        <K: int = @depth, N: int = @columns, bits = 8, block_size = 32, accuracy_level = 4>
        (x, weight, weight_scales, weight_zeros)
    y = Add (product, bias)
"""
)

# Codes by block [tiles, blocks, block_size, 16], a scale and an offset a block (or the single offset zero) -> floats
# [tiles, K, 16].
_CODES = """
    as_is = Constant <value_ints = [0]> ()
    rest = Constant <value_ints = [-1]> ()
    tile = Constant <value_ints = [16]> ()
    block_0d = Constant <value_int: int = @block_size> ()
    block = Unsqueeze (block_0d, as_is)
    as_codes = Concat <axis = 0> (as_is, rest, block, tile)
    codes = Reshape (by_row, as_codes)
    code_floats = Cast <to = 1> (codes)
    zero_0d = Constant <value_int: int = @zero_point> ()
    zero_float = Cast <to = 1> (zero_0d)
    centred = Sub (code_floats, zero_float)
    inner = Constant <value_ints = [2]> ()
    scales_4d = Unsqueeze (scales, inner)
    offsets_4d = Unsqueeze (offsets, inner)
    scaled = Mul (centred, scales_4d)
    moved = Add (scaled, offsets_4d)
    as_floats = Concat <axis = 0> (as_is, rest, tile)
    floats = Reshape (moved, as_floats)
"""

BLOCKS8 = "    by_row = Transpose <perm = [0, 1, 3, 2]> (numbers)" + _CODES

BLOCKS4 = _HALVES + "    by_row = Transpose <perm = [0, 1, 2, 4, 3]> (halves)" + _CODES
