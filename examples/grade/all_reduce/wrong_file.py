"""Refused: writes where it may not."""

from pathlib import Path

Path(__file__).with_name("written_by_a_candidate").write_text("no\n")
