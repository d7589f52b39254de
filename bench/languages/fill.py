"""Fills a dictionary with strings in insert_all(), and keeps it."""

import signal


def insert_all():
    return {i: f"x{i}" + "y" * 60 for i in range(600_000)}


ALL = insert_all()
while True:
    signal.pause()
