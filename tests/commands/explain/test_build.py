"""`gpubench build` compiles kernels without a GPU, and `gpubench diff` compares them."""

import errno
import multiprocessing
import shutil
import signal
from concurrent.futures import Future
from contextlib import nullcontext
from pathlib import Path

import pytest
from commandline import Done, call
from planted import copy_kernels, plant

from gpubench.backends.cuda import compile as compiler
from gpubench.commands.explain import code as code_module
from gpubench.commands.explain import instances
from gpubench.commands.explain.code import Code, Codes, Program, compile_program, compile_programs
from gpubench.commands.explain.sass import disassemble, inner_loop
from gpubench.errors import CompileError
from gpubench.on_cpu import accesses
from gpubench.on_cpu.accesses import recorder_version
from gpubench.plan.registry import KERNELS
from gpubench.results.build_row import NAMES, BuildRow, read

EXAMPLE = Path(__file__).parents[3] / "examples" / "own_signature"
BOUNDS = "__launch_bounds__((BM / TM) * (BN / TN)"


@pytest.fixture(autouse=True)
def one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile in this process. To start another process takes longer than to compile."""
    monkeypatch.setattr(code_module, "cpu_threads", lambda: 1)


@pytest.fixture
def unrecorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Record no accesses, because that takes longer than to compile."""
    monkeypatch.setattr(instances, "_record", lambda _instances: {})


def build(folder: Path, name: str, *options: str) -> tuple[Done, list[BuildRow]]:
    """Run a command that writes a file of rows; return the command's outcome and the rows."""
    done = call(folder, "build", "--output", name, *options)
    path = folder / name
    return done, read(path) if path.is_file() else []


def own(kernels: Path, *options: str) -> tuple[str, ...]:
    """Return the options that build the kernels of a directory."""
    return ("all", "--kernels", str(kernels), "--dtypes", "float32", *options)


# ---- rows


def test_each_tile_and_launch_has_a_row_with_figures(tmp_path: Path) -> None:
    done, rows = build(
        tmp_path, "b.csv.gz", "gemv_thread,atax_staged", "--arch", "sm_90",
        "--dtypes", "float32",
    )  # fmt: skip
    assert done.code == 0
    assert {row.variant for row in rows} == {"gemv_thread", "atax_staged"}
    assert {row.launch for row in rows if row.variant == "atax_staged"} == {1, 2}
    for row in rows:
        assert row.registers
        assert row.occupancy
        assert row.waves
        assert row.source_hash
        assert row.recorder == recorder_version()
        assert row.sectors_per_request
        assert row.compiler == compiler.version()
        assert row.loop_instructions is not None or row.launch > 1
    gemv = next(row for row in rows if row.variant == "gemv_thread")
    assert 0 < (gemv.multiply_adds_per_instruction or 0) < 1
    assert gemv.loop_float64 == 0
    assert (gemv.uncoalesced_lines or "").startswith("gemv_thread.cu:")
    empty = {name for name in NAMES if {getattr(row, name) for row in rows} <= {None, ""}}
    # Other kernels have values in these columns.
    empty -= {"extents", "reason", "limited_by", "bank_conflict_lines", "not_analysed", "options"}
    assert empty == set(), "set these columns in gpubench/commands/explain/build.py"


def test_what_an_architecture_lacks_is_skipped_with_the_reason(tmp_path: Path) -> None:
    done, rows = build(tmp_path, "b.csv", "wgmma_tf32", "--arch", "sm_80")
    assert "9.0" in done.err
    assert {row.status for row in rows} == {"skipped"}
    assert "9.0" in (rows[0].reason or "")


@pytest.mark.usefixtures("unrecorded")
def test_architectures_that_a_kernel_compiles_alike_have_the_same_figures(tmp_path: Path) -> None:
    done, rows = build(tmp_path, "b.csv", "wgmma_tf32", "--arch", "sm_90,sm_90a", "--sizes", "1024")
    assert done.code == 0
    registers = {row.architecture: row.registers for row in rows}
    assert registers["sm_90"] == registers["sm_90a"]


