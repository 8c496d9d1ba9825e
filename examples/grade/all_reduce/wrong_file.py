"""Refused: writes where it may not."""

from pathlib import Path

Path(__file__).with_name("task.py").write_text("task = None\n")
