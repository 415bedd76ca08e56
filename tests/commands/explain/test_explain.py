"""`gpubench explain` in this process compiles kernels without a GPU."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer
from fakes import measured, point

from gpubench.backends.cuda import compile as compile_module
from gpubench.backends.cuda.compile import architectures, nvrtc_version
from gpubench.commands.explain import code as code_module
from gpubench.commands.explain import explain
from gpubench.commands.explain import run as module
from gpubench.commands.explain.build import run_build
from gpubench.errors import CompileError, DeviceUnavailableError, GpubenchError, UsageError
from gpubench.hardware.architectures import example
from gpubench.model import Cache, Config, CudaVariant
from gpubench.plan.registry import variants
from gpubench.results.row import Row, write

KERNELS = {kernel.name: kernel for kernel in variants() if isinstance(kernel, CudaVariant)}
H200 = example("sm_90")

RECORDED = Path(__file__).parent / "sass" / "shared_tile-8-float32-sm_90.sass"


class Listing(dict[str, str]):
    """A disassembly with one listing for the code of any kernel, and no other sections."""

    def __init__(self, code: str) -> None:
        self.code = code

    def get(self, section: str, default: str = "") -> str:  # type: ignore[override]
        return self.code if section.startswith(".text.") else default


@pytest.fixture(autouse=True)
def recorded_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use a disassembler that returns a recorded listing, and no GPU, on any machine."""
    monkeypatch.setenv("COLUMNS", "80")
    listing = RECORDED.read_text(encoding="utf-8")
    disassembles_as(monkeypatch, "recorded", lambda _cubin: Listing(listing))
    monkeypatch.setattr(code_module, "cpu_threads", lambda: 1)
    monkeypatch.setattr(module, "first_device", no_gpu)


def disassembles_as(
    monkeypatch: pytest.MonkeyPatch, version: str, sections: Callable[[bytes], dict[str, str]]
) -> None:
    """Replace the disassembler. The names of files in the cache contain its version."""
    monkeypatch.setattr(code_module, "disassembler_version", lambda: version)
    monkeypatch.setattr(code_module, "sections", sections)


def no_gpu(_name: str) -> None:
    raise DeviceUnavailableError("no driver is loaded: get one; --device cpu works without")


def exit_code(variant: str, **asked: Any) -> int:
    with pytest.raises(typer.Exit) as caught:
        explain(variant, **asked)
    return caught.value.exit_code


def printed(capsys: pytest.CaptureFixture[str], variant: str, **asked: Any) -> tuple[str, str]:
    """Return stdout and stderr of a command that succeeds."""
    assert exit_code(variant, **asked) == 0
    return capsys.readouterr()


def as_json(capsys: pytest.CaptureFixture[str], variant: str, **asked: Any) -> dict[str, Any]:
    exit_code(variant, **asked, as_json=True)
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    return answer


SCALE = """
template <typename Scalar, int TILE>
__global__ void mine(const Scalar* A, const Scalar* B, Scalar* C, int M, int N, int K) {
  C[threadIdx.x] = A[0] * B[0] * FACTOR;
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
"""

MINE = """
from gpubench.model import CudaVariant, Launch, edges

VARIANT = CudaVariant(
    idea="the instructions of one GPU",
    tiles=edges(32, 32, because="of a test"),
    launch=lambda tile, problem: Launch(grid=(1,), block=(32,)),
    reuse=lambda tile: (1, 1),
    capability=(9, 0),
    architecture_suffix="a",
    compile_options=("-DFACTOR=3",),
)
"""


def mine(folder: Path, source: str = SCALE, first: int = 32) -> Path:
    """Write a kernel with tiles of edges `first` to 32, or no tiles if the source has no TILE."""
    (folder / "mine.cu").write_text(source)
    text = MINE.replace("edges(32", f"edges({first}")
    if "int TILE" not in source:
        text = text.replace('    tiles=edges(32, 32, because="of a test"),\n', "")
    (folder / "mine.py").write_text(text)
    return folder


def test_a_kernels_own_options_and_architecture_are_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine(tmp_path)
    for arch in ("sm_90", "sm_90a"):
        assert "(sm_90a)" in printed(capsys, "mine", kernels=tmp_path, arch=arch)[0]


