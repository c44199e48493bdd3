"""What a linear probe reads off a model's vectors, layer by layer, for the table of docs/embeddings.md.

    python scripts/measure_probe.py checkpoints/fables --record
    python scripts/results.py

The same figures as `pellucid probe checkpoints/fables`. Half a minute on four cores.
"""

from __future__ import annotations

from pathlib import Path

from results import parser, print_table, record

from pellucid.inspection.build import probe_run
from pellucid.trained import load_trained_run


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("run", type=Path)
    options = arguments.parse_args()
    trained, _ = load_trained_run(options.run)
    scores = probe_run(trained, None, most=1000).scores
    figures = {
        row: {name: f"{100 * score.mean:.1f} ± {100 * score.half_width:.1f}" for name, score in cells.items()}
        for row, cells in scores.items()
    }
    print_table("probe", figures)
    if options.record:
        record("probe", figures, ["fables"], numbers="fp32")


if __name__ == "__main__":
    main()
