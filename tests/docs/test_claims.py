"""Every figure in the README and the pages follows from the files of results/."""

import gzip
import math
import re
import signal
import sys
from dataclasses import replace
from itertools import chain
from pathlib import Path
from queue import Queue

import pytest
from cogapp import Cog
from fakes import FakeBackend
from newcomer import REPOSITORY, RESEARCH
from samples import sample

sys.path.insert(0, str(RESEARCH))
import claims
import foreign_gpu
import shape_tables
import tables
import verify_kernels
from common import Ended, hashes_of, measured_file, save

from gpubench.engine.measure.runner import Runner
from gpubench.engine.pool import LocalPool
from gpubench.plan.sweep import Sweep
from gpubench.results.row import Row, read, write
from gpubench.view.row_tables import best_of

README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
CLAIMS = (REPOSITORY / "results" / "claims.md").read_text(encoding="utf-8")
GENERATED = re.compile(r"<!-- \[\[\[cog (.*?) \]\]\] -->.*?<!-- \[\[\[end\]\]\] -->", re.DOTALL)


def test_every_figure_of_the_readme_and_the_pages_is_what_the_results_give(
    capsys: pytest.CaptureFixture[str],
) -> None:
    check = ["cog", "--check", "-I", str(RESEARCH), "-p", "import tables"]
    stale = [
        str(page.relative_to(REPOSITORY))
        for page in tables.PAGES
        if Cog().main([*check, str(page)])
    ]
    capsys.readouterr()  # drop the output of cog
    if stale:
        pytest.fail(f"not up to date: {', '.join(stale)}; run 'doit pages'", pytrace=False)
    text = "".join(page.read_text(encoding="utf-8") for page in tables.PAGES)
    named = set(re.findall(r'block\("(\w+)"', "".join(GENERATED.findall(text))))
    assert {"claims", "ladder_steps", "ladder_top", "agreement"} <= named


def test_no_figure_stands_in_the_readme_outside_what_is_generated() -> None:
    rest = GENERATED.sub("", README)
    assert not re.findall(r"\d[\d,]*\.\d+ ?(?:ms|µs|%|times|GFLOP)", rest)


def test_the_readme_states_how_long_its_sweeps_took() -> None:
    gpu, cpu = claims.GPU_COST, claims.CPU_COST
    sweeps = ((gpu, "first"), (cpu, "first"), (gpu, "long"))
    gpu_s, cpu_s, long_s = (claims.readme_sweep(*sweep)[0] for sweep in sweeps)
    name, words = shape_tables.card(gpu), " ".join(README.split())
    assert f"The sweep takes {gpu_s:.0f} s on an {name} and {cpu_s:.0f} s on two CPU cores" in words
    cpu_long_s = float(claims.measured("wall_s")["cpu/main.csv"])
    assert f"It takes {long_s:.0f} s on an {name}. With `--sizes 512,1024`" in words
    assert f"`--sizes 512,1024` it takes {cpu_long_s:.0f} s on two CPU cores" in words


def test_a_ratio_is_shown_missed_or_not_decided_by_its_interval() -> None:
    own = sample("packed_panels", median_us=100.0, cache="cold", round_medians_us=(100, 100, 100))
    library = replace(own, variant="cublas", tile="", median_us=104.0)

    def outcome(at_least: float, *rounds: float) -> str:
        return claims.in_sweep(own, replace(library, round_medians_us=rounds), at_least)[1]

    assert outcome(1.03, 104, 104.2, 104.1) == "shown"
    assert outcome(1.05, 104, 104.2, 104.1) == "**missed**"
    assert outcome(1.04, 103, 104, 105) == "not decided"
    assert outcome(1.03, 104, 104) == "not decided"  # different numbers of rounds have no interval
    assert outcome(1.03, 104, 104, 120) == claims.DISAGREE


def test_only_the_libraries_are_compared_with(tmp_path: Path) -> None:
    own = sample("packed_panels", median_us=100.0)
    emulated = replace(own, variant="cublas_emulated", tile="", median_us=104.0)
    assert list(claims.comparisons([own, emulated])) == []
    library = replace(emulated, variant="cublaslt")
    assert list(claims.comparisons([own, emulated, library])) == [(own, library)]
    path = tmp_path / "rows.csv"
    write([own, library], path)
    figure, outcome = claims.faster([str(path)], {own.size: 1.0, "1": 1.0})
    assert figure.startswith(f"{own.size}: 1.040")
    assert outcome.endswith("not measured: 1")


