"""Scripts are run by hand, so a test sees that what they import is still there."""

import runpy

import pytest
from scripts.results import ROOT

SCRIPTS = sorted((ROOT / "scripts").glob("*.py"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_every_script_finds_what_it_imports(script, monkeypatch):
    monkeypatch.syspath_prepend(script.parent)
    assert runpy.run_path(str(script))["__doc__"]
