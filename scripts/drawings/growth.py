"""How the cost of a training step grows with context and width, from what `measure.py growth --record` wrote.

Remakes: docs/growth.png
Takes: a second
Needs: `measure.py growth --record` before
"""

from pathlib import Path

from drawings.equations import BLUE, ORANGE
from matplotlib.figure import Figure
from results import ROOT, read

FILE = ROOT / "docs/growth.png"
TICKS = [3_000, 10_000, 30_000, 100_000]


def draw(*, to: Path = FILE) -> list[Path]:
    entry = read()["growth"]
    speeds(entry["figures"], entry["numbers"]).savefig(to, dpi=150)
    return [to]


def speeds(figures: dict[str, dict[str, float]], numbers: str) -> Figure:
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    panels = list(figure.subplots(1, 2, sharey=True))
    of_panels = {"context": "context length (tokens), at width 128", "width": "width of the model, at context 256"}
    for axes, (kind, label) in zip(panels, of_panels.items(), strict=True):
        rows = {int(name.split()[1]): row for name, row in figures.items() if name.startswith(kind)}
        for name, mark, color in (("Pellucid", "o-", BLUE), ("transformers", "s--", ORANGE)):
            axes.loglog(list(rows), [row[name] for row in rows.values()], mark, color=color, label=name)
        axes.set_xticks(list(rows), [f"{size:,}" for size in rows])
        axes.minorticks_off()
        axes.set_xlabel(label)
        axes.grid(alpha=0.3)
    panels[0].set_yticks(TICKS, [f"{tick:,}" for tick in TICKS])
    panels[0].set_ylabel("training, tokens per second")
    panels[0].legend(frameon=False)
    figure.suptitle(f"4 layers, heads of 64, 8,192 tokens a step, {numbers}", fontsize=10)
    return figure
