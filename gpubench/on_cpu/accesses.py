"""Counts what the accesses of a kernel request from a GPU's memory, without a GPU.

g++ compiles the source with calls that record each access, and a few blocks run on the CPU.
`shim/accesses.cpp` forms the requests of each warp. Figures are ratios per request, as nvcc may
hoist, merge or widen accesses.
"""

import hashlib
import re
import tempfile
from collections import Counter, defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from shutil import which

from gpubench.cache import cache_file, keep_value, kept
from gpubench.errors import CompileError
from gpubench.hardware.host import cpu_threads
from gpubench.hardware.occupancy import gpu_of
from gpubench.model import OPERATIONS, Config, CudaVariant, Device, Launch, Problem, Variant
from gpubench.model.sources import include_folders, read_source
from gpubench.on_cpu import run
from gpubench.on_cpu.case import Case, encoded_launches, words
from gpubench.on_cpu.fault import KernelFaultError
from gpubench.on_cpu.unit import SHIM, translation_unit
from gpubench.process.child import run_program
from gpubench.results.provenance import source_hash
from gpubench.text import clean

BLOCKS = 4
"""Maximum number of blocks that run for each launch."""

SECTOR_BYTES = 32
"""A cache line has four sectors. The L1 cache fetches sectors, and looks up one line per clock."""

LINE_BYTES = 128

SHARED = "shared memory"
"""The name of the memory of a block."""

OPTIONS = (
    "-fsanitize=thread", "-fsanitize-coverage=trace-pc", "-fno-reorder-blocks", "-fno-pie",
    "-DON_CPU_RECORDS",
)  # fmt: skip
"""Options of g++ for a program that records. Blocks of code keep their order in a function, so a
jump back is the next iteration of a loop."""

KINDS = {"r": "read", "w": "write", "a": "atomic"}
BULK = "t"