def test_a_second_run_compiles_and_records_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ("gemv_thread", "--arch", "sm_80", "--dtypes", "float32")
    first = build(tmp_path, "a.csv", *options)[1]
    monkeypatch.setattr(code_module, "compile_program", lambda _program: pytest.fail("compiled"))
    monkeypatch.setattr(accesses, "_record_together", lambda *_: pytest.fail("recorded"))
    assert build(tmp_path, "b.csv", *options)[1] == first
    assert "b.csv exists; --force overwrites it" in build(tmp_path, "b.csv", *options)[0].err
    assert build(tmp_path, "b.csv", *options, "--force")[0].code == 0
    assert call(tmp_path, "build", *options).out.startswith("op,variant,tile,")  # without --output


def test_instances_compiled_and_disassembled_together_are_as_if_alone() -> None:
    source = KERNELS / "gemm" / "blocktile_2d.cu"
    names = [f"blocktile_2d<float, 64, 64, 8, {each}, {each}>" for each in (4, 8)]
    instances = tuple((name, "float32") for name in names)
    facts = {"source": source, "source_hash": "", "architecture": "sm_120", "options": ()}
    codes = compile_program(Program(**facts, instances=instances))
    for name, threads in zip(names, (256, 64), strict=True):
        alone, code = compiler.compile_instance(source, name, "sm_120"), codes[name, "float32"]
        loop = inner_loop(disassemble(alone.cubin, "-c") or "", "float32")
        assert loop
        assert (code.loop, code.resources, code.max_threads) == (loop, alone.resources, threads)


def test_ctrl_c_while_the_processes_start_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    class Pool:
        def submit(self, *_call: object) -> Future[Codes]:
            signal.raise_signal(signal.SIGINT)
            future: Future[Codes] = Future()
            future.set_result({})
            return future

    monkeypatch.setattr(code_module, "_pool", lambda _processes: nullcontext(Pool()))
    program = Program(
        source=KERNELS / "naive.cu", source_hash="of this test", architecture="sm_90", options=(),
        instances=(("naive<float, 1>", "float32"),),
    )  # fmt: skip
    with pytest.raises(KeyboardInterrupt):
        list(code_module._compile_all([program]))


