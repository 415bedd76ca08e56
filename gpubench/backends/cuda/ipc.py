"""Shares memory of a GPU between two processes, by CUDA IPC."""

from typing import Any

import cupy
from cupy.cuda import runtime

from gpubench.backends.cuda.kernel import faults

BLOCK_BYTES = 2**21
"""Allocated sizes are multiples of this size, so that a handle's memory contains no other
allocation."""


class CudaIpc:
    """Allocates memory for other processes, and opens the memory of other processes."""

    def __init__(self) -> None:
        self._opened: dict[bytes, int] = {}  # a process opens each handle once

    def export(self, size: int) -> tuple[bytes, Any]:
        """Allocate memory outside any pool. Return a handle and the memory. Raises LaunchError.

        The memory is freed when this process ends.
        """
        with faults():
            address = runtime.malloc(-(-size // BLOCK_BYTES) * BLOCK_BYTES)
            return bytes(runtime.ipcGetMemHandle(address)), self._bytes_at(address, size)

    def open(self, handle: bytes, size: int) -> Any:
        """Return the memory that another process exported, as bytes. Raises LaunchError."""
        with faults():
            if handle not in self._opened:
                flags = runtime.cudaIpcMemLazyEnablePeerAccess
                self._opened[handle] = runtime.ipcOpenMemHandle(handle, flags)
            return self._bytes_at(self._opened[handle], size)

    def _bytes_at(self, address: int, size: int) -> Any:
        memory = cupy.cuda.UnownedMemory(address, size, self)
        return cupy.ndarray(size, "uint8", memptr=cupy.cuda.MemoryPointer(memory, 0))
