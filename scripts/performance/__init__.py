"""Measure the kernels for scripts/perf: times against lower bounds, and instruction counts against recorded ones."""
