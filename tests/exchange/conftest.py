"""Fixtures that the tests of exchange share: the library that reads what we write, and writes what we read."""

import importlib

import pytest


@pytest.fixture(scope="session")
def transformers():
    """Imported when a test asks for it: several seconds, which every process that collects the tests would spend."""
    return importlib.import_module("transformers")


@pytest.fixture(autouse=True)
def no_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test asks the network."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
