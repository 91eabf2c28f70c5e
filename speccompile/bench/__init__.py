"""Speculative beside autoregressive decoding, measured in one run. No torch: it measures a bundle as it is shipped."""

from speccompile.bench.measure import Case, measure
from speccompile.bench.report import Report, make_report
from speccompile.bench.table import write_table

__all__ = ["Case", "Report", "make_report", "measure", "write_table"]
