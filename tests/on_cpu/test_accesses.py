"""Accesses recorded on the CPU, compared with counts by hand, and on planted faults."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from commandline import call
from planted_accesses import FAULTS, KERNELS, Fault

from gpubench.hardware.architectures import example
from gpubench.kernel_options import find_kernel
from gpubench.model import CudaVariant, Problem
from gpubench.on_cpu import run
from gpubench.on_cpu.accesses import SHARED, Access, Accesses, record, sampled_blocks
from gpubench.on_cpu.fault import KernelFaultError
from gpubench.plan import registry

DEVICE = example("sm_90")
OURS = registry.KERNELS / "gemm"


def recorded(folder: Path | None, name: str, tile: str, op: str = "gemm", n: int = 256) -> Accesses:
    kernel = find_kernel(name, op, folder, "explain")
    problem = Problem(op=op, m=n, n=n, k=n if op == "gemm" else 1, dtype="float32")
    config = kernel.tiles.read(tile)
    (of_launch,) = record(kernel, [config], problem, DEVICE)[config]
    return of_launch


def only(accesses: Accesses, memory: str, kind: str) -> Access:
    (line,) = (line for line in accesses.lines if (line.memory, line.kind) == (memory, kind))
    return line


def own(folder: Path, body: str) -> Path:
    """Describe a kernel of one block of 32 threads that runs a body."""
    (folder / "gemm").mkdir(parents=True)
    (folder / "gemm/mine.cu").write_text(
        "__global__ void mine(const float* A, float* C, int K) {\n"
        f"  const int lane = threadIdx.x;\n{body}\n}}\n"
    )
    (folder / "gemm/mine.py").write_text(
        "from gpubench.model import CudaVariant, Space\n"
        "VARIANT = CudaVariant(idea='one warp', kernel='mine', dtypes=('float32',), grid=1,\n"
        "    block=32, signature='const float* A, float* C, int K',\n"
        "    tiles=Space(axes={'edge': (1,)}, block=('edge',), default=('1',)))\n"
    )
    return folder


def test_a_warp_that_walks_down_a_column_takes_a_sector_a_thread() -> None:
    # Rows of A are K elements apart, so 128 bytes need 32 sectors, where 4 would suffice.
    uncoalesced = recorded(None, "naive_uncoalesced", "32", n=64)
    read = only(uncoalesced, "A", "read")
    assert (read.sectors, read.least_sectors, read.lines) == (32, 4, 32)
    line = line_with(OURS / "naive_uncoalesced.cu", "a[k]")
    assert (read.used_bytes, read.place) == (128, f"naive_uncoalesced.cu:{line}")
    # All threads of the warp read one element of B.
    assert only(uncoalesced, "B", "read").sectors == 1
    assert uncoalesced.by_wasted_clocks[0] == read
    # The 32 threads read one element of A, and 32 neighbours of B.
    coalesced = recorded(None, "naive", "32", n=64)
    assert only(coalesced, "A", "read").sectors == 1
    assert only(coalesced, "B", "read").sectors == 4
    assert coalesced.sectors_over_least == 1.0
    # A block has 32 warps, which make K requests each.
    assert only(coalesced, "A", "read").requests == 32 * 64
    assert uncoalesced.clocks > 10 * coalesced.clocks


def lines_of(folder: Path, memory: str, kind: str, *lines: str) -> list[Access]:
    """Compile a kernel with all these lines; return the access of each line."""
    accesses = recorded(own(folder, "\n".join(f"  {{ {line} }}" for line in lines)), "mine", "1")
    chosen = (line for line in accesses.lines if (line.memory, line.kind) == (memory, kind))
    by_place = {line.place: line for line in chosen}
    return [by_place[f"mine.cu:{number}"] for number in range(3, 3 + len(lines))]


def test_bank_conflicts_are_those_counted_by_hand(tmp_path: Path) -> None:
    counts = {
        "__shared__ float s[32 * 33]; s[lane * 33] = A[0];": (1, 1),
        "__shared__ float s[32 * 33]; s[lane * 32] = A[0];": (1, 32),
        "__shared__ float s[32 * 33]; s[lane * 2] = A[0];": (1, 2),
        "__shared__ float s[32 * 33]; s[0] = A[0];": (1, 1),
        # A phase serves eight lanes of 16 bytes. Consecutive addresses use each bank once.
        "__shared__ float4 s[64]; s[lane] = float4{};": (4, 4),
        "__shared__ float4 s[64]; s[lane * 2] = float4{};": (4, 8),
        # Rows of 8 vectors begin in bank 0. With padding, each row begins four banks later.
        "__shared__ float4 s[32][8]; s[lane][0] = float4{};": (4, 32),
        "__shared__ float4 s[32][9]; s[lane][0] = float4{};": (4, 4),
        # A phase serves sixteen lanes of 8 bytes.
        "__shared__ float2 s[64]; s[lane] = float2{};": (2, 2),
        "__shared__ float2 s[64]; s[lane * 2] = float2{};": (2, 4),
    }
    lines = lines_of(tmp_path, SHARED, "write", *counts)
    counted = [(line.phases, line.wavefronts) for line in lines]
    assert dict(zip(counts, counted, strict=True)) == counts


def test_wavefronts_of_a_load_of_float4_are_those_that_an_h100_counts(tmp_path: Path) -> None:
    counts = {
        "lane": (4, 4),
        "lane * 2": (4, 8),
        # A lane has the same address as the next lane, or as the lane after the next.
        "lane / 2": (2, 2),
        "lane / 16": (2, 2),
        "lane % 2 * 32": (2, 4),
        "lane / 8 * 64": (2, 4),
        "lane % 4": (4, 4),
        "lane % 8 + lane / 16 * 8": (4, 4),
    }
    load = (
        "__shared__ float4 s[256]; s[lane] = float4{{}}; const float4 four = s[{}]; "
        "C[lane] = four.x + four.y + four.z + four.w;"
    )
    lines = lines_of(tmp_path, SHARED, "read", *map(load.format, counts))
    counted = [(line.phases, line.wavefronts) for line in lines]
    assert dict(zip(counts, counted, strict=True)) == counts


def test_sectors_are_those_counted_by_hand(tmp_path: Path) -> None:
    counts = {"lane": (4, 4), "lane + 1": (5, 4), "2 * lane": (8, 4), "8 * lane": (32, 4)}
    counts |= {"0": (1, 1)}
    lines = lines_of(tmp_path, "A", "read", *(f"C[lane] = A[{index}];" for index in counts))
    counted = [(line.sectors, line.least_sectors) for line in lines]
    assert dict(zip(counts, counted, strict=True)) == counts


def test_lanes_whose_loops_differ_in_length_are_not_analysed(tmp_path: Path) -> None:
    body = (
        "  float sum = 0;\n"
        "  for (int i = 0; i < 4; ++i)\n"
        "    for (int k = 0; k < lane % 3 + i; ++k) sum += A[k * 32 + lane];\n"
        "  C[lane] = sum;"
    )
    accesses = recorded(own(tmp_path, body), "mine", "1")
    assert list(map(str, accesses.not_analysed)) == ["lanes that diverge (mine.cu:5, mine.cu:6)"]


def test_lanes_that_a_condition_leaves_out_are_counted_as_absent(tmp_path: Path) -> None:
    body = "  for (int k = 0; k < K; ++k)\n    if (k % 2 == lane % 2) C[lane] += A[k * 32 + lane];"
    line = only(recorded(own(tmp_path, body), "mine", "1"), "A", "read")
    assert (line.lanes, line.sectors, line.requests) == (16, 4, 256)


def test_a_kernel_that_g_plus_plus_does_not_compile_is_not_analysed(tmp_path: Path) -> None:
    body = '  float a; asm("ld.global.f32 %0, [%1];" : "=f"(a) : "l"(A)); C[lane] = a;'
    accesses = recorded(own(tmp_path, body), "mine", "1")
    assert accesses.lines == ()
    assert list(map(str, accesses.not_analysed)) == ["accesses, as the kernel has inline PTX"]
    assert (accesses.sectors_per_request, accesses.bank_conflict_ways) == (None, None)


def test_a_kernel_that_did_not_end_is_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hang(_command: Sequence[str]) -> None:
        raise KernelFaultError("fault: hung: no progress within 60 s; killed")

    folder = own(tmp_path, "  C[lane] = A[lane];")
    with monkeypatch.context() as patched:
        patched.setattr(run, "execute", hang)
        (skipped,) = recorded(folder, "mine", "1").not_analysed
        assert "does not end on the CPU: hung: no progress" in str(skipped)
    assert recorded(folder, "mine", "1").lines


def test_sampled_blocks_lie_in_different_rows_and_columns() -> None:
    variant = find_kernel("naive", None, None, "explain")
    assert isinstance(variant, CudaVariant)
    problem = Problem(op="gemm", m=1024, n=1024, k=32, dtype="float32")
    blocks = sampled_blocks(variant.launch(variant.tiles.read("16"), problem))
    for index in (0, 1):
        assert len({block[index] for block in blocks}) == 4


def planted(faults: Sequence[Fault], folder: Path) -> None:
    """Plant faults of different kernels in a copy of the kernels."""
    shutil.copytree(KERNELS, folder)
    for fault in faults:
        source = folder / fault.op / f"{fault.file}.cu"
        text = source.read_text()
        for old, new in fault.edits:
            assert old in text, old
            text = text.replace(old, new)
        source.write_text(text)


def build(folder: Path, kernels: Path) -> str:
    """Write a build file of kernels at 256, and return its path."""
    done = call(
        folder, "build", "all", "--kernels", str(kernels), "--dtypes", "float32",
        "--arch", "sm_90", "--sizes", "256", "-o", "build.csv",
    )  # fmt: skip
    assert done.code == 0, done.err
    return str(folder / "build.csv")


def rejected_at(base: str, new: str, tile: str) -> list[object]:
    """Return the lines for which the static gate rejects a tile of a kernel."""
    gate = call(Path(new).parent, "diff", base, new, "--format", "json")
    assert gate.code == 1
    (row,) = (row for row in json.loads(gate.out)["rows"] if row["tile"] == tile)
    return [change["line"] for change in row["changes"] if change["effect"] == "worse"]


def line_with(source: Path, text: str) -> int:
    """Return the number of the only line with a text."""
    (number,) = (n for n, line in enumerate(source.read_text().splitlines(), 1) if text in line)
    return number


@pytest.fixture(scope="module")
def sound_build(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The path of the build file of the kernels without a fault."""
    return build(tmp_path_factory.mktemp("base"), KERNELS)


@pytest.mark.slow
@pytest.mark.parametrize("turn", [0, pytest.param(1, marks=pytest.mark.exhaustive)])
def test_a_planted_fault_is_rejected_by_line(turn: int, tmp_path: Path, sound_build: str) -> None:
    groups: tuple[list[Fault], list[Fault]] = ([], [])
    for fault in FAULTS:  # a kernel has up to two faults, one in each group
        groups[fault.kernel in {each.kernel for each in groups[0]}].append(fault)
    kernels = tmp_path / "kernels"
    planted(groups[turn], kernels)
    new = build(tmp_path, kernels)
    for fault in groups[turn]:
        line = line_with(kernels / fault.op / f"{fault.file}.cu", fault.line)
        tile = f"1/kernel={fault.kernel}"
        before = recorded(KERNELS, fault.file, tile, fault.op)
        after = recorded(kernels, fault.file, tile, fault.op)
        assert after.not_analysed == (), fault.name
        worst = after.by_wasted_clocks[0]
        assert worst.place == f"{fault.file}.cu:{line}"
        assert worst.wasted_clocks > before.by_wasted_clocks[0].wasted_clocks == 0, fault.name
        assert worst.place in rejected_at(sound_build, new, tile)
