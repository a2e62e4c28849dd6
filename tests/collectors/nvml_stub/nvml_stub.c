/* An NVML for tests: answers what a scenario file says.
 *
 * The file is named by NVML_STUB_SCENARIO and read at nvmlInitWithFlags. One fact a line:
 *
 *   system driver 550.90.07          system error CALL CODE
 *   gpu0 name NVIDIA H100 80GB HBM3  gpu0 uuid GPU-...        gpu0 power_mw 350000
 *   gpu0 average_mw 349000           gpu0 energy_mj 1         gpu0 energy_step_mj 1000
 *   gpu0 limit_mw 700000             gpu0 utilization 87      gpu0 sm_util 63.5
 *   gpu0 gpm METRIC VALUE            gpu0 clock_reasons 64    gpu0 gpm_one 1
 *   gpu0 temperature 61              gpu0 memory_temperature 70
 *   gpu0 sm_clock 1980               gpu0 ecc_errors 2        gpu0 remapped 1 2 0 1
 *   gpu0 default_mw 700000           gpu0 least_mw 200000     gpu0 most_mw 700000
 *   gpu0 limit_file PATH
 *   gpu0 memory_total B              gpu0 memory_reserved B   gpu0 memory_used B
 *   gpu0 process PID                 gpu0 mig_slots 7
 *   gpu0 error CALL CODE             gpu0 lost_at CALL
 *   gpu0 xid CODE                    gpu0 xid none            gpu0 xid_file PATH
 *   gpu0.mig2 instance 3             gpu0.mig2 slices 1       gpu0.mig2 slice_mb 9856
 *
 * A fact that is not given is NOT_SUPPORTED by its call. From the call named by lost_at on, every
 * call on that board answers GPU_IS_LOST. With limit_file the limit lives in that file, as it lives in
 * the board: it outlasts the process that set it. An xid happens as soon as the board's events are
 * registered, in the order given; one more for each code that is written to xid_file after that.
 * Structures follow NVIDIA's public nvml.h.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7, TIMEOUT = 10, GPU_IS_LOST = 15, VERSION_MISMATCH = 25, UNKNOWN = 999
};
#define BOARDS 16
#define SLOTS 8
#define ERRORS 24
#define PROCESSES 64
#define XIDS 16
#define METRICS 64
#define TEXT 128

typedef struct { char call[TEXT]; int code; } Refusal;

typedef struct Device {
    int exists, lost, index, refusals, processes, instance, slices, mig_slots;
    struct Device *board;
    char name[TEXT], uuid[TEXT], lost_at[TEXT], limit_file[TEXT];
    Refusal refusal[ERRORS];
    unsigned pid[PROCESSES];
    int has_events, xids, xids_told;
    unsigned long long xid[XIDS];
    char xid_file[TEXT];
    long xid_offset;
    double power_mw, average_mw, limit_mw, utilization, sm_util, default_mw, least_mw, most_mw;
    double gpm[METRICS];
    long long clock_reasons;
    double temperature, memory_temperature, sm_clock, ecc_errors;
    unsigned remapped[4];
    int has_remapped;
    int gpm_one;
    unsigned long long energy_mj, energy_step_mj, total, reserved, used, slice_mb;
    int has_energy, has_memory;
} Device;

typedef struct { Device *device; int instance; } GpmSample;

static Device boards[BOARDS], migs[BOARDS][SLOTS], machine;
static int board_count, sessions, live_samples, live_sets;

static void blank(Device *one, Device *board, int index) {
    memset(one, 0, sizeof *one);
    one->board = board;
    one->index = index;
    one->power_mw = one->average_mw = one->limit_mw = one->utilization = one->sm_util = -1;
    one->default_mw = one->least_mw = one->most_mw = -1;
    one->instance = -1;
    one->clock_reasons = -1;
    one->temperature = one->memory_temperature = one->sm_clock = one->ecc_errors = -1;
    for (int i = 0; i < METRICS; i++) one->gpm[i] = -1;
}

static void text(char *to, const char *from) { snprintf(to, TEXT, "%s", from); }

static void learn(Device *one, const char *key, const char *value) {
    char call[TEXT];
    int code;
    one->exists = 1;
    if (!strcmp(key, "name")) text(one->name, value);
    else if (!strcmp(key, "driver")) text(one->name, value);
    else if (!strcmp(key, "uuid")) text(one->uuid, value);
    else if (!strcmp(key, "lost_at")) text(one->lost_at, value);
    else if (!strcmp(key, "power_mw")) one->power_mw = atof(value);
    else if (!strcmp(key, "average_mw")) one->average_mw = atof(value);
    else if (!strcmp(key, "limit_mw")) one->limit_mw = atof(value);
    else if (!strcmp(key, "default_mw")) one->default_mw = atof(value);
    else if (!strcmp(key, "least_mw")) one->least_mw = atof(value);
    else if (!strcmp(key, "most_mw")) one->most_mw = atof(value);
    else if (!strcmp(key, "limit_file")) text(one->limit_file, value);
    else if (!strcmp(key, "utilization")) one->utilization = atof(value);
    else if (!strcmp(key, "sm_util")) one->sm_util = strtod(value, NULL);
    else if (!strcmp(key, "gpm") && sscanf(value, "%d", &code) == 1 && code > 0 && code < METRICS)
        one->gpm[code] = strtod(strchr(value, ' '), NULL);
    else if (!strcmp(key, "gpm_one")) one->gpm_one = atoi(value);
    else if (!strcmp(key, "temperature")) one->temperature = atof(value);
    else if (!strcmp(key, "memory_temperature")) one->memory_temperature = atof(value);
    else if (!strcmp(key, "sm_clock")) one->sm_clock = atof(value);
    else if (!strcmp(key, "ecc_errors")) one->ecc_errors = atof(value);
    else if (!strcmp(key, "remapped"))
        one->has_remapped = sscanf(value, "%u %u %u %u", &one->remapped[0], &one->remapped[1],
                                   &one->remapped[2], &one->remapped[3]) == 4;
    else if (!strcmp(key, "clock_reasons")) one->clock_reasons = atoll(value);
    else if (!strcmp(key, "energy_mj")) {
        one->energy_mj = strtoull(value, NULL, 10);
        one->has_energy = 1;
    }
    else if (!strcmp(key, "energy_step_mj")) one->energy_step_mj = strtoull(value, NULL, 10);
    else if (!strcmp(key, "memory_total")) {
        one->total = strtoull(value, NULL, 10);
        one->has_memory = 1;
    }
    else if (!strcmp(key, "memory_reserved")) one->reserved = strtoull(value, NULL, 10);
    else if (!strcmp(key, "memory_used")) one->used = strtoull(value, NULL, 10);
    else if (!strcmp(key, "instance")) one->instance = atoi(value);
    else if (!strcmp(key, "slices")) one->slices = atoi(value);
    else if (!strcmp(key, "slice_mb")) one->slice_mb = strtoull(value, NULL, 10);
    else if (!strcmp(key, "mig_slots")) one->mig_slots = atoi(value);
    else if (!strcmp(key, "xid_file")) {
        text(one->xid_file, value);
        one->has_events = 1;
    }
    else if (!strcmp(key, "xid") && one->xids < XIDS) {
        one->has_events = 1;
        if (strcmp(value, "none")) one->xid[one->xids++] = strtoull(value, NULL, 10);
    }
    else if (!strcmp(key, "process") && one->processes < PROCESSES)
        one->pid[one->processes++] = (unsigned)strtoul(value, NULL, 10);
    else if (!strcmp(key, "error") && sscanf(value, "%127s %d", call, &code) == 2
             && one->refusals < ERRORS) {
        text(one->refusal[one->refusals].call, call);
        one->refusal[one->refusals++].code = code;
    }
    else { fprintf(stderr, "nvml_stub: unknown fact %s\n", key); abort(); }
}

static void read_scenario(void) {
    const char *path = getenv("NVML_STUB_SCENARIO");
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[512], who[TEXT], key[TEXT], value[TEXT];
    blank(&machine, NULL, 0);
    board_count = 0;
    for (int i = 0; i < BOARDS; i++) {
        blank(&boards[i], &boards[i], i);
        for (int j = 0; j < SLOTS; j++) blank(&migs[i][j], &boards[i], j);
    }
    if (!file) return;
    while (fgets(line, sizeof line, file)) {
        int board, slot;
        if (line[0] == '#' || sscanf(line, "%127s %127s %127[^\n]", who, key, value) != 3) continue;
        if (!strcmp(who, "system")) learn(&machine, key, value);
        else if (sscanf(who, "gpu%d.mig%d", &board, &slot) == 2 && board < BOARDS && slot < SLOTS)
            learn(&migs[board][slot], key, value);
        else if (sscanf(who, "gpu%d", &board) == 1 && board < BOARDS) {
            learn(&boards[board], key, value);
            if (board >= board_count) board_count = board + 1;
        }
    }
    fclose(file);
}

static int refused_by(const Device *one, const char *call) {
    for (int i = 0; i < one->refusals; i++)
        if (!strcmp(one->refusal[i].call, call)) return one->refusal[i].code;
    return SUCCESS;
}

/* What a call answers before it does anything: 0 goes on. */
static int refused(Device *one, const char *call) {
    int code;
    if (sessions <= 0) return UNINITIALIZED;
    if ((code = refused_by(&machine, call))) return code;
    if (!one) return SUCCESS;
    if (!strcmp(one->board->lost_at, call)) one->board->lost = 1;
    if (one->board->lost) return GPU_IS_LOST;
    return refused_by(one, call);
}

