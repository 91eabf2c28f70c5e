"""Measure the kernels for scripts/perf: times beside their bounds, instructions beside those of before."""