def test_rows_of_an_earlier_sweep_are_not_taken_for_those_of_a_refused_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = Ended(code=2, wall_s=1.0, out="", err="")
    monkeypatch.setattr(foreign_gpu, "child", lambda *_, **_more: refused)
    write([sample()], tmp_path / "gemm_float32_f001.csv")
    gpus: Queue[int] = Queue()
    gpus.put(0)
    assert (
        foreign_gpu.swept(
            "gemm", "float32", ["f001"], sizes="64", own=tmp_path, gpus=gpus, end=math.inf
        )
        == []
    )


def test_a_time_that_an_interrupted_sweep_lacks_is_a_dash_in_the_table_of_foreign_kernels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = measured_file("foreign.csv").read_text(encoding="utf-8").splitlines()
    rows = [line.split(",") for line in lines]
    first = next(row for row in rows[1:] if row[0])
    path = tmp_path / "foreign.csv"
    path.write_text(
        "\n".join(
            line for line, row in zip(lines, rows, strict=True) if row[3:6] != [*first[3:5], "1000"]
        )
    )
    heading, _, *complete = tables.foreign_kernels().splitlines()
    cut = {"foreign.csv": path}
    monkeypatch.setattr(tables, "measured_file", lambda name: cut.get(name) or measured_file(name))
    shorter, _, *lacking = tables.foreign_kernels().splitlines()
    assert shorter == heading
    ((before, after),) = [
        pair for pair in zip(complete, lacking, strict=True) if pair[0] != pair[1]
    ]
    assert [
        cell
        for cell, other in zip(after.split(" | "), before.split(" | "), strict=True)
        if cell != other
    ] == ["–"]


