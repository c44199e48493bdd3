"""The device that a test computes on: a GPU where there is one, and a CPU that pretends to be one, as a rehearsal."""

from collections.abc import Iterator

import pytest
import torch

from on_device.pretended_cuda import CUDA, pretend


@pytest.fixture(params=["pretended", pytest.param("cuda", marks=pytest.mark.cuda)])
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[torch.device]:
    if request.param == "cuda":
        yield CUDA
    else:
        with pretend(monkeypatch):
            yield CUDA
