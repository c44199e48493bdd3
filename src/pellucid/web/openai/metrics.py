"""Counts of what the server has done, for Prometheus and programs that read its format.

https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from collections.abc import Mapping
from dataclasses import dataclass

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
METRICS = {  # name: kind, meaning
    "requests_total": ("counter", "Requests that have ended, answered or left by their clients."),
    "request_seconds_total": ("counter", "Seconds that these requests took, together."),
    "prompt_tokens_total": ("counter", "Tokens of their prompts."),
    "written_tokens_total": ("counter", "Tokens written for them."),
    "texts_running": ("gauge", "Texts that are being written or wait now."),
}


@dataclass
class Totals:
    """The metrics of one run since the server started. Only the event loop changes them."""

    requests_total: int = 0
    request_seconds_total: float = 0.0
    prompt_tokens_total: int = 0
    written_tokens_total: int = 0
    texts_running: int = 0

    def add(self, seconds: float, n_prompt_tokens: int, n_written: int) -> None:
        """A request that has ended."""
        self.requests_total += 1
        self.request_seconds_total += seconds
        self.prompt_tokens_total += n_prompt_tokens
        self.written_tokens_total += n_written


def metrics_page(runs: Mapping[str, Totals]) -> str:
    """The metrics of each run, by its name."""
    lines = []
    for metric, (kind, meaning) in METRICS.items():
        lines += [f"# HELP pellucid_{metric} {meaning}", f"# TYPE pellucid_{metric} {kind}"]
        for name, totals in runs.items():
            label = name.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
            lines.append(f'pellucid_{metric}{{model="{label}"}} {getattr(totals, metric)}')
    return "\n".join(lines) + "\n"
