"""A grid: methods with options, on data sets, in settings, with seeds. One call runs it.

>>> grid = Grid(["tent", "dab capacity=64,256"], settings=["correlated"], seeds=[0, 1])
>>> len(grid.cells())  # the source model first, then each method with each seed
8
>>> grid.cells()[0].method
'source'
"""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import nn

from dab.benchmark.cell import CORRELATED, CPU, Cell, Method, parse_method
from dab.benchmark.compute import Compute
from dab.benchmark.engines import Resources, dispatch, engine_class
from dab.benchmark.engines.failure import Failure
from dab.benchmark.engines.job import Job
from dab.benchmark.engines.local import runs_at_once
from dab.benchmark.engines.view import View
from dab.benchmark.results import tables
from dab.benchmark.results.published import source_mismatch
from dab.benchmark.results.result import Result, count_outdated
from dab.benchmark.results.summary import Row, summarize
from dab.benchmark.running.loggers import create_logger
from dab.benchmark.tasks.registry import SPECIAL, TaskRecipe, not_taken, parse_data, task_factory
from dab.data.corruptions import CORRUPTIONS, HELD_OUT
from dab.data.errors import DataError
from dab.streams import Setting, Shard
from dab.utils.files import Location, location
from dab.utils.imports import require
from dab.utils.suggest import unknown

__all__ = ["Grid", "GridResults", "run_grid"]

logger = logging.getLogger("dab")

Methods = str | Method | Sequence[str | Method]


@dataclass(frozen=True)
class Grid:
    """Methods to compare, and the streams to compare them on.

    All of it is checked when the grid is made; no image is read or made for that.

    Args:
        methods: each a `Method`, or text such as "dab capacity=64,256", which stands for one
            method per value; a single one needs no list. A mapping gives each setting methods of
            its own, or each pair of data set and setting. The source model is always included.
        data: names of data sets; `dab data list` shows them. Options that only one data set has
            follow its name: "imagenet-c image_list=FILE".
        settings: each a `Setting`, or text such as "continual" or "correlated:0.1".
        seeds: of the order of images, and of the methods.
        corruptions: the domains, in order; ["held-out"] for the four reserved for tuning.
        severity: of the corruptions, 1 to 5.
        samples: images per domain; None for all.
        batch_size: images per call.
        shards: pieces of a stream, each for an adapter of its own; see `Shard.parse`. None runs
            one adapter over the whole stream.
        compute: device, precision and threads.
        model: a name for `dab.load_model`; None for the default of each data set.
        root: folder of data sets that are read from disk.
        source_images: folder with training images of the model, for methods that ask for some.
        partial: accept an incomplete data set.

    >>> Grid(["tnet"])
    Traceback (most recent call last):
    ValueError: unknown method 'tnet'; ...
    """

    methods: Methods | Mapping[str | tuple[str, str], Methods] = ()
    data: Sequence[str] = ("glyphs",)
    settings: Sequence[str | Setting] = (str(CORRELATED),)
    seeds: Sequence[int] = (0,)
    corruptions: Sequence[str] = CORRUPTIONS
    severity: int = 5
    samples: int | None = None
    batch_size: int = 64
    shards: Sequence[Shard] | None = None
    compute: Compute = CPU
    model: str | None = None
    root: Path | None = None
    source_images: Path | None = None
    partial: bool = False

    def __post_init__(self) -> None:
        for axis in ("data", "settings", "seeds", "corruptions"):
            if isinstance(getattr(self, axis), str) or not getattr(self, axis):
                raise ValueError(f"{axis} must be a non-empty list, got {getattr(self, axis)!r}")
        if list(self.corruptions) == ["held-out"]:
            object.__setattr__(self, "corruptions", HELD_OUT)
        axes = {"data": self.data_names, "settings": self.settings, "seeds": self.seeds}
        for axis, given in axes.items():
            values = list(map(str, given))
            for value in values:
                if values.count(value) > 1:
                    raise ValueError(f"duplicate value in {axis}: {value}")
        for name in self.corruptions:
            if name not in (known := CORRUPTIONS + HELD_OUT):
                raise ValueError(unknown("corruption", name, known))
        if self.samples is not None and self.samples < 1:
            raise ValueError(f"samples must be at least 1, got {self.samples}")
        self.recipes()
        self._check_places()
        self.cells()

    @property
    def data_names(self) -> list[str]:
        """The data sets without their options."""
        return [parse_data(text)[0] for text in self.data]

    def cells(self) -> list[Cell]:
        """All cells; in each stream the source model first, since others are compared with it."""
        shards: Sequence[Shard | None] = self.shards or [None]
        return [
            Cell(
                method=name,
                options=options,
                data=data,
                setting=setting,
                seed=seed,
                batch_size=self.batch_size,
                corruptions=tuple(self.corruptions),
                severity=self.severity,
                compute=self.compute,
                shard=shard,
            )
            for data in self.data_names
            for setting in map(_setting, self.settings)
            for name, options in self._methods(data, setting)
            for seed in self.seeds
            for shard in shards
        ]

    def _check_places(self) -> None:
        """The data sets and settings that have methods of their own must exist."""
        for place in self.methods if isinstance(self.methods, Mapping) else ():
            *data, setting = [place] if isinstance(place, str) else place
            Setting.parse(setting)
            for name in data:
                task_factory(name)

    def _methods(self, data: str, setting: Setting) -> list[Method]:
        chosen = self.methods
        if isinstance(chosen, Mapping):
            # A pair comes before a setting alone.
            places = [place for place in ((data, str(setting)), str(setting)) if place in chosen]
            if not places:
                pairs = ((data, at) if isinstance(at, str) else at for at in chosen)
                known = [name for place, name in pairs if place == data]
                raise ValueError(
                    f"the grid has no methods for {setting} on {data}, only for: {', '.join(known)}"
                )
            chosen = chosen[places[0]]
        source = Method("source")
        return [source, *(method for method in _parsed(chosen) if method != source)]

    def only(self, *names: str) -> Grid:
        """The grid with the methods of these names alone, in all their variants.

        The source model stays; naming it adds those of its variants that the grid has.

        >>> Grid(["tent lr=1e-3", "dab", "dab capacity=256"]).only("tent").methods
        [Method(name='tent', options={'lr': 0.001})]
        """
        if isinstance(self.methods, Mapping):
            methods = {place: _parsed(of) for place, of in self.methods.items()}
        else:
            methods = {"": _parsed(self.methods)}
        known = sorted({"source"}.union(method.name for of in methods.values() for method in of))
        for name in names:
            if name not in known:
                raise ValueError(unknown("method of this grid", name, known))
        kept = {place: [one for one in of if one.name in names] for place, of in methods.items()}
        return replace(self, methods=kept if isinstance(self.methods, Mapping) else kept[""])

    def recipes(self) -> dict[str, TaskRecipe]:
        """How to make the task of each data set, with those of the options that it takes."""
        data = dict(map(parse_data, self.data))
        takes = {name: task_factory(name).takes for name in data}
        given = {option: getattr(self, option) for option in SPECIAL if getattr(self, option)}
        for option in given:
            if not any(option in taken for taken in takes.values()):
                raise ValueError(not_taken(option, [*data]))
        return {
            name: TaskRecipe(
                name,
                samples=self.samples,
                model=self.model,
                options=data[name],
                **{option: _absolute(value) for option, value in given.items() if option in taken},
            )
            for name, taken in takes.items()
        }

    def jobs(
        self,
        out: str | Location = "results",
        *,
        cache: Path | None = None,
        workers: int | None = None,
        checkpoint_every: int = 200,
        log: Sequence[str] = (),
        imports: Sequence[str] = (),
    ) -> list[Job]:
        """The runs, with everything that another process needs to make them; see `run_grid`."""
        recipes = self.recipes()
        return [
            Job(
                cell,
                recipes[cell.data],
                _location(out).absolute(),
                cache=None if cache is None else Path(cache).absolute(),
                workers=workers,
                checkpoint_every=checkpoint_every,
                imports=tuple(
                    str(Path(name).absolute()) if name.endswith(".py") else name for name in imports
                ),
                log=tuple(log),
            )
            for cell in self.cells()
        ]


