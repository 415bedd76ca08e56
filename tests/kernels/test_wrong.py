"""Kernels with planted faults: the check for the fault catches each kernel, at the right line.

`tests/wrong/<op>/` has the sources. A line with `// right: CODE` is wrong; a right kernel would
have CODE there. Each kernel therefore has a twin, which differs only by the fault. The twin must
pass, which shows that a check catches the fault and nothing else.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from gpubench.commands.check.cases import cases
from gpubench.engine.judge.probe import make_probes
from gpubench.errors import UsageError
from gpubench.model import Config, CudaVariant, Problem, edges
from gpubench.on_cpu import run as on_cpu
from gpubench.on_cpu.case import Case, expected
from gpubench.on_cpu.fault import KernelFaultError
from gpubench.on_cpu.run import Sanitizer, run_on_cpu
from gpubench.on_cpu.unit import translation_unit

FOLDER = Path(__file__).parent.parent / "wrong"
TILE = Config.parse("4")
MARK = re.compile(r"^(?P<indent> *).*// right: ?(?P<code>.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Caught:
    """A report that must occur: the check, and pieces of the source lines that it names."""

    sanitizer: Sanitizer
    check: str
    at: tuple[str, ...]
    """The faulty access, or the two accesses that race."""


OVERRUN = "AddressSanitizer: heap-buffer-overflow"
RACE = "ThreadSanitizer: data race"
DIVERGENCE = "fault: barrier divergence"

CAUGHT = {
    "divergent_barrier": Caught(Sanitizer.ADDRESS, DIVERGENCE, ("__syncthreads()",)),
    "divergent_shuffle": Caught(Sanitizer.ADDRESS, DIVERGENCE, ("__shfl_xor_sync",)),
    "dynamic_shared_overrun": Caught(Sanitizer.ADDRESS, OVERRUN, ("b_tile[y * ROW + x] =",)),
    "misaligned_vector": Caught(
        Sanitizer.ADDRESS, "runtime error: .* misaligned address", ("const float4*",)
    ),
    "missing_barrier": Caught(Sanitizer.THREAD, RACE, ("a_tile[y][x] =", "sum += a_tile")),
    "missing_syncwarp": Caught(Sanitizer.THREAD, RACE, ("[lane] = sum", "sum += sums")),
    "race_between_blocks": Caught(Sanitizer.THREAD, RACE, ("C[static_cast", "C[static_cast")),
    "race_on_output": Caught(Sanitizer.THREAD, RACE, ("C[static_cast", "C[static_cast")),
    "read_past_end": Caught(Sanitizer.ADDRESS, OVERRUN, ("a[k] * b[",)),
    "shared_overrun": Caught(
        Sanitizer.ADDRESS, "AddressSanitizer: global-buffer-overflow", ("a_tile[y * TILE + x] =",)
    ),
    "shared_too_small": Caught(
        Sanitizer.ADDRESS, "runtime error: index 3 out of bounds", ("b_tile[y][x] =",)
    ),
    "write_past_end": Caught(Sanitizer.ADDRESS, OVERRUN, ("C[static_cast",)),
}
"""Faults that a sanitizer or the runtime stops."""

SEEN_IN_THE_RESULT = {
    "copy_not_waited": "NaN",
    "missing_term": "a wrong sum",
    "shuffle_among_few": "NaN",
    "unwritten_element": "NaN",
    "unwritten_shared": "NaN",
}
"""Faults that no sanitizer reports; the result is wrong."""

SEEN_BY_THE_PROBE = {"cut_operands"}
"""Faults that only the exact probe shows. The results are right for whole numbers, and within the
tolerance of long sums."""

WARP_PER_ELEMENT = {"divergent_shuffle", "missing_syncwarp", "shuffle_among_few"}


def wrong(source: Path) -> CudaVariant:
    """Return the description of a wrong kernel. The descriptions differ little."""
    is_warp = source.stem in WARP_PER_ELEMENT
    layers = (2,) if source.stem == "race_between_blocks" else ()
    dynamic = source.stem == "dynamic_shared_overrun"
    return CudaVariant(
        idea="wrong on purpose",
        name=source.stem,
        op="gemm",
        path=source.with_suffix(".py"),
        tiles=edges(1, 32, because="a block holds at most 1024 threads"),
        grid=("N" if is_warp else "N/edge", "M/edge", *layers),
        block=(32 if is_warp else "edge", "edge"),
        shared_bytes="2*edge*edge*4" if dynamic else 0,
        reuse=lambda _tile: (1, 1),
    )


WRONG = {source.stem: wrong(source) for source in sorted((FOLDER / "gemm").glob("*.cu"))}


def cases_of(name: str) -> list[Case]:
    return cases(WRONG[name], [TILE], "float32")


def text_of(name: str) -> str:
    return WRONG[name].source.read_text(encoding="utf-8")


def twin_of(name: str) -> str:
    """Return the source without its fault, with the same numbers of lines."""
    return MARK.sub(lambda mark: mark["indent"] + mark["code"], text_of(name))


class Programs:
    """Programs with all kernels, one per sanitizer, because g++ takes seconds for a program."""

    def __init__(self, texts: dict[str, str], folder: Path) -> None:
        self._folder = folder
        self._instances = {name: cases_of(name)[0].instances[0] for name in texts}
        lined = (f'#line 1 "{WRONG[name].source}"\n{text}' for name, text in texts.items())
        unit = translation_unit(FOLDER / "all.cu", "\n".join(lined), [*self._instances.values()])
        for sanitizer in (Sanitizer.ADDRESS, Sanitizer.THREAD):
            built = folder / sanitizer.name
            built.mkdir()
            on_cpu.build(unit, FOLDER / "gemm/all.cu", built, sanitizer.value, sanitizer.value)

    def run(self, name: str, cases: Sequence[Case] = ()) -> list[np.ndarray]:
        """Run a kernel under the sanitizer that must catch it."""
        sanitizer = CAUGHT[name].sanitizer if name in CAUGHT else Sanitizer.ADDRESS
        cases, names = cases or cases_of(name), [*self._instances.values()]
        inputs, outputs = (self._folder / f"{name}.{what}" for what in ("inputs", "outputs"))
        encoded = [on_cpu.encoded(case, names) for case in cases]
        inputs.write_bytes(on_cpu.words(len(cases)) + b"".join(encoded))
        program = self._folder / sanitizer.name / "program"
        on_cpu.execute([str(program), str(inputs), str(outputs)], sanitizer)
        return on_cpu._decoded(outputs.read_bytes(), cases)


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    """The programs of all wrong kernels, with their faults."""
    return Programs({name: text_of(name) for name in WRONG}, tmp_path_factory.mktemp("wrong"))


def test_every_wrong_kernel_has_its_check() -> None:
    assert sorted(WRONG) == sorted([*CAUGHT, *SEEN_IN_THE_RESULT, *SEEN_BY_THE_PROBE])
    for name in WRONG:
        assert twin_of(name) != text_of(name)
        assert "right:" not in twin_of(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", CAUGHT)
def test_a_fault_is_caught_by_its_check_at_its_line(name: str, programs: Programs) -> None:
    with pytest.raises(KernelFaultError) as raised:
        programs.run(name)
    fault, caught = raised.value, CAUGHT[name]
    assert re.match(caught.check, fault.finding), fault.report
    source = text_of(name).splitlines()
    for file, line in fault.lines[: len(caught.at)]:
        assert file == f"{name}.cu"
        assert any(piece in source[line - 1] for piece in caught.at), fault.report
    if caught.check == RACE:
        named = "\n".join(source[line - 1] for _, line in fault.lines[:2])
        assert all(piece in named for piece in caught.at), fault.report


@pytest.mark.slow
@pytest.mark.parametrize("name", SEEN_IN_THE_RESULT)
def test_a_fault_that_no_sanitizer_sees_shows_in_the_result(name: str, programs: Programs) -> None:
    outputs = programs.run(name)
    wrong = [
        output
        for case, output in zip(cases_of(name), outputs, strict=True)
        if not np.array_equal(output, expected(case.problem))
    ]
    assert wrong
    shown = {"NaN" if np.isnan(output).any() else "a wrong sum" for output in wrong}
    assert SEEN_IN_THE_RESULT[name] in shown


@pytest.mark.slow
def test_a_fault_that_a_tolerance_lets_pass_shows_in_the_exact_probe(programs: Programs) -> None:
    problem = Problem(op="gemm", m=19, n=23, k=17, dtype="float32")
    probes = make_probes(problem, 1)
    for name in SEEN_BY_THE_PROBE:
        cases = [
            Case(variant=WRONG[name], tile=TILE, problem=problem, inputs=probe.inputs())
            for probe in probes
        ]
        outputs = zip(probes, programs.run(name, cases), strict=True)
        exact = [probe.count_wrong(np, output) == 0 for probe, output in outputs]
        assert exact == [False, True]  # the powers of two in the second A lose no bit


@pytest.mark.slow
def test_the_same_kernels_without_their_faults_pass(tmp_path: Path) -> None:
    twins = Programs({name: twin_of(name) for name in WRONG}, tmp_path)
    for name in WRONG:
        for case, output in zip(cases_of(name), twins.run(name), strict=True):
            np.testing.assert_array_equal(output, expected(case.problem), err_msg=case.label)


@pytest.mark.slow
def test_every_one_of_many_runs_finds_the_race(programs: Programs) -> None:
    """Threads are fibers that switch only at barriers, so results do not depend on chance."""
    reports = set()
    for _ in range(3):
        with pytest.raises(KernelFaultError) as raised:
            programs.run("missing_barrier")
        reports.add((raised.value.finding.partition(" (")[0], *raised.value.lines[:2]))
    assert len(reports) == 1


def test_dynamic_shared_memory_becomes_a_pointer_and_nothing_else_changes() -> None:
    shared = "  extern __shared__ __align__(16) unsigned char space[];\n  int two;\n"
    text = f"// one\n__global__ void x() {{\n{shared}}}\n"
    unit = translation_unit(Path("x.cu"), text, ["x<float, 1>"])
    assert "\n  DYNAMIC_SHARED(__align__(16) unsigned char, space);\n  int two;\n" in unit
    untouched = text_of("missing_barrier")
    assert untouched in translation_unit(Path("x.cu"), untouched, [])


def test_without_a_compiler_a_line_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match=r"g\+\+ is missing"):
        run_on_cpu(cases_of("missing_barrier"), Sanitizer.ADDRESS, tmp_path / "x")


RANDOMISED = "FATAL: ThreadSanitizer: unexpected memory mapping"


def script(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_a_kernel_that_address_randomization_breaks_runs_again_without_it_or_says_what_to_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fails = f"echo '{RANDOMISED}' >&2; exit 66"
    mended = "read it < /proc/self/personality; [ $it = 00040000 ]"
    program = script(tmp_path / "program", f"{mended} || {{ {fails}; }}")
    on_cpu.execute([str(program)], Sanitizer.THREAD)
    script(program, fails)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match=r"vm\.mmap_rnd_bits=28"):
        on_cpu.execute([str(program)], Sanitizer.THREAD)


def test_a_program_that_hangs_is_ended() -> None:
    with pytest.raises(KernelFaultError, match=r"hung: no progress within 0\.1 s"):
        on_cpu.execute(["sleep", "9"], Sanitizer.ADDRESS, stalled_s=0.1)
