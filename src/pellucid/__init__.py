"""Pellucid: a decoder-only transformer that lets the light through. `import pellucid` offers what is in `api.py`."""

import os
from importlib import import_module
from typing import TYPE_CHECKING

from pellucid.version import __version__

if TYPE_CHECKING:
    from pellucid.api import Run, import_model, load, train

# PyTorch's threads wait for each other in a loop of 300,000 rounds before they sleep, so a thread that has lost its
# core to another program holds up all others. 10,000 are enough on an idle machine (docs/speed.md). libgomp reads this
# when PyTorch is loaded.
os.environ.setdefault("GOMP_SPINCOUNT", "10000")

__all__ = ["Run", "__version__", "import_model", "load", "train"]


def __getattr__(name: str) -> object:
    """Import `api.py`, and with it PyTorch, on first use: `import pellucid` takes no time."""
    if name in __all__:
        return getattr(import_module("pellucid.api"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """All names, also those that are not loaded yet."""
    return sorted({*globals(), *__all__})
