"""Many requests at once over one bundle.

request   what is asked, and the pieces that come back: made by any thread, read by any other
limits    how much may wait, and for how long
service   the one thread that owns the bundle, and everybody else's way to it
scheduler what that thread does, turn by turn: requests in, rows read and decode, pieces out
waiting   what waits for a row; seats: which row it gets, and what it finds there; served: one sequence, until its end
costs     what rounds and prompts have cost: how much of a prompt is read between two rounds
events    what a service tells whoever counts
"""

from speccompile.serving.scheduler.events import Observer
from speccompile.serving.scheduler.limits import Limits
from speccompile.serving.scheduler.request import OutputDelta, Request
from speccompile.serving.scheduler.service import Service

__all__ = ["Limits", "Observer", "OutputDelta", "Request", "Service"]
