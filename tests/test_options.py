"""Flags and a TOML file together define a sweep."""

from pathlib import Path
from typing import Any

import pytest

from gpubench.commands.judge import ROUNDS
from gpubench.commands.tune.run import ENDING
from gpubench.errors import UsageError
from gpubench.model import Cache, Scope, Timer
from gpubench.options import DEFAULT, OPTIONS, read_sweep
from gpubench.plan.sweep import Sweep


@pytest.fixture
def toml(tmp_path: Path) -> Any:
    def write(text: str) -> Path:
        path = tmp_path / "sweep.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def refusal(options: dict[str, Any], config: Path | None = None) -> str:
    with pytest.raises(UsageError) as caught:
        read_sweep(options, config)
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    return message


def test_flags_are_read_as_they_stand_on_the_command_line() -> None:
    what = {"op": "gemm", "variants": "cpu_tile, cpu_blas", "sizes": "64,32x16x8", "tiles": "4..6"}
    operands = {"dtypes": "float32,int32", "operands": "index", "seed": "7"}
    where = {"device": "cuda:1", "kernels": "mine", "output": "some.csv"}
    state = {"cache": "both", "scope": "end-to-end", "timer": "cupti"}
    timing = {"rounds": "2", "precision": "1%", "budget": "60", "launch_limit": "2.5"}
    sweep = read_sweep({**what, **operands, **where, **state, **timing})
    assert sweep.variants == ("cpu_tile", "cpu_blas")
    assert sweep.sizes == ((64, 64, 64), (32, 16, 8))
    assert sweep.tiles == ("4", "5", "6")
    assert sweep.dtypes == ("float32", "int32")
    assert (sweep.device, sweep.output, sweep.seed) == ("cuda:1", Path("some.csv"), 7)
    assert sweep.kernels == Path("mine")
    assert (sweep.caches, sweep.scopes) == (tuple(Cache), (Scope.END_TO_END,))
    assert sweep.timer == Timer.CUPTI
    assert (sweep.timing.rounds, sweep.timing.precision) == (2, 0.01)
    assert (sweep.timing.budget_s, sweep.timing.launch_limit_s) == (60, 2.5)


@pytest.mark.parametrize("text", ['rounds = "x"', "rounds = true", 'sizes = "x"'])
def test_a_config_is_not_named_if_a_flag_has_the_invalid_value(toml: Any, text: str) -> None:
    name = text.partition(" ")[0]
    assert refusal({name: "y"}, toml(text)).startswith(f"--{name}: ")


def test_flags_win_over_toml_and_toml_over_defaults(toml: Any) -> None:
    config = toml('sizes = "8"\ntiles = "4"\nrounds = 5\n')
    sweep = read_sweep({"sizes": "16", "tiles": None, "seed": None}, config)
    assert sweep.sizes == ((16, 16, 16),)
    assert sweep.tiles == ("4",)
    assert sweep.timing.rounds == 5
    assert sweep.seed == Sweep().seed


def test_toml_takes_lists_and_numbers(toml: Any) -> None:
    sweep = read_sweep(
        {},
        toml(
            'sizes = [64, "8x4x2", "1..2"]\ntiles = 16\nvariants = ["cpu_tile"]\n'
            'seed = 3\nlaunch_limit = 0.5\nprecision = "1%"\ndtypes = ["int32"]\n'
        ),
    )
    assert sweep.sizes == ((64, 64, 64), (8, 4, 2), (1, 1, 1), (2, 2, 2))
    assert sweep.tiles == ("16",)
    assert (sweep.variants, sweep.dtypes) == (("cpu_tile",), ("int32",))
    assert (sweep.seed, sweep.timing.launch_limit_s, sweep.timing.precision) == (3, 0.5, 0.01)


def test_an_unknown_key_or_option_gives_the_nearest(toml: Any) -> None:
    assert "unknown key 'size'; did you mean 'sizes'?" in refusal({}, toml("size = 8"))
    assert "unknown option 'tile'; did you mean 'tiles'?" in refusal({"tile": "8"})


@pytest.mark.parametrize(
    ("text", "flag"),
    [
        ("[sizes]\nm = 8", "--sizes"),
        ("sizes = true", "--sizes"),
        ("sizes = 'x'", "--sizes"),
        ("sizes = [[8, 4], [2]]\ntiles = [true]", "--tiles"),
        ("tiles = 1.5", "--tiles"),
        ("device = 0", "--device"),
        ("rounds = []", "--rounds"),
        ("precision = nan", "--precision"),
        ("launch_limit = inf", "--launch-limit"),
        ("budget = '1e400'", "--budget"),
        ("output = true", "--output"),
        ('output = "a\\u0000b.csv"', "--output"),
        ("kernels = true", "--kernels"),
    ],
)
def test_a_toml_value_of_the_wrong_type_is_refused_naming_the_file_and_the_option(
    toml: Any, text: str, flag: str
) -> None:
    config = toml(text)
    assert refusal({}, config).startswith(f"--config: {config}: {flag}: ")


