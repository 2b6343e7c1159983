/* A libcublas.so.12 over the libcuda.so.1 beside it. CUDA_SHIM_WRONG names a device that computes nonsense. */

#include <stdlib.h>

double *shim_value(unsigned long long address);
int shim_device(void);

static double spoilt(double value) {
    const char *wrong = getenv("CUDA_SHIM_WRONG");
    return wrong && atoi(wrong) == shim_device() ? value * 1.000001 : value;
}

int cublasCreate_v2(void **handle) { *handle = handle; return 0; }
int cublasDestroy_v2(void *handle) { return 0; }
int cublasDaxpy_v2(void *handle, int n, const double *alpha, unsigned long long x, int incx, unsigned long long y, int incy) {
    *shim_value(y) = spoilt(*shim_value(y) + *alpha * *shim_value(x));
    return 0;
}
int cublasDgemm_v2(void *handle, int ta, int tb, int m, int n, int k, const double *alpha, unsigned long long a, int lda,
                   unsigned long long b, int ldb, const double *beta, unsigned long long c, int ldc) {
    *shim_value(c) = spoilt(*alpha * k * *shim_value(a) * *shim_value(b) + *beta * *shim_value(c));
    return 0;
}