def _parsed(methods: Methods) -> list[Method]:
    parsed: list[Method] = []
    for method in [methods] if isinstance(methods, str | Method) else methods:
        parsed += parse_method(method) if isinstance(method, str) else [Method(*method)]
    return parsed


def _setting(setting: str | Setting) -> Setting:
    return Setting.parse(setting) if isinstance(setting, str) else setting


def _absolute(value: Any) -> Any:
    return Path(value).absolute() if isinstance(value, str | Path) else value


def _location(out: str | Location) -> Location:
    return location(out) if isinstance(out, str) else out


@dataclass(frozen=True, repr=False)
class GridResults:
    """The results of a grid as a table: one row per method and stream, over all its seeds.

    Python prompts and notebooks show it as a table.

    Args:
        results: one per finished run.
        failures: why the other cells have none.
    """

    results: Sequence[Result]
    failures: Sequence[tuple[Cell, Failure]] = field(default=())

    @cached_property
    def rows(self) -> list[Row]:
        """Errors are in %: mean and standard deviation over the seeds."""
        return summarize(self.results)

    @property
    def warnings(self) -> list[str]:
        """Reasons not to trust the numbers; see `source_mismatch`."""
        return [*filter(None, map(source_mismatch, self.results))]

    def to_markdown(self) -> str:
        """Tables by method and by domain."""
        return tables.document(self.rows)

    def to_csv(self) -> str:
        """One line per row, with the error of each domain."""
        return tables.to_csv(self.rows)

    def to_json(self) -> str:
        """All fields of all rows."""
        return tables.to_json(self.rows)

    def to_pandas(self) -> Any:
        """A pandas DataFrame: one line per row, with the error of each domain as a column."""
        pandas = require("pandas", extra="pandas")
        plain: list[dict[str, Any]] = json.loads(self.to_json())
        return pandas.DataFrame([{**row, **row.pop("errors")} for row in plain])

    def write(self, out: str | Location, name: str = "table") -> list[Location]:
        """Write the tables into a folder as NAME.md, NAME.csv and NAME.json."""
        return tables.write(self.rows, _location(out), name)

    def __repr__(self) -> str:
        return tables.to_markdown(tables.by_method(self.rows))

    def _repr_html_(self) -> str:
        return tables.to_html(tables.by_method(self.rows))