#define ASK(one) do { int code_ = refused((one), __func__); if (code_) return code_; } while (0)

int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    read_scenario();
    int code = refused_by(&machine, __func__);
    if (!code) sessions++;
    return code;
}
int nvmlShutdown(void) {
    if (sessions <= 0) return UNINITIALIZED;
    sessions--;
    return SUCCESS;
}
int nvml_stub_sessions(void) { return sessions; }
int nvml_stub_live_samples(void) { return live_samples; }
int nvml_stub_live_sets(void) { return live_sets; }
const char *nvmlErrorString(int code) { (void)code; return "a refusal"; }

int nvmlSystemGetDriverVersion(char *to, unsigned size) {
    ASK(NULL);
    snprintf(to, size, "%s", machine.name);
    return SUCCESS;
}
int nvmlDeviceGetCount_v2(unsigned *count) {
    ASK(NULL);
    *count = (unsigned)board_count;
    return SUCCESS;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device **device) {
    if (index >= (unsigned)board_count) return INVALID_ARGUMENT;
    ASK(&boards[index]);
    *device = &boards[index];
    return SUCCESS;
}
static int say(const char *from, char *to, unsigned size) {
    if (!from[0]) return NOT_SUPPORTED;
    snprintf(to, size, "%s", from);
    return SUCCESS;
}
int nvmlDeviceGetUUID(Device *one, char *to, unsigned size) {
    ASK(one);
    return say(one->uuid, to, size);
}
int nvmlDeviceGetName(Device *one, char *to, unsigned size) {
    ASK(one);
    return say(one->name, to, size);
}
static int give(double milli, unsigned *to) {
    if (milli < 0) return NOT_SUPPORTED;
    *to = (unsigned)milli;
    return SUCCESS;
}
int nvmlDeviceGetPowerUsage(Device *one, unsigned *to) { ASK(one); return give(one->power_mw, to); }
int nvmlDeviceGetEnforcedPowerLimit(Device *one, unsigned *to) {
    ASK(one);
    return give(one->limit_mw, to);
}
static double set_limit_of(const Device *one) {
    double limit = one->limit_mw;
    FILE *file = one->limit_file[0] ? fopen(one->limit_file, "r") : NULL;
    if (file) {
        if (fscanf(file, "%lf", &limit) != 1) limit = one->limit_mw;
        fclose(file);
    }
    return limit;
}
int nvmlDeviceGetPowerManagementLimit(Device *one, unsigned *to) {
    ASK(one);
    return give(set_limit_of(one), to);
}
int nvmlDeviceGetPowerManagementDefaultLimit(Device *one, unsigned *to) {
    ASK(one);
    return give(one->default_mw, to);
}
int nvmlDeviceGetPowerManagementLimitConstraints(Device *one, unsigned *least, unsigned *most) {
    ASK(one);
    int code = give(one->least_mw, least);
    return code ? code : give(one->most_mw, most);
}
int nvmlDeviceSetPowerManagementLimit(Device *one, unsigned milliwatts) {
    ASK(one);
    if (one->least_mw < 0) return NOT_SUPPORTED;
    if (milliwatts < one->least_mw || milliwatts > one->most_mw) return INVALID_ARGUMENT;
    one->limit_mw = milliwatts;
    FILE *file = one->limit_file[0] ? fopen(one->limit_file, "w") : NULL;
    if (file) {
        fprintf(file, "%u", milliwatts);
        fclose(file);
    }
    return SUCCESS;
}
int nvmlDeviceGetTemperature(Device *one, int sensor, unsigned *to) {
    ASK(one);
    return sensor ? NOT_SUPPORTED : give(one->temperature, to);
}
int nvmlDeviceGetClockInfo(Device *one, int kind, unsigned *to) {
    ASK(one);
    return kind != 1 ? NOT_SUPPORTED : give(one->sm_clock, to);
}
int nvmlDeviceGetTotalEccErrors(Device *one, int kind, int counter, unsigned long long *to) {
    ASK(one);
    if (one->ecc_errors < 0 || kind != 1 || counter != 0) return NOT_SUPPORTED;
    *to = (unsigned long long)one->ecc_errors;
    return SUCCESS;
}
int nvmlDeviceGetRemappedRows(Device *one, unsigned *corrected, unsigned *uncorrected,
                              unsigned *pending, unsigned *failed) {
    ASK(one);
    if (!one->has_remapped) return NOT_SUPPORTED;
    *corrected = one->remapped[0];
    *uncorrected = one->remapped[1];
    *pending = one->remapped[2];
    *failed = one->remapped[3];
    return SUCCESS;
}
int nvmlDeviceGetTotalEnergyConsumption(Device *one, unsigned long long *to) {
    ASK(one);
    if (!one->has_energy) return NOT_SUPPORTED;
    *to = one->energy_mj;
    one->energy_mj += one->energy_step_mj;
    return SUCCESS;
}
int nvmlDeviceGetUtilizationRates(Device *one, unsigned *gpu_and_memory) {
    ASK(one);
    gpu_and_memory[1] = 0;
    return give(one->utilization, &gpu_and_memory[0]);
}

