"""Pellucid: a decoder-only transformer that lets the light through. `api.py` is what `import pellucid` offers."""

from importlib import import_module
from typing import TYPE_CHECKING

from pellucid.version import __version__

if TYPE_CHECKING:
    from pellucid.api import Run, load, train

__all__ = ["Run", "__version__", "load", "train"]


def __getattr__(name: str) -> object:
    """Loads PyTorch and all the rest only when they are needed: `import pellucid` takes no time."""
    if name in __all__:
        return getattr(import_module("pellucid.api"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
