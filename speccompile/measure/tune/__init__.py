"""The way of drafting that is fastest here: measured costs and acceptance -> expected tokens per second -> a choice."""

from speccompile.measure.tune.predict import Candidate
from speccompile.measure.tune.run import Job, Options, Tuning
from speccompile.measure.tune.table import write_table

__all__ = ["Candidate", "Job", "Options", "Tuning", "write_table"]
