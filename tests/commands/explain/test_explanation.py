"""The explanation of a kernel, made of its figures."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpubench.commands.explain import sentences as module
from gpubench.commands.explain.code import Code
from gpubench.commands.explain.explanation import Explanation
from gpubench.commands.explain.sass import InnerLoop
from gpubench.commands.explain.sentences import sentences
from gpubench.hardware.architectures import example
from gpubench.model import OPERATIONS, Config, CudaVariant, Launch, Problem, Resources, edges
from gpubench.on_cpu.accesses import Access, Accesses
from gpubench.plan.descriptor import launch_on, load
from gpubench.plan.registry import variants

EXAMPLES = Path(__file__).parents[3] / "examples" / "operations"

KERNELS = {kernel.name: kernel for kernel in variants() if isinstance(kernel, CudaVariant)}

SPILLING = Resources(registers=255, local_bytes=1248, spill_bytes=364, shared_bytes=0)
FITTING = Resources(registers=32, local_bytes=0, spill_bytes=0, shared_bytes=2048)


def problem(m: int = 1024, n: int = 1024, k: int = 1024, dtype: str = "float32") -> Problem:
    return Problem(op="gemm", m=m, n=n, k=k, dtype=dtype)


def loop(instructions: int = 64, multiply_adds: int = 16, **facts: Any) -> InnerLoop:
    usual: dict[str, Any] = dict.fromkeys(InnerLoop.__dataclass_fields__, 0)
    usual |= {"instructions": instructions, "multiply_adds": multiply_adds}
    usual |= {"shared_loads": {}, "global_loads": {}, "shared_bytes_per_operation": None}
    return InnerLoop(**(usual | {"opcodes": {"FFMA": multiply_adds}} | facts))


def explained(
    kernel: str | CudaVariant = "shared_tile",
    tile: int = 16,
    *,
    asked: Problem | None = None,
    architecture: str = "sm_90",
    resources: Resources = FITTING,
    inner_loop: InnerLoop | None = None,
    step: int = 0,
    **facts: Any,
) -> Explanation:
    variant = KERNELS[kernel] if isinstance(kernel, str) else kernel
    device, asked = example(architecture), asked or problem()
    sequence = launch_on(variant, Config.parse(str(tile)), asked, device).sequence
    return Explanation(
        variant=variant,
        tile=Config.parse(str(tile)),
        problem=asked,
        architecture=architecture,
        device=device,
        code=Code(resources=resources, loop=inner_loop),
        launches=sequence,
        step=step,
        **facts,
    )


def variant(launch: Callable[[Config, Problem], Launch]) -> CudaVariant:
    return CudaVariant(
        idea="a fake",
        tiles=edges(1, 8, because="of a test"),
        launch=launch,
        reuse=lambda _tile: (1, 1),
        name="fake",
        op="gemm",
        path=Path(__file__),
    )


def test_an_explanation_has_known_figures_and_guesses_none() -> None:
    explanation, unknown = explained(measured_us=64.19), explained(architecture="sm_107")
    assert (explanation.launch.blocks, explanation.registers_allowed) == (4096, 255)
    assert explanation.occupancy
    assert explanation.waves
    assert explanation.roofline
    assert (explanation.occupancy.fraction, explanation.waves.blocks_per_wave) == (1, 1056)
    assert explanation.cgma == pytest.approx(16, rel=0.02)
    assert explanation.cgma_flop_per_byte == explanation.cgma / 4
    assert explanation.roofline_share == pytest.approx(0.5, rel=1e-3)
    for figure in ("occupancy", "waves", "roofline", "registers_allowed", "issue_bound"):
        assert getattr(unknown, figure) is None
    assert (unknown.roofline_share, unknown.code.loop) == (None, None)
    assert unknown.cgma > 15


def test_a_block_beyond_the_launch_bounds_cannot_be_launched() -> None:
    explanation = explained(tile=16)
    for max_threads, blocks in ((255, 0), (256, 8), (None, 8)):
        bounded = replace(explanation, code=replace(explanation.code, max_threads=max_threads))
        assert bounded.occupancy
        assert bounded.occupancy.blocks == blocks
        assert (bounded.waves is None) == (blocks == 0)
        bounds = "its launch bounds allow 255 threads per block, and the launch has 256"
        assert any(bounds in sentence for sentence in sentences(bounded)) == (blocks == 0)


def test_accumulators_are_the_elements_of_c_that_a_thread_computes() -> None:
    for name, tile, elements in (
        ("naive", 16, 1),
        ("shared_tile", 32, 1),
        *(("register_tile", tile, tile * tile) for tile in (1, 7, 16, 63, 64)),
    ):
        assert explained(name, tile, asked=problem(3, 5, 7)).accumulators == elements
    for launch, elements in (
        (
            lambda _tile, problem_of: Launch(
                grid=(-(-problem_of.n // 64), -(-problem_of.m // 64), 4), block=(256,)
            ),
            16,
        ),
        (
            lambda _tile, problem_of: Launch(grid=(problem_of.m, problem_of.n), block=(24,)),
            None,
        ),  # a warp computes a row
        (lambda _tile, _of: Launch(grid=(132,), block=(384,)), None),  # a fixed grid
    ):
        assert explained(variant(launch), 4).accumulators == elements


@pytest.mark.usefixtures("only_ours_afterwards")
def test_accumulators_are_unknown_if_the_results_extents_are_neither_m_nor_n() -> None:
    kernel = load(EXAMPLES / "softmax" / "softmax_warp.py", "softmax")
    assert isinstance(kernel, CudaVariant)
    asked = Problem.of("softmax", OPERATIONS["softmax"].size_of((512, 1024)), "float32")
    (launch,) = launch_on(kernel, Config(), asked, example("sm_90")).sequence
    facts = {"variant": kernel, "tile": Config(), "problem": asked, "launches": (launch,)}
    assert replace(explained(), **facts).accumulators is None


def test_each_launch_is_explained_and_the_first_has_the_problems_figures() -> None:
    add = Launch(grid=(8,), block=(64,), kernel="add")
    split = variant(
        lambda _tile, problem_of: Launch(
            grid=(-(-problem_of.n // 64), -(-problem_of.m // 64), 4),
            block=(256,),
            next_launches=(add,),
        )
    )
    first, second = (explained(split, 4, step=step) for step in (0, 1))
    assert second.launch == add
    assert (second.accumulators, second.roofline, second.cgma) == (None,) * 3
    assert first.roofline
    assert first.accumulators == 16
    assert second.waves
    assert second.waves.idle_multiprocessors == 124


def test_the_issue_bound_is_the_share_of_multiply_adds_in_the_issue_slots() -> None:
    float64 = problem(dtype="float64")
    for architecture, problem_of, code, bound in (
        ("sm_90", None, loop(64, 16), 0.25),
        # The A100 has 64 float32 lanes, so a warp's multiply-add occupies them for two clocks.
        ("sm_80", None, loop(64, 16), 0.5),
        ("sm_80", None, loop(64, 48), 1),
        ("sm_90", float64, loop(64, 60), 0.5),  # without tensor cores, half of the H200's peak
        ("sm_90", None, loop(64, 16, tensor=4), None),
    ):
        assert (
            explained(architecture=architecture, asked=problem_of, inner_loop=code).issue_bound
            == bound
        )


def test_shared_memory_is_compared_with_the_rate_of_the_matrix_instructions() -> None:
    code = loop(64, 0, tensor=4, shared_bytes_per_operation=1 / 64)
    shares = [
        explained(asked=problem(dtype=dtype), inner_loop=code).shared_share
        for dtype in ("bfloat16", "bf16x3", "bf16x6")
    ]
    assert shares == [4096 / 64 / 128] * 3


# ---- in words


def problem_of(registers: int = 32, local: int = 0, spilled: int = 0, shared: int = 0) -> Resources:
    return Resources(
        registers=registers, local_bytes=local, spill_bytes=spilled, shared_bytes=shared
    )


THIN = problem(4096, 1, 4096)

WORDS: list[tuple[str, dict[str, Any], tuple[str, ...]]] = [
    ("registers", {"kernel": "register_tile", "resources": SPILLING}, ("256", "255", "1248")),
    (
        "registers",
        {"tile": 32, "resources": problem_of(64, 8, 8)},
        ("64 registers", "1024 threads", "8 b"),
    ),
    (
        "registers",
        {"kernel": "register_tile", "resources": problem_of(32, 7120, 17312)},
        ("only 32",),
    ),
    ("warps", {"kernel": "naive", "tile": 3}, ("9 threads", "23 of 32 lanes")),
    ("resident", {"kernel": "register_tile", "resources": SPILLING}, ("4 blocks", "8 of 64 warps")),
    (
        "resident",
        {"kernel": "naive", "tile": 32, "resources": problem_of(65)},
        ("cannot be launched",),
    ),
    ("grid", {"kernel": "register_tile", "asked": problem(512, 512)}, ("16 blocks", "132", "116")),
    ("grid", {"asked": problem(16 * 133, 16)}, ("All 133", "1,056", "get 2", "average is 1.0")),
    ("bound", {}, ("above", "13.9", "arithmetic")),
    ("bound", {"kernel": "naive", "asked": THIN}, ("below", "13.9", "memory")),
    ("traffic", {"kernel": "naive"}, ("55.8 times",)),
    ("loop", {"inner_loop": loop(64, 16, shared_loads={"32": 20})}, ("16", "64", "0.8", "25 %")),
    ("loop", {"inner_loop": loop(493, 256, local_loads=91, local_stores=43)}, ("91", "43")),
    ("measured", {"measured_us": 242.0}, ("0.242 ms", "7.54 times", "13.3 %")),
]


@pytest.mark.parametrize(("topic", "facts", "figures"), WORDS)
def test_the_words_hold_the_figures(
    topic: str, facts: dict[str, Any], figures: tuple[str, ...]
) -> None:
    sentence = getattr(module, topic)(explained(**facts))
    for figure in figures:
        assert figure in sentence, sentence
    assert sentence.endswith(".")
    assert "  " not in sentence


def test_the_line_that_costs_most_has_a_share_though_the_clock_is_not_known() -> None:
    read = Access(
        file="a.cu", line=7, memory="A", kind="read", bytes=4, requests=1.0, lanes=32.0,
        used_bytes=128.0, sectors=4.0, least_sectors=4.0, lines=1.0,
    )  # fmt: skip
    recorded = Accesses(lines=(read,), blocks=1, used={})
    for architecture, whole in (("sm_90", "this time"), ("sm_121", "the time of the loads")):
        text = " ".join(sentences(explained(architecture=architecture, accesses=recorded)))
        assert f"a.cu:7 costs most, 100 % of {whole}" in text


def test_the_words_leave_out_what_is_not_known() -> None:
    assert len(sentences(explained(architecture="sm_107"))) == 1
    assert module.measured(explained()) == ""
    assert module.warps(explained("naive", 16)) == ""
    everything = explained("register_tile", 3, inner_loop=loop(493, 256), measured_us=776.0)
    assert len(sentences(everything)) == 7
