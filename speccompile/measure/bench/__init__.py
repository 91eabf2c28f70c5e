"""Measure speculative and autoregressive decoding of a bundle in one run, without torch: the bundle as it ships."""

from speccompile.measure.bench.html import check_page
from speccompile.measure.bench.measure import PromptRuns, measure
from speccompile.measure.bench.measured import report_measured
from speccompile.measure.bench.page import write_page
from speccompile.measure.bench.report import Report, make_report
from speccompile.measure.bench.run import run_bench
from speccompile.measure.bench.table import write_table

__all__ = [
    "PromptRuns",
    "Report",
    "check_page",
    "make_report",
    "measure",
    "report_measured",
    "run_bench",
    "write_page",
    "write_table",
]
