"""A source, with the files that it includes."""

from pathlib import Path

from gpubench.model.sources import flattened, read_source, whole_source


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


def test_included_text_ends_its_last_line_and_comments_include_nothing(tmp_path: Path) -> None:
    (tmp_path / "near.cuh").write_text("int x;  // the last line")
    (tmp_path / "main.cu").write_text('// \f#include "near.cuh"\n#include "near.cuh"\nint y;\n')
    assert flattened(tmp_path / "main.cu") == (
        '// \f#include "near.cuh"\nint x;  // the last line\nint y;\n'
    )


def test_a_byte_order_mark_is_no_text_of_a_source(tmp_path: Path) -> None:
    (tmp_path / "main.cu").write_bytes(b"\xef\xbb\xbfint y;\n")
    assert read_source(tmp_path / "main.cu") == "int y;\n"
