"""Many requests at once over one bundle.

request   what is asked, and the pieces that come back: made by any thread, read by any other
limits    how much may wait, and for how long
service   the one thread that owns the bundle: takes requests in, lets rows decode, gives pieces out
events    what a service tells whoever counts
"""

from speccompile.runtime.serving.events import Observer
from speccompile.runtime.serving.limits import Limits
from speccompile.runtime.serving.request import Piece, Request
from speccompile.runtime.serving.service import Service

__all__ = ["Limits", "Observer", "Piece", "Request", "Service"]
