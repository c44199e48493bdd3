"""What the server of processes.py does before it forks: builds the command line, which its children then need not."""

import functools
import gc

import typer.main

from pellucid.cli import app

typer.main.get_command = functools.cache(typer.main.get_command)
typer.main.get_command(app)
gc.freeze()  # else the collector of each child writes to all memory that it shares with the server
