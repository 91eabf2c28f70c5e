"""What scripts/perf does: the kernels' times beside their bounds, and their instructions beside those of before."""
