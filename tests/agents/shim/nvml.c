/* A libnvidia-ml.so.1 without a GPU: what it answers stands in the file that NVML_SHIM names, read anew at each call.

   A line is "KEY VALUE"; a key of a GPU begins with its number: "0.uuid GPU-...". A value "!15" makes the call fail with
   that NVML error, "hang" makes it never return, an absent key is NVML_ERROR_NOT_SUPPORTED. Signatures: nvml.h. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID = 2, NOT_SUPPORTED = 3, INSUFFICIENT = 7, TIMEOUT = 10 };
enum { GPUS = 16 };

static int numbers[GPUS] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

static int look(const char *key, char *value, size_t size) {
    const char *path = getenv("NVML_SHIM");
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[512];
    int found = NOT_SUPPORTED;
    while (file && fgets(line, sizeof line, file)) {
        char *space = strchr(line, ' ');
        if (!space) continue;
        *space = 0;
        if (strcmp(line, key)) continue;
        strncpy(value, space + 1, size - 1);
        value[size - 1] = 0;
        value[strcspn(value, "\n")] = 0;
        found = SUCCESS;
    }
    if (file) fclose(file);
    if (!found && !strcmp(value, "hang"))
        for (;;) pause();
    return !found && value[0] == '!' ? atoi(value + 1) : found;
}

static int text(void *gpu, const char *name, char *value, size_t size) {
    char key[128];
    snprintf(key, sizeof key, "%d.%s", *(int *)gpu, name);
    return look(key, value, size);
}

static int number(void *gpu, const char *name, unsigned long long *out) {
    char value[512];
    int status = text(gpu, name, value, sizeof value);
    if (!status) *out = strtoull(value, NULL, 0);
    return status;
}

static int small(void *gpu, const char *name, unsigned *out) {
    unsigned long long wide = 0;
    int status = number(gpu, name, &wide);
    if (!status) *out = (unsigned)wide;
    return status;
}

int nvmlInitWithFlags(unsigned flags) {
    char value[64] = "";
    int status = look("init", value, sizeof value);
    return status == NOT_SUPPORTED ? SUCCESS : status;
}
int nvmlShutdown(void) { return SUCCESS; }
const char *nvmlErrorString(int code) { return code == 15 ? "GPU is lost" : code == 9 ? "Driver Not Loaded" : "shim error"; }
int nvmlSystemGetDriverVersion(char *out, unsigned size) { return look("driver", out, size); }
int nvmlDeviceGetCount_v2(unsigned *count) {
    char value[64];
    int status = look("count", value, sizeof value);
    if (!status) *count = (unsigned)atoi(value);
    return status;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **gpu) {
    if (index >= GPUS) return INVALID;
    *gpu = &numbers[index];
    char value[64] = "";
    int status = text(*gpu, "handle", value, sizeof value);
    return status == NOT_SUPPORTED ? SUCCESS : status;
}
int nvmlDeviceGetUUID(void *gpu, char *out, unsigned size) { return text(gpu, "uuid", out, size); }
int nvmlDeviceGetName(void *gpu, char *out, unsigned size) { return text(gpu, "name", out, size); }
int nvmlDeviceGetSerial(void *gpu, char *out, unsigned size) { return text(gpu, "serial", out, size); }
int nvmlDeviceGetPciInfo_v3(void *gpu, struct { char legacy[16]; unsigned numbers[5]; char bus[32]; } *out) {
    memset(out, 0, sizeof *out);
    return text(gpu, "pci", out->bus, sizeof out->bus);
}
int nvmlDeviceGetUtilizationRates(void *gpu, unsigned out[2]) { out[1] = 0; return small(gpu, "busy", out); }
int nvmlDeviceGetEccMode(void *gpu, unsigned *now, unsigned *next) { *next = 0; return small(gpu, "ecc", now); }
int nvmlDeviceGetTotalEccErrors(void *gpu, unsigned kind, unsigned counter, unsigned long long *out) {
    return number(gpu, kind ? "ecc_uncorrected" : "ecc_corrected", out);
}
int nvmlDeviceGetSramEccErrorStatus(void *gpu, unsigned *status) { /* v1: the flag is at byte 96 */
    return small(gpu, "sram", &status[96 / 4]);
}
int nvmlDeviceGetRemappedRows(void *gpu, unsigned *corrected, unsigned *uncorrected, unsigned *pending, unsigned *failed) {
    *corrected = *uncorrected = *failed = 0;
    int status = small(gpu, "rows_pending", pending);
    small(gpu, "rows_corrected", corrected);
    small(gpu, "rows_uncorrected", uncorrected);
    small(gpu, "rows_failed", failed);
    return status;
}
int nvmlDeviceGetRowRemapperHistogram(void *gpu, unsigned out[5]) {
    memset(out, 0, 20);
    return small(gpu, "rows_none", &out[4]);
}
int nvmlDeviceGetRetiredPagesPendingStatus(void *gpu, unsigned *out) { return small(gpu, "pages_pending", out); }
int nvmlDeviceGetRetiredPages(void *gpu, unsigned cause, unsigned *count, unsigned long long *pages) {
    unsigned there = 0, room = *count;
    int status = small(gpu, cause ? "pages_double" : "pages_single", &there);
    if (status) return status;
    *count = there;
    if (room < there || !pages) return there ? INSUFFICIENT : SUCCESS;
    for (unsigned i = 0; i < there; i++) pages[i] = i;
    return SUCCESS;
}
int nvmlDeviceGetRepairStatus(void *gpu, unsigned out[3]) { out[2] = 0; return small(gpu, "repair", &out[1]); }
int nvmlDeviceGetCurrentClocksEventReasons(void *gpu, unsigned long long *out) { return number(gpu, "clocks", out); }
int nvmlDeviceGetViolationStatus(void *gpu, unsigned policy, unsigned long long out[2]) {
    char name[32];
    snprintf(name, sizeof name, "violation.%u", policy);
    out[0] = 0;
    return number(gpu, name, &out[1]);
}
int nvmlDeviceGetCurrPcieLinkWidth(void *gpu, unsigned *out) { return small(gpu, "pcie_width", out); }
int nvmlDeviceGetMaxPcieLinkWidth(void *gpu, unsigned *out) { return small(gpu, "pcie_max_width", out); }
int nvmlDeviceGetCurrPcieLinkGeneration(void *gpu, unsigned *out) { return small(gpu, "pcie_gen", out); }
int nvmlDeviceGetMaxPcieLinkGeneration(void *gpu, unsigned *out) { return small(gpu, "pcie_max_gen", out); }
int nvmlDeviceGetMarginTemperature(void *gpu, int out[2]) { return small(gpu, "margin", (unsigned *)&out[1]); }
int nvmlDeviceGetTemperature(void *gpu, unsigned sensor, unsigned *out) { return small(gpu, "temperature", out); }
int nvmlDeviceGetTemperatureThreshold(void *gpu, unsigned kind, unsigned *out) {
    return kind == 1 ? small(gpu, "slowdown", out) : NOT_SUPPORTED;
}
int nvmlDeviceGetPowerUsage(void *gpu, unsigned *out) { return small(gpu, "power", out); }
int nvmlDeviceGetEnforcedPowerLimit(void *gpu, unsigned *out) { return small(gpu, "power_limit", out); }
int nvmlDeviceGetPowerManagementDefaultLimit(void *gpu, unsigned *out) { return small(gpu, "power_default", out); }
int nvmlDeviceGetMigMode(void *gpu, unsigned *now, unsigned *next) { *next = 0; return small(gpu, "mig", now); }
int nvmlDeviceGetComputeRunningProcesses_v3(void *gpu, unsigned *count, struct { unsigned pid; unsigned long long memory; unsigned gi, ci; } *out) {
    unsigned pid = 0, room = *count;
    int status = small(gpu, "process", &pid);
    if (status) return status;
    *count = pid ? 1 : 0;
    if (!pid) return SUCCESS;
    if (!room || !out) return INSUFFICIENT;
    memset(out, 0, sizeof *out);
    out[0].pid = pid;
    return SUCCESS;
}
int nvmlDeviceGetNvLinkState(void *gpu, unsigned link, unsigned *out) {
    unsigned count = 0, down = 0;
    int status = small(gpu, "nvlinks", &count);
    if (status || link >= count) return NOT_SUPPORTED;
    small(gpu, "nvlinks_down", &down);
    *out = link >= down;
    return SUCCESS;
}
int nvmlDeviceGetNvLinkErrorCounter(void *gpu, unsigned link, unsigned counter, unsigned long long *out) {
    char name[32];
    snprintf(name, sizeof name, "nvlink%u.error%u", link, counter);
    *out = 0;
    int status = number(gpu, name, out);
    return status == NOT_SUPPORTED ? SUCCESS : status;
}
int nvmlDeviceGetGpuFabricInfoV(void *gpu, struct { unsigned version; unsigned char cluster[16]; unsigned status, clique; unsigned char state; unsigned health; } *out) {
    unsigned state = 0;
    int status = small(gpu, "fabric", &state);
    if (status) return status;
    out->state = (unsigned char)state;
    out->status = out->health = 0;
    small(gpu, "fabric_status", &out->status);
    small(gpu, "fabric_health", &out->health);
    return SUCCESS;
}

