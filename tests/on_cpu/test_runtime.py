import resource

import pytest

from gpubench.on_cpu.run import execute, gxx
from gpubench.on_cpu.unit import SHIM

pytestmark = pytest.mark.slow


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["runtime", "accesses"])
def test_g_plus_plus_warns_of_nothing_in_the_runtime(name):
    warnings = ("-Wall", "-Wextra", "-Werror")
    gxx("-fsyntax-only", *warnings, str(SHIM / f"{name}.cpp"))


def test_a_program_may_still_set_its_own_limit_of_cores_as_sanitizers_do() -> None:
    """Sanitizers read both limits and set the soft limit, before or after the runtime does."""
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    kept = "unlimited" if hard == resource.RLIM_INFINITY else str(hard)
    limited = 'until [ "$(ulimit -Sf)" != unlimited ]; do :; done'
    execute(["bash", "-c", f'{limited}; [ "$(ulimit -Hc)" = {kept} ]'])
