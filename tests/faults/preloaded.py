"""What the server of processes.py does before it forks: loads all commands, which its children then need not."""

import gc

from pellucid.cli import app_for

app_for()
gc.freeze()  # else the collector of each child writes to all memory that it shares with the server
