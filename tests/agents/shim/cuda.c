/* A libcuda.so.1 without a GPU, for two devices. Every stretch between two events took CUDA_SHIM_MS milliseconds
   (CUDA_SHIM_MS_1 on the second device); CUDA_VISIBLE_DEVICES chooses by UUID. Memory is addresses only: a buffer is a
   number that stands for each of its cells. */

#include <stdlib.h>
#include <string.h>

static const char *uuids[2] = {"GPU-00000000-0000-0000-0000-000000000000", "GPU-11111111-1111-1111-1111-111111111111"};
static int current, visible[2], count;
static struct { unsigned long long start, end; double value; } buffers[64];
static int used;
static unsigned long long next = 1 << 20;

double *shim_value(unsigned long long address) {
    for (int i = 0; i < used; i++)
        if (address >= buffers[i].start && address + 8 <= buffers[i].end) return &buffers[i].value;
    abort();
}
int shim_device(void) { return current; }

int cuInit(unsigned flags) {
    const char *wanted = getenv("CUDA_VISIBLE_DEVICES");
    if (getenv("CUDA_SHIM_BROKEN")) return 999;
    for (int i = 0; i < 2; i++)
        if (!wanted || strstr(wanted, uuids[i])) visible[count++] = i;
    return 0;
}
int cuGetErrorName(int code, const char **name) {
    *name = code == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_UNKNOWN";
    return 0;
}
int cuDeviceGetCount(int *out) { *out = count; return 0; }
int cuDeviceGet(int *device, int index) { *device = visible[index]; return 0; }
int cuDeviceGetUuid(unsigned char out[16], int device) { memset(out, device ? 0x11 : 0, 16); return 0; }
int cuDevicePrimaryCtxRetain(void **context, int device) { current = device; *context = &current; return 0; }
int cuDevicePrimaryCtxRelease_v2(int device) { return 0; }
int cuCtxSetCurrent(void *context) { return 0; }
int cuMemAlloc_v2(unsigned long long *pointer, size_t size) {
    const char *full = getenv("CUDA_SHIM_FULL");
    if (full && atoi(full) == current) return 2;
    buffers[used].start = *pointer = next;
    buffers[used++].end = next + size;
    next += size + (1 << 20);
    return 0;
}
int cuMemFree_v2(unsigned long long pointer) { return 0; }
int cuMemHostAlloc(void **pointer, size_t size, unsigned flags) { *pointer = malloc(64); return 0; }
int cuMemFreeHost(void *pointer) { free(pointer); return 0; }
int cuMemsetD32_v2(unsigned long long pointer, unsigned value, size_t n) {
    unsigned halves[2] = {value, value};
    memcpy(shim_value(pointer), halves, 8);
    return 0;
}
int cuMemcpyHtoDAsync_v2(unsigned long long target, const void *source, size_t size, void *stream) { return 0; }
int cuMemcpyDtoH_v2(void *target, unsigned long long source, size_t size) {
    memcpy(target, shim_value(source), 8);
    return 0;
}
int cuEventCreate(void **event, unsigned flags) { *event = &count; return 0; }
int cuEventDestroy_v2(void *event) { return 0; }
int cuEventRecord(void *event, void *stream) { return 0; }
int cuEventSynchronize(void *event) { return 0; }
int cuEventElapsedTime(float *ms, void *start, void *end) {
    const char *given = current ? getenv("CUDA_SHIM_MS_1") : NULL;
    if (!given) given = getenv("CUDA_SHIM_MS");
    *ms = given ? (float)atof(given) : 10.0f;
    return 0;
}
