"""scripts/mutants: mistakes in our own code, and whether the first tier's tests notice them.

Why not cosmic-ray or mutmut: both change everything in a module by rules and run one command for each change,
thousands of times; neither knows C++. Here a list of mistakes is data, tests/mutants/*.toml, each with the promise that
it breaks and the few tests that must notice, so that the whole takes minutes and has kernels and the loop in C++ too.
"""
