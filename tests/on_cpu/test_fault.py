"""The sentences about faults that sanitizers found."""

from gpubench.on_cpu.fault import KernelFaultError

RACE = """WARNING: ThreadSanitizer: data race (pid=1)
  Write of size 4 at 0x7b08 by main thread:
    #0 store(float*) store.cuh:12 (program+0x1)

  Previous read of size 4 at 0x7b08 by main thread:
    #0 load(float*) load.cuh:12 (program+0x2)

  Location is global 'tile' of size 4 at 0x7b08 (program+0x3)
"""


def test_a_race_names_the_files_of_both_accesses() -> None:
    sentence = KernelFaultError(RACE).sentence
    assert sentence.startswith("store.cuh:12 writes the shared array tile, and load.cuh:12 reads")
    assert sentence.endswith("a __syncthreads() is missing between the two")


def test_a_crash_under_thread_sanitizer_has_no_addresses_and_is_no_race() -> None:
    line = "==7==ERROR: ThreadSanitizer: SEGV on unknown address (pc 0x55b0 bp 0x7f21 sp 0x7f22 T4)"
    crash = KernelFaultError(line)
    assert crash.finding == "ThreadSanitizer: SEGV"
    assert crash.is_crash
    assert not KernelFaultError(RACE).is_crash
    assert not KernelFaultError("ERROR: AddressSanitizer: SEGV on unknown address").is_crash
