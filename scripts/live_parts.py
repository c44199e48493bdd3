"""The live parts of the lessons, for a page that opens without a server and without a network.

Browsers let no page that was opened from a file load a module from another file. So the modules stand in the page
itself, as in the exported page of the Model Microscope (src/pellucid/web/export.py).
"""

import json
import re
from pathlib import Path

from pellucid.web.export import STATIC, module

LIVE = Path(__file__).parents[1] / "lessons" / "live"
STYLE = LIVE / "live.css"
IMPORTED = re.compile(r'from "(?:\.|pellucid)/(\w+\.js)"')


def live_script() -> str:
    """The elements that bring every `<div class="live">` of a page to life; they go to the end of its body."""
    imports = {f"pellucid/{path.name}": module(path) for path in modules_of(LIVE / "start_live.js")}
    return (
        f'<script type="importmap">{json.dumps({"imports": imports})}</script>\n'
        '<script type="module">import "pellucid/start_live.js";</script>\n'
    )


def modules_of(start: Path) -> list[Path]:
    """A module and all that it imports: from its own folder, or from the microscope."""
    modules = [start]
    for path in modules:
        for name in IMPORTED.findall(path.read_text(encoding="utf-8")):
            imported = LIVE / name if (LIVE / name).is_file() else STATIC / name
            if imported not in modules:
                modules.append(imported)
    return modules