typedef struct {
    unsigned field, scope;
    long long timestamp, latency;
    unsigned type, status;
    union { double d; unsigned u; unsigned long long ull; } value;
} FieldValue;

int nvmlDeviceGetFieldValues(Device *one, int count, FieldValue *values) {
    ASK(one);
    for (int i = 0; i < count; i++) {
        values[i].status = NOT_SUPPORTED;
        double told = values[i].field == 185 ? one->average_mw
                      : values[i].field == 82 ? one->memory_temperature : -1;
        if (told < 0) continue;
        values[i].status = SUCCESS;
        values[i].type = 1;
        values[i].value.u = (unsigned)told;
    }
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo(Device *one, unsigned long long *total_free_used) {
    ASK(one);
    if (!one->has_memory) return NOT_SUPPORTED;
    total_free_used[0] = one->total;
    total_free_used[2] = one->used + one->reserved;
    total_free_used[1] = one->total - total_free_used[2];
    return SUCCESS;
}
#ifndef OLD_DRIVER
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } Memory2;
int nvmlDeviceGetMemoryInfo_v2(Device *one, Memory2 *memory) {
    ASK(one);
    if (memory->version != 0x02000028) return VERSION_MISMATCH;
    if (!one->has_memory) return NOT_SUPPORTED;
    memory->total = one->total;
    memory->reserved = one->reserved;
    memory->used = one->used;
    memory->free = one->total - one->reserved - one->used;
    return SUCCESS;
}

