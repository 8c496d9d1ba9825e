"""Refused: takes all memory."""

hog = bytearray(1 << 40)
