"""The verdict of documented workflows is honest even if the new side attacks them."""

import sys
from pathlib import Path

import pytest
from newcomer import RESEARCH

sys.path.insert(0, str(RESEARCH))
import hostile


@pytest.mark.slow
@pytest.mark.exhaustive  # results/cpu/hostile.json has all attacks
def test_the_static_gate_is_honest_though_the_new_side_writes_into_all_files_of_the_job(
    tmp_path: Path,
) -> None:
    request, ended, before = hostile.static(tmp_path, "job")
    assert ended.code == 1, ended.said
    assert "worse: " in ended.summary
    assert hostile.faults_of(request, ended.said + ended.summary, before) == []


def test_each_effect_of_an_attack_is_a_fault(tmp_path: Path) -> None:
    """The checks find each effect of an attack. The test causes these effects itself."""
    request = hostile.PullRequest(tmp_path, "")
    before = request.kept()
    (request.temporary / "path").write_text("/hostile")
    (request.checkout / ".git" / "hooks" / "pre-commit").touch()
    request.ran.touch()
    faults = hostile.faults_of(request, f"{hostile.TOKEN}\x1b\n::add-mask::x", before)
    assert len(faults) == 6
