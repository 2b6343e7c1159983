"""Measures GPUs: host-to-device bandwidth, memory bandwidth (DAXPY) and compute speed (DGEMM).

It runs as a separate program (``python -m agents.checks.gpu_bench pciebw``): a driver that hangs or crashes ends only
the child process, and the agent never holds a CUDA context. It calls the driver API and cuBLAS through ctypes, so there
is nothing to compile and no CUDA toolkit to install. It prints one JSON object for each GPU.
"""

import argparse
import ctypes
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

CUBLAS = ("libcublas.so.13", "libcublas.so.12", "libcublas.so.11", "libcublas.so")
COPY_BYTES = 32 << 20  # as in CUDA's bandwidthTest
COPIES = 20
AXPY_LENGTH = 1 << 27  # doubles: 1 GiB each of x and y
AXPYS = 20
GEMM_SIZE = 8192  # 512 MiB a matrix
GEMMS = 5
ONE = 0x3FF00000  # both halves of a double: 1.00000095...; zeros would make a GPU look faster
NO_LIBRARY = 3  # exit status


class CudaError(Exception):
    """A call of the CUDA driver or of cuBLAS failed."""


class NoLibrary(Exception):
    """A library is not installed on this node."""


class Cuda:
    """The CUDA driver calls needed here; each result is checked."""

    def __init__(self) -> None:
        try:
            self._driver = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise NoLibrary(f"libcuda.so.1: {error}: install the NVIDIA driver's user-space libraries") from error
        self.call("cuInit", ctypes.c_uint(0))

    def call(self, name: str, *args: Any) -> None:
        """Call the driver API. Raises CudaError."""
        status = getattr(self._driver, name)(*args)
        if status:
            text = ctypes.c_char_p()
            self._driver.cuGetErrorName(status, ctypes.byref(text))
            raise CudaError(f"{name}: {(text.value or b'error').decode()} ({status})")

    def devices(self) -> list[tuple[int, str]]:
        """The visible GPUs: device number, and UUID as nvidia-smi prints it."""
        count = ctypes.c_int()
        self.call("cuDeviceGetCount", ctypes.byref(count))
        found = []
        for index in range(count.value):
            device, raw = ctypes.c_int(), (ctypes.c_ubyte * 16)()
            self.call("cuDeviceGet", ctypes.byref(device), ctypes.c_int(index))
            self.call("cuDeviceGetUuid", ctypes.byref(raw), device)
            text = bytes(raw).hex()
            uuid = f"GPU-{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
            found.append((device.value, uuid))
        return found

    @contextmanager
    def context(self, device: int) -> Iterator[None]:
        """Make this GPU the target of the calls."""
        context = ctypes.c_void_p()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), ctypes.c_int(device))
        try:
            self.call("cuCtxSetCurrent", context)
            yield
        finally:
            self.call("cuDevicePrimaryCtxRelease_v2", ctypes.c_int(device))

    @contextmanager
    def memory(self, size: int) -> Iterator[ctypes.c_uint64]:
        """Allocate ``size`` bytes on the GPU, filled with ones."""
        pointer = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(size))
        try:
            self.call("cuMemsetD32_v2", pointer, ctypes.c_uint(ONE), ctypes.c_size_t(size // 4))
            yield pointer
        finally:
            self.call("cuMemFree_v2", pointer)

    @contextmanager
    def pinned(self, size: int) -> Iterator[ctypes.c_void_p]:
        """Allocate ``size`` bytes of host memory that the GPU can read directly."""
        pointer = ctypes.c_void_p()
        self.call("cuMemHostAlloc", ctypes.byref(pointer), ctypes.c_size_t(size), ctypes.c_uint(0))
        try:
            yield pointer
        finally:
            self.call("cuMemFreeHost", pointer)

    @contextmanager
    def timed(self, seconds: list[float]) -> Iterator[None]:
        """Append the seconds that the GPU spent on the work queued inside the block."""
        events = [ctypes.c_void_p(), ctypes.c_void_p()]
        for event in events:
            self.call("cuEventCreate", ctypes.byref(event), ctypes.c_uint(0))
        try:
            self.call("cuEventRecord", events[0], None)
            yield
            self.call("cuEventRecord", events[1], None)
            self.call("cuEventSynchronize", events[1])
            passed = ctypes.c_float()
            self.call("cuEventElapsedTime", ctypes.byref(passed), *events)
            seconds.append(passed.value / 1000)
        finally:
            for event in events:
                self.call("cuEventDestroy_v2", event)

    def read(self, pointer: ctypes.c_uint64, offset: int) -> float:
        """One double from GPU memory."""
        value = ctypes.c_double()
        source = ctypes.c_uint64(pointer.value + 8 * offset)
        self.call("cuMemcpyDtoH_v2", ctypes.byref(value), source, ctypes.c_size_t(8))
        return value.value


class Blas:
    """cuBLAS on the current GPU."""

    def __init__(self) -> None:
        for name in CUBLAS:
            try:
                self._library = ctypes.CDLL(name)
                break
            except OSError:
                continue
        else:
            raise NoLibrary("libcublas: install CUDA's cuBLAS (package libcublas, or nvidia-cublas from pip)")
        self._handle = ctypes.c_void_p()
        self._call("cublasCreate_v2", ctypes.byref(self._handle))

    def close(self) -> None:
        self._call("cublasDestroy_v2", self._handle)

    def axpy(self, n: int, alpha: float, x: ctypes.c_uint64, y: ctypes.c_uint64) -> None:
        """y += alpha x."""
        stride, factor = ctypes.c_int(1), ctypes.c_double(alpha)
        self._call("cublasDaxpy_v2", self._handle, ctypes.c_int(n), ctypes.byref(factor), x, stride, y, stride)

    def gemm(self, n: int, a: ctypes.c_uint64, b: ctypes.c_uint64, c: ctypes.c_uint64) -> None:
        """C = A B, square matrices."""
        size, plain = ctypes.c_int(n), ctypes.c_int(0)
        one, zero = ctypes.c_double(1.0), ctypes.c_double(0.0)
        scale = ctypes.byref(one), ctypes.byref(zero)
        self._call(
            "cublasDgemm_v2",
            self._handle,
            plain,
            plain,
            size,
            size,
            size,
            scale[0],
            a,
            size,
            b,
            size,
            scale[1],
            c,
            size,
        )

    def _call(self, name: str, *args: Any) -> None:
        status = getattr(self._library, name)(*args)
        if status:
            raise CudaError(f"{name}: status {status}")


def pciebw(cuda: Cuda) -> dict[str, Any]:
    """GB/s from pinned host memory to the GPU."""
    seconds: list[float] = []
    with cuda.pinned(COPY_BYTES) as source, cuda.memory(COPY_BYTES) as target:
        for copies in (2, COPIES):  # the first round is a warm-up
            seconds.clear()
            with cuda.timed(seconds):
                for _ in range(copies):
                    cuda.call("cuMemcpyHtoDAsync_v2", target, source, ctypes.c_size_t(COPY_BYTES), None)
    return {"gb_per_s": COPY_BYTES * COPIES / 1e9 / seconds[0]}


def gpumem(cuda: Cuda) -> dict[str, Any]:
    """DAXPY in GB/s, DGEMM in TFLOPS, and whether the results are right."""
    blas = Blas()
    try:
        gb_per_s, right = _daxpy(cuda, blas)
        tflops, right_too = _dgemm(cuda, blas)
    finally:
        blas.close()
    return {"gb_per_s": gb_per_s, "tflops": tflops, "right": right and right_too}


def _daxpy(cuda: Cuda, blas: Blas) -> tuple[float, bool]:
    seconds: list[float] = []
    with cuda.memory(8 * AXPY_LENGTH) as x, cuda.memory(8 * AXPY_LENGTH) as y:
        done = 0
        for times in (2, AXPYS):
            seconds.clear()
            with cuda.timed(seconds):
                for _ in range(times):
                    blas.axpy(AXPY_LENGTH, 0.5, x, y)
            done += times
        value = cuda.read(x, 0)
        wanted = value * (1 + 0.5 * done)
        right = all(_near(cuda.read(y, place), wanted) for place in (0, AXPY_LENGTH // 2, AXPY_LENGTH - 1))
    return 3 * 8 * AXPY_LENGTH * AXPYS / 1e9 / seconds[0], right


def _dgemm(cuda: Cuda, blas: Blas) -> tuple[float, bool]:
    seconds: list[float] = []
    size = 8 * GEMM_SIZE * GEMM_SIZE
    with cuda.memory(size) as a, cuda.memory(size) as b, cuda.memory(size) as c:
        for times in (1, GEMMS):
            seconds.clear()
            with cuda.timed(seconds):
                for _ in range(times):
                    blas.gemm(GEMM_SIZE, a, b, c)
        value = cuda.read(a, 0)
        cells = GEMM_SIZE * GEMM_SIZE
        right = all(_near(cuda.read(c, place), GEMM_SIZE * value * value) for place in (0, cells // 2, cells - 1))
    return 2 * GEMM_SIZE**3 * GEMMS / 1e12 / seconds[0], right


def _near(value: float, wanted: float) -> bool:
    return abs(value - wanted) <= 1e-9 * abs(wanted)


BENCHES = {"pciebw": pciebw, "gpumem": gpumem}


def main() -> int:
    """Run one benchmark on every visible GPU, one after the other. Return 3 if a library is missing."""
    parser = argparse.ArgumentParser(
        prog="python -m agents.checks.gpu_bench", description="Measure GPUs; see agents.checks.bandwidth."
    )
    parser.add_argument("bench", choices=sorted(BENCHES))
    bench = BENCHES[parser.parse_args().bench]
    try:
        cuda = Cuda()
        for device, uuid in cuda.devices():
            try:
                with cuda.context(device):
                    result = bench(cuda)
            except CudaError as error:
                result = {"error": str(error)}
            print(json.dumps({"uuid": uuid, **result}), flush=True)
    except NoLibrary as error:
        print(error, file=sys.stderr)
        return NO_LIBRARY
    except CudaError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
