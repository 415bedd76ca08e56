"""`gpubench plot` and `gpubench report` as a user types them."""

from pathlib import Path

from commandline import call
from samples import SWEEP, curve

from gpubench.results.row import write


def test_plot_and_report_write_a_file_and_say_its_name_alone(tmp_path: Path) -> None:
    write(curve("naive", (3, 2, 1)), tmp_path / "a.csv")
    done = call(tmp_path, "plot", "a.csv", "--kind", "tiles", "-o", "ladder.png")
    assert (done.code, done.out) == (0, "ladder.png\n"), done.err
    assert (tmp_path / "ladder.png").read_bytes().startswith(b"\x89PNG")
    done = call(tmp_path, "report", "a.csv", "-o", "page.html")
    assert (done.code, done.out) == (0, "page.html\n"), done.err
    assert (tmp_path / "page.html").read_text().endswith("</html>\n")


def test_what_cannot_be_used_is_a_line_and_leaves_nothing(tmp_path: Path) -> None:
    for arguments, message in (
        (("plot", "nowhere.csv"), "cannot read nowhere.csv: No such file or directory"),
        (("report", "nowhere.csv"), "cannot read nowhere.csv: No such file or directory"),
        (("plot", str(SWEEP), "--bandwidth", "0"), "--bandwidth: '0' is too small"),
        (("plot",), "Missing argument 'CSV...'"),
    ):
        done = call(tmp_path, *arguments)
        assert (done.code, done.out, done.files) == (2, "", [])
        assert message in done.err
        assert len(done.err.splitlines()) == 1
