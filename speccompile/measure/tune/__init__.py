"""Choose the fastest draft shape and settings on this machine: measured costs and acceptance -> tokens per second."""

from speccompile.measure.tune.predict import Candidate
from speccompile.measure.tune.run import Job, Options, Tuning
from speccompile.measure.tune.table import write_table

__all__ = ["Candidate", "Job", "Options", "Tuning", "write_table"]