def test_an_interrupted_sweep_verifies_no_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = LocalPool(Runner(FakeBackend()))  # type: ignore[arg-type] # as in other tests
    sweep = Sweep(variants=("cpu_tile",), sizes=((8, 8, 8),), tiles=("8", "16"))
    monkeypatch.setattr(pool, "measure", lambda *_: signal.raise_signal(signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        verify_kernels.verified(sweep, pool)


def test_a_kernel_has_changed_if_any_row_of_the_file_has_another_hash_and_then_nothing_is_claimed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (claims, tables):
        monkeypatch.setattr(module, "RESULTS", tmp_path)
        monkeypatch.setattr(module, "ROOT", tmp_path)
    (tmp_path / "h200").mkdir()
    present = claims.hashes()["gemm naive"]
    for number in range(8):  # the order of a set would choose a hash
        path = tmp_path / "h200" / f"{number}.csv"
        write([replace(sample(), source_hash=text) for text in (f"{number:016x}", present)], path)
        assert claims.changed_kernels(path) == ["naive"]
    assert "`naive`" in tables.changed_kernels()
    write([replace(sample(), source_hash=present)], tmp_path / "h200" / "same.csv")
    files = "h200/0.csv", "h200/same.csv"
    said = [claims.Claim("1", file, lambda: ("2", "shown")).cells for file in files]
    assert [cells[2] for cells in said] == ["no claim: older kernels", "shown"]


def test_a_claim_about_all_kernels_needs_each_kernel_in_each_precision_with_unchanged_sources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims, "RESULTS", tmp_path)
    monkeypatch.setattr(claims, "ROOT", tmp_path)
    folder = tmp_path / "h200" / "right"
    folder.mkdir(parents=True)
    dtypes = {dtype for own in claims.OWN_KERNELS for dtype in own.dtypes}

    def outcome(changes: dict[str, str | None], *failed: str) -> str:
        """Return the outcome of files in which the kernels of float64 have these hashes."""
        for dtype in dtypes:
            every = hashes_of(own for own in claims.OWN_KERNELS if dtype in own.dtypes)
            if dtype == "float64":
                every = {key: text for key, text in (every | changes).items() if text}
            file = {"dtype": dtype, "kernels": every, "variants": {}, "failed": failed}
            save(folder / f"{dtype}.json", file)
        claims.kernels_of.cache_clear()
        return claims.Claim("right", "h200/right/*.json", claims.right).cells[2]

    assert outcome({}) == "met"
    assert outcome({}, "gemm_gelu cublaslt at 127 bfloat16: wrong") == "met"  # a library's result
    assert outcome({}, "gemm dmma at 127 float64: wrong") == "**missed**"
    assert outcome({"gemm dmma": None}) == "not decided"
    assert outcome({"gemm dmma": "0" * 12}) == claims.OLDER_KERNELS


def test_no_ratio_mixes_a_sustained_kernel_with_a_library_in_bursts() -> None:
    def state(name: str, **times_us: float) -> list[Row]:
        return [
            sample(name, median_us=us, round_medians_us=(us, us), state=state)
            for state, us in times_us.items()
        ]

    kernel = state("wgmma_mixed", burst=5.0, sustained=6.0)
    both = [*kernel, *state("cublas", burst=7.5, sustained=9.0)]
    alone = [*kernel, *state("cublas", burst=7.5)]
    sustained = [claims.library_of(kernel[1], rows) for rows in (both, alone)]
    assert [library and library.median_us for library in sustained] == [9.0, None]


@pytest.mark.parametrize("name", ["ladder", "ladder_top"])
def test_comparisons_with_cublas_use_stable_rows(name: str) -> None:
    """Pages quote only the fastest kernel and the better library of each problem."""
    compared = chain.from_iterable(claims.comparisons(read(measured_file(f"{name}.csv"))))
    assert [row.label for row in compared if row.unstable] == []


def test_the_pictures_of_compare_cublas_show_stable_rows() -> None:
    """The pictures show only the best tile of each kernel and size in float32."""
    drawn: dict[tuple[str, str], list[Row]] = {}
    for row in read(measured_file("compare.csv")):
        if row.median_us and row.dtype == "float32":
            drawn.setdefault((row.variant, row.size), []).append(row)
    assert [best.label for best in map(best_of, drawn.values()) if best.unstable] == []


def test_results_name_no_directory_of_the_machine_that_measured_them() -> None:
    paths = sorted((REPOSITORY / "results").rglob("*.csv*"))
    assert len(paths) > 40
    for path in paths:
        content = path.read_bytes()
        text = (gzip.decompress(content) if path.suffix == ".gz" else content).decode()
        assert re.findall(r"--[a-z-]+ /\S*", text) == [], path


def test_most_times_of_a_kernel_alone_agree_with_the_profiler_and_shorter_ones_would_not() -> None:
    """At most one of fifty times may disagree. The page has their number, and names the control."""
    lines = tables.profiler.read(measured_file("alone.csv"))

    def unknown(shorter_us: float) -> list[str]:
        planted = [
            replace(line, gpubench_us=line.gpubench_us and line.gpubench_us - shorter_us)
            for line in lines
        ]
        return [x.line.launches for x in tables.profiler.judged(planted) if x.cause is None]

    assert unknown(0.0).count("overlapped") == 1
    assert 50 * (len(unknown(0.0)) - 1) <= len(tables.profiler.judged(lines))
    shifted = {shorter_us: len(unknown(shorter_us)) - 1 for shorter_us in (0.3, -0.3)}
    assert min(shifted.values()) > 50
    assert (
        f"{shifted[0.3]} times would not agree"
        in (REPOSITORY / "docs" / "measuring.md").read_text()
    )


def test_no_claim_compares_launches_that_overlap_with_a_librarys_in_silence() -> None:
    for name in ("tensor", "precisions", "ladder_top"):
        for own, library in claims.comparisons(read(measured_file(f"{name}.csv"))):
            assert own.launches == library.launches
    for dtype in shape_tables.ALONE:
        assert {each.own.launches for each in shape_tables.outcomes_alone(dtype)} == {"alone"}
        assert f"{dtype}, random shapes, launches alone:" in CLAIMS
    for dtype, kind in shape_tables.OTHERS:
        others = shape_tables.outcomes(shape_tables.path_of_others(dtype, kind))
        assert {each.own.launches for each in others} == {"alone"}