ONLY_NVCC = {
    r"\b(?:wmma::|wgmma|mma\.sync)|\bmma\.h\b": "the kernel uses tensor cores",
    r"\basm\b": "the kernel has inline PTX",
}
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
BY_ARCHITECTURE = re.compile(r"^\s*#.*\b__CUDA_ARCH__\b", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Access:
    """The accesses of a source line to one memory. Figures are averages over requests of a warp."""

    file: str
    line: int
    memory: str
    """The array, such as `A`, or `shared memory`."""

    kind: str
    """`read`, `write` or `atomic`."""

    bytes: int
    """Bytes that a thread accesses at once: 1, 2, 4, 8 or 16."""

    requests: float
    """Requests per block."""

    lanes: float
    """Threads per request, 1 to 32."""

    used_bytes: float
    """Bytes per request, each counted once."""

    sectors: float = 0.0
    """Sectors of global memory. 0 for shared memory."""

    least_sectors: float = 0.0
    """Sectors that would hold the bytes that are accessed."""

    lines: float = 0.0
    """Cache lines of 128 bytes of global memory."""

    phases: float = 0.0
    """Wavefronts of shared memory without bank conflicts. 0 for global memory."""

    wavefronts: float = 0.0
    """Wavefronts of shared memory, with bank conflicts."""

    @property
    def is_shared(self) -> bool:
        """Whether the line accesses shared memory."""
        return self.memory == SHARED

    @property
    def place(self) -> str:
        """`naive.cu:30`."""
        return f"{self.file}:{self.line}"

    @property
    def times_least(self) -> float:
        """Traffic over its minimum: sectors of global memory, or wavefronts of shared memory."""
        if self.is_shared:
            return self.wavefronts / self.phases
        return self.sectors / self.least_sectors

    @property
    def clocks(self) -> float:
        """Clocks of a multiprocessor per block, which serves one line or wavefront per clock."""
        return self.requests * (self.wavefronts if self.is_shared else self.lines)

    @property
    def wasted_clocks(self) -> float:
        """Clocks per block beyond the clocks of the minimum traffic."""
        if self.is_shared:
            return self.requests * (self.wavefronts - self.phases)
        sectors = self.requests * (self.sectors - self.least_sectors)
        return sectors * SECTOR_BYTES / LINE_BYTES


@dataclass(frozen=True, kw_only=True)
class Skipped:
    """Accesses that are not analysed."""

    what: str
    places: tuple[str, ...] = ()
    """Where they are. Empty means the whole kernel."""

    def __str__(self) -> str:
        return f"{self.what} ({', '.join(self.places)})" if self.places else self.what


@dataclass(frozen=True, kw_only=True)
class Accesses:
    """The accesses of a launch, or why they are not known."""

    lines: tuple[Access, ...] = ()
    blocks: int = 0
    """Number of blocks that were run."""

    used: dict[str, float]
    """Fraction of the bytes in the sectors of an array that a block reads and uses, 0 to 1."""

    not_analysed: tuple[Skipped, ...] = ()
    """Accesses that are not among the lines, and why."""

    @property
    def global_lines(self) -> tuple[Access, ...]:
        """The accesses to global memory."""
        return tuple(line for line in self.lines if not line.is_shared)

    @property
    def shared_lines(self) -> tuple[Access, ...]:
        """The accesses to shared memory."""
        return tuple(line for line in self.lines if line.is_shared)

    def _sum(self, name: str) -> float:
        return float(sum(line.requests * getattr(line, name) for line in self.lines))

    @property
    def sectors_per_request(self) -> float | None:
        """Average number of sectors per request to global memory. None without requests."""
        requests = sum(line.requests for line in self.global_lines)
        return self._sum("sectors") / requests if requests else None

    @property
    def sectors_over_least(self) -> float | None:
        """Sectors over the minimum number of sectors that hold each request's bytes: at least 1."""
        least_sectors = self._sum("least_sectors")
        return self._sum("sectors") / least_sectors if least_sectors else None

    @property
    def bank_conflict_ways(self) -> float | None:
        """Wavefronts over the wavefronts without bank conflicts, at least 1. None: no requests."""
        phases = self._sum("phases")
        return self._sum("wavefronts") / phases if phases else None

    @property
    def clocks(self) -> float:
        """Clocks of a multiprocessor per block for all lines."""
        return sum(line.clocks for line in self.lines)

    @property
    def by_wasted_clocks(self) -> tuple[Access, ...]:
        """The lines: the most wasteful lines first, then the most costly lines."""
        return tuple(
            sorted(self.lines, key=lambda line: (line.wasted_clocks, line.clocks), reverse=True)
        )


Recorded = tuple[Accesses, ...]
"""The accesses of the launches of a case."""


def record(
    variant: CudaVariant, tiles: Sequence[Config], problem: Problem, device: Device
) -> dict[Config, Recorded]:
    """Return the accesses of each launch of tiles, from the user's cache if they were kept.

    Where a kernel cannot be recorded, the accesses have no lines and say why.
    """
    recorded: dict[Config, Recorded] = {}
    groups: defaultdict[tuple[str, ...], list[Case]] = defaultdict(list)
    why = missing_tool()
    for tile in tiles:
        case = Case(variant=variant, tile=tile, problem=problem, gpu=gpu_of(device))
        if answer := _failed(case, why) if why else kept(_kept_file(case), Recorded):
            recorded[tile] = answer
        else:
            groups[variant.options(tile, problem.dtype)].append(case)
    for options, group in groups.items():
        for case, answer in zip(group, _record_together(group, options), strict=True):
            recorded[case.tile or Config()] = answer
            keep_value(_kept_file(case), answer)
    return recorded


def _failed(case: Case, why: str) -> Recorded:
    return tuple(
        Accesses(used={}, not_analysed=(Skipped(what=f"accesses, as {why}"),))
        for _ in case.launch.sequence
    )


def missing_tool() -> str:
    """Return which program of g++'s package is missing and how to get it, or an empty text."""
    missing = [name for name in ("g++", "addr2line") if not which(name)]
    return f"{missing[0]} is missing (Debian: apt install g++)" if missing else ""


@cache
def recorder_version() -> str:
    """Return the version of the compiler that records, or an empty text if a tool is missing."""
    return "" if missing_tool() else f"g++ {run.gxx('-dumpfullversion').strip()}"


def _kept_file(case: Case) -> Path:
    """Return the file of the cache. The file's name changes with all that the figures depend on."""
    problem = case.problem
    return cache_file(
        "accesses",
        source_hash(case.variant),
        _recorder_hash(),
        case.variant.name,
        case.instances,
        case.variant.options(case.tile, problem.dtype),
        case.launch,
        problem,
    )


@cache
def _recorder_hash() -> str:
    """Return a hash of the files that compute the figures of a source."""
    files = sorted(path for path in SHIM.parent.rglob("*") if path.suffix != ".pyc")
    content = b"".join(file.read_bytes() for file in files if file.is_file())
    return hashlib.sha256(content + run.gxx("--version").encode()).hexdigest()


def _record_together(cases: Sequence[Case], options: tuple[str, ...]) -> list[Recorded]:
    """Compile the instances of the cases as one program, and run each case in a process."""
    variant = cases[0].variant
    names = list(dict.fromkeys(name for case in cases for name in case.instances))
    unit = translation_unit(variant.source, None, names, folders=include_folders(options))
    with tempfile.TemporaryDirectory(prefix="gpubench-") as parent:
        folder = Path(parent) / "program"
        folder.mkdir()
        try:
            passed = filter(run.PASSED.fullmatch, options)
            link = ("-no-pie", str(run.runtime_object(folder.parent, "accesses")))
            program = run.build(unit, variant.source.parent, folder, (*OPTIONS, *passed), link)
        except CompileError as error:
            return [_failed(case, _why_not_compiled(variant, error)) for case in cases]
        with ThreadPoolExecutor(cpu_threads()) as pool:
            return list(pool.map(lambda case: _run(case, names, program), cases))


def _why_not_compiled(variant: Variant, error: CompileError) -> str:
    """Return why g++ does not compile a kernel: what only nvcc compiles, or else g++'s error."""
    text = _COMMENT.sub("", _text(variant))
    for pattern, why in ONLY_NVCC.items():
        if re.search(pattern, text):
            return why
    return f"it does not compile for the CPU: {error}"


def _text(variant: Variant) -> str:
    return "\n".join(read_source(path) for path in variant.sources if path.suffix != ".py")


def _run(case: Case, names: Sequence[str], program: Path) -> Recorded:
    folder = Path(tempfile.mkdtemp(dir=program.parent))
    inputs, report = folder / "inputs", folder / "report"
    inputs.write_bytes(_encoded(case, names))
    try:
        run.execute([str(program), str(inputs), str(report)])
    except KernelFaultError as fault:
        what = fault.finding.partition(": ")[2] or fault.finding
        return _failed(case, f"the kernel does not end on the CPU: {what}; see gpubench check")
    lines = report.read_text().splitlines()
    codes = {fields[1] for fields in map(str.split, lines) if fields[0] == "site"}
    places = addresses_to_places(program, case.variant.source, codes)
    notes = (
        ["code that __CUDA_ARCH__ selects"] if BY_ARCHITECTURE.search(_text(case.variant)) else []
    )
    starts = [number for number, line in enumerate(lines) if line.startswith("launch ")]
    parts = [lines[start:end] for start, end in zip(starts, [*starts[1:], None], strict=True)]
    return tuple(_accesses(case, part, places, notes) for part in parts)


def _encoded(case: Case, names: Sequence[str]) -> bytes:
    """Return a case in the form of `run_case` in runtime.cpp, without content of the buffers."""
    problem, launch = case.problem, case.launch
    sizes = [*problem.bytes_of_arrays]
    sizes += [launch.workspace_bytes] if launch.workspace_bytes else []
    head = words(1, len(problem.shapes) - 1, len(sizes), *sizes)
    return head + encoded_launches(case, names, sampled_blocks)


def sampled_blocks(launch: Launch) -> list[tuple[int, int, int]]:
    """Return blocks that are spread over the grid, each in another row and column."""
    orders = ((1, 2, 0, 3), (2, 0, 3, 1), (0, 3, 1, 2))
    axes = [
        [extent * (2 * place + 1) // (2 * BLOCKS) for place in order]
        for extent, order in zip(launch.dimensions, orders, strict=False)
    ]
    return list(dict.fromkeys(zip(*axes, strict=True)))


def addresses_to_places(program: Path, source: Path, codes: set[str]) -> dict[str, tuple[str, int]]:
    """Return file and line of each address of code, in the innermost function outside the shim."""
    addresses = sorted(code for code in codes if int(code, 16))
    if not addresses:
        return {}
    command = (which("addr2line") or "addr2line", "-a", "-i", "-e", str(program))
    done = run_program((*command, *(f"{int(code, 16) - 1:x}" for code in addresses)))
    done.check_returncode()
    text = done.stdout.decode(errors="surrogateescape")
    places = {}
    for code, frames in zip(
        addresses, re.split(r"^0x.*\n", text, flags=re.MULTILINE)[1:], strict=True
    ):
        lines = re.findall(r"^(.+):(\d+)", frames, re.MULTILINE)
        own = [(file, line) for file, line in lines if not Path(file).is_relative_to(SHIM)]
        file, line = (own or [("unknown", "0")])[0]
        name = Path(file).name.replace("<stdin>", source.name)
        places[code] = (clean(name), int(line))
    return places


_COUNTS = (
    "executed", "diverging", "requests", "lanes", "used_bytes",
    "sectors", "least_sectors", "lines", "phases", "wavefronts",
)  # fmt: skip
"""The counts of a site, in the order of `on_cpu_report`."""


def _accesses(
    case: Case, report: Sequence[str], places: dict[str, tuple[str, int]], notes: Sequence[str]
) -> Accesses:
    """Return the accesses of a launch from its part of the report."""
    blocks = int(report[0].split()[2])
    arrays = (*OPERATIONS[case.problem.op].arrays, "workspace")
    sums: defaultdict[tuple[str, int, str, str, int], Counter[str]] = defaultdict(Counter)
    skipped: defaultdict[str, dict[str, None]] = defaultdict(dict, {note: {} for note in notes})
    used = {}
    for text in report[1:]:
        what, *fields = text.split(maxsplit=5 + len(_COUNTS) + 1)
        if what == "array":
            index, sectors, count = map(int, fields)
            if sectors:
                used[arrays[index]] = count / (sectors * SECTOR_BYTES)
            continue
        code, memory, kind, width = fields[:4]
        counts = dict(zip(_COUNTS, map(int, fields[4:]), strict=False))
        line, *file = fields[4 + len(_COUNTS) :]
        place = places.get(code) or (clean(Path("".join(file)).name), int(line))
        if kind == BULK or counts["diverging"]:
            name = "copies by the TMA" if kind == BULK else "lanes that diverge"
            skipped[name]["{}:{}".format(*place)] = None
        if kind == BULK or not counts["requests"]:
            continue
        array = arrays[int(memory)] if int(memory) >= 0 else SHARED
        of_line = sums[(*place, array, KINDS[kind], int(width))]
        scale = counts["executed"] / counts["requests"]  # the program counts a part of long loops
        of_line.update({name: counts[name] * scale for name in _COUNTS[2:]})
    lines = [
        Access(
            file=file, line=number, memory=memory, kind=kind, bytes=width,
            requests=total["requests"] / blocks,
            **{name: total[name] / total["requests"] for name in _COUNTS[3:]},
        )
        for (file, number, memory, kind, width), total in sums.items()
    ]  # fmt: skip
    return Accesses(
        lines=tuple(lines),
        blocks=blocks,
        used=used,
        not_analysed=tuple(Skipped(what=name, places=tuple(at)) for name, at in skipped.items()),
    )