struct field { unsigned id, scope; long long at, latency; unsigned type, status; union { double d; unsigned u; unsigned long ul; unsigned long long ull; } value; };

int nvmlDeviceGetFieldValues(void *gpu, int count, struct field *fields) {
    for (int i = 0; i < count; i++) {
        char name[32];
        unsigned long long value = 0;
        snprintf(name, sizeof name, "field%u.%u", fields[i].id, fields[i].scope);
        fields[i].status = number(gpu, name, &value);
        fields[i].type = 3;
        fields[i].value.ull = value;
    }
    return SUCCESS;
}

/* Events: "xid GPU CODE" is told once for each new value of the line "xid". */
static char told[64];

int nvmlEventSetCreate(void **set) { *set = &told; return SUCCESS; }
int nvmlEventSetFree(void *set) { return SUCCESS; }
int nvmlDeviceRegisterEvents(void *gpu, unsigned long long kinds, void *set) { return SUCCESS; }
int nvmlEventSetWait_v2(void *set, struct { void *gpu; unsigned long long kind, data; unsigned gi, ci; } *event, unsigned ms) {
    char value[64];
    int gpu, code;
    usleep(ms * 1000); /* a real one returns at once; here a caller waits out its time */
    if (look("xid", value, sizeof value) || !strcmp(value, told)) return TIMEOUT;
    strcpy(told, value);
    if (sscanf(value, "%d %d", &gpu, &code) != 2) return TIMEOUT;
    memset(event, 0, sizeof *event);
    event->gpu = &numbers[gpu];
    event->kind = 8;
    event->data = code;
    return SUCCESS;
}
