"""The output of compare-cublas: several precisions fit on 60 lines of 80 columns."""

import functools
import re
from dataclasses import replace

from fakes import CPU, measured
from samples import printed

from gpubench.commands.compare_cublas.ladder import with_libraries
from gpubench.commands.compare_cublas.view import screen
from gpubench.engine.prepare import Job, prepare
from gpubench.hardware.architectures import example
from gpubench.model import Status
from gpubench.plan.sweep import Sweep
from gpubench.results.row import Row
from gpubench.view.job import without_dtypes

H200 = replace(example("sm_90"), l2_bytes=CPU.l2_bytes)
DTYPES = ("bfloat16", "float32", "float8_e4m3")


@functools.cache
def job(*sizes: int) -> Job:
    sweep = Sweep(dtypes=DTYPES, sizes=tuple((n, n, n) for n in sizes), tiles=("auto",))
    return prepare(replace(sweep, variants=with_libraries(sweep, "cuda", ())), H200)


def rows_of(planned: Job) -> list[Row]:
    """Return rows in which each point is slower than the previous point."""
    rows = []
    for place, (point, reason) in enumerate(planned.planned.items()):
        median_us = 100.0 + place
        facts = {"ci_low_us": median_us - 0.093, "ci_high_us": median_us + 0.093}
        rates = {"gflops": 1_527_830.0, "percent_of_peak": 77.2, "percent_of_blas": 104.3}
        row = measured(median_us, point, **facts, **rates, device="NVIDIA H200", library="cuBLAS")
        rows.append(replace(row, status=Status.SKIPPED, reason=reason) if reason else row)
    return rows


def lines(rows: list[Row]) -> list[str]:
    return printed(*screen(rows), width=80).splitlines()


def test_three_precisions_at_two_sizes_fit_on_sixty_lines() -> None:
    planned = job(1024, 4096)
    shown = lines(rows_of(planned))
    conclusion = [without_dtypes(planned.absent), "where the time went, two lines", "", "a.csv", ""]
    assert len(shown) + len(conclusion) <= 60
    assert sum(line.startswith("size ") for line in shown) == 1  # one table, not split
    assert not [line for line in shown if "skipped" in line]
    for dtype in DTYPES:
        assert sum(line.split()[:2] == ["4096", dtype] for line in shown) == 2
    assert any("gpubench show FILE shows all" in line for line in shown)
    absent = without_dtypes(planned.absent)
    for dtype in DTYPES:
        assert re.search(rf"\d\d kernels have no {dtype}\b", absent)


def test_a_library_is_listed_also_where_many_kernels_are_faster() -> None:
    rows = [
        replace(row, median_us=1e6) if row.variant in {"cublas", "cublaslt"} else row
        for row in rows_of(job(1024, 4096))
    ]
    listed = [word for line in lines(rows) for word in line.split()[2:3]]
    assert listed.count("cublas") == len(DTYPES) * 2


def test_launches_that_overlap_have_a_table_of_their_own() -> None:
    rows = rows_of(job(1024, 4096))
    shown = lines([*rows, *(replace(row, launches="overlapped") for row in rows)])
    headings = [line for line in shown if line.startswith("gemm on ")]
    ends = [heading.partition("cold cache")[2] for heading in headings]
    assert ends == ["", ", launches overlapped"]


def test_one_problem_has_all_variants_with_their_whole_tiles() -> None:
    sweep = Sweep(dtypes=("bfloat16",), sizes=((4, 1024, 1024),), tiles=("auto",))
    planned = prepare(replace(sweep, variants=with_libraries(sweep, "cuda", ())), H200)
    words = re.findall(r"\w+", "\n".join(lines(rows_of(planned))))  # some are named below
    assert {variant.name for variant in planned.hashes} <= {*words}
