import pytest

from gpubench.on_cpu.run import RUNTIME_OPTIONS, SHIM, gxx

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", ["runtime", "accesses"])
def test_g_plus_plus_warns_of_nothing_in_the_runtime(name):
    warnings = ("-Wall", "-Wextra", "-Werror")
    gxx(*RUNTIME_OPTIONS, *warnings, "-c", str(SHIM / f"{name}.cpp"), "-o", "/dev/null")
