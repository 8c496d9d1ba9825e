"""`python -m passmuster` is the command `passmuster`."""

from ._command import main

main()
