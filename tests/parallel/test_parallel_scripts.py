"""Tensor, pipeline and expert parallelism in two processes are what one device computes; our ring is torch's sum."""

import importlib
import multiprocessing
import re
from functools import partial

import pytest
import torch
from scripts.results import ROOT
from torch.multiprocessing import ProcessRaisedException

PROGRAMS = ROOT / "lessons/many_machines"
LESSONS = ["parallel_tensor", "parallel_pipeline", "parallel_experts"]
ROUNDING = 1e-14  # logits and gradients are below 10 here: float64 is exact to 1e-15 of that


@pytest.fixture(scope="module")
def scripts():
    """Their modules by name, as if their folder were the working directory."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "scripts")
        patch.syspath_prepend(PROGRAMS)
        patch.syspath_prepend(ROOT / "tests" / "parallel")
        yield importlib.import_module


@pytest.fixture(scope="module")
def start(scripts):
    """The scripts' own, but processes are forked off one that has imported torch, where the system can do that."""
    method = "spawn"
    if "forkserver" in multiprocessing.get_all_start_methods():
        method = "forkserver"
        importlib.import_module("processes").start_server()
    return partial(scripts("parallel_processes").start, method=method)


def small(figures):
    return max(figures[what] for what in figures if what.endswith("largest difference"))


def test_tensor_parallelism_is_one_device(scripts, start):
    script = scripts("parallel_tensor")
    for figures in start(script.compare, 2, "float64"):
        assert small(figures) < ROUNDING
        # After W_O and after W_2, and their mirror images on the way back: four sums of x in each of two blocks.
        assert figures["sums"] == 4 * 2
        assert figures["their bytes"] == 8 * (8 * 32 * 32) * torch.float64.itemsize
        assert figures["sent by a process"] == figures["their bytes"]


@pytest.mark.parametrize("schedule", ["GPipe", "1F1B"])
def test_pipeline_parallelism_is_one_device(scripts, start, schedule):
    script = scripts("parallel_pipeline")
    processes = start(script.compare, 2, schedule)
    for figures in processes:
        assert small(figures["differences"]) < ROUNDING
        # All of x goes to process 1, all of its gradient to process 0.
        assert figures["bytes sent"] == 8 * 32 * 32 * torch.float64.itemsize
    page = (ROOT / "docs/many_machines.md").read_text("utf-8")
    table = scripts("parallel_processes").timetable([figures["diary"] for figures in processes])
    rows = "\n".join(f"        process {i}   {' '.join(row)}" for i, row in enumerate(table))
    assert f"    {schedule}: 20.0% of the time is waiting; (p - 1) / (m + p - 1) = 20.0%\n{rows}\n" in page


def test_expert_parallelism_is_one_device(scripts, start):
    script = scripts("parallel_experts")
    one, other = start(script.compare, 2, "float64")
    for figures in (one, other):
        assert small(figures) < ROUNDING
    # Whoever sends a vector gets an answer, and a gradient is sent back for each: both send equally many rows.
    assert one["bytes sent by a process"] == other["bytes sent by a process"]
    assert 0 < one["bytes sent by a process"] < 2 * 4 * (4 * 32 * 2) * 32 * torch.float64.itemsize


def test_the_mixture_of_experts_is_a_loop_over_tokens_and_their_experts(scripts):
    script = scripts("parallel_experts")
    torch.manual_seed(0)
    layer, x_BTD = script.Experts(6), torch.randn(2, 5, 6)
    for b in range(2):
        for t in range(5):
            probabilities_E = layer.router(x_BTD[b, t]).softmax(dim=-1)
            best = sorted(range(script.N_EXPERTS), key=lambda e: -probabilities_E[e].item())[: script.TOP]
            expected_D = sum(probabilities_E[e] * layer.experts[e](x_BTD[b, t]) for e in best)
            torch.testing.assert_close(layer(x_BTD)[b, t], expected_D)


def test_the_ring_is_torchs_all_reduce_for_every_length_and_two_to_four_processes(scripts, start):
    lengths = [*range(10), 64, 1001]
    answers = start(scripts("ring_beside_torch").check, 4, lengths)
    for n in (2, 3, 4):
        sent = [answer[f"{n} processes, 64 numbers"] for answer in answers[:n]]
        assert sum(sent) == 2 * (n - 1) * 64 * 8  # each process 2 (n - 1) / n of all, as far as that divides
        assert max(sent) - min(sent) <= 8


def test_an_error_in_one_process_ends_all(scripts, start):
    with pytest.raises(ProcessRaisedException):
        start(scripts("ring_beside_torch").fail_in_process_1, 2)


@pytest.mark.parametrize("lesson", LESSONS)
def test_a_lesson_prints_what_it_found_and_fits_on_two_pages(scripts, start, lesson, monkeypatch, capsys):
    script = scripts(lesson)
    monkeypatch.setattr(script, "start", start)
    script.main()
    printed = capsys.readouterr().out
    assert "| two processes beside one | logits, largest difference | gradients, largest difference |" in printed
    assert len((PROGRAMS / f"{lesson}.py").read_text("utf-8").splitlines()) <= 120
    if lesson == "parallel_pipeline":
        assert "process 1   ·· F0 B0 F1 B1" in printed


def test_the_figures_of_the_page_can_be_drawn(scripts):
    page = (ROOT / "docs/many_machines.md").read_text("utf-8")
    figures = re.findall(r"\]\(many_machines/(\w+)\.png\)", page)
    assert len(set(figures)) == 5
    for name in figures:
        assert getattr(scripts("drawings.many_machines"), name)().axes