def test_a_kernel_without_tiles_is_explained_and_has_none_to_choose(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine(tmp_path, SCALE.replace("Scalar, int TILE", "Scalar"))
    for every in (False, True):
        assert "mine" in printed(capsys, "mine", kernels=tmp_path, arch="sm_90", every=every)[0]
    assert refusal("mine", kernels=tmp_path, tiles="4") == "--tiles: mine has no tile to choose"


def refusal(variant: str, **asked: Any) -> str:
    with pytest.raises(GpubenchError) as caught:
        explain(variant, **asked)
    message = str(caught.value)
    assert caught.value.exit_code == 2
    assert len(message.splitlines()) == 1
    return message


def row(tile: int, median_us: float, **facts: Any) -> Row:
    at = point(KERNELS["shared_tile"], size=(1024, 1024, 1024), tile=Config.parse(str(tile)))
    device = {"device": "NVIDIA H200", "compute_capability": "9.0"}
    return replace(measured(median_us, at), **(device | facts))


# ---- one tile


def test_a_page_shows_figures_and_says_what_they_mean(capsys: pytest.CaptureFixture[str]) -> None:
    out, err = printed(capsys, "shared_tile", tiles="8")
    for piece in (
        "shared_tile at 1024 float32 on NVIDIA H200 (sm_90)",
        "16 of the inner loop's",
        "shared_tile.cu:",
        "not judged here: ",
    ):
        assert piece in " ".join(out.split())
    assert "Occupancy is full: 32 blocks of 64 threads" in " ".join(out.split())
    assert "no GPU here, so sm_90 is assumed, with figures of the NVIDIA H200: 132 multi" in err
    assert max(map(len, out.splitlines())) <= 80


def test_the_machines_gpu_is_the_default(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    here = replace(H200, name="NVIDIA A100-PCIE", compute_capability=(8, 0), multiprocessors=108)
    monkeypatch.setattr(module, "first_device", lambda _name: here)
    out, err = printed(capsys, "naive", tiles="16")
    assert "on NVIDIA A100-PCIE (sm_80)" in out
    assert "figures of" not in err


def test_without_a_disassembler_the_rest_is_explained(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    disassembles_as(monkeypatch, "", lambda _cubin: {})
    out, err = printed(capsys, "naive", tiles="16")
    assert "[sass]'" in err
    assert "inner loop" not in out
    assert "Occupancy is full" in " ".join(out.split())


# ---- several tiles


def test_several_tiles_are_a_table_that_fits_and_an_illegal_one_is_skipped(
    capsys: pytest.CaptureFixture[str],
) -> None:
    out, _ = printed(capsys, "shared_tile", tiles="4,8,33")
    lines = out.splitlines()
    assert max(map(len, lines[:7])) <= 80
    assert [line.split()[0] for line in lines[5:7]] == ["4", "8"]
    assert "blocks" in lines[5]
    assert "ms" not in lines[3]
    assert "skipped: 33: takes edges 1 to 32" in " ".join(out.split())


def test_all_means_every_legal_tile(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = as_json(capsys, "mine", kernels=mine(tmp_path, first=31), arch="sm_90", every=True)
    assert [explanation["tile"] for explanation in answer["explanations"]] == ["31", "32"]
    assert answer["not_explained"] == []


def test_a_kernel_that_does_not_compile_is_an_error_and_the_others_are_explained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine(tmp_path, SCALE.replace("FACTOR;", "FACTOR; static_assert(TILE != 31);"), first=30)
    assert exit_code("mine", kernels=tmp_path, tiles="30,31,32", arch="sm_90") == 1
    out = capsys.readouterr().out
    assert "error: 31: " in out
    assert out.splitlines()[6].split()[0] == "32"


# ---- JSON


def test_json_has_all_keys_of_an_explanation(capsys: pytest.CaptureFixture[str]) -> None:
    answer = as_json(capsys, "shared_tile", tiles="8")
    assert set(answer) == {"explanations", "not_explained"}
    (explanation,) = answer["explanations"]
    assert set(explanation) == {
        "variant", "op", "tile", "dtype", "m", "n", "k", "architecture", "device",
        "kernel", "launch", "launches",
        "registers", "registers_allowed", "spill_bytes", "local_bytes",
        "static_shared_bytes", "dynamic_shared_bytes",
        "threads_per_block", "block", "grid", "blocks", "accumulators",
        "occupancy", "waves", "cgma", "cgma_flop_per_byte", "roofline", "inner_loop",
        "accesses", "access_us", "not_judged",
        "issue_bound", "shared_share", "measured_us", "roofline_share", "words",
    }  # fmt: skip
    assert explanation["device"]["is_here"] is False
    assert explanation["occupancy"]["blocks_by"]["shared memory"] == 152
    assert explanation["inner_loop"]["shared_loads"] == {"32": 16, "128": 4}
    assert explanation["measured_us"] is None
    assert len(explanation["words"]) == 7


# ---- times


def test_a_sweeps_times_are_compared_with_the_bound(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    write([row(8, 438.0), row(16, 283.0), row(16, 200.0, cache=Cache.HOT)], tmp_path / "a.csv")
    out, err = printed(capsys, "shared_tile", tiles="16", times=tmp_path / "a.csv")
    assert "0.283 ms, 8.82 times the bound: 11.3 %" in " ".join(out.split())
    assert "times of" not in err
    out, _ = printed(capsys, "shared_tile", tiles="8,16,4", times=tmp_path / "a.csv")
    by_tile = {line.split()[0]: line.split() for line in out.splitlines() if line[:1].isdigit()}
    assert by_tile["8"][-2:] == ["0.4380", "7"]
    assert by_tile["16"][-2:] == ["0.2830", "11"]
    assert "0." not in by_tile["4"][-1]


@pytest.mark.parametrize(
    "facts",
    [
        {"layout": "nt"},
        {"launches": "graph"},
        {"state": "sustained"},
        {"cache": "hot"},
        {"operands": "index"},
    ],
)
def test_times_of_other_points_are_not_taken(facts: dict[str, str], tmp_path: Path) -> None:
    for rows in (
        [row(16, 283.0), row(16, 200.0, **facts)],
        [row(16, 200.0, **facts), row(16, 283.0)],
    ):
        path = tmp_path / "a.csv"
        path.unlink(missing_ok=True)
        write(rows, path)
        answer = module.explained("shared_tile", {"tiles": "16"}, times=path)
        assert [each.measured_us for each in answer.explanations] == [283.0]


def test_each_other_gpu_that_was_measured_is_noted(tmp_path: Path) -> None:
    rows = [row(8, 438.0, device="NVIDIA H100"), row(16, 283.0)]
    for name, order in (("a.csv", rows), ("b.csv", rows[::-1])):
        write(order, tmp_path / name)
        _, note = module.explained("shared_tile", {"tiles": "8,16"}, times=tmp_path / name).notes
        assert "were measured on NVIDIA H100, but the bound is for NVIDIA H200" in note


def test_times_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    write([row(16, 283.0, compute_capability="8.0")], path)
    assert "add --arch sm_80" in refusal("shared_tile", tiles="16", times=path)
    several = [row(16, 283.0, compute_capability=f"{major}.0") for major in (12, 10, 8, 7, 6, 5)]
    write(several, tmp_path / "several.csv")
    message = refusal("shared_tile", tiles="16", times=tmp_path / "several.csv")
    assert "add --arch sm_100" in message  # the first as a text, in any process
    assert "no time of naive 16 at 1024x1024x1024 float32" in refusal(
        "naive", tiles="16", times=path
    )
    assert "cannot read" in refusal("naive", tiles="16", times=tmp_path / "none.csv")


# ---- refusals


def test_what_cannot_be_explained_is_one_line() -> None:
    cases: list[tuple[str, dict[str, Any], tuple[str, ...]]] = [
        ("cublas", {}, ("'cublas' is a function that runs on cuda",)),
        ("shard_tile", {}, ("did you mean 'shared_tile'",)),
        ("naive", {"op": "gemv"}, ("unknown variant 'naive'",)),
        ("naive", {"tiles": "33"}, ("--tiles: naive takes edges 1 to 32",)),
        ("naive", {"tiles": "1", "every": True}, ("--all and --tiles",)),
        ("naive", {"sizes": "1,2"}, ("--sizes: name one value, not 2",)),
        ("naive", {"dtypes": "int8"}, ("--dtypes: naive has no int8, only float32",)),
        ("naive", {"sizes": "70000000x1x1", "tiles": "1"}, ("the maximum in y and z is 65535",)),
        ("naive", {"arch": "sm_10"}, ("--arch: 'sm_10'", "sm_75", "sm_90")),
        ("naive", {"arch": "sm90"}, ("--arch: 'sm90'", "did you mean 'sm_90'?")),
        ("naive", {"arch": "sm_90", "device": "cuda"}, ("--arch and --device",)),
        ("naive", {"device": "cpu"}, ("explain is only for GPUs",)),
        ("naive", {"device": "cuda"}, ("no driver", "--arch sm_90 explains without")),
    ]
    for variant, asked, pieces in cases:
        message = refusal(variant, **asked)
        for piece in pieces:
            assert piece in message


def test_without_nvrtc_the_line_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise CompileError("NVRTC is not available (no library); pip install '.[cuda13]'")

    monkeypatch.setattr(compile_module, "_nvrtc", missing)
    for kept in (architectures, nvrtc_version):
        kept.cache_clear()
    assert "pip install '.[cuda13]'" in refusal("naive")
    with pytest.raises(UsageError, match="NVRTC is not available"):
        run_build("naive", {}, arch=None, every=False, output=None, force=False)
