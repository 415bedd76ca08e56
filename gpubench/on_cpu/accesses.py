"""Counts the sectors, cache lines and wavefronts that a kernel's accesses need, without a GPU.

g++ compiles the source with calls that record each access, and a few blocks run on the CPU.
`shim/accesses.cpp` combines the accesses of a warp's threads into requests. The numbers are
averages per request, because nvcc may hoist, merge or widen accesses.
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
from gpubench.temporary import temporary_folder
from gpubench.text import clean

BLOCKS = 4
"""Maximum number of blocks that run for each launch."""

SECTOR_BYTES = 32
"""Bytes of a sector, the unit that the L1 cache fetches."""

LINE_BYTES = 128
"""Bytes of a cache line, which has four sectors. The L1 cache looks up one line per clock."""

SHARED = "shared memory"
"""The value of `Access.memory` for accesses to shared memory."""

OPTIONS = (
    "-fsanitize=thread", "-fsanitize-coverage=trace-pc", "-fno-reorder-blocks", "-fno-pie",
    "-DON_CPU_RECORDS",
)  # fmt: skip
"""Options of g++ for a program that records accesses. g++ must keep the order of the blocks of code
in a function, so that a jump back begins the next iteration of a loop."""

NOT_ENDED = "the kernel does not end on the CPU"

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
    """The accesses of a source line to one array, or to shared memory.

    The accesses that the threads of a warp make at the same time are a request. A number is an
    average per request unless its docstring states another unit.
    """

    file: str
    line: int
    memory: str
    """Name of the array, such as `A`, or the text `shared memory`."""

    kind: str
    """Kind of the accesses, which is `read`, `write` or `atomic`."""

    bytes: int
    """Number of bytes that a thread accesses at once, which is 1, 2, 4, 8 or 16."""

    requests: float
    """Number of requests per block."""

    lanes: float
    """Number of threads per request, from 1 to 32."""

    used_bytes: float
    """Number of different bytes that a request accesses."""

    sectors: float = 0.0
    """Number of sectors of global memory that a request accesses. 0 for shared memory."""

    least_sectors: float = 0.0
    """Minimum number of sectors that can hold the accessed bytes. 0 for shared memory."""

    lines: float = 0.0
    """Number of cache lines of global memory that a request accesses. 0 for shared memory."""

    phases: float = 0.0
    """Number of wavefronts without bank conflicts. Shared memory serves a wavefront per clock. 0
    for global memory."""

    wavefronts: float = 0.0
    """Number of wavefronts with the bank conflicts of the accesses. 0 for global memory."""

    @property
    def is_shared(self) -> bool:
        """Whether the line accesses shared memory."""
        return self.memory == SHARED

    @property
    def place(self) -> str:
        """The file and the line of the accesses, such as `naive.cu:30`."""
        return f"{self.file}:{self.line}"

    @property
    def times_least(self) -> float:
        """Number of sectors (for shared memory, of wavefronts), divided by the minimum number."""
        if self.is_shared:
            return self.wavefronts / self.phases
        return self.sectors / self.least_sectors

    @property
    def clocks(self) -> float:
        """Number of clocks per block. Each cache line or wavefront takes one clock."""
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
    """A kind of accesses that are not analysed."""

    what: str
    places: tuple[str, ...] = ()
    """The lines of these accesses, such as `naive.cu:30`. Empty means the whole kernel."""

    def __str__(self) -> str:
        return f"{self.what} ({', '.join(self.places)})" if self.places else self.what


@dataclass(frozen=True, kw_only=True)
class Accesses:
    """The accesses of a launch, or why they are not known."""

    lines: tuple[Access, ...] = ()
    blocks: int = 0
    """Number of blocks that were run."""

    used: dict[str, float]
    """Maps each array to the bytes that a block uses, divided by the bytes of the sectors that the
    block reads."""

    not_analysed: tuple[Skipped, ...] = ()
    """The kinds of accesses that are not among `lines`."""

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
        """Average number of sectors per request to global memory. None if there are no requests."""
        requests = sum(line.requests for line in self.global_lines)
        return self._sum("sectors") / requests if requests else None

    @property
    def sectors_over_least(self) -> float | None:
        """Number of sectors, divided by the minimum number that can hold the requests' bytes."""
        least_sectors = self._sum("least_sectors")
        return self._sum("sectors") / least_sectors if least_sectors else None

    @property
    def bank_conflict_ways(self) -> float | None:
        """Number of wavefronts, divided by the number that there would be without conflicts."""
        phases = self._sum("phases")
        return self._sum("wavefronts") / phases if phases else None

    @property
    def clocks(self) -> float:
        """Number of clocks that the accesses of all lines take per block."""
        return sum(line.clocks for line in self.lines)

    @property
    def by_wasted_clocks(self) -> tuple[Access, ...]:
        """The lines, sorted by wasted clocks and then by clocks, the highest number first."""
        return tuple(
            sorted(self.lines, key=lambda line: (line.wasted_clocks, line.clocks), reverse=True)
        )


