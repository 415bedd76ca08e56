"""Compiles instances of kernels for `explain` and `build`, and collects their figures."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from itertools import chain

from gpubench.commands.explain.code import Codes, Program, compile_programs
from gpubench.commands.explain.explanation import Explanation, Instance, NotExplained
from gpubench.grouping import grouped
from gpubench.hardware.host import cpu_threads
from gpubench.model import Config, CudaVariant, Device, Problem, Status
from gpubench.on_cpu.accesses import Recorded, record
from gpubench.plan.descriptor import launch_on
from gpubench.plan.python_file import described_by
from gpubench.results.provenance import source_hash
from gpubench.text import counted
from gpubench.view.progress import Steps


def make_instance(
    variant: CudaVariant, tile: Config, problem: Problem, architecture: str, device: Device
) -> Instance:
    """Return an instance with its launches, or with the reason why it cannot run."""
    with described_by(variant.path):
        reason = variant.why_not(tile, problem, device.compute_capability) or ""
    return Instance(
        variant=variant,
        tile=tile,
        problem=problem,
        architecture=architecture,
        device=device,
        reason=reason,
        launches=() if reason else launch_on(variant, tile, problem, device).sequence,
    )


def explain_instances(
    instances: Sequence[Instance], *, with_accesses: bool = True
) -> list[Explanation | NotExplained]:
    """Compile the instances, record their accesses, and return an explanation of each launch.

    The progress is printed to stderr.
    """
    runnable = [instance for instance in instances if not instance.reason]
    codes = _compile(runnable)
    recorded = _record(runnable) if with_accesses else {}
    answers = (_answers(instance, codes, recorded.get(instance)) for instance in instances)
    return [*chain.from_iterable(answers)]


def _compile(instances: Sequence[Instance]) -> dict[Instance, Codes]:
    """Compile the instances that share a source, architecture and options as one program."""
    hashes = {variant: source_hash(variant) for variant in {each.variant for each in instances}}
    programs = {
        Program(
            source=first.variant.source,
            source_hash=hashes[first.variant],
            architecture=_compiled_for(first),
            options=first.options,
            instances=tuple(
                dict.fromkeys(
                    (text, instance.problem.dtype)
                    for instance in group
                    for text in instance.expressions
                )
            ),
        ): group
        for group in grouped(
            instances, lambda each: (each.variant.path, _compiled_for(each), each.options)
        ).values()
        for first in group[:1]
    }
    total = counted(sum(len(program.instances) for program in programs), "instance")
    with Steps() as steps:
        codes = compile_programs(list(programs), lambda n: steps.show(f"compiled {n} of {total}"))
    return {instance: codes[program] for program, group in programs.items() for instance in group}


def _compiled_for(instance: Instance) -> str:
    """Return the architecture of an instance, with the suffix that its kernel needs."""
    return instance.variant.architecture(instance.architecture)


def _record(instances: Sequence[Instance]) -> dict[Instance, Recorded]:
    """Record the accesses of all instances. An instance has one record for each launch."""
    # One thread records a kernel for all architectures in turn, because most launches are equal on
    # all architectures.
    groups = grouped(instances, lambda each: (each.variant, each.problem)).values()

    def record_group(group: Sequence[Instance]) -> dict[Instance, Recorded]:
        recorded: dict[Instance, Recorded] = {}
        for of_target in grouped(group, lambda each: each.architecture).values():
            first, tiles = of_target[0], [instance.tile for instance in of_target]
            by_tile = record(first.variant, tiles, first.problem, first.device)
            recorded |= {instance: by_tile[instance.tile] for instance in of_target}
        return recorded

    recorded: dict[Instance, Recorded] = {}
    with Steps() as steps, ThreadPoolExecutor(cpu_threads()) as pool:
        futures = [pool.submit(record_group, group) for group in groups]
        try:
            for done, future in enumerate(as_completed(futures), 1):
                recorded |= future.result()
                steps.show(f"recorded {done} of {counted(len(groups), 'kernel')}")
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return recorded


def _answers(
    instance: Instance, codes: dict[Instance, Codes], recorded: Recorded | None
) -> Iterator[Explanation | NotExplained]:
    facts, dtype = vars(instance), instance.problem.dtype
    if instance.reason:
        yield NotExplained(**facts, status=Status.SKIPPED)
        return
    of_launches = [codes[instance][text, dtype] for text in instance.expressions]
    if error := next((code.error for code in of_launches if code.error), ""):
        yield NotExplained(**facts | {"reason": error}, status=Status.ERROR)
        return
    for step, code in enumerate(of_launches):
        accesses = recorded[step] if recorded else None
        yield Explanation(**facts, code=code, step=step, accesses=accesses)
