"""Claims of other people: only files with the stated digests run, and each claim is judged."""

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest
from fakes import CPU, failed, measured, point, variant

from gpubench.commands.reproduce.checkout import Checkout
from gpubench.commands.reproduce.compare import Reproduction
from gpubench.commands.reproduce.experiment import find, read_experiment, shipped
from gpubench.commands.reproduce.view import grids
from gpubench.errors import UsageError
from gpubench.model import Status
from gpubench.results.row import Row

PRODUCT = b"def product(a, b, c):\n    c[:] = a @ b\n"

DESCRIPTION = '''"""Their product."""

from pathlib import Path

from gpubench.model import CallVariant


def build(tile, dtype):
    """Return the function of the checkout."""
    names = {}
    exec((Path(__file__).parent / "checkout/src/product.py").read_text(), names)
    return names["product"]


VARIANT = CallVariant(idea="theirs", runs_on="cpu", build=build, dtypes=("float32",), threads=1)
'''

CLAIM = """
title = "A claim"
source = "a page"

[checkout]
repository = "https://example.org/theirs"
commit = "0123456789abcdef0123456789abcdef01234567"
files = { "FILE" = "DIGEST" }

[[device]]
name = "Fake CPU"

[[device]]
name = "another"

[[sweep]]
device = "cpu"
variants = ["theirs", "cpu_blas"]
sizes = [64, 96]

[[series]]
name = "ratio"
figure = "speedup"
device = "another"
axis = "size"
where = { variant = "theirs" }
over = { variant = "cpu_blas" }
published = { 64 = 1.5, 96 = 1.5 }

[[series]]
name = "time"
figure = "ms"
axis = "size"
where = { variant = "theirs" }
cell = [
  { label = "here", where = { size = 64 }, published = 0.1, device = "Fake CPU" },
  { label = "there", where = { size = 64 }, published = 0.1, device = "another" },
]
"""


def claim(folder: Path, *, file: str = "src/product.py", content: bytes = PRODUCT) -> Path:
    """Write a claim, its description and a checkout, and return the claim's file."""
    (folder / "claim").mkdir(exist_ok=True)
    (folder / "claim" / "theirs.py").write_text(DESCRIPTION)
    (folder / "git" / "src").mkdir(parents=True, exist_ok=True)
    (folder / "git" / "src" / "product.py").write_bytes(PRODUCT)
    digest = hashlib.sha256(content).hexdigest()
    path = folder / "claim.toml"
    path.write_text(CLAIM.replace("FILE", file).replace("DIGEST", digest))
    return path


def kernels_of(claim: Path, checkout: Path) -> Path:
    """Return the folder from which the claim's kernels run."""
    ((sweep, *_),) = read_experiment(claim, checkout).sweeps
    assert sweep.kernels
    return sweep.kernels / "checkout"


def test_the_kernels_are_those_of_the_checkout_with_the_claimed_digests(tmp_path: Path) -> None:
    copied = kernels_of(claim(tmp_path), tmp_path / "git") / "src" / "product.py"
    assert copied.read_bytes() == PRODUCT
    assert not copied.is_relative_to(tmp_path)  # later changes of the checkout have no effect


def test_the_digest_of_a_folder_is_that_of_its_lines_by_sha256sum(tmp_path: Path) -> None:
    (tmp_path / "git" / "src" / "deep").mkdir(parents=True)
    (tmp_path / "git" / "src" / "deep" / "a.h").write_bytes(b"a header")
    listed = {"./deep/a.h": b"a header", "./product.py": PRODUCT}
    lines = [f"{hashlib.sha256(text).hexdigest()}  {name}\n" for name, text in listed.items()]
    path = claim(tmp_path, file="src/", content="".join(lines).encode())
    assert (kernels_of(path, tmp_path / "git") / "src/deep/a.h").read_bytes() == b"a header"
    (tmp_path / "git" / "src" / "new.h").touch()
    with pytest.raises(UsageError, match="git/src is not the folder of https"):
        read_experiment(path, tmp_path / "git")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"content": b"another"}, "git/src/product.py is not the file of https://example.org/"),
        ({"file": "src/none.py"}, "none.py: No such file or directory; it must be a checkout of"),
        ({"file": "../claim.toml"}, r"claim.toml: checkout: '../claim.toml' leads out"),
    ],
)
def test_a_checkout_without_these_files_is_refused(
    tmp_path: Path, changes: dict[str, str], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        read_experiment(claim(tmp_path, **changes), tmp_path / "git")


def test_a_checkout_is_named_where_one_is_needed_and_nowhere_else(tmp_path: Path) -> None:
    for name in (str(claim(tmp_path)), *shipped("claims")):
        with pytest.raises(UsageError, match=r"--checkout DIR must name a checkout of https://"):
            find([name])
    with pytest.raises(UsageError, match="--checkout: none of these experiments checks code"):
        find([], tmp_path)


def test_each_figure_of_the_claims_that_come_with_gpubench_has_its_point(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Checkout, "kernels", lambda _, path, _folder: path.parent / path.stem)
    counts = {}
    for name, path in shipped("claims").items():
        experiment = read_experiment(path)  # refuses a figure without a point
        counts[name] = sum(len(series.published) for series in experiment.file.series)
    assert counts == {"cuda-l2": 50, "fast-cu": 6, "sgemm-cuda": 22}


def claims(folder: Path, *rows: Row) -> list[str]:
    experiment = read_experiment(claim(folder), folder / "git")
    done = Reproduction(experiment=experiment, rows=[*rows], devices=(CPU,))
    texts = [entries[0].claim for labels in done.entries.values() for entries in labels]
    first = grids(done, whole=True)[0].table
    column = [*first.headings].index("claim")
    assert [line[column] for line in first.lines] == texts[:2]
    return texts


def row(name: str, time_us: float, size: int = 64) -> Row:
    rounds = [factor * time_us for factor in (0.996, 1, 1.004)]
    facts = {"ci_low_us": 0.99 * time_us, "ci_high_us": 1.01 * time_us, "device": "Fake CPU"}
    facts["round_medians_us"] = tuple(rounds)
    return measured(time_us, point(variant(name=name), size=(size,) * 3), **facts)


def test_a_claim_is_judged_by_the_interval_of_what_was_measured(tmp_path: Path) -> None:
    blas = [row("cpu_blas", 150, size) for size in (64, 96)]
    wrong = failed(Status.WRONG, "half", point(variant(name="theirs"), size=(96, 96, 96)))
    slow = replace(row("theirs", 120), round_medians_us=(100, 120, 140))
    fast = replace(row("theirs", 22, 96), round_medians_us=(20, 22, 28))
    for rows, verdicts in (
        ([row("theirs", 95), wrong], ["holds on this device", "wrong at this shape", "holds"]),
        (  # the result is wrong under one condition
            [row("theirs", 95), row("theirs", 95, 96), replace(wrong, cache="hot")],
            ["holds on this device", "wrong at this shape", "holds"],
        ),
        (
            [row("theirs", 120), row("theirs", 102, 96)],
            ["does not hold on this device", "not decided", "does not hold"],
        ),
        # rounds that disagree widen the interval
        ([slow, fast], ["not decided", "holds on this device", "does not hold"]),
    ):
        assert claims(tmp_path, *blas, *rows) == [*verdicts, "other device: ratio only"]