Recorded = tuple[Accesses, ...]
"""The accesses of a case, one `Accesses` for each launch."""


def record(
    variant: CudaVariant, tiles: Sequence[Config], problem: Problem, device: Device
) -> dict[Config, Recorded]:
    """Return the accesses of each launch, by tile. The user's cache keeps the accesses.

    If a kernel cannot be recorded, `Accesses.not_analysed` has the reason.
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
            if not any(_has_not_ended(each) for each in answer):  # a busy machine may be the cause
                keep_value(_kept_file(case), answer)
    return recorded


def _failed(case: Case, why: str) -> Recorded:
    return tuple(
        Accesses(used={}, not_analysed=(Skipped(what=f"accesses, as {why}"),))
        for _ in case.launch.sequence
    )


def _has_not_ended(accesses: Accesses) -> bool:
    return any(NOT_ENDED in each.what for each in accesses.not_analysed)


def missing_tool() -> str:
    """Return which program of g++'s package is missing and how to get it, or an empty text."""
    missing = [name for name in ("g++", "addr2line") if not which(name)]
    return f"{missing[0]} is missing (Debian: apt install g++)" if missing else ""


@cache
def recorder_version() -> str:
    """Return the version of g++, which builds the recorder. Empty if a tool is missing."""
    return "" if missing_tool() else f"g++ {run.gxx('-dumpfullversion').strip()}"


def _kept_file(case: Case) -> Path:
    """Return the case's file in the cache. The name depends on all facts that affect the result."""
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
    """Return a hash of this package's files and of g++'s version, which affect the results."""
    files = sorted(path for path in SHIM.parent.rglob("*") if path.suffix != ".pyc")
    content = b"".join(file.read_bytes() for file in files if file.is_file())
    return hashlib.sha256(content + run.gxx("--version").encode()).hexdigest()


def _record_together(cases: Sequence[Case], options: tuple[str, ...]) -> list[Recorded]:
    """Compile the instances of the cases as one program, and run each case in a process."""
    variant = cases[0].variant
    names = list(dict.fromkeys(name for case in cases for name in case.instances))
    unit = translation_unit(variant.source, None, names, folders=include_folders(options))
    with temporary_folder() as parent:
        folder = parent / "program"
        folder.mkdir()
        try:
            link = ("-no-pie", str(run.runtime_object(folder.parent, "accesses")))
            program = run.build(unit, variant.source, folder, OPTIONS, link, options)
        except CompileError as error:
            return [_failed(case, _why_not_compiled(variant, error)) for case in cases]
        with ThreadPoolExecutor(cpu_threads()) as pool:
            return list(pool.map(lambda case: _run(case, names, program), cases))


def _why_not_compiled(variant: Variant, error: CompileError) -> str:
    """Return why g++ does not compile a kernel: a feature that only nvcc has, or g++'s error."""
    text = _COMMENT.sub("", _text(variant))
    for pattern, why in ONLY_NVCC.items():
        if re.search(pattern, text):
            return why
    return f"the kernel does not compile for the CPU: {error}"


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
        return _failed(case, f"{NOT_ENDED}: {what}; see gpubench check")
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
    """Encode a case for `run_case` of run_cases.h, without the contents of the buffers."""
    problem, launch = case.problem, case.launch
    sizes = [*problem.bytes_of_arrays]
    sizes += [launch.workspace_bytes] if launch.workspace_bytes else []
    head = words(1, len(problem.shapes) - 1, len(sizes), *sizes)
    return head + encoded_launches(case, names, sampled_blocks)


def sampled_blocks(launch: Launch) -> list[tuple[int, int, int]]:
    """Return the indices of blocks that are spread over the grid's rows, columns and layers."""
    orders = ((1, 2, 0, 3), (2, 0, 3, 1), (0, 3, 1, 2))
    axes = [
        [extent * (2 * place + 1) // (2 * BLOCKS) for place in order]
        for extent, order in zip(launch.dimensions, orders, strict=False)
    ]
    return list(dict.fromkeys(zip(*axes, strict=True)))


def addresses_to_places(program: Path, source: Path, codes: set[str]) -> dict[str, tuple[str, int]]:
    """Return the file and the line of each code address.

    The line is in the innermost function that is not in the shim.
    """
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
"""Names of the counts for the site of an access, in the order in which `on_cpu_report` prints
them."""


def _accesses(
    case: Case, report: Sequence[str], places: dict[str, tuple[str, int]], notes: Sequence[str]
) -> Accesses:
    """Read the accesses of a launch from the lines of the report about this launch."""
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
        scale = counts["executed"] / counts["requests"]  # only a part of a long loop is counted
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
