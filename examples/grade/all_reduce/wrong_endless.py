"""Refused: an endless loop."""

while True:
    pass
