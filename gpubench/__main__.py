"""The entry point of `gpubench` and of `python -m gpubench`."""

import os
import sys


def main() -> None:
    """Run the command line.

    Until `gpubench.cli` can catch Ctrl-C, Ctrl-C ends the process at once.
    """
    import signal  # late: the current directory may have a module with this name

    interrupts = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if interrupts:  # a shell may start a background job with SIGINT ignored
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from gpubench.cli import main as run

    if interrupts:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run()


def leave_the_current_directory() -> None:
    """Prevent imports from the current directory, where `python -m` looks for modules first.

    The current directory may contain other people's code, such as the checkout of a pull request.
    """
    package = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))  # noqa: PTH120 # as above
    if not sys.flags.safe_path and os.path.realpath(sys.path[0]) == os.getcwd() != package:  # noqa: PTH109 # as above
        del sys.path[0]


if __name__ == "__main__":
    leave_the_current_directory()
    main()
