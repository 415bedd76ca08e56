"""A plain product in Numba's CUDA, launched in CuPy's current stream, which is the timed stream."""

from gpubench.model import CallVariant


def build(_tile, _dtype):
    import cupy
    from numba import cuda, float32

    @cuda.jit
    def product(a, b, c):
        column, row = cuda.grid(2)
        if row < c.shape[0] and column < c.shape[1]:
            total = float32(0)
            for k in range(a.shape[1]):
                total += a[row, k] * b[k, column]
            c[row, column] = total

    def multiply(a, b, c):
        grid = -(-c.shape[1] // 16), -(-c.shape[0] // 16)
        stream = cuda.external_stream(cupy.cuda.get_current_stream().ptr)
        arrays = (cuda.as_cuda_array(each, sync=False) for each in (a, b, c))
        product[grid, (16, 16), stream](*arrays)

    return multiply


VARIANT = CallVariant(
    idea="an element of C for each thread, in Numba", runs_on="cuda", dtypes=("float32",),
    build=build, libraries=("numba",), baseline="cublas",
)  # fmt: skip
