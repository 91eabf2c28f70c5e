"""Speculative beside autoregressive decoding, measured in one run. No torch: it measures a bundle as it is shipped."""

from speccompile.bench.html import check_page
from speccompile.bench.measure import Case, measure
from speccompile.bench.page import write_page
from speccompile.bench.report import Report, make_report
from speccompile.bench.run import run_bench
from speccompile.bench.table import write_table

__all__ = ["Case", "Report", "check_page", "make_report", "measure", "run_bench", "write_page", "write_table"]
