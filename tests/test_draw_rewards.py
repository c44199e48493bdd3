import numpy as np
from measurements.frontier import RewardDistribution, frontier
from measurements.rewards import Reached, draw_frontier, draw_over_optimization

COIN = RewardDistribution(np.array([0.0, 1.0]), np.array([0.75, 0.25]))


def test_methods_are_drawn_beside_the_frontier():
    methods = {"DPO": [Reached(0.1, 0.3), Reached(0.2, 0.4)], "GRPO": [Reached(0.3, 0.5)]}
    [axes] = draw_frontier("Reward and divergence", [COIN], methods).axes
    assert axes.get_xlim()[0] == 0
    drawn = [list(zip(*line.get_data(), strict=True)) for line in axes.lines]
    assert [(0.1, 0.3), (0.2, 0.4)] in drawn
    assert len(drawn[0]) == len(frontier([COIN]))


def test_each_run_has_its_proxy_on_the_left_and_the_truth_on_the_right():
    rows = [{"step": n, "reward": n / 10, "whole": 1 - n / 10, "obeys": 0.5} for n in range(1, 8)]
    proxy, truth = draw_over_optimization("Fooled", {"β = 0": rows, "β = 0.1": rows}).axes
    assert len(proxy.lines) == 4
    assert list(proxy.lines[0].get_ydata()) == [row["reward"] for row in rows]
    assert list(truth.lines[0].get_ydata()) == [(row["whole"] + row["obeys"]) / 2 for row in rows]
