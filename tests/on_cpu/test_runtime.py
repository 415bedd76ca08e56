import pytest

from gpubench.on_cpu.run import SHIM, gxx

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", ["runtime", "accesses"])
def test_g_plus_plus_warns_of_nothing_in_the_runtime(name):
    warnings = ("-Wall", "-Wextra", "-Werror")
    gxx("-fsyntax-only", *warnings, str(SHIM / f"{name}.cpp"))
