"""`gpubench bisect`: judge the commit that is checked out, for `git bisect run`."""

import sys
from collections.abc import Mapping
from pathlib import Path

from gpubench.commands.diff.ab import SideError, compare_builds
from gpubench.commands.diff.options import BISECT_PAIRS, Options
from gpubench.errors import GpubenchError, with_place
from gpubench.options import option_texts

GOOD = 0  # `git bisect run` continues after these exit codes, and ends after 128 or more
BAD = 1
SKIP = 125


class BisectEndedError(GpubenchError):
    """The commit cannot be judged for a reason that all commits share, so the bisection ends."""

    exit_code = 128


def judge_commit(
    base: Path,
    new: Path,
    options: Mapping[str, object],
    threshold: str | None,
    *,
    config: Path | None,
    pairs: int | None,
) -> int:
    """Compare `new`, which is checked out, with `base`, and return the code for `git bisect run`.

    The code is BAD if a point is slower, and GOOD if every point is shown to be the same or faster.
    The code is SKIP if points are ambiguous, missing or broken, or if `new` cannot be measured.

    Raises BisectEndedError for anything that would be wrong at every commit. An unexpected error is
    also turned into BisectEndedError, because Python would otherwise exit with the code BAD.
    """
    settings = Options(threshold=threshold, strict=True)
    try:
        if pairs is None and "budget" not in option_texts(options, config):
            pairs = BISECT_PAIRS
        code = compare_builds(
            base, new, options, settings, config=config, pairs=pairs, results=None
        )
        sys.stdout.flush()
    except SideError as error:
        if error.side == "base":
            raise BisectEndedError(str(error)) from error
        print(f"gpubench: {error}", file=sys.stderr)
        code = SKIP
    except GpubenchError as error:
        raise BisectEndedError(str(error)) from error
    except Exception as error:
        raise BisectEndedError(f"unexpected: {with_place(error)}") from error
    if any(getattr(stream, "lost", None) for stream in (sys.stdout, sys.stderr)):
        raise BisectEndedError("cannot write the output")
    return code if code in {GOOD, BAD} else SKIP
