"""Give memory back between the steps of a build."""

import gc

from speccompile.system import trim_heap


def release() -> None:
    """Free what only cycles hold, and return free heap to the system.

    A traced program holds its model in cycles. Freed weights of an engine stay in glibc's heap otherwise (measured:
    1.3 GB of 1.8 after a 1.4 GB model), and the next step would come on top.
    """
    gc.collect()
    trim_heap()
