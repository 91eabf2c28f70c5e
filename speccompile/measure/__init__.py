"""Measure how fast a bundle is, which drafting method is fastest, and which settings: `bench`, `compare`, `tune`.

In: bundles, or a recipe whose drafting methods are built and run. Out: tables, pages and JSON.
Imported by `train` and `cli`; imports everything below.
"""
