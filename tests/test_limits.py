"""Files with unusual numbers or sizes are refused in one line, or read in bounded memory."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from commandline import call, run
from samples import curve, sample

from gpubench.errors import UsageError
from gpubench.results import row as table
from gpubench.results.columns import MAX_ROWS, MAX_VALUE, MIN_VALUE
from gpubench.results.row import NAMES, Row, read, write
from gpubench.view.pictures.kinds import MAX_LINES, MAX_PANELS


def write_with(path: Path, rows: list[Row], **texts: str) -> None:
    """Write a file whose last row has these texts."""
    write(rows, path)
    *lines, last = path.read_text().splitlines()
    fields = last.split(",")
    for name, text in texts.items():
        fields[NAMES.index(name)] = text
    path.write_text("\n".join([*lines, ",".join(fields)]) + "\n")


GPU_POINT = {"percent_of_peak": 10.0, "percent_of_blas": 50.0}


def test_unusual_rows_are_shown_drawn_and_reported(tmp_path: Path) -> None:
    interval = {"ci_low_us": 99.0, "ci_high_us": 101.0}
    tied = [sample(tile=tile, **GPU_POINT, **interval) for tile in ("16", "8", "32")]
    write_with(tmp_path / "tie.csv", tied, tile="")  # no tile, and as fast as the others
    long = sample("v" * 100_000, device="d " * 50_000, **GPU_POINT)
    smallest, largest = 1e12 * MIN_VALUE, MAX_VALUE / 1e12
    for name, rows in {
        "one": [sample(**GPU_POINT)],
        "long": [long],
        "least": [
            sample(n=n, median_us=smallest, gflops=smallest, percent_of_peak=smallest)
            for n in (8, 9)
        ],
        "most": [
            sample(n=n, median_us=largest, gflops=largest, percent_of_peak=largest) for n in (8, 9)
        ],
    }.items():
        write(rows, tmp_path / f"{name}.csv")
    for command in (
        "report one.csv",
        "plot one.csv --kind roofline -o a.svg",
        "plot one.csv -o b.svg",
        "report tie.csv -o c.html",
        "plot tie.csv --kind tiles -o c.svg",
        "show tie.csv",
        "plot least.csv --kind sizes -o d.svg",
        "plot most.csv --kind roofline -o e.svg",
        "plot long.csv -o f.png",
    ):
        done = call(tmp_path, *command.split())
        assert (done.code, done.err) == (0, ""), command
    assert (tmp_path / "f.png").stat().st_size < 2**20


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("k", str(2**31)),
        ("tile", "9" * 400),
        ("gflops", "inf"),
        ("median_us", "1e-320"),
        ("percent_of_peak", "1e400"),
        ("samples", "9" * 5000),
        ("round_medians_us", "1.0;fast"),
        ("m", "x" * 500),
    ],
)
def test_an_impossible_number_is_refused_where_it_is_read(
    tmp_path: Path, name: str, text: str
) -> None:
    write_with(tmp_path / "a.csv", [sample()], **{name: text})
    with pytest.raises(UsageError, match=f"a.csv:2: '{text[:60]}' in column '{name}' is not"):
        read(tmp_path / "a.csv")
    frame = table.frame([sample()]).astype({name: object})
    frame.loc[0, name] = text
    with pytest.raises(UsageError, match=f"the frame:2: '{text[:60]}' in column '{name}'"):
        table.rows(frame)


def test_every_command_refuses_such_a_number_in_one_line(tmp_path: Path) -> None:
    write([sample()], tmp_path / "b.csv")
    write_with(tmp_path / "m.csv", [sample()], m="1e308")
    for command in ("plot", "report", "show", "diff b.csv"):
        done = call(tmp_path, *command.split(), "m.csv")
        assert (done.code, len(done.err.splitlines())) == (2, 1), done
        assert "in column" in done.err


@pytest.mark.slow
def test_a_matplotlibrc_changes_no_picture(tmp_path: Path) -> None:
    write([sample(**GPU_POINT)], tmp_path / "one.csv")
    assert call(tmp_path, "plot", "one.csv", "-o", "usual.svg").code == 0
    text = "font.size: 30\nsvg.fonttype: path\ntext.usetex: True\naxes.grid: [\n"
    (tmp_path / "matplotlibrc").write_text(text)
    done = run(tmp_path, "plot", "one.csv", "-o", "a.svg", MPLBACKEND="nonsense")
    assert (done.code, done.err) == (0, "")
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "usual.svg").read_bytes()


def test_more_rows_than_can_be_read_are_refused_at_once(tmp_path: Path) -> None:
    write([sample()], tmp_path / "a.csv")
    header, line = (tmp_path / "a.csv").read_text().splitlines()
    (tmp_path / "b.csv").write_text("\n".join([header, *[line[:150]] * (MAX_ROWS + 1)]) + "\n")
    done = call(tmp_path, "report", "b.csv")
    assert done.code == 2
    said = f"gpubench: b.csv: more than {MAX_ROWS:,} rows, or 128 MiB; split it"
    assert done.err.startswith(said)


def test_a_picture_of_too_many_panels_or_lines_is_refused_and_the_report_says_so(
    tmp_path: Path,
) -> None:
    panels = [row for n in range(1, MAX_PANELS + 2) for row in curve("naive", (3, 2, 1), n=n)]
    write(panels, tmp_path / "panels.csv")
    lines = [row for n in range(MAX_LINES + 1) for row in curve(f"v{n}", (3, 2, 1))]
    write(lines, tmp_path / "lines.csv")
    for name, count in (("panels.csv", f"{MAX_PANELS + 1} panels"), ("lines.csv", "201 lines")):
        done = call(tmp_path, "plot", name, "--kind", "tiles", "--only", "float32")
        assert done.code == 2
        assert count in done.err
        assert "--only" in done.err
    assert call(tmp_path, "plot", "panels.csv", "--kind", "tiles", "--only", "8").code == 0
    assert call(tmp_path, "report", "panels.csv").code == 0
    page = (tmp_path / "report.html").read_text()
    assert f"Not drawn: the picture would have {MAX_PANELS + 1} panels" in page
    assert page.count("<svg") == 1  # the picture of speed by size


@pytest.mark.slow
def test_many_rows_take_bounded_memory(tmp_path: Path) -> None:
    write([sample(**GPU_POINT)], tmp_path / "one.csv")
    header, line = (tmp_path / "one.csv").read_text().splitlines()
    before, after = (part.split(",") for part in line.split(",naive,cuda,16,"))
    with (tmp_path / "many.csv").open("w") as file:
        print(header, file=file)
        for number in range(2_000):
            tile, variant = 1 + number % 500, number // 500
            own = [f"v{variant}", "cuda", str(tile)]
            print(*before, *own, *after, sep=",", file=file)
    code = (
        "from pathlib import Path; from gpubench.cli import main\n"
        "try:\n main()\n"
        "finally:\n Path('status').write_text(Path('/proc/self/status').read_text())"
    )
    command = [sys.executable, "-c", code, "report", "many.csv"]
    subprocess.run(command, cwd=tmp_path, check=True)
    (kilobytes,) = re.findall(r"VmHWM:\s+(\d+) kB", (tmp_path / "status").read_text())
    assert int(kilobytes) < 300_000
