"""Recognizes files that are not results of a sweep.

Texts at the start of a file show what the file is.
"""

MAX_HEAD = 4096  # number of characters that are searched at the start of a file

_ELSEWHERE = (
    "gpubench reads its own results: describe the kernel, and sweep it (docs/own-kernels.md)"
)
_PROFILER = "gpubench reads its own results; docs/measuring.md compares them with a profiler's"

FORMS = (
    (("Benchmark", "GPU Time (sec)"), "a CSV of NVBench", _ELSEWHERE),
    (("{", '"nvbench"'), "JSON of NVBench", _ELSEWHERE),
    (("name,iterations,real_time,cpu_time",), "a CSV of google-benchmark", _ELSEWHERE),
    (("{", '"context"', '"library_build_type"'), "JSON of google-benchmark", _ELSEWHERE),
    (("{", '"machine_info"'), "JSON of pytest-benchmark", _ELSEWHERE),
    (("{", '"kernel_name"', '"tune_params'), "a cache of Kernel Tuner", _ELSEWHERE),
    (("Problem,Provider,OperationKind",), "a CSV of cutlass_profiler", _ELSEWHERE),
    (('"ID","Process ID"',), "a CSV of ncu", _PROFILER),
    (("==PROF==",), "the output of ncu", _PROFILER),
    (("Total Time (ns)", "Instances"), "statistics of nsys", _PROFILER),
    (
        ("op,variant,tile,dtype,architecture,launch,",),
        "a build file",
        "'gpubench show' shows this file, and 'gpubench diff' compares two build files",
    ),
    (
        ("started_utc,kernel,function,metric,unit,value",),
        "the counters of a sweep",
        "name the CSV of the sweep beside it, and 'gpubench show' shows both",
    ),
    (
        ("experiment,series,label,",),
        "the comparison of published experiments",
        "name the CSV of an experiment beside it",
    ),
    (("{", '"gpubench"'), "JSON of gpubench without rows", "name the CSV of the sweep"),
    (("{",), "JSON of another program", _ELSEWHERE),
)
"""Kinds of files. Each entry has texts that all occur at the start of such a file, the name of the
kind, and advice on what to do with the file."""


def what_it_is(head: str) -> str:
    """Return the kind of a file, and advice on what to do with the file.

    Return an empty text if the file is not recognized.

    Text in JSON is only recognized if it begins with a brace.
    """
    head = head.removeprefix("\ufeff").lstrip()
    for texts, name, advice in FORMS:
        if all(text in head for text in texts) and ("{" not in texts or head.startswith("{")):
            return f"it is {name}; {advice}"
    return ""
