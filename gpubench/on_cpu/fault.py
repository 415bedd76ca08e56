"""Describes in words a fault that a sanitizer or the runtime found in a kernel."""

import re

from gpubench.on_cpu.case import Case
from gpubench.on_cpu.unit import SHIM
from gpubench.text import clean

HUNG = "fault: hung"
"""Beginning of the report on a launch that was killed because it made no progress."""

KILLED = "fault: killed"
"""Beginning of the report on a program that the system killed. The kernel may be right."""

_CHECKS = "AddressSanitizer|ThreadSanitizer|runtime error|fault"
_ADDRESSES = re.compile(
    r" (?:on|at) (?:unknown )?address (?:0x\w+|\(pc).*| \(pid=\d+\)|(?<=address) 0x\w+"
)
_FOLDERS = re.compile(r"\S*/(?=[^\s/:]+\.cuh?:\d)")
_PLACE = re.compile(r"([^\s:()]+\.cuh?):(\d+)")
_ACCESS = re.compile(
    r"^\s*(?:Previous )?(?:atomic )?(read|write) of size \d+ at (0x\w+).*\n((?:\s+#.*\n)+)",
    re.MULTILINE | re.IGNORECASE,
)
_OVERFLOW = re.compile(
    r"is located \d+ bytes (?P<side>to the right of|after|to the left of|before|inside of) "
    r"(?:(?P<bytes>\d+)-byte region \[(?P<start>0x\w+),|global variable '(?P<global>[^']+)')"
)
_LOCATION = re.compile(
    r"Location is (?:global '(?P<global>[^']+)'|"
    r"heap block of size (?P<bytes>\d+) at (?P<start>0x\w+))"
)
_BUFFERS = re.compile(r"^buffers (.*)$", re.MULTILINE)
_NULL = re.compile(r"SEGV on unknown address 0x0+\b")
_OF_LAUNCH = re.compile(r"\brun_block\b")


class KernelFaultError(Exception):
    """A fault that a sanitizer or the runtime found in a kernel."""

    def __init__(self, report: str, launches: int = 0) -> None:
        super().__init__(report)
        self.report = report
        self.launches = launches
        """Number of launches so far, including the stopped launch."""

        self.case: Case | None = None
        """The case whose kernel was stopped."""

    @property
    def finding(self) -> str:
        """The check and its finding, such as `AddressSanitizer: heap-buffer-overflow`.

        Sources have their names, without folders.
        """
        match = re.search(f"({_CHECKS}): .*", self.report)
        return clean(_FOLDERS.sub("", _ADDRESSES.sub("", match[0]))) if match else "unknown"

    @property
    def lines(self) -> list[tuple[str, int]]:
        """The lines of CUDA sources that the report names, in the order of the report."""
        return _lines(self.report)

    @property
    def sentence(self) -> str:
        """A sentence that describes the fault. Empty if `finding` already describes the fault."""
        names = self._names()
        if self.is_race:
            return clean(self._race(names))
        if "buffer-overflow" in self.finding:
            return clean(self._overflow(names))
        return "a null pointer is used" if self.is_of_null else ""

    @property
    def is_of_null(self) -> bool:
        """Whether the kernel used a null pointer."""
        return "null pointer" in self.finding or _NULL.search(self.report) is not None

    @property
    def is_race(self) -> bool:
        """Whether ThreadSanitizer reports a data race."""
        return "data race" in self.finding

    @property
    def is_race_in_block(self) -> bool:
        """Whether threads of a block race for shared memory, which a barrier would prevent."""
        return self.is_race and not self.is_in_global_memory

    @property
    def is_crash(self) -> bool:
        """Whether ThreadSanitizer reports an invalid access, which AddressSanitizer explains."""
        return self.finding.startswith("ThreadSanitizer: ") and not self.is_race

    @property
    def is_in_global_memory(self) -> bool:
        """Whether the fault is a race in global memory. An access beyond an array may cause it."""
        location = _LOCATION.search(self.report)
        return location is not None and not _memory(location, {}, self.report)[0]

    def _names(self) -> dict[int, str]:
        """Return the names of the case's arrays, by address."""
        starts = (_BUFFERS.findall(self.report) or [""])[-1].split()
        names = self.case.array_names if self.case else []
        return {int(start, 16): name for start, name in zip(starts, names, strict=False)}

    def _race(self, names: dict[int, str]) -> str:
        accesses_by_line = [
            (kind.lower(), _lines(frames)) for kind, _, frames in _ACCESS.findall(self.report)
        ]
        accesses = [(kind, lines[0]) for kind, lines in accesses_by_line if lines]
        location = _LOCATION.search(self.report)
        if len(accesses) < 2:  # noqa: PLR2004 # a race has two sides
            return ""
        (first, here), (second, there) = sorted(
            accesses[:2], key=lambda access: access[0] != "write"
        )
        (file, line), (other_file, other) = here, there
        is_shared, what = _memory(location, names, self.report)
        if here == there and first == second:
            does = f"{file}:{line}: two threads {first} the same element of {what}"
        else:
            does = (
                f"{file}:{line} {first}s {what}, and {other_file}:{other} {second}s the same "
                "element in another thread"
            )
        if not is_shared:
            return f"{does}, and nothing orders them"
        barrier = "a __syncthreads() is missing between the two"
        return f"{does}; {barrier}" if here != there else f"{does} without a barrier between"

    def _overflow(self, names: dict[int, str]) -> str:
        access = re.search(r"^(READ|WRITE) of size", self.report, re.MULTILINE)
        location = _OVERFLOW.search(self.report)
        if not access or not location:
            return ""
        side = "beyond the end of"
        if location["side"] in {"to the left of", "before"}:
            side = "before the start of"
        _, what = _memory(location, names, self.report)
        return f"a {access[1].lower()} {side} {what}"


def _lines(text: str) -> list[tuple[str, int]]:
    return [
        (clean(file.rpartition("/")[2]), int(line))
        for file, line in _PLACE.findall(text)
        if not file.startswith(str(SHIM))
    ]


def _memory(location: re.Match[str] | None, names: dict[int, str], report: str) -> tuple[bool, str]:
    """Return whether the memory belongs to one block, and the name of the memory."""
    if location is None:
        return False, "memory"
    if location["global"]:
        return True, f"the shared array {location['global'].rpartition('::')[2]}"
    if array := names.get(int(location["start"], 16)):
        return False, array
    if _OF_LAUNCH.search(report):
        return True, "dynamic shared memory"
    return False, f"{location['bytes']} bytes that the source allocates"
