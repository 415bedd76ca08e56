"""A file of another program, or another file of gpubench, is recognized by its content."""

import json
from pathlib import Path

import pytest
from commandline import call
from fakes import measured, point

from gpubench.errors import UsageError
from gpubench.results.row import encode, objects, read

FILES = {
    "Benchmark,Device,Device Name,N,Samples,CPU Time (sec),GPU Time (sec)\n": "a CSV of NVBench",
    '{"meta": {"argv": []}, "nvbench": 1}': "JSON of NVBench",
    "name,iterations,real_time,cpu_time,time_unit\n": "a CSV of google-benchmark",
    '{\n  "context": {"library_build_type": "release"}}': "JSON of google-benchmark",
    '{"machine_info": {}, "research": []}': "JSON of pytest-benchmark",
    '{"device_name": "A", "kernel_name": "k", "tune_params_keys": []}': "a cache of Kernel Tuner",
    "Problem,Provider,OperationKind,Operation\n1,CUTLASS,gemm,x\n": "a CSV of cutlass_profiler",
    '==PROF== Connected\n"ID","Process ID","Process Name"\n': "a CSV of ncu",
    "Time (%),Total Time (ns),Instances\n": "statistics of nsys",
    "op,variant,tile,dtype,architecture,launch,m\n": "a build file; 'gpubench show' shows this",
    "experiment,series,label,published\n": "the comparison of published experiments",
    '{"format": 1, "gpubench": "0.3.0", "headline": ""}': "JSON of gpubench without rows",
    '{"unknown": [1, 2': "JSON of another program",
}


@pytest.mark.parametrize("text", FILES, ids=FILES.values())
def test_a_file_of_another_kind_is_refused_with_its_kind(text: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text(text)
    with pytest.raises(UsageError, match="not a CSV of a sweep") as raised:
        read(path)
    assert f"it is {FILES[text]}" in str(raised.value)


def test_json_of_show_is_read_as_its_csv(tmp_path: Path) -> None:
    rows = [measured(3.5, point())]
    (tmp_path / "rows.csv").write_bytes(encode(rows))
    (tmp_path / "rows.json").write_text(json.dumps({"format": 2, "rows": objects(rows)}))
    assert read(tmp_path / "rows.json") == read(tmp_path / "rows.csv")


def test_show_shows_a_build_file(tmp_path: Path) -> None:
    lines = (Path(__file__).parents[2] / "results" / "build.csv").read_text().splitlines()
    (tmp_path / "build.csv").write_text("\n".join(lines[:3]))
    done = call(tmp_path, "show", "build.csv")
    assert (done.code, "compiled for sm_90" in done.out) == (0, True)
    assert lines[1].split(",")[1] in done.out
    refused = call(tmp_path, "show", "build.csv", "--top", "3")
    assert (refused.code, "not for build files" in refused.err) == (2, True)
