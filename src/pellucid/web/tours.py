"""Tours: ways through the page that ask before they show. A file says what (`config/tour.py`); `stops.py` measures it.

A tour claims nothing of a run that it has not seen: its figures are measured in the runs at hand when it is played, and
so are the heads that it speaks of. Where one is out of the bounds that a question needs, it is not graded.
"""

from collections.abc import Sequence
from pathlib import Path

from pellucid.config.base import flat
from pellucid.config.shipped import SHIPPED
from pellucid.config.tour import Shown, TourConfig, load_tour
from pellucid.errors import ConfigError
from pellucid.web.descriptions import Json
from pellucid.web.microscope import Microscope
from pellucid.web.stops import PlayedStop

TOURS = SHIPPED / "tours"
ON_THE_LIST = {"title", "minutes", "about"}


class Tours:
    """The tours that the runs of a server can play: the shipped ones, and those of these files."""

    def __init__(self, microscope: Microscope, files: Sequence[Path] = ()) -> None:
        self._microscope = microscope
        shipped = {file.stem: load_tour(file) for file in sorted(TOURS.glob("*.yaml"))}
        shortest_first = sorted(shipped.items(), key=lambda named: named[1].minutes)
        self._tours = dict(shortest_first) | {file.stem: load_tour(file) for file in files}

    def listed(self) -> Json:
        """Name, title, minutes and purpose of each tour whose runs are all here."""
        playable = {name: tour for name, tour in self._tours.items() if len(self._runs_of(tour)) == len(tour.runs)}
        return {"tours": [{"name": name, **tour.model_dump(include=ON_THE_LIST)} for name, tour in playable.items()]}

    def played(self, name: str) -> Json:
        """A tour with the state of the page at each stop, and its figures. ConfigError if it does not fit the runs."""
        if name not in self._tours:
            raise ConfigError("tour", f"there is no {name!r}", f"choose one of {', '.join(self._tours)}")
        tour = self._tours[name]
        runs = self._runs_of(tour)
        for role, wanted in tour.runs.items():
            if role not in runs:
                what = f"this tour shows a run that is not here: {role}"
                raise ConfigError(f"tour {name}", what, f"add one made by `{wanted.made_by}`")
        stops, before = [], Shown()
        for number, stop in enumerate(tour.stops, start=1):
            played = PlayedStop(self._microscope, runs, f"tour {name}, stop {number}", before, stop)
            stops.append(played.to_json())
            before = played.then
        return {"name": name, **tour.model_dump(include=ON_THE_LIST), "stops": stops}

    def differences(self, name: str) -> list[str]:
        """Where these runs differ from what a tour claims, a line each. ConfigError if it does not fit them."""
        stops = self.played(name)["stops"]
        return [f"stop {number}: {miss}" for number, stop in enumerate(stops, start=1) for miss in stop["misses"]]

    def _runs_of(self, tour: TourConfig) -> dict[str, str]:
        """By name in the tour, the name of the first served run that fits and is not taken yet."""
        configs = self._microscope.runs.configs().items()
        fitting = [named for named in configs if named[1].objective.type != "masked"]  # tours ask what comes next
        keys = {name: flat(config.model_dump(mode="json")) for name, config in fitting}
        chosen: dict[str, str] = {}
        for role, wanted in tour.runs.items():
            where = flat(wanted.where).items()
            fits = [run for run, own in keys.items() if all(own.get(k) == v for k, v in where)]
            if fits:
                chosen[role] = fits[0]
                del keys[fits[0]]  # it is taken
        return chosen


def files_of(tour: Path | None) -> list[Path]:
    """The file of a tour, in a list; empty for a shipped one, and for none. ConfigError if there is no such file."""
    if tour is None or tour.is_file():
        return [] if tour is None else [tour]
    shipped = {file.stem for file in TOURS.glob("*.yaml")}
    if str(tour) not in shipped:
        fix = f"name a YAML file, or one of those that come with Pellucid: {', '.join(sorted(shipped))}"
        raise ConfigError(f"--tour {tour}", "no such file", fix)
    return []
