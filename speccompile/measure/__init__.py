"""How fast a bundle is, which way of drafting is fastest, and which settings: `bench`, `compare`, `tune`.

In: bundles, or a recipe whose ways of drafting are built and run. Out: tables, pages and JSON.
Imported by `train` and `cli`; imports everything below.
"""
