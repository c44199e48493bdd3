from pellucid.experiments.figures.over_optimization import draw_over_optimization


def test_each_run_has_its_proxy_on_the_left_and_the_truth_on_the_right():
    rows = [{"step": n, "reward": n / 10, "whole": 1 - n / 10, "obeys": 0.5} for n in range(1, 8)]
    sketch = draw_over_optimization("Fooled", {"β = 0": rows, "β = 0.1": rows})
    proxy, truth = sketch.figure.axes
    assert [len(axes.lines) for axes in (proxy,)] == [4]
    assert list(proxy.lines[0].get_ydata()) == [row["reward"] for row in rows]
    assert list(truth.lines[0].get_ydata()) == [(row["whole"] + row["obeys"]) / 2 for row in rows]
