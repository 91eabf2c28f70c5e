"""`python -m speccompile`: the command line, for launchers that start modules."""

try:
    from speccompile.cli import main

    main()
finally:
    # After an interrupt inside an `exec`, as in that of a dataclass, Python ends by the signal, whatever the exit code
    # is, until another `exec` has ended well.
    exec("")  # noqa: S102 - of nothing
