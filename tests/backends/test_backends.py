"""Backends are found by their folders: ours, and a backend outside the package."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes import COPY_GBYTES_PER_S, run_sweep
from typer.testing import CliRunner

import gpubench.backends as registry
from gpubench.backends import BackendEntry, backends, device_label, find_devices, open_backend
from gpubench.cli import app
from gpubench.commands.deviceinfo.view import device_json, with_ceilings
from gpubench.engine.measure.runner import Runner
from gpubench.errors import DeviceUnavailableError, UsageError
from gpubench.model import Device, Status, Timer
from gpubench.options import read_sweep
from gpubench.plan import description_process, descriptor
from gpubench.plan.registry import of_op
from gpubench.view.row_tables import results

TOY = """
from fakes import FakeBackend, run_sweep
from gpubench.backends import BackendEntry
from gpubench.model import Device, Timer

DEVICES = [Device(backend="toy", name=f"Toy {n}", index=n, l2_bytes=2**20) for n in range(2)]

BACKEND = BackendEntry(
    name="toy",
    auto_order=50,
    timers=(Timer.HOST,),
    is_numbered=True,
    devices=lambda index: DEVICES if index is None else [DEVICES[index]],
    open=lambda index, _timer: FakeBackend(device=DEVICES[index]),
)
"""

PRODUCT = """
import numpy as np
from gpubench.model import CallVariant, edges

VARIANT = CallVariant(
    idea="NumPy's product, on a toy",
    runs_on="toy",
    build=lambda tile, dtype: lambda a, b, c: np.matmul(a, b, out=c),
    tiles=edges(1, 8, because="of a toy"),
    baseline="",
)
"""


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[BackendEntry]:
    """A backend in a folder outside the package."""
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy" / "__init__.py").write_text(TOY)
    monkeypatch.setattr(registry, "__path__", [*registry.__path__, str(tmp_path)])
    # Another process would not import from this path.
    monkeypatch.setattr(description_process, "load", descriptor.load)
    yield backends()["toy"]
    del sys.modules["gpubench.backends.toy"]


@pytest.fixture
def kernels(tmp_path: Path) -> Path:
    """A folder with a variant that runs on the toy backend."""
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "product.py").write_text(PRODUCT)
    return tmp_path / "kernels"


def test_every_folder_declares_a_backend_and_auto_ends_with_the_cpu() -> None:
    folders = {path.parent.name for path in Path(registry.__file__).parent.glob("*/__init__.py")}
    assert set(backends()) == folders
    assert list(backends())[-1] == "cpu"


@pytest.mark.usefixtures("cold")
def test_declarations_load_nothing_heavy() -> None:
    program = (
        "import sys; from gpubench.backends import backends; backends(); "
        "print(set(sys.modules) & {'numpy', 'numba', 'cupy', 'cuda', 'threadpoolctl', 'pandas'})"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout.strip() == b"set()"


@pytest.mark.usefixtures("toy")
def test_a_backend_from_outside_the_package_is_swept_on(kernels: Path) -> None:
    sweep = read_sweep({"device": "toy:1", "kernels": kernels, "tiles": "4,99", "sizes": "16,24"})
    executor = Runner(open_backend(sweep.device, sweep.timer))
    rows = run_sweep(sweep, executor).rows
    assert {(row.backend, row.device, row.timer) for row in rows} == {("toy", "Toy 1", "host")}
    assert [(row.tile, row.status, row.reason) for row in rows if row.m == 16] == [
        ("4", Status.OK, None),
        ("99", Status.SKIPPED, "takes edges 1 to 8: of a toy"),
    ]
    results(rows)


@pytest.mark.usefixtures("toy")
def test_commands_know_a_backend_from_outside(kernels: Path) -> None:
    assert read_sweep({"device": "toy:1"}).device == "toy:1"
    listed = CliRunner().invoke(app, ["variants", "--device", "toy", "--kernels", str(kernels)])
    assert "NumPy's product, on a toy" in listed.output
    assert "shared_tile" not in listed.output
    devices, _ = find_devices("toy")
    assert list(map(device_label, devices)) == ["toy:0", "toy:1"]
    assert with_ceilings(devices[1]).facts == {"measured_copy_gbytes_per_s": COPY_GBYTES_PER_S}


@pytest.mark.usefixtures("toy")
def test_auto_takes_the_first_backend_with_a_device() -> None:
    devices, missing = find_devices("auto")
    assert [device.backend for device in devices] == ["toy", "toy", "cpu"]
    assert list(missing) == ["cuda"]
    assert device_json(devices, missing)["cuda_missing"] == str(missing["cuda"])
    assert open_backend("auto").device.name == "Toy 0"


def test_without_a_gpu_there_is_the_cpu_and_the_reason() -> None:
    devices, missing = find_devices("auto")
    assert [device_label(device) for device in devices] == ["CPU"]
    assert missing["cuda"]
    assert find_devices("cpu") == (devices, {})
    for name in ("cuda", "cuda:1"):
        with pytest.raises(DeviceUnavailableError):
            find_devices(name)


def test_a_name_asks_for_all_devices_and_a_number_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus = [Device(backend="cuda", name=f"GPU {n}", index=n) for n in range(2)]
    monkeypatch.setattr("gpubench.backends.cuda.devices.cuda_devices", lambda: gpus)
    assert find_devices("cuda") == (gpus, {})
    assert find_devices("cuda:1") == (gpus[1:], {})
    assert [device.backend for device in find_devices("auto")[0]] == ["cuda", "cuda", "cpu"]
    with pytest.raises(DeviceUnavailableError, match=r"has 2 CUDA device.*cuda:0 to cuda:1"):
        find_devices("cuda:2")


def test_other_devices_are_refused() -> None:
    for name in ["gpu", "auto:1", "cpu:0", "cuda:", "cuda:x", "cuda:1234", "cuda:٣", "", "toy"]:
        with pytest.raises(UsageError, match=r"write auto, cpu, cuda or cuda:1$"):
            read_sweep({"device": name})


def test_a_timer_that_is_missing_gives_way_to_the_default_one() -> None:
    cpu, cuda = backends()["cpu"], backends()["cuda"]
    requested = Timer.EVENTS, Timer.CUPTI, Timer.HOST
    assert {cpu.timer(timer) for timer in requested} == {Timer.HOST}
    assert [cuda.timer(timer) for timer in requested] == [Timer.EVENTS, Timer.CUPTI, Timer.EVENTS]


@pytest.mark.parametrize("runs_on", ["toy", "gpu"])
def test_a_variant_of_an_unknown_backend_is_refused(kernels: Path, runs_on: str) -> None:
    path = kernels / "product.py"
    path.write_text(path.read_text().replace('"toy"', f'"{runs_on}"'))
    with pytest.raises(UsageError, match="VARIANT: runs_on must be cuda or cpu"):
        of_op("gemm", kernels)
