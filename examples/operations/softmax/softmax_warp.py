from gpubench.model import CudaVariant

VARIANT = CudaVariant(
    idea="a warp computes a row",
    dtypes=("float32",),
    kernel="softmax_warp<{scalar}>",
    signature="const Scalar* X, Scalar* Y, int ROWS, int COLS",
    grid=("ROWS/8",),
    block=(32, 8),
    baseline="softmax_torch",
)
