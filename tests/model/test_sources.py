"""A source, with the files that it includes."""

from pathlib import Path

from gpubench.model.sources import whole_source


def test_a_source_comes_with_direct_and_indirect_includes(tmp_path: Path) -> None:
    (tmp_path / "ops").mkdir()
    main, near, far = (
        tmp_path / "ops" / "main.cu",
        tmp_path / "ops" / "near.cuh",
        tmp_path / "far.cuh",
    )
    main.write_text(
        '// a lesson\n#include "near.cuh"\n  #  include "../far.cuh"\n#include <mma.h>\n'
    )
    near.write_text('#pragma once\n#include "../far.cuh"\n#include "missing.cuh"\n')
    far.write_text('#include "ops/near.cuh"\n// #include "ops/main.cu" is only talked about\n')
    assert whole_source(main) == (main, near, far)