typedef struct { unsigned pid; unsigned long long bytes; unsigned gpu, compute; } Process;
int nvmlDeviceGetComputeRunningProcesses_v3(Device *one, unsigned *count, Process *to) {
    ASK(one);
    unsigned room = *count;
    *count = (unsigned)one->processes;
    if (!one->processes) return SUCCESS;
    if (!to || room < *count) return INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < *count; i++) {
        memset(&to[i], 0, sizeof to[i]);
        to[i].pid = one->pid[i];
        to[i].bytes = 1 << 20;
    }
    return SUCCESS;
}
#endif

int nvmlDeviceGetMigMode(Device *one, unsigned *now, unsigned *pending) {
    ASK(one);
    if (!one->mig_slots) return NOT_SUPPORTED;
    *now = *pending = 1;
    return SUCCESS;
}
int nvmlDeviceGetMaxMigDeviceCount(Device *one, unsigned *count) {
    ASK(one);
    *count = (unsigned)one->mig_slots;
    return SUCCESS;
}
int nvmlDeviceGetMigDeviceHandleByIndex(Device *one, unsigned slot, Device **device) {
    ASK(one);
    if (slot >= SLOTS) return INVALID_ARGUMENT;
    if (!migs[one->index][slot].exists) return NOT_FOUND;
    *device = &migs[one->index][slot];
    return SUCCESS;
}
int nvmlDeviceGetGpuInstanceId(Device *one, unsigned *id) {
    ASK(one);
    if (one->instance < 0) return INVALID_ARGUMENT;
    *id = (unsigned)one->instance;
    return SUCCESS;
}
typedef struct { unsigned counts[6], gpu_slices, compute_slices; unsigned long long mb; } Attributes;
int nvmlDeviceGetAttributes_v2(Device *one, Attributes *to) {
    ASK(one);
    if (!one->slices) return NOT_SUPPORTED;
    memset(to, 0, sizeof *to);
    to->gpu_slices = to->compute_slices = (unsigned)one->slices;
    to->mb = one->slice_mb;
    return SUCCESS;
}

