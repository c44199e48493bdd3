"""Whether the hub of Hugging Face answers. If it does not, its client goes on asking for half a minute."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress

import huggingface_hub.constants
from huggingface_hub.utils import get_session  # type: ignore[attr-defined]

PATIENCE_SECONDS = 5


def answers() -> bool:
    """Whether the hub does, asked once, through the client's own connection. HF_HUB_OFFLINE=1 answers no for it."""
    with suppress(Exception):  # of whatever library makes its connections
        if not huggingface_hub.constants.HF_HUB_OFFLINE:
            get_session().head(huggingface_hub.constants.ENDPOINT, timeout=PATIENCE_SECONDS)
            return True
    return False


@contextmanager
def asked_once() -> Iterator[None]:
    """Inside, if the hub does not answer, `datasets` reads what it has downloaded before, or gives up at once."""
    import datasets

    before = datasets.config.HF_HUB_OFFLINE, huggingface_hub.constants.HF_HUB_OFFLINE
    if not (any(before) or answers()):
        datasets.config.HF_HUB_OFFLINE = huggingface_hub.constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        datasets.config.HF_HUB_OFFLINE, huggingface_hub.constants.HF_HUB_OFFLINE = before
