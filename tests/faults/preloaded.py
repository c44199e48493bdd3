"""Loads all commands into the server of processes.py before it forks, so that its children need not."""

import gc

from pellucid.cli import app_for

app_for()
gc.freeze()  # else the collector of each child writes to all memory that it shares with the server