def test_the_message_about_an_unusable_flag_says_what_would_be_right() -> None:
    for options, hint in [
        ({"op": "gemmm"}, "did you mean 'gemm'"),
        ({"dtypes": ","}, "known: float32"),
        ({"device": "gpu"}, "auto, cpu, cuda or cuda:1"),
        ({"device": "cuda:1000"}, "auto, cpu, cuda or cuda:1"),
        ({"seed": "-1"}, "from 0"),
        ({"seed": "9" * 5000}, "--seed"),
        ({"rounds": "0"}, "from 1 to 1000"),
        ({"precision": "101%"}, "is not a percentage"),
        ({"cache": "warm"}, "cold, hot, both"),
        ({"scope": "kernels"}, "did you mean 'kernel'"),
        ({"timer": "host"}, "events, cupti"),
        ({"budget": "0"}, "out of range"),
        ({"launch_limit": "nan"}, "is not a duration"),
        ({"variants": ","}, "--variants"),
    ]:
        assert hint in refusal(options)


def test_durations_have_units_and_dtypes_the_short_names_that_users_type() -> None:
    durations = {"90": 90, "90s": 90, "1.5m": 90, "2M": 120, "1h": 3600}
    assert {text: read_sweep({"budget": text}).timing.budget_s for text in durations} == durations
    dtypes = read_sweep({"dtypes": "fp32,BF16,fp64,fp16,fp8,float32"}).dtypes
    assert dtypes == ("float32", "bfloat16", "float64", "float16", "float8_e4m3")


# ---- paths


def test_kernels_in_a_config_lie_beside_it_and_its_output_below_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "there").mkdir()
    config = tmp_path / "there" / "sweep.toml"
    config.write_text('kernels = "own"\noutput = "results/a.csv"\n')
    monkeypatch.chdir(tmp_path)
    sweep = read_sweep({}, Path("there/sweep.toml"))
    assert sweep.kernels == Path("there/own")
    assert sweep.output == Path("results/a.csv")
    config.write_text('kernels = "own/../own"')
    assert read_sweep({}, config).kernels == tmp_path / "there/own/../own"


@pytest.mark.parametrize("name", ["kernels", "output"])
@pytest.mark.parametrize("path", ["..", "a/../../x", "/usr/x", "link/x", "loop/x"])
def test_a_path_in_a_config_does_not_lead_out(
    toml: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, path: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to("/usr")
    (tmp_path / "loop").symlink_to("loop")
    message = refusal({}, toml(f'{name} = "{path}"'))
    assert f"{name} = '{path}' leads out of {tmp_path}" in message
    assert f"on the command line: --{name}" in message


def test_an_option_names_any_path() -> None:
    assert read_sweep({"kernels": "../x"}).kernels == Path("../x")
    assert read_sweep({"output": "/usr/x/a.csv"}).output == Path("/usr/x/a.csv")


def test_sizes_are_read_as_the_operation_has_them_and_a_tuple_is_one_size() -> None:
    assert read_sweep({"sizes": "8x9,7", "op": "gemv"}).sizes == ((8, 9, 1), (7, 7, 1))
    assert read_sweep({"op": "atax"}).sizes == ()
    assert "a size of gemm is" in refusal({"sizes": "8x9"})
    assert read_sweep({"sizes": [(64, 32, 16), 8]}).sizes == ((64, 32, 16), (8, 8, 8))
    assert read_sweep({"sizes": (64, 32, 16)}).sizes == ((64, 32, 16),)
    assert read_sweep({"tiles": [(128, 64, 8), 16]}).tiles == ("128x64x8", "16")


def test_results_go_into_a_csv() -> None:
    for name in ("out.json", "out", "out.csv.zip", "a.csv/b.txt"):
        with pytest.raises(UsageError, match=r"--output: .* does not end in .csv or .csv.gz"):
            read_sweep({"output": name})
    assert read_sweep({"output": "a.csv.gz"}).output == Path("a.csv.gz")


def test_the_help_of_output_names_the_file_of_tune_and_the_folder_of_judge() -> None:
    assert f"<op>.csv; of tune results/<time>-<device>-<op>-{ENDING}." in OPTIONS["output"].help
    assert "of judge with problems, a folder" in OPTIONS["output"].help


def test_the_help_of_rounds_names_the_default_of_judge() -> None:
    assert f"Default: {DEFAULT.timing.rounds}; for judge {ROUNDS}." in OPTIONS["rounds"].help