#ifndef OLD_DRIVER
typedef struct { unsigned version, supported; } Support;
int nvmlGpmQueryDeviceSupport(Device *one, Support *support) {
    ASK(one);
    int any = one->sm_util >= 0 || one->sm_util != one->sm_util;
    for (int slot = 0; slot < SLOTS; slot++) any |= migs[one->index][slot].sm_util >= 0;
    support->supported = (unsigned)any;
    return SUCCESS;
}
int nvmlGpmSampleAlloc(GpmSample **sample) {
    ASK(NULL);
    *sample = calloc(1, sizeof **sample);
    live_samples++;
    return SUCCESS;
}
int nvmlGpmSampleFree(GpmSample *sample) {
    free(sample);
    live_samples--;
    return SUCCESS;
}
int nvmlGpmSampleGet(Device *one, GpmSample *sample) {
    ASK(one);
    sample->device = one;
    return SUCCESS;
}
int nvmlGpmMigSampleGet(Device *one, unsigned instance, GpmSample *sample) {
    ASK(one);
    for (int slot = 0; slot < SLOTS; slot++)
        if (migs[one->index][slot].instance == (int)instance) {
            sample->device = &migs[one->index][slot];
            return SUCCESS;
        }
    return NOT_FOUND;
}
typedef struct { unsigned id, status; double value; const char *names[3]; } Metric;
typedef struct { unsigned version, count; GpmSample *before, *after; Metric metrics[1]; } Metrics;
int nvmlGpmMetricsGet(Metrics *asked) {
    ASK(NULL);
    if (asked->before == asked->after || asked->before->device != asked->after->device)
        return INVALID_ARGUMENT;
    if (asked->after->device->gpm_one && asked->count > 1) return INVALID_ARGUMENT;
    for (unsigned i = 0; i < asked->count; i++) {
        Metric *one = &asked->metrics[i];
        const Device *device = asked->after->device;
        one->value = one->id == 2 ? device->sm_util : one->id < METRICS ? device->gpm[one->id] : -1;
        one->status = one->value == -1 ? NOT_SUPPORTED : SUCCESS;
    }
    return SUCCESS;
}
#endif

enum { XID_EVENT = 8 };
typedef struct { Device *device[BOARDS]; int devices; } EventSet;
typedef struct {
    Device *device;
    unsigned long long type, data;
    unsigned gpu_instance, compute_instance;
} EventData;

int nvmlEventSetCreate(EventSet **set) {
    ASK(NULL);
    *set = calloc(1, sizeof **set);
    live_sets++;
    return SUCCESS;
}
int nvmlEventSetFree(EventSet *set) {
    free(set);
    live_sets--;
    return SUCCESS;
}
/* What was written to the file before belongs to the time before. */
int nvmlDeviceRegisterEvents(Device *one, unsigned long long types, EventSet *set) {
    ASK(one);
    if (types != XID_EVENT || !one->has_events) return NOT_SUPPORTED;
    FILE *file = one->xid_file[0] ? fopen(one->xid_file, "r") : NULL;
    if (file) {
        fseek(file, 0, SEEK_END);
        one->xid_offset = ftell(file);
        fclose(file);
    }
    one->xids_told = 0;
    set->device[set->devices++] = one;
    return SUCCESS;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(Device *one, unsigned long long *reasons) {
    ASK(one);
    if (one->clock_reasons < 0) return NOT_SUPPORTED;
    *reasons = (unsigned long long)one->clock_reasons;
    return SUCCESS;
}
#ifndef OLD_DRIVER
int nvmlDeviceGetCurrentClocksEventReasons(Device *one, unsigned long long *reasons) {
    return nvmlDeviceGetCurrentClocksThrottleReasons(one, reasons);
}
static int next_xid(Device *one, unsigned long long *xid) {
    if (one->xids_told < one->xids) {
        *xid = one->xid[one->xids_told++];
        return 1;
    }
    FILE *file = one->xid_file[0] ? fopen(one->xid_file, "r") : NULL;
    int found = 0;
    if (file) {
        fseek(file, one->xid_offset, SEEK_SET);
        found = fscanf(file, "%llu\n", xid) == 1;
        if (found) one->xid_offset = ftell(file);
        fclose(file);
    }
    return found;
}
int nvmlEventSetWait_v2(EventSet *set, EventData *event, unsigned milliseconds) {
    (void)milliseconds;
    ASK(NULL);
    for (int i = 0; i < set->devices; i++)
        if (next_xid(set->device[i], &event->data)) {
            event->device = set->device[i];
            event->type = XID_EVENT;
            event->gpu_instance = event->compute_instance = 0xFFFFFFFF;
            return SUCCESS;
        }
    return TIMEOUT;
}
#endif