def run_grid(
    grid: Grid,
    out: str | Location = "results",
    *,
    engine: str | None = "inline",
    jobs: int | None = None,
    address: str | None = None,
    gpus_per_run: float | None = None,
    slurm: Mapping[str, Any] | None = None,
    cache: Path | None = None,
    workers: int | None = None,
    checkpoint_every: int = 200,
    log: Sequence[str] = (),
    imports: Sequence[str] = (),
    view: View | None = None,
) -> GridResults:
    """Run a grid: cells that have a result are not run again, interrupted ones resume.

    Args:
        grid: what to run.
        out: folder for the results, or the URL of an object store.
        engine: "inline" runs in this process, "local" in worker processes; "ray" and "slurm"
            use a cluster. None chooses local, or inline if only one run fits at a time. Results
            are the same on all of them.
        jobs: runs at a time; None for as many as fit.
        address: of the cluster; None for the engine's default.
        gpus_per_run: may be a fraction with Ray; None for a whole GPU if the device is one.
        slurm: parameters of sbatch.
        cache: folder for corrupted images; None for the user's cache.
        workers: processes per run that prefetch images; default: 1 if images must be
            generated, else 0.
        checkpoint_every: batches between two checkpoints.
        log: names of loggers, such as "tensorboard".
        imports: modules or .py files that register methods or data sets; other processes
            import them before they run anything.
        view: is told of the progress; None shows progress bars on stderr.
    """
    resources = Resources(
        jobs, grid.compute.threads, grid.compute.device, gpus_per_run, address, slurm or {}
    )
    if engine is None:
        engine = "inline" if runs_at_once(resources) == 1 else "local"
    create = engine_class(engine, resources)
    if str(out).startswith("memory://") and not create.in_process:
        raise ValueError(f"{out} exists in one process only: use the inline engine (--jobs 1)")
    for name in log:
        create_logger(name, _location(out))  # fails if its package is not installed
    runs = grid.jobs(
        out,
        cache=cache,
        workers=workers,
        checkpoint_every=checkpoint_every,
        log=log,
        imports=imports,
    )
    if outdated := count_outdated(_location(out)):
        logger.warning("%s: ignoring results written by another version of dab (%d)", out, outdated)
    images = stream_sizes(runs)
    check_on_models(runs)
    chosen = create(resources)
    with _bars(runs, images) if view is None else nullcontext(view) as shown:
        outcomes = dispatch(runs, chosen, shown)
    return GridResults(
        [outcome for outcome in outcomes if isinstance(outcome, Result)],
        [
            (job.cell, outcome)
            for job, outcome in zip(runs, outcomes, strict=True)
            if isinstance(outcome, Failure)
        ],
    )


def _bars(runs: Sequence[Job], images: Mapping[str, int]) -> Any:
    from dab.benchmark.engines.progress_bars import Bars

    return Bars([(job.cell, images[job.stream_key]) for job in runs])


def check_on_models(jobs: Sequence[Job]) -> None:
    """Create each method once on its model, since an option may not fit the model.

    All problems are reported in one error, before an image is made or a run starts.
    """
    model, of = nn.Module(), None
    seen, problems = set(), []
    for job in jobs:
        cell, data = job.cell, job.task
        method = Method(cell.method, cell.options)
        if (key := (data, str(method))) in seen:
            continue
        seen.add(key)
        if data != of:
            model, of = job.model(), data
        try:
            with _silence():
                job.try_on(model)
        except (TypeError, ValueError) as error:
            problems.append(f"{error} (in {str(method)!r}, on {cell.data})")
        except Exception:  # the run reports it, and others can run
            logger.debug("%s was not checked", method, exc_info=True)
    if problems:
        raise ValueError("\n".join(problems))


@contextmanager
def _silence() -> Iterator[None]:
    """Leave warnings to the runs."""
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def stream_sizes(jobs: Sequence[Job]) -> dict[str, int]:
    """The images of each stream; all problems with the data are reported in one error."""
    sizes, problems = {}, []
    for job in jobs:
        if job.cell.is_source:
            try:
                sizes[job.stream_key] = job.stream().samples
            except DataError as error:
                problems.append(str(error))
    if problems:
        raise DataError("\n".join(dict.fromkeys(problems)))
    return sizes