@pytest.mark.slow
def test_ctrl_c_ends_the_processes_that_compile_and_compiled_kernels_stay_in_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(code_module, "cpu_threads", lambda: 2)

    def program(name: str, *expressions: str) -> Program:
        return Program(
            source=KERNELS / "gemm" / f"{name}.cu", source_hash=name, options=(),
            architecture="sm_90", instances=tuple((text, "float32") for text in expressions),
        )  # fmt: skip

    children = []

    def interrupt(done: int) -> None:
        if done:
            children.extend(multiprocessing.active_children())
            raise KeyboardInterrupt

    large = [f"register_tile<{scalar}, 32>" for scalar in ("float", "double", "int")]
    programs = [program("register_tile", *large), program("naive", "naive<float, 16>")]
    with pytest.raises(KeyboardInterrupt):
        compile_programs(programs, interrupt)
    assert [child.exitcode for child in children] == 2 * [-signal.SIGTERM]
    again: list[Program] = []

    def fail(program: Program) -> Codes:
        again.append(program)
        return {instance: Code(error="no") for instance in program.instances}

    def refused(*_: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")  # as without /dev/shm

    monkeypatch.setattr(code_module, "ProcessPoolExecutor", refused)
    monkeypatch.setattr(code_module, "compile_program", fail)
    compile_programs(programs, lambda _done: None)
    assert again == programs[:1]


@pytest.mark.usefixtures("unrecorded")
def test_figures_of_a_run_without_a_disassembler_are_not_reused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    options = ("gemv_thread", "--arch", "sm_80", "--dtypes", "float32")
    with monkeypatch.context() as patch:
        patch.setattr(code_module, "sections", lambda _cubin: {})
        done, (row, *_) = build(tmp_path, "a.csv", *options)
        assert "sm_80" in done.err
        assert (row.loop_instructions, row.disassembler) == (None, None)
    (row, *_) = build(tmp_path, "b.csv", *options)[1]
    assert row.loop_instructions


def test_figures_of_another_nvcc_or_toolkit_are_not_reused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program = Program(
        source=KERNELS / "naive.cu", source_hash="", architecture="sm_90",
        options=("--compiler=nvcc",), instances=(),
    )  # fmt: skip
    files = {code_module._kept_file(program)}
    monkeypatch.setattr("gpubench.backends.cuda.nvcc.version", lambda: "nvcc 0.1")
    files.add(code_module._kept_file(program))
    monkeypatch.setattr(
        code_module, "toolkit_options", lambda: ("-DGPUBENCH_TOOLKIT=1",), raising=False
    )
    files.add(code_module._kept_file(program))
    assert len(files) == 3


@pytest.mark.usefixtures("unrecorded")
def test_a_compiler_that_was_missing_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    options = ("gemv_thread", "--arch", "sm_80", "--dtypes", "float32")
    with monkeypatch.context() as patch:

        def missing(*_instance: object) -> None:
            raise CompileError("nvcc is not available")

        for function in ("compile_together", "compile_instance"):
            patch.setattr(compiler, function, missing)
        done, (row, *_) = build(tmp_path, "a.csv", *options)
        assert (done.code, row.reason) == (1, "nvcc is not available")
    done, (row, *_) = build(tmp_path, "b.csv", *options)
    assert (done.code, row.status) == (0, "ok")


@pytest.mark.usefixtures("unrecorded")
def test_a_kernel_that_does_not_compile_is_an_error_row_and_the_others_are_not(
    tmp_path: Path,
) -> None:
    kernels = copy_kernels(tmp_path / "kernels", "naive", "naive_uncoalesced")
    plant(kernels, "gemm/my_naive.cu", ("Scalar sum = 0;", "Scalar sum = nothing;"))
    done, rows = build(tmp_path, "b.csv", *own(kernels, "--arch", "sm_90"))
    assert done.code == 1
    assert "nothing" in done.err
    statuses = {(row.variant, row.status) for row in rows}
    assert statuses == {("my_naive", "error"), ("my_naive_uncoalesced", "ok")}


@pytest.mark.usefixtures("unrecorded")
def test_a_kernel_with_its_own_signature_has_rows(tmp_path: Path) -> None:
    shutil.copytree(EXAMPLE, tmp_path / "mine")
    done, rows = build(tmp_path, "b.csv", *own(tmp_path / "mine", "--arch", "sm_90"))
    assert done.code == 0
    assert {row.tile.rpartition("=")[2] for row in rows} == {row.kernel for row in rows}
    assert len({row.tile for row in rows}) == 3
    assert all(row.multiply_adds_per_instruction for row in rows)


def test_a_folder_at_another_place_with_bytes_that_are_not_utf8_has_the_same_rows(
    tmp_path: Path,
) -> None:
    for side in ("base", "new"):
        kernels = copy_kernels(tmp_path / side, "naive")
        options = ('idea="', 'compile_options=("-I.",), idea="')
        plant(kernels, "gemm/my_naive.py", options, ("edges(1, 32", "edges(32, 32"))
        source = kernels / "gemm/my_naive.cu"
        source.write_bytes(b"// \xe9t\xe9\n" + source.read_bytes())
        assert build(tmp_path, f"{side}.csv", *own(kernels, "--arch", "sm_90"))[0].code == 0
    assert (tmp_path / "base.csv").read_bytes() == (tmp_path / "new.csv").read_bytes()


def test_bad_input_is_one_line_and_writes_nothing(tmp_path: Path) -> None:
    (tmp_path / "notes.csv").write_text("my notes")
    for options, message in (
        (("nave",), "did you mean 'naive'"),
        (("cublas",), "no CUDA kernel"),
        (("naive", "--arch", "sm_1"), "sm_1"),
        (("naive", "--sizes", "64,128"), "--sizes"),
        (("naive", "--dtypes", "int8"), "--dtypes"),
        (("naive", "--tiles", "16"), "--tiles"),
        (("naive", "-o", "notes.csv"), "notes.csv"),
    ):
        done = call(tmp_path, "build", *options)
        assert (done.code, len(done.err.splitlines()), done.files) == (2, 1, ["notes.csv"])
        assert message in done.err
    assert (tmp_path / "notes.csv").read_text() == "my notes"


# ---- the gate


PLANTED = {
    "registers limited": (
        "gemm/my_blocktile_2d.cu", f"{BOUNDS})", f"{BOUNDS}, 8)", 1, "spill_bytes 0 → ",
    ),
    "launch bounds below the block": (
        "gemm/my_blocktile_2d.cu", f"{BOUNDS})", f"{BOUNDS} / 2)", 4, "a launch would fail",
    ),
    "padding removed": (
        "gemm/my_vectorized.cu", "BM / WIDTH + 1]", "BM / WIDTH]", 1, "at vector_tiles.cuh:",
    ),
}  # fmt: skip
"""Changes of kernels: file, old text, new text, exit code, and a text that the report has."""


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_change_is_reported_with_its_numbers(
    tmp_path: Path, request: pytest.FixtureRequest, name: str
) -> None:
    file, old, new, exit_code, figure = PLANTED[name]
    if name != "padding removed":  # recorded accesses show only this change
        request.getfixturevalue("unrecorded")
    kernels = copy_kernels(tmp_path / "kernels", Path(file).stem.removeprefix("my_"))
    if "blocktile" in file:  # keep only the tile that compiles fast
        plant(
            kernels,
            file.replace(".cu", ".py"),
            ('"128x128x8/8x8", "64x64x8/4x4"', '"64x64x8/4x4",'),
        )
    options = own(kernels, "--arch", "sm_90")
    assert build(tmp_path, "base.csv", *options)[0].code == 0
    plant(kernels, file, (old, new))
    build(tmp_path, "new.csv", *options)
    done = call(tmp_path, "diff", "base.csv", "new.csv", "--format", "json")
    assert done.code == exit_code
    text = call(tmp_path, "diff", "base.csv", "new.csv", "--full", COLUMNS="400").out
    assert figure in text
    assert Path(file).stem in text


# ---- layouts


COLUMNS = """
__global__ void columns(const float* A, const float* B, float* C, int M, int N, int K) {
  int col = blockIdx.x * 16 + threadIdx.x, row = blockIdx.y * 16 + threadIdx.y;
  if (row >= M || col >= N) return;
  float sum = 0;
  for (int k = 0; k < K; ++k) sum += A[row * K + k] * B[col * K + k];
  C[row * N + col] = sum;
}
"""

COLUMNS_DESCRIBED = """
from gpubench.model import CudaVariant

VARIANT = CudaVariant(idea="of a test", kernel="columns", dtypes=("float32",), column_major=("B",),
    signature="const float* A, const float* B, float* C, int M, int N, int K",
    grid=("N/16", "M/16"), block=(16, 16))
"""


@pytest.mark.usefixtures("unrecorded")
def test_a_kernel_with_a_layout_of_its_own_is_built_and_explained(tmp_path: Path) -> None:
    (tmp_path / "columns.cu").write_text(COLUMNS)
    (tmp_path / "columns.py").write_text(COLUMNS_DESCRIBED)
    done, (row,) = build(tmp_path, "b.csv", *own(tmp_path, "--arch", "sm_90"))
    assert (done.code, row.status) == (0, "ok")
    explained = call(tmp_path, "explain", "columns", "--kernels", ".", "--arch", "sm_90")
    assert "columns at 1024 float32 on NVIDIA H200 (sm_90)" in explained.out
