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
