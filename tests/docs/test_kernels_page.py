"""gpubench/kernels/gemm/README.md: the ladder in order, from the descriptions."""

import re

from gpubench.model import CudaVariant
from gpubench.plan.registry import KERNELS, variants

PAGE = KERNELS / "gemm" / "README.md"


def test_each_step_stands_behind_the_step_that_it_changes() -> None:
    steps = re.findall(
        r"^\| \[`(\w+)`\]\([\w./]+\) \| (?:`(\w+)`)? \|", PAGE.read_text(), re.MULTILINE
    )
    places = {name: place for place, (name, _) in enumerate(steps)}
    on_the_ladder = {
        variant.name: variant.after
        for variant in variants()
        if variant.op == "gemm" and isinstance(variant, CudaVariant) and variant.after
    }
    assert on_the_ladder.items() <= dict(steps).items()
    assert all(places[after] < places[name] for name, after in on_the_ladder.items())


def test_every_header_says_which_step_introduces_it() -> None:
    kernels = {path.stem for path in KERNELS.glob("*/*.cu")}
    for header in KERNELS.glob("lib/*/*.cuh"):
        opening = header.read_text().partition("#pragma once")[0]
        named = re.findall(r"`(\w+)`\s+(?://\s+)?introduces", opening)
        assert named, header
        assert kernels.issuperset(named), header
