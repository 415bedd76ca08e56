"""`gpubench`, and `python -m gpubench`."""

import signal


def main() -> None:
    """Run the command line. Ctrl-C ends the process at once until `gpubench.cli` can catch it."""
    interrupts = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if interrupts:  # a shell may start a background job with SIGINT ignored
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from gpubench.cli import main as run

    if interrupts:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run()


if __name__ == "__main__":
    main()
