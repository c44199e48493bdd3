"""A page that is open from before a run's first step shows the run as it goes."""

import shutil
from dataclasses import replace
from pathlib import Path

from playwright.sync_api import Browser, expect

from browsing import watched
from pellucid.checkpoint.run_directory import find_step_directory, locked
from pellucid.checkpoint.snapshots import write_snapshot
from pellucid.checkpoint.step_directory import read_checkpoint
from pellucid.web.app import make_app
from serving import served


def test_an_open_page_follows_a_run_from_before_its_first_step(browser: Browser, fables_run: Path, tmp_path: Path):
    run, rows = tmp_path / "fables", (fables_run / "metrics.jsonl").read_text().splitlines(keepends=True)
    run.mkdir()
    saved = read_checkpoint(find_step_directory(fables_run, "latest"))
    with served(make_app([run])) as (host, port), watched(browser, f"http://{host}:{port}/") as page:
        expect(page.get_by_text("There is no checkpoint yet")).to_be_visible()
        with locked(run):
            shutil.copy(fables_run / "config.yaml", tmp_path)
            (tmp_path / "config.yaml").rename(run / "config.yaml")  # at once, as a run writes it
            for step, row in enumerate(rows, 1):
                with (run / "metrics.jsonl").open("a") as log:
                    log.write(row)
                write_snapshot(run, replace(saved, state=saved.state.model_copy(update={"step": step})))
                if step in (1, 4):  # several come between two looks
                    expect(page.locator("#status")).to_have_text(f"step {step}")
                    expect(page.locator("#live")).to_have_text(f"training: step {step} of 4")
        expect(page.locator("#live")).to_be_hidden()
