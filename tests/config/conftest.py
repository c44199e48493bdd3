"""Some shipped configs start from the run of another."""

from pathlib import Path

import pytest

from pellucid.config.load import load_run_config, run_config_to_yaml

CONFIGS = Path(__file__).parents[2] / "configs"


@pytest.fixture
def trained_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In an empty folder, the configs of the runs that others start from, as training them would have left."""
    monkeypatch.chdir(tmp_path)
    for name in ("fables", "instructions_sft"):
        run = tmp_path / "checkpoints" / name
        run.mkdir(parents=True)
        (run / "config.yaml").write_text(
            run_config_to_yaml(load_run_config(CONFIGS / f"{name}.yaml")), encoding="utf-8"
        )
