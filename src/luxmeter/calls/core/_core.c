/* The recorder core: the contract of _core.pyi, in plain CPython C API (no framework headers).
 *
 * One file, because the path of one call runs through all of it (clock, signature, site, packing, in 35 ns) and is fast
 * because the compiler sees it as one piece: in files of their own its steps would be calls, or headers full of code. In order:
 *
 *     clock and hash                   now(), and how keys are mixed
 *     records                          every struct, and who owns what in it
 *     threads and buffers              which thread this is; chunks of memory; how hooks are called
 *     packed events                    how an event waits, leaves, and is taken apart again
 *     events                           one event counted and packed, or added to a total
 *     where a tensor keeps its shape   layout: read without asking
 *     signatures                       arguments -> a number
 *     sites                            the line that calls -> a number
 *     the path of one call             all of the above in turn
 *     stand-in types, sections, Recorder, module
 *
 * References: a PyObject pointer in a struct is owned unless its comment says borrowed; so is one that a function returns, unless
 * its comment says so. Arguments are borrowed. Events, threads, callables and totals are plain numbers: no Python object is made for
 * one, so that the cyclic collector has nothing to look at, and the thread that writes them needs the interpreter seldom.
 *
 * Everything runs under the GIL; buffers are touched only where no Python code can run in between. What the module itself owns
 * (types, words, the layout of tensors) stands in its State, so that it can be loaded more than once; what is static is
 * a fact about the process (its clock, its Python's frames) or a number that must never come twice. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#ifdef _WIN32
#include <windows.h>
#define THREAD_LOCAL __declspec(thread)
#else
#include <time.h>
#define THREAD_LOCAL _Thread_local
#endif

#if defined(__GNUC__)
#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)
#else
#define LIKELY(x) (x)
#define UNLIKELY(x) (x)
#endif

enum { CALL = 0, SPAN = 1, SECTION = 2, OPENS = 3 };
enum { RAISED = 1, INSIDE = 2, SPANNED = 4, FIRST = 8, COMPLETED = 16, OWN = 32 };
enum { OPAQUE = 0, EXCHANGE = 1, KEY = 2, IDENTITY = 3, HASH = 4, ATTRIBUTES = 5 };
enum { CHUNK_EVENTS = 2048, CHUNK_BYTES = 16384, CHUNK_SHAPES = 384, SHAPE_INDEX = 1024, FREE_CHUNKS = 32 };
enum { BUCKETS = 192, MAX_TOTALS = 100000 };
enum { MAX_DEPTH = 6, MAX_NUMBERS = 32, MAX_FLOATS = 16, TYPE_CACHE = 64 };
enum { MAX_SITES = 1 << 17 }; /* places in code, each with its code object: code that is made anew all the time ends there */

/* ---- clock and hash ---------------------------------------------------------------------------------- */

#if defined(__x86_64__) && defined(__GNUC__) && !defined(_WIN32)
#include <cpuid.h>
#include <x86intrin.h>
#define HAVE_TICKS 1
#endif

static int64_t system_now(void)
{
#ifdef _WIN32
    static LARGE_INTEGER frequency;
    LARGE_INTEGER ticks;
    if (frequency.QuadPart == 0) QueryPerformanceFrequency(&frequency);
    QueryPerformanceCounter(&ticks);
    return (int64_t)((double)ticks.QuadPart * 1e9 / (double)frequency.QuadPart);
#else
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
#endif
}

#ifdef HAVE_TICKS
/* Reading the processor's tick counter takes a third of the time of a clock read, and there are two in every call.
 * Only where the counter runs at one rate always (invariant TSC); its rate is measured against the system clock,
 * from the import of this module to the first recorder, a few milliseconds at least: right to some parts in a million. */
static struct {
    uint64_t tick, scale; /* ns = at + (ticks - tick) * scale / 2^32; scale 0: not in use */
    int64_t at;
} ticks;
static uint64_t import_tick;
static int64_t import_at;

static void read_both(uint64_t *tick, int64_t *at)
{
    uint64_t best = UINT64_MAX;
    for (int i = 0; i < 16; i++) { /* the pair that was read in one go, without an interruption between */
        uint64_t before = __rdtsc();
        int64_t time = system_now();
        uint64_t after = __rdtsc();
        if (after - before < best) {
            best = after - before;
            *tick = before + (after - before) / 2;
            *at = time;
        }
    }
}

static void begin_ticks(void)
{
    unsigned int a, b, c, d;
    const char *asked = getenv("LUXMETER_CLOCK");
    if (asked != NULL && strcmp(asked, "system") == 0) return;
    if (__get_cpuid_max(0x80000000, NULL) < 0x80000007) return;
    if (__get_cpuid(0x80000007, &a, &b, &c, &d) && (d & (1u << 8))) read_both(&import_tick, &import_at);
}

static void measure_ticks(void)
{
    uint64_t tick = 0;
    int64_t at = 0;
    if (import_tick == 0 || ticks.scale != 0) return;
    while (system_now() - import_at < 5000000) continue;
    read_both(&tick, &at);
    if (tick <= import_tick || at <= import_at) return;
    double scale = (double)(at - import_at) / (double)(tick - import_tick) * 4294967296.0;
    if (!(scale > 1e6 && scale < 1e12)) return;
    ticks.tick = tick;
    ticks.at = at;
    ticks.scale = (uint64_t)scale;
}

static inline int64_t now(void)
{
    if (LIKELY(ticks.scale != 0))
        return ticks.at + (int64_t)(((__int128)(int64_t)(__rdtsc() - ticks.tick) * (int64_t)ticks.scale) >> 32);
    return system_now();
}
#else
static void begin_ticks(void) {}
static void measure_ticks(void) {}
static inline int64_t now(void) { return system_now(); }
#endif

static inline uint64_t mix(uint64_t h, uint64_t v)
{
    h ^= v ^ UINT64_C(0x9E3779B97F4A7C15);
#ifdef __SIZEOF_INT128__
    __uint128_t product = (__uint128_t)h * UINT64_C(0xD6E8FEB86659FD93);
    return (uint64_t)product ^ (uint64_t)(product >> 64);
#else
    h *= UINT64_C(0xFF51AFD7ED558CCD);
    h ^= h >> 29;
    h *= UINT64_C(0xC4CEB9FE1A85EC53);
    return h ^ (h >> 32);
#endif
}

/* ---- records ----------------------------------------------------------------------------------------- */

/* An event as it is taken apart again; while it waits it is packed, see "packed events". */
typedef struct {
    int64_t start, duration, child, wait;
    uint32_t callable, signature, thread, section, module;
    uint16_t depth, flags;
    uint32_t site, unused;
} Event;

/* What events have in common but for their times. `carries`: which times beside end and duration one has. */
typedef struct {
    uint32_t callable, signature, thread, section, module, site;
    uint16_t depth, flags;
    uint32_t carries;
} Shape;
enum { HAS_CHILD = 1, HAS_WAIT = 2 };

/* An open call, span or section: what to restore when it closes, and what its children took. Calls keep theirs
 * on the C stack, sections in a Span object. */
typedef struct Frame {
    struct Frame *prev;
    uint64_t epoch;
    int64_t start, child, own; /* own: its thread's when it began */
    const void *python;        /* the interpreter's frame that made the call, which cannot go on before the call ends */
    uint32_t callable, section, module, open, depth, site;
} Frame;

/* Events of one thread, packed. Nothing in it is a reference. */
typedef struct Chunk {
    struct Chunk *next;
    int64_t end; /* of the event before */
    uint32_t used, own, kind_bytes, time_bytes, shapes, last;
    uint16_t index[SHAPE_INDEX]; /* the number of a shape, by hash, and 1; 0: free */
    uint8_t kinds[2 * CHUNK_EVENTS];
    uint8_t bytes[CHUNK_BYTES]; /* times from the front on, shapes from the back */
} Chunk;

/* A thread as one recorder knows it, which owns it and its chunk. No Python object: it may end without a word. */
typedef struct Thread {
    struct Thread *next; /* in the recorder's list */
    Frame *top;   /* borrowed: on the C stack of the call, or in a Span, which takes itself out when it goes */
    Chunk *chunk; /* being filled; NULL before the first event and after a full one */
    uint64_t token;
    int64_t own; /* the recorder's own work on this thread until now */
    uint32_t no, depth, open, section, module;
    int busy;
} Thread;

/* What the patcher added, with its running totals; its words are kept in Python, by the place in the recorder's array. */
typedef struct {
    int64_t total, child, min, max;
    uint64_t n, raised;
    uint32_t api, signatures, general;
    uint8_t kind, module, record, boundary, floats;
} Callable;

/* Of a signature's floats. */
typedef struct {
    uint32_t n;
    double low[MAX_FLOATS], high[MAX_FLOATS];
} Ranges;

/* A signature's place in the table; the arguments themselves are not kept. */
typedef struct {
    uint64_t key;
    uint32_t signature; /* 0: free */
} Interned;

/* Totals mode: all calls that agree in the first row. */
typedef struct {
    uint32_t callable, signature, section, thread, flags, site;
    uint64_t n;
    int64_t total, child, wait, min, max;
    uint32_t histogram[BUCKETS];
} Total;

/* A place in code. */
typedef struct {
    PyObject *code; /* in the table owned, so that its address is used by no other; NULL: free */
    int32_t at;     /* the instruction */
    uint32_t site;  /* 0: not the user's code */
} Site;

/* What a resolver said about an instance. */
typedef struct {
    PyObject *instance; /* borrowed: only compared, and only while ref still leads to it */
    PyObject *ref;      /* owned, a weak reference; NULL: free */
    uint32_t wrapper;
    int32_t callable;
} Instance;

/* DLPack's C exchange table, as far as it is used (dlpack.h, version 1.3). Borrowed from the capsule that holds it; what it fills a
 * DLTensor with is the tensor's, and valid as long as that lives. */
typedef struct {
    void *data;
    struct { int32_t type, id; } device;
    int32_t ndim;
    struct { uint8_t code, bits; uint16_t lanes; } dtype;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} DLTensor;

typedef struct {
    struct { uint32_t major, minor; } version;
    void *previous;
    void *managed_tensor_allocator, *managed_tensor_from_py_object, *managed_tensor_to_py_object;
    int (*dltensor_from_py_object)(void *object, DLTensor *out);
    void *current_work_stream;
} ExchangeTable;

/* See "where a tensor keeps its shape". */
enum { INLINE_SIZES = 5, MAX_KEYS = 8 };
typedef struct {
    PyTypeObject *type; /* owned; whose samples they were: NULL until they were looked at */
    int known;
    size_t body_at;                      /* in the Python object */
    size_t shape_at, dtype_at, keys_at;  /* in the body */
    uint64_t kind;                       /* the first word of a body */
    uint64_t keys[MAX_KEYS];             /* sets that are read directly; the first is that of usual tensors */
    uint64_t refused[MAX_KEYS];          /* sets of samples that the table refused */
    int key_count, refused_count;
} Layout;

/* What the module owns. Every Recorder borrows it: its type holds the module. */
typedef struct {
    PyTypeObject *wrapper_type, *plain_type, *property_type, *span_type, *recorder_type;
    PyObject *str_module, *str_doc, *str_class;
    Layout layout;
} State;

/* All memory that is no PyObject is its own, to the end of the struct. */
typedef struct {
    PyObject_HEAD
    State *state; /* borrowed */
    int running, on, paused, sampled_out, manual_steps;
    int inside, signatures, strides, by_totals, ended;
    uint64_t serial, epoch, run;
    uint32_t max_signatures, max_chunks;
    uint32_t waiting; /* chunks in `full`: the limit is theirs, each thread may fill one besides */
    uint64_t every, steps;
    Callable *callables;
    size_t callable_count, callable_room;
    uint8_t *seen; /* for each API name: whether it was called */
    size_t api_count, api_room;
    Thread *threads, *orphans; /* orphans: of the process that this one was forked from */
    uint32_t thread_count;
    Chunk *full, **full_tail, *spare;
    uint64_t pending; /* events in `full` */
    uint32_t spare_count;
    Interned *interned;
    size_t interned_size, interned_used;
    Ranges **ranges; /* by signature */
    size_t ranges_size;
    uint32_t signature_count;
    Total **totals;
    uint32_t *total_index;
    size_t total_count, total_room, total_index_size;
    Instance *instances;
    size_t instance_size, instance_used;
    uint32_t wrapper_count;
    Site *sites;        /* by code and instruction; code owned */
    Site *site_list;    /* those of the user's code by number; code borrowed from `sites` */
    size_t site_size, site_used;
    uint32_t site_count, site_room;
    struct { PyTypeObject *type; PyObject *names; int kind; } type_cache[TYPE_CACHE]; /* both borrowed from `types` */
    PyObject *types; /* type -> kind, or names of attributes; keeps the types alive, so that no address is used twice */
    PyObject *apis;  /* name -> API number */
    PyTypeObject *tensor_type; /* owned, or NULL, as all of the following */
    PyObject *exchange;        /* the capsule: it keeps the table */
    int (*from_py_object)(void *, DLTensor *); /* borrowed from the table */
    int direct; /* tensors are read where the table points to, see "where a tensor keeps its shape" */
    PyObject *classify, *key, *on_signature, *on_result, *on_thread, *on_chunk, *sync, *on_begin, *on_end;
    PyObject *is_mine; /* of a code object: whether it is the user's */
    PyObject *hook_error; /* what the first of the hook_errors says */
    uint64_t events, lost, passed, unfinished, generalised, hook_errors, described, unplaced;
    int64_t described_ns;
} Recorder;

/* A stand-in. A cycle through one is broken in the recorder, see wrapper_traverse. */
typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    Recorder *recorder;                    /* owned */
    PyObject *wrapped, *through, *resolve; /* owned; resolve: or NULL */
    int64_t callable;
    uint32_t serial;
    PyObject *weakrefs; /* the interpreter's list */
} Wrapper;

/* An open section; its frame is in the thread's chain while it is open. */
typedef struct {
    PyObject_HEAD
    Frame frame;
    Thread *thread;     /* borrowed from the recorder, valid while the serial is its; NULL: closed */
    Recorder *recorder; /* owned */
    uint64_t serial;
} SpanObject;

static uint64_t last_serial, last_token; /* of all recorders and threads of this process */

/* ---- threads and buffers ----------------------------------------------------------------------------- */

static THREAD_LOCAL uint64_t own_token; /* of this OS thread; never used again by another */
static THREAD_LOCAL uint64_t cached_serial;
static THREAD_LOCAL Thread *cached_thread; /* borrowed; only looked at while the serial is the recorder's */

/* Counts an exception of a hook, keeps what the first one says, and drops it. */
static void drop_hook_error(Recorder *r)
{
    PyObject *type, *value, *trace;
    r->hook_errors++;
    PyErr_Fetch(&type, &value, &trace);
    if (r->hook_error == NULL && type != NULL) {
        PyErr_NormalizeException(&type, &value, &trace);
        r->hook_error = PyUnicode_FromFormat("%s: %S", ((PyTypeObject *)type)->tp_name, value);
        PyErr_Clear();
    }
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
}

/* Calls a hook with recording off on this thread. An Exception of it is counted and dropped; what is more than
 * that (KeyboardInterrupt) is the user's: -1. An exception that is already set survives. */
static int call_hook(Recorder *r, Thread *t, PyObject *hook, PyObject *const *args, size_t n, PyObject **result)
{
    PyObject *type, *value, *trace;
    int was = t->busy, status = 0;
    PyErr_Fetch(&type, &value, &trace);
    t->busy = 1;
    PyObject *answer = PyObject_Vectorcall(hook, args, n, NULL);
    if (answer == NULL) {
        if (PyErr_ExceptionMatches(PyExc_Exception)) drop_hook_error(r);
        else status = -1;
    }
    t->busy = was;
    if (status == 0) {
        PyErr_Restore(type, value, trace);
    } else {
        Py_XDECREF(type);
        Py_XDECREF(value);
        Py_XDECREF(trace);
    }
    if (result != NULL) *result = answer;
    else Py_XDECREF(answer);
    return status;
}

static Thread *new_thread(Recorder *r)
{
    if (own_token == 0) own_token = ++last_token;
    Thread *t = r->threads;
    while (t != NULL && t->token != own_token) t = t->next;
    if (t == NULL) {
        t = PyMem_RawCalloc(1, sizeof(Thread));
        if (t == NULL) return NULL;
        t->token = own_token;
        t->no = r->thread_count++;
        t->next = r->threads;
        r->threads = t;
        if (r->on_thread != NULL) {
            PyObject *no = PyLong_FromUnsignedLong(t->no);
            if (no == NULL) PyErr_Clear();
            else {
                /* An interrupt that falls in here comes again at the next call. */
                if (call_hook(r, t, r->on_thread, &no, 1, NULL) < 0) {
                    PyErr_Clear();
                    PyErr_SetInterrupt();
                }
                Py_DECREF(no);
            }
        }
    }
    cached_serial = r->serial;
    cached_thread = t;
    return t;
}

static inline Thread *this_thread(Recorder *r)
{
    return LIKELY(cached_serial == r->serial) ? cached_thread : new_thread(r);
}

static Chunk *take_chunk(Recorder *r)
{
    if (r->waiting >= r->max_chunks) return NULL;
    Chunk *chunk = r->spare;
    if (chunk != NULL) {
        r->spare = chunk->next;
        r->spare_count--;
    } else if ((chunk = PyMem_RawMalloc(sizeof(Chunk))) == NULL) {
        return NULL;
    }
    memset(chunk, 0, offsetof(Chunk, kinds));
    return chunk;
}

static void give_chunk(Recorder *r, Chunk *chunk)
{
    if (r->spare_count < FREE_CHUNKS) {
        chunk->next = r->spare;
        r->spare = chunk;
        r->spare_count++;
    } else {
        PyMem_RawFree(chunk);
    }
}

static void free_threads(Thread *t)
{
    while (t != NULL) {
        Thread *next = t->next;
        PyMem_RawFree(t->chunk);
        PyMem_RawFree(t);
        t = next;
    }
}

/* ---- packed events ----------------------------------------------------------------------------------- */

/* Few events differ in more than their times: what else they are is a shape, and each kind of event is the number of one,
 * in its chunk. A piece, as it leaves the core (little-endian):
 *
 *     "LXP1" | events | of them the recorder's own | shapes | bytes of kinds | bytes of times     4 bytes each
 *     shapes, 32 bytes each, as Shape
 *     kinds: of each event the number of its shape
 *     times: of each event its end since that of the event before (the first: since 0), its duration, and what its shape says it
 *            carries: child, wait
 *
 * Numbers in kinds and times have seven bits a byte, the lowest first, all bytes but the last with the eighth bit set; time
 * that goes backwards wraps around in 64 bits. Each piece is complete in itself. The same in Python: _pypack.py. */
typedef struct {
    char magic[4];
    uint32_t events, own, shapes, kind_bytes, time_bytes;
} PieceHead;
static const char piece_magic[4] = {'L', 'X', 'P', '1'};
enum { NUMBER_BYTES = 10, TIMES = 4 };

static inline uint8_t *shape_place(Chunk *c, uint32_t number)
{
    return c->bytes + CHUNK_BYTES - sizeof(Shape) * ((size_t)number + 1);
}

static inline uint8_t *put_number(uint8_t *at, uint64_t value)
{
    while (value >= 128) {
        *at++ = (uint8_t)(value | 128);
        value >>= 7;
    }
    *at++ = (uint8_t)value;
    return at;
}

/* A shape as four words: what was written in small ones and is read in large ones at once, the processor waits for. */
typedef struct {
    uint64_t word[4];
} ShapeWords;

static inline ShapeWords shape_of(uint32_t callable, uint32_t signature, uint32_t thread, uint32_t section, uint32_t module,
                                  uint32_t site, uint32_t depth, uint32_t flags, int has_child, int has_wait)
{
    uint64_t carries = (has_child ? HAS_CHILD : 0) | (has_wait ? HAS_WAIT : 0);
    return (ShapeWords){{callable | (uint64_t)signature << 32, thread | (uint64_t)section << 32,
                         module | (uint64_t)site << 32,
                         (depth < 65535 ? depth : 65535) | (uint64_t)(uint16_t)flags << 16 | carries << 32}};
}

static inline int is_shape(const uint8_t *place, const ShapeWords *s)
{
    uint64_t known[4];
    memcpy(known, place, sizeof(known));
    return ((known[0] ^ s->word[0]) | (known[1] ^ s->word[1]) | (known[2] ^ s->word[2]) | (known[3] ^ s->word[3])) == 0;
}

static inline uint32_t shape_number(Chunk *c, const ShapeWords *s)
{
    if (LIKELY(c->shapes) && LIKELY(is_shape(shape_place(c, c->last), s))) return c->last;
    uint64_t h = s->word[0] * UINT64_C(0x9E3779B97F4A7C15) + s->word[1] * UINT64_C(0xD6E8FEB86659FD93) +
                 s->word[2] * UINT64_C(0xC4CEB9FE1A85EC53) + s->word[3] * UINT64_C(0xFF51AFD7ED558CCD);
    size_t at = (h ^ h >> 32) * UINT64_C(0x9E3779B97F4A7C15) >> 54;
    for (; c->index[at]; at = (at + 1) & (SHAPE_INDEX - 1))
        if (is_shape(shape_place(c, c->index[at] - 1u), s)) return c->last = c->index[at] - 1u;
    memcpy(shape_place(c, c->shapes), s, sizeof(*s));
    c->last = c->shapes++;
    c->index[at] = (uint16_t)c->shapes;
    return c->last;
}

/* There is room for one more in every chunk that is not full. */
static inline void pack_event(Chunk *c, const ShapeWords *s, uint64_t end, uint64_t duration, uint64_t child, uint64_t wait)
{
    c->kind_bytes = (uint32_t)(put_number(c->kinds + c->kind_bytes, shape_number(c, s)) - c->kinds);
    uint8_t *at = put_number(c->bytes + c->time_bytes, end - (uint64_t)c->end);
    at = put_number(at, duration);
    if (child) at = put_number(at, child);
    if (UNLIKELY(wait)) at = put_number(at, wait);
    c->time_bytes = (uint32_t)(at - c->bytes);
    c->end = (int64_t)end;
    c->used++;
    c->own += (s->word[3] >> 16 & OWN) != 0;
}

static inline int is_full(const Chunk *c)
{
    return c->used == CHUNK_EVENTS || c->shapes == CHUNK_SHAPES ||
           c->time_bytes + TIMES * NUMBER_BYTES + (c->shapes + 1) * sizeof(Shape) > CHUNK_BYTES;
}

/* A chunk -> a new bytes object. */
static PyObject *piece_of(Chunk *c)
{
    PieceHead head = {.events = c->used, .own = c->own, .shapes = c->shapes, .kind_bytes = c->kind_bytes,
                      .time_bytes = c->time_bytes};
    memcpy(head.magic, piece_magic, sizeof(piece_magic));
    size_t size = sizeof(head) + c->shapes * sizeof(Shape) + c->kind_bytes + c->time_bytes;
    PyObject *piece = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
    if (piece == NULL) return NULL;
    char *at = PyBytes_AS_STRING(piece);
    memcpy(at, &head, sizeof(head));
    at += sizeof(head);
    for (uint32_t i = 0; i < c->shapes; i++, at += sizeof(Shape)) memcpy(at, shape_place(c, i), sizeof(Shape));
    memcpy(at, c->kinds, c->kind_bytes);
    memcpy(at + c->kind_bytes, c->bytes, c->time_bytes);
    return piece;
}

/* The next number, or NULL: it does not end before `stop`, or is longer than numbers are. */
static inline const uint8_t *get_number(const uint8_t *at, const uint8_t *stop, uint64_t *value)
{
    uint64_t found = 0;
    for (int shift = 0; at != NULL && at < stop && shift < 7 * NUMBER_BYTES; shift += 7) {
        uint8_t byte = *at++;
        found |= (uint64_t)(byte & 127) << shift;
        if (byte < 128) {
            *value = found;
            return at;
        }
    }
    return NULL;
}

static int unpack_into(Event *events, const PieceHead *head, const uint8_t *shapes)
{
    const uint8_t *kinds = shapes + (size_t)head->shapes * sizeof(Shape), *kinds_stop = kinds + head->kind_bytes;
    const uint8_t *times = kinds_stop, *stop = times + head->time_bytes;
    uint64_t end = 0, kind, since, duration, child, wait;
    for (uint32_t i = 0; i < head->events; i++) {
        kinds = get_number(kinds, kinds_stop, &kind);
        if (kinds == NULL || kind >= head->shapes) return -1;
        Shape s;
        memcpy(&s, shapes + kind * sizeof(Shape), sizeof(s));
        child = wait = 0;
        times = get_number(get_number(times, stop, &since), stop, &duration);
        if (s.carries & HAS_CHILD) times = get_number(times, stop, &child);
        if (s.carries & HAS_WAIT) times = get_number(times, stop, &wait);
        if (times == NULL) return -1;
        end += since;
        events[i] = (Event){(int64_t)(end - duration), (int64_t)duration, (int64_t)child, (int64_t)wait, s.callable,
                            s.signature, s.thread, s.section, s.module, s.depth, s.flags, s.site, 0};
    }
    return kinds == kinds_stop && times == stop ? 0 : -1;
}

/* A piece (from anywhere) -> a new bytes object of events. */
static PyObject *events_of(const uint8_t *piece, size_t size)
{
    PieceHead head;
    PyObject *events = NULL;
    if (size >= sizeof(head)) {
        memcpy(&head, piece, sizeof(head));
        uint64_t whole = sizeof(head) + (uint64_t)head.shapes * sizeof(Shape) + head.kind_bytes + head.time_bytes;
        if (memcmp(head.magic, piece_magic, sizeof(piece_magic)) == 0 && whole == size && head.events <= head.kind_bytes) {
            events = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(head.events * sizeof(Event)));
            if (events == NULL) return NULL;
            if (unpack_into((Event *)PyBytes_AS_STRING(events), &head, piece + sizeof(head)) < 0) Py_CLEAR(events);
        }
    }
    if (events == NULL) PyErr_SetString(PyExc_ValueError, "packed events that do not fit their description");
    return events;
}

/* ---- events ------------------------------------------------------------------------------------------ */

/* Four buckets a doubling. */
static inline uint32_t bucket(int64_t duration)
{
    if (duration < 4) return duration < 0 ? 0 : (uint32_t)duration;
    int exponent = 63;
    while (!((uint64_t)duration >> exponent)) exponent--;
    uint32_t at = (uint32_t)(4 * (exponent - 1) + ((duration >> (exponent - 2)) & 3));
    return at < BUCKETS ? at : BUCKETS - 1;
}

static inline uint64_t hash_total(uint32_t callable, uint32_t signature, uint32_t section, uint32_t thread, uint32_t flags,
                                  uint32_t site)
{
    return mix(mix(mix(mix(mix(mix(0, callable), signature), section), thread), flags), site);
}

static int grow_totals(Recorder *r)
{
    if (r->total_count == r->total_room) {
        size_t room = r->total_room ? 2 * r->total_room : 256;
        Total **grown = PyMem_RawRealloc(r->totals, room * sizeof(Total *));
        if (grown == NULL) return -1;
        r->totals = grown;
        r->total_room = room;
    }
    if (2 * (r->total_count + 1) > r->total_index_size) {
        size_t size = r->total_index_size ? 2 * r->total_index_size : 1024;
        uint32_t *index = PyMem_RawCalloc(size, sizeof(uint32_t));
        if (index == NULL) return -1;
        for (size_t i = 0; i < r->total_count; i++) {
            Total *t = r->totals[i];
            uint64_t h = hash_total(t->callable, t->signature, t->section, t->thread, t->flags, t->site);
            size_t at = h & (size - 1);
            while (index[at]) at = (at + 1) & (size - 1);
            index[at] = (uint32_t)i + 1;
        }
        PyMem_RawFree(r->total_index);
        r->total_index = index;
        r->total_index_size = size;
    }
    return 0;
}

static Total *find_total(Recorder *r, uint32_t callable, uint32_t signature, uint32_t section, uint32_t thread,
                         uint32_t flags, uint32_t site)
{
    uint64_t h = hash_total(callable, signature, section, thread, flags, site);
    if (r->total_index_size) {
        size_t at = h & (r->total_index_size - 1);
        while (r->total_index[at]) {
            Total *t = r->totals[r->total_index[at] - 1];
            if (t->callable == callable && t->signature == signature && t->section == section &&
                t->thread == thread && t->flags == flags && t->site == site)
                return t;
            at = (at + 1) & (r->total_index_size - 1);
        }
    }
    if (r->total_count >= MAX_TOTALS && (signature | section | thread | site)) {
        r->generalised++;
        return find_total(r, callable, 0, 0, 0, flags, 0);
    }
    Total *t = PyMem_RawCalloc(1, sizeof(Total));
    if (t == NULL) return NULL;
    t->callable = callable;
    t->signature = signature;
    t->section = section;
    t->thread = thread;
    t->flags = flags;
    t->site = site;
    if (grow_totals(r) < 0) {
        PyMem_RawFree(t);
        return NULL;
    }
    r->totals[r->total_count++] = t;
    size_t at = h & (r->total_index_size - 1);
    while (r->total_index[at]) at = (at + 1) & (r->total_index_size - 1);
    r->total_index[at] = (uint32_t)r->total_count;
    return t;
}

static void add_total(Recorder *r, Thread *t, const Frame *f, int64_t duration, int64_t child, int64_t wait,
                      uint32_t signature, uint32_t flags)
{
    Total *total = find_total(r, f->callable, signature, f->section, t->no, flags, f->site);
    if (total == NULL) {
        r->lost += !(flags & OWN);
        return;
    }
    if (total->n == 0 || duration < total->min) total->min = duration;
    if (duration > total->max) total->max = duration;
    total->n++;
    total->total += duration;
    total->child += child;
    total->wait += wait;
    total->histogram[bucket(duration)]++;
    r->events += !(flags & OWN);
}

/* An event has its time by the clock; the recorder's own work in it has events of its own. In sums it is taken off here.
 * -1: a hook was interrupted and the exception is the user's. */
static inline int emit(Recorder *r, Thread *t, const Frame *f, int64_t duration, int64_t wait, uint32_t signature,
                       uint32_t flags)
{
    Callable *c = &r->callables[f->callable];
    int64_t own = t->own - f->own, net = duration - own, child = f->child - own;
    if (UNLIKELY(!r->seen[c->api])) {
        r->seen[c->api] = 1;
        flags |= FIRST;
    }
    if (LIKELY(!(flags & OWN))) {
        if (c->n == 0 || net < c->min) c->min = net;
        if (net > c->max) c->max = net;
        c->n++;
        c->total += net;
        c->child += child;
        c->raised += flags & RAISED;
    }
    if (r->by_totals) {
        add_total(r, t, f, net, child, wait, signature, flags);
        return 0;
    }
    Chunk *chunk = t->chunk;
    if (UNLIKELY(chunk == NULL)) {
        if ((chunk = t->chunk = take_chunk(r)) == NULL) {
            r->lost += !(flags & OWN);
            return 0;
        }
    }
    ShapeWords s = shape_of(f->callable, signature, t->no, f->section, f->module, f->site, f->depth, flags, f->child != 0,
                            wait != 0);
    pack_event(chunk, &s, (uint64_t)f->start + (uint64_t)duration, (uint64_t)duration, (uint64_t)f->child, (uint64_t)wait);
    r->events += !(flags & OWN);
    if (UNLIKELY(is_full(chunk))) {
        t->chunk = NULL;
        *r->full_tail = chunk;
        r->full_tail = &chunk->next;
        r->pending += chunk->used;
        r->waiting++;
        if (r->on_chunk != NULL) return call_hook(r, t, r->on_chunk, NULL, 0, NULL);
    }
    return 0;
}

/* ---- where a tensor keeps its shape ------------------------------------------------------------------ */

/* The exchange table costs some 550 instructions a tensor, nearly all of them taking and giving back a reference with
 * the interpreter's lock. But what it hands out is a pointer to the sizes inside the tensor: from there on, whatever a
 * tensor is known by lies at the same distance in each of them. No header says so: the distances are measured on sample
 * tensors, and every one of them is checked against what the table says. One that does not fit, and the table is asked
 * for every tensor, as before. Only tensors of the samples' own C++ class are read so (the first word, its virtual
 * table), with a set of dispatch keys that the table was seen to accept (not that of meta tensors, for one). */
#define DTYPE_AND_DEVICE UINT64_C(0xFFFFFFFFFF) /* two bytes data type, then kind, index and presence of the device */

static inline uint64_t word_at(const char *body, size_t at)
{
    uint64_t word;
    memcpy(&word, body + at, sizeof(word));
    return word;
}

/* Kind, index (-1 for the processor) and presence (1) of the device: a byte each. */
static inline uint64_t device_at(uint64_t word) { return word >> 16 & 0xFFFFFF; }

/* Whether a body with this set of keys is as the samples: asked of the table once a set. -1: the table refuses it. */
static int keys_are_readable(Recorder *r, PyObject *v, uint64_t keys)
{
    Layout *layout = &r->state->layout;
    DLTensor d;
    for (int i = 0; i < layout->key_count; i++)
        if (layout->keys[i] == keys) return 1;
    for (int i = 0; i < layout->refused_count; i++)
        if (layout->refused[i] == keys) return -1;
    if (layout->key_count == MAX_KEYS) return 0;
    if (r->from_py_object(v, &d) != 0) {
        PyErr_Clear();
        return 0;
    }
    const char *body = *(const char *const *)((const char *)v + layout->body_at);
    if ((const char *)d.shape != body + layout->shape_at) return 0;
    uint64_t device = device_at(word_at(body, layout->dtype_at));
    if (device != 0x1FF00 && device >> 8 != (UINT64_C(0x100) | (uint8_t)d.device.id)) return 0;
    layout->keys[layout->key_count++] = keys;
    return 1;
}

/* The distance from the tensor's body to its sizes, by the word of the Python object that leads to it. 0: none. */
static size_t shape_distance(PyObject *v, size_t at, const DLTensor *d)
{
    uintptr_t body = *(const uintptr_t *)((const char *)v + at), shape = (uintptr_t)d->shape;
    return body != 0 && body % 8 == 0 && shape > body && shape - body <= 256 ? shape - body : 0;
}

static int fits(const char *body, const DLTensor *d, size_t shape_at)
{
    int64_t numel = 1;
    const char *sizes = body + shape_at;
    if ((const char *)d->shape != sizes || d->ndim > INLINE_SIZES) return 0;
    if (d->strides != d->shape + INLINE_SIZES || word_at(sizes, (size_t)-8) != (uint64_t)d->ndim) return 0;
    for (int i = 0; i < d->ndim; i++) numel *= d->shape[i];
    return word_at(sizes, 8 * (2 * INLINE_SIZES + 1)) == (uint64_t)numel; /* after the offset in the storage */
}

/* Samples: a list of (tensor, class). Of one class: equal in data type and device. Class None: the table refuses it. */
static int measure_layout(Layout *layout, PyTypeObject *type, int (*read)(void *, DLTensor *), PyObject *samples)
{
    Py_ssize_t n = PyList_GET_SIZE(samples);
    uint64_t words[64] = {0};
    long classes[64] = {0};
    int readable = 0, elsewhere = 0;
    if (n < 8 || n > 64) return 0;
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *v, *group;
        DLTensor d;
        PyObject *pair = PyList_GET_ITEM(samples, i);
        if (!PyTuple_Check(pair) || PyTuple_GET_SIZE(pair) != 2) return 0;
        v = PyTuple_GET_ITEM(pair, 0);
        group = PyTuple_GET_ITEM(pair, 1);
        if (Py_TYPE(v) != type) return 0;
        int refused = read(v, &d) != 0;
        if (refused) PyErr_Clear();
        if (refused != (group == Py_None)) return 0;
        if (i == 0) {
            if (refused) return 0;
            for (size_t at = sizeof(PyObject); at + 8 <= (size_t)type->tp_basicsize && !layout->shape_at; at += 8)
                if ((layout->shape_at = shape_distance(v, at, &d)) != 0) layout->body_at = at;
            if (layout->shape_at < 16) return 0;
            layout->dtype_at = layout->shape_at + 8 * (2 * INLINE_SIZES + 2);
            layout->keys_at = layout->dtype_at + 8;
        }
        const char *body = *(const char *const *)((const char *)v + layout->body_at);
        if (i == 0) layout->kind = word_at(body, 0);
        if (word_at(body, 0) != layout->kind) {
            if (refused) continue; /* another class altogether */
            return 0;
        }
        uint64_t keys = word_at(body, layout->keys_at);
        if (refused) { /* the set of keys has to tell it from the readable ones, which come first */
            for (int k = 0; k < layout->key_count; k++)
                if (layout->keys[k] == keys) return 0;
            if (layout->refused_count == MAX_KEYS) return 0;
            layout->refused[layout->refused_count++] = keys;
            uint64_t device = device_at(word_at(body, layout->dtype_at));
            if (device >> 8 != 0x1FF) return 0;
            elsewhere += (device & 0xFF) != 0; /* on meta */
            continue;
        }
        if (!fits(body, &d, layout->shape_at) || device_at(word_at(body, layout->dtype_at)) != 0x1FF00) return 0;
        if (layout->key_count == 0) layout->keys[layout->key_count++] = keys;
        if (keys != layout->keys[0]) return 0;
        words[readable] = word_at(body, layout->dtype_at) & DTYPE_AND_DEVICE;
        classes[readable] = PyLong_AsLong(group);
        if (PyErr_Occurred()) {
            PyErr_Clear();
            return 0;
        }
        readable++;
    }
    for (int i = 0; i < readable; i++)
        for (int k = 0; k < i; k++)
            if ((words[i] == words[k]) != (classes[i] == classes[k])) return 0;
    return readable >= 8 && elsewhere > 0;
}

static void learn_layout(Layout *layout, PyTypeObject *type, int (*read)(void *, DLTensor *), PyObject *samples)
{
    if (layout->type != NULL) return;
    layout->type = (PyTypeObject *)Py_NewRef((PyObject *)type); /* kept: its address is compared */
    layout->known = sizeof(void *) == 8 && measure_layout(layout, type, read, samples);
}

/* ---- signatures -------------------------------------------------------------------------------------- */

typedef struct {
    Recorder *recorder;
    Thread *thread;
    uint64_t h;
    uint32_t nfloats;
    int by_floats; /* their values are part of the key */
    double floats[MAX_FLOATS];
} Hasher;

static int hash_one(Hasher *h, PyObject *v, int depth);

static inline void put(Hasher *h, uint64_t v) { h->h = mix(h->h, v); }

static int hash_key(Hasher *h, PyObject *v)
{
    Recorder *r = h->recorder;
    if (r->key == NULL) return 0;
    PyObject *key;
    if (call_hook(r, h->thread, r->key, &v, 1, &key) < 0) return -1;
    if (key == NULL) return 0;
    Py_hash_t value = PyObject_Hash(key);
    Py_DECREF(key);
    if (value == -1) drop_hook_error(r);
    put(h, (uint64_t)value);
    return 0;
}

static int hash_tensor_by_table(Hasher *h, PyObject *v)
{
    Recorder *r = h->recorder;
    DLTensor d;
    if (r->from_py_object == NULL) return hash_key(h, v);
    if (UNLIKELY(r->from_py_object(v, &d) != 0)) { /* sparse, meta, functorch ...: by its attributes */
        PyErr_Clear();
        return hash_key(h, v);
    }
    put(h, (uint64_t)(uint8_t)d.ndim | (uint64_t)d.dtype.code << 8 | (uint64_t)d.dtype.bits << 16 |
               (uint64_t)(uint8_t)d.dtype.lanes << 24 | (uint64_t)(uint8_t)d.device.type << 32 |
               (uint64_t)(uint16_t)d.device.id << 40);
    for (int i = 0; i < d.ndim; i++) put(h, (uint64_t)d.shape[i]);
    if (r->strides && d.strides != NULL)
        for (int i = 0; i < d.ndim; i++) put(h, (uint64_t)d.strides[i]);
    return 0;
}

static inline int hash_tensor(Hasher *h, PyObject *v)
{
    Recorder *r = h->recorder;
    put(h, (uint64_t)(uintptr_t)Py_TYPE(v));
    if (UNLIKELY(!r->direct)) return hash_tensor_by_table(h, v);
    const Layout *layout = &r->state->layout;
    const char *body = *(const char *const *)((const char *)v + layout->body_at);
    if (UNLIKELY(body == NULL) || UNLIKELY(word_at(body, 0) != layout->kind)) return hash_tensor_by_table(h, v);
    uint64_t ndim = word_at(body, layout->shape_at - 8), keys = word_at(body, layout->keys_at);
    if (UNLIKELY(ndim > INLINE_SIZES)) return hash_tensor_by_table(h, v);
    if (UNLIKELY(keys != layout->keys[0])) {
        int readable = keys_are_readable(r, v, keys);
        if (readable < 0) return hash_key(h, v);
        if (!readable) return hash_tensor_by_table(h, v);
    }
    put(h, (word_at(body, layout->dtype_at) & DTYPE_AND_DEVICE) | ndim << 40);
    const char *sizes = body + layout->shape_at;
    for (uint64_t i = 0; i < ndim; i++) put(h, word_at(sizes, 8 * i));
    if (UNLIKELY(r->strides))
        for (uint64_t i = 0; i < ndim; i++) put(h, word_at(sizes, 8 * (INLINE_SIZES + i)));
    return 0;
}

static inline void hash_float(Hasher *h, double value)
{
    if (h->nfloats < MAX_FLOATS) h->floats[h->nfloats++] = value;
    if (UNLIKELY(h->by_floats)) {
        uint64_t bits;
        memcpy(&bits, &value, sizeof(bits));
        put(h, bits);
    }
}

static int hash_long(Hasher *h, PyObject *v)
{
    int overflow;
    long long value = PyLong_AsLongLongAndOverflow(v, &overflow);
    if (overflow) {
        Py_hash_t wide = PyLong_Type.tp_hash(v);
        put(h, (uint64_t)wide ^ 0xB16);
    } else {
        put(h, (uint64_t)value);
    }
    return 0;
}

static int hash_str(Hasher *h, PyObject *v)
{
    put(h, (uint64_t)PyUnicode_Type.tp_hash(v));
    return 0;
}

static int hash_sequence(Hasher *h, PyObject *v, int depth)
{
    int is_tuple = PyTuple_Check(v);
    Py_ssize_t n = is_tuple ? PyTuple_GET_SIZE(v) : PyList_GET_SIZE(v);
    put(h, (uint64_t)n ^ UINT64_C(0x5E9) << 40);
    if (depth >= MAX_DEPTH) return 0;
    for (Py_ssize_t i = 0; i < (is_tuple ? n : PyList_GET_SIZE(v)) && i < n; i++) {
        PyObject *item = is_tuple ? PyTuple_GET_ITEM(v, i) : PyList_GET_ITEM(v, i);
        if (i >= MAX_NUMBERS && (PyLong_Check(item) || PyFloat_Check(item) || PyUnicode_Check(item))) continue;
        Py_INCREF(item); /* a hook may change the list */
        int status = hash_one(h, item, depth + 1);
        Py_DECREF(item);
        if (status < 0) return -1;
    }
    put(h, 0xE4D);
    return 0;
}

static int hash_dict(Hasher *h, PyObject *v, int depth)
{
    put(h, (uint64_t)PyDict_GET_SIZE(v) ^ UINT64_C(0xD1C7) << 40);
    if (depth >= MAX_DEPTH) return 0;
    PyObject *items = PyDict_Items(v); /* a copy: hooks may change the dictionary */
    if (items == NULL) {
        PyErr_Clear();
        return 0;
    }
    int status = 0;
    for (Py_ssize_t i = 0; status == 0 && i < PyList_GET_SIZE(items); i++) {
        PyObject *pair = PyList_GET_ITEM(items, i), *name = PyTuple_GET_ITEM(pair, 0);
        if (PyUnicode_Check(name)) hash_str(h, name);
        else if (PyLong_Check(name)) hash_long(h, name);
        else put(h, (uint64_t)(uintptr_t)Py_TYPE(name));
        status = hash_one(h, PyTuple_GET_ITEM(pair, 1), depth + 1);
    }
    Py_DECREF(items);
    return status;
}

/* How a type takes part: asked once a type. -1: interrupted. */
static int kind_of_type(Hasher *h, PyTypeObject *type, PyObject **names)
{
    Recorder *r = h->recorder;
    size_t at = ((uintptr_t)type >> 5) % TYPE_CACHE;
    if (LIKELY(r->type_cache[at].type == type)) {
        *names = r->type_cache[at].names;
        return r->type_cache[at].kind;
    }
    PyObject *known = Py_XNewRef(PyDict_GetItemWithError(r->types, (PyObject *)type));
    if (known == NULL) {
        PyErr_Clear();
        PyObject *argument = (PyObject *)type;
        if (r->classify != NULL && call_hook(r, h->thread, r->classify, &argument, 1, &known) < 0) return -1;
        if (known == NULL || !(PyLong_Check(known) || PyTuple_Check(known)))
            Py_XSETREF(known, PyLong_FromLong(OPAQUE));
        if (known == NULL || PyDict_SetItem(r->types, (PyObject *)type, known) < 0) {
            PyErr_Clear();
            Py_XDECREF(known);
            return OPAQUE;
        }
    }
    int kind = PyTuple_Check(known) ? ATTRIBUTES : (int)PyLong_AsLong(known);
    if (PyErr_Occurred()) PyErr_Clear();
    Py_DECREF(known); /* the dictionary holds it */
    r->type_cache[at].type = type;
    r->type_cache[at].kind = kind;
    r->type_cache[at].names = *names = kind == ATTRIBUTES ? known : NULL;
    return kind;
}

/* By its attributes, each as if it were an argument. One that cannot be read: no further. */
static int hash_attributes(Hasher *h, PyObject *v, PyObject *names, int depth)
{
    int status = 0;
    for (Py_ssize_t i = 0; status == 0 && i < PyTuple_GET_SIZE(names); i++) {
        int was = h->thread->busy;
        h->thread->busy = 1;
        PyObject *value = PyObject_GetAttr(v, PyTuple_GET_ITEM(names, i));
        if (value == NULL) drop_hook_error(h->recorder);
        h->thread->busy = was;
        if (value == NULL) return 0;
        status = depth < MAX_DEPTH ? hash_one(h, value, depth + 1) : 0;
        Py_DECREF(value);
    }
    return status;
}

static int hash_other(Hasher *h, PyObject *v, PyTypeObject *type, int depth)
{
    PyObject *names = NULL;
    int kind = kind_of_type(h, type, &names);
    if (kind < 0) return -1;
    if (kind == EXCHANGE) return hash_tensor(h, v);
    put(h, (uint64_t)(uintptr_t)type);
    switch (kind) {
    case KEY: return hash_key(h, v);
    case ATTRIBUTES: return hash_attributes(h, v, names, depth);
    case IDENTITY: put(h, (uint64_t)(uintptr_t)v); return 0;
    case HASH: {
        Py_hash_t value = PyObject_Hash(v);
        if (value == -1) PyErr_Clear();
        put(h, (uint64_t)value);
        return 0;
    }
    default: break;
    }
    if (PyLong_Check(v)) return hash_long(h, v);
    if (PyFloat_Check(v)) {
        hash_float(h, PyFloat_AS_DOUBLE(v));
        return 0;
    }
    return PyUnicode_Check(v) ? hash_str(h, v) : 0;
}

static int hash_one(Hasher *h, PyObject *v, int depth)
{
    PyTypeObject *type = Py_TYPE(v);
    if (type == h->recorder->tensor_type) return hash_tensor(h, v);
    if (v == Py_None || v == Py_True || v == Py_False || v == Py_Ellipsis) {
        put(h, (uint64_t)(uintptr_t)v);
        return 0;
    }
    if (type == &PyLong_Type) {
        put(h, 0x147);
        return hash_long(h, v);
    }
    if (type == &PyFloat_Type) {
        put(h, 0xF10A7);
        hash_float(h, PyFloat_AS_DOUBLE(v));
        return 0;
    }
    if (type == &PyUnicode_Type) return hash_str(h, v);
    if (PyTuple_Check(v) || PyList_Check(v)) {
        put(h, (uint64_t)(uintptr_t)type);
        return hash_sequence(h, v, depth);
    }
    if (PyDict_Check(v)) {
        put(h, (uint64_t)(uintptr_t)type);
        return hash_dict(h, v, depth);
    }
    if (type == &PySlice_Type) {
        PySliceObject *s = (PySliceObject *)v;
        put(h, 0x51CE);
        if (depth >= MAX_DEPTH) return 0; /* slices nest as lists do */
        if (hash_one(h, s->start, depth + 1) < 0 || hash_one(h, s->stop, depth + 1) < 0) return -1;
        return hash_one(h, s->step, depth + 1);
    }
    if (type == &PyFunction_Type) {
        put(h, 0xF06C);
        return hash_str(h, ((PyFunctionObject *)v)->func_qualname);
    }
    if (PyType_Check(v)) {
        put(h, (uint64_t)(uintptr_t)v);
        return 0;
    }
    return hash_other(h, v, type, depth);
}

static int grow_interned(Recorder *r)
{
    size_t size = r->interned_size ? 2 * r->interned_size : 1024;
    Interned *grown = PyMem_RawCalloc(size, sizeof(Interned));
    if (grown == NULL) return -1;
    for (size_t i = 0; i < r->interned_size; i++) {
        if (!r->interned[i].signature) continue;
        size_t at = r->interned[i].key & (size - 1);
        while (grown[at].signature) at = (at + 1) & (size - 1);
        grown[at] = r->interned[i];
    }
    PyMem_RawFree(r->interned);
    r->interned = grown;
    r->interned_size = size;
    return 0;
}

static void widen_ranges(Recorder *r, uint32_t signature, const Hasher *h)
{
    if (signature >= r->ranges_size) {
        size_t size = r->ranges_size ? r->ranges_size : 256;
        while (size <= signature) size *= 2;
        Ranges **grown = PyMem_RawRealloc(r->ranges, size * sizeof(Ranges *));
        if (grown == NULL) return;
        memset(grown + r->ranges_size, 0, (size - r->ranges_size) * sizeof(Ranges *));
        r->ranges = grown;
        r->ranges_size = size;
    }
    Ranges *known = r->ranges[signature];
    if (known == NULL) {
        if ((known = PyMem_RawMalloc(sizeof(Ranges))) == NULL) return;
        known->n = h->nfloats;
        memcpy(known->low, h->floats, sizeof(known->low));
        memcpy(known->high, h->floats, sizeof(known->high));
        r->ranges[signature] = known;
        return;
    }
    for (uint32_t i = 0; i < known->n && i < h->nfloats; i++) {
        if (h->floats[i] < known->low[i]) known->low[i] = h->floats[i];
        if (h->floats[i] > known->high[i]) known->high[i] = h->floats[i];
    }
}

/* Calls on_signature(callable, signature, args, kwargs, general). */
static int describe(Recorder *r, Thread *t, uint32_t callable, uint32_t signature, PyObject *const *args,
                    Py_ssize_t nargs, PyObject *kwnames, int general)
{
    int status = 0;
    PyObject *hook_args[5] = {NULL};
    Py_ssize_t nkw = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
    hook_args[0] = PyLong_FromUnsignedLong(callable);
    hook_args[1] = PyLong_FromUnsignedLong(signature);
    hook_args[2] = PyTuple_New(nargs);
    hook_args[3] = PyDict_New();
    hook_args[4] = PyBool_FromLong(general);
    if (!hook_args[0] || !hook_args[1] || !hook_args[2] || !hook_args[3]) goto done;
    for (Py_ssize_t i = 0; i < nargs; i++) {
        Py_INCREF(args[i]);
        PyTuple_SET_ITEM(hook_args[2], i, args[i]);
    }
    for (Py_ssize_t i = 0; i < nkw; i++)
        if (PyDict_SetItem(hook_args[3], PyTuple_GET_ITEM(kwnames, i), args[nargs + i]) < 0) goto done;
    status = call_hook(r, t, r->on_signature, hook_args, 5, NULL);
done:
    for (int i = 0; i < 5; i++) Py_XDECREF(hook_args[i]);
    if (status == 0 && PyErr_Occurred()) PyErr_Clear();
    return status;
}

/* The recorder worked on this thread since `start`: an event of its own, and no part of the calls that are open. */
static int own_work(Recorder *r, Thread *t, int64_t start)
{
    Frame f = {.prev = t->top, .start = start, .own = t->own, .callable = 0, .section = t->section,
               .module = t->module, .depth = t->depth};
    int64_t duration = now() - start;
    r->described_ns += duration;
    if (t->top != NULL) t->top->child += duration;
    int status = emit(r, t, &f, duration, 0, 0, OWN | SPANNED | r->ended);
    t->own += duration;
    return status;
}

static int first_sight(Recorder *r, Thread *t, uint32_t callable, uint64_t key, PyObject *const *args,
                       Py_ssize_t nargs, PyObject *kwnames, uint32_t *signature)
{
    Callable *c = &r->callables[callable];
    int general = c->signatures >= r->max_signatures;
    *signature = 0;
    if (general) {
        r->generalised++;
        if (c->general) {
            *signature = c->general;
            return 0;
        }
        c->general = ++r->signature_count;
    } else {
        if (10 * (r->interned_used + 1) > 6 * r->interned_size && grow_interned(r) < 0) return 0;
        size_t at = key & (r->interned_size - 1);
        while (r->interned[at].signature) at = (at + 1) & (r->interned_size - 1);
        r->interned[at].key = key;
        r->interned[at].signature = ++r->signature_count;
        r->interned_used++;
        c->signatures++;
    }
    *signature = r->signature_count;
    int64_t start = now();
    if (r->on_signature != NULL && describe(r, t, callable, *signature, args, nargs, kwnames, general) < 0)
        return -1;
    r->described++;
    return own_work(r, t, start);
}

/* Calls on_result(signature, result) after the first call of a signature, in nobody's time. -1: interrupted. */
static int describe_result(Recorder *r, Thread *t, uint32_t signature, PyObject *result)
{
    int64_t start = now();
    PyObject *hook_args[2] = {PyLong_FromUnsignedLong(signature), result};
    if (hook_args[0] == NULL) {
        PyErr_Clear();
        return 0;
    }
    int status = call_hook(r, t, r->on_result, hook_args, 2, NULL);
    Py_DECREF(hook_args[0]);
    return status < 0 || !r->on ? status : own_work(r, t, start);
}

/* The signature's id in *signature. -1: a hook was interrupted. */
static inline int signature_of(Recorder *r, Thread *t, uint32_t callable, PyObject *const *args, Py_ssize_t nargs,
                               PyObject *kwnames, uint32_t *signature)
{
    Hasher h;
    h.recorder = r;
    h.thread = t;
    h.h = callable;
    h.nfloats = 0;
    h.by_floats = r->callables[callable].floats;
    put(&h, (uint64_t)nargs);
    for (Py_ssize_t i = 0; i < nargs; i++)
        if (UNLIKELY(hash_one(&h, args[i], 0) < 0)) return -1;
    if (kwnames != NULL) {
        Py_ssize_t nkw = PyTuple_GET_SIZE(kwnames);
        for (Py_ssize_t i = 0; i < nkw; i++) {
            hash_str(&h, PyTuple_GET_ITEM(kwnames, i));
            if (UNLIKELY(hash_one(&h, args[nargs + i], 0) < 0)) return -1;
        }
    }
    uint64_t key = h.h;
    uint32_t found = 0;
    if (LIKELY(r->interned_size)) {
        size_t at = key & (r->interned_size - 1);
        while (r->interned[at].signature) {
            if (LIKELY(r->interned[at].key == key)) {
                found = r->interned[at].signature;
                break;
            }
            at = (at + 1) & (r->interned_size - 1);
        }
    }
    if (UNLIKELY(!found) && first_sight(r, t, callable, key, args, nargs, kwnames, &found) < 0) return -1;
    if (h.nfloats && found) widen_ranges(r, found, &h);
    *signature = found;
    return 0;
}

/* ---- sites: the lines that call ---------------------------------------------------------------------- */

/* A site is a code object and an instruction in it; what line that is, is looked up later. A call's is the innermost of
 * the user's code: from the running frame outwards, one look into a table for each frame.
 *
 * To ask PyEval_GetFrame makes a frame object for each Python frame it is asked in, 200 to 350 ns. So the interpreter's
 * own frames are read: 3.12 to 3.14 have functions for what is in one, and all keep the next outer one at the same place;
 * 3.11 has no functions (Include/internal/pycore_frame.h says what is where). Both are held against PyEval_GetFrame once
 * before they are used. For any other Python, and where that check fails, there are frame objects. */
#if !defined(PYPY_VERSION) && !defined(Py_GIL_DISABLED) && PY_VERSION_HEX >= 0x030B0000 && PY_VERSION_HEX < 0x030F0000
#define HAVE_FRAMES 1
typedef struct _PyInterpreterFrame InnerFrame;
#if PY_VERSION_HEX < 0x030C0000
enum { CODE_WORD = 4, PREVIOUS_WORD = 6, INSTRUCTION_WORD = 7 };
#else
enum { PREVIOUS_WORD = 1 };
#endif

static inline InnerFrame *inner_frame(void)
{
#if PY_VERSION_HEX < 0x030D0000
    return PyThreadState_Get()->cframe->current_frame;
#else
    return PyThreadState_Get()->current_frame;
#endif
}

static inline InnerFrame *outer_frame(InnerFrame *f) { return ((InnerFrame **)f)[PREVIOUS_WORD]; }

/* Borrowed: a frame keeps its code. NULL for what lies between (of calls from C). */
static inline PyObject *code_of(InnerFrame *f, int *at)
{
#if PY_VERSION_HEX < 0x030C0000
    PyObject *code = ((PyObject **)f)[CODE_WORD];
    if (code == NULL) return NULL;
    *at = (int)(((char **)f)[INSTRUCTION_WORD] - ((PyCodeObject *)code)->co_code_adaptive);
#else
    PyObject *code = PyUnstable_InterpreterFrame_GetCode(f);
    Py_XDECREF(code);
    if (code == NULL || !PyCode_Check(code)) return NULL;
    *at = PyUnstable_InterpreterFrame_GetLasti(f);
#endif
    return code;
}
#endif

static int frames_checked, frames_known;

/* Whether the frames read so are those that Python itself tells: the same code and instruction, all the way out. */
static void check_frames(void)
{
    frames_checked = 1;
#ifdef HAVE_FRAMES
    InnerFrame *f = inner_frame();
    PyFrameObject *told = PyEval_GetFrame();
    int same = told != NULL;
    Py_XINCREF(told);
    while (told != NULL) {
        PyObject *theirs = (PyObject *)PyFrame_GetCode(told);
        int at = 0;
        while (f != NULL && code_of(f, &at) != theirs) f = outer_frame(f); /* what lies between, of calls from C */
        same = same && f != NULL && at == PyFrame_GetLasti(told);
        if (f != NULL) f = outer_frame(f);
        Py_DECREF(theirs);
        PyFrameObject *outer = PyFrame_GetBack(told);
        Py_DECREF(told);
        told = outer;
    }
    frames_known = same;
#endif
}

static size_t site_at(const Site *table, size_t size, const PyObject *code, int at)
{
    size_t place = mix((uintptr_t)code >> 4, (uint64_t)(uint32_t)at) & (size - 1);
    while (table[place].code != NULL && (table[place].code != code || table[place].at != at))
        place = (place + 1) & (size - 1);
    return place;
}

static int grow_sites(Recorder *r)
{
    size_t size = r->site_size ? 2 * r->site_size : 1024;
    Site *grown = PyMem_RawCalloc(size, sizeof(Site));
    if (grown == NULL) return -1;
    for (size_t i = 0; i < r->site_size; i++)
        if (r->sites[i].code != NULL) grown[site_at(grown, size, r->sites[i].code, r->sites[i].at)] = r->sites[i];
    PyMem_RawFree(r->sites);
    r->sites = grown;
    r->site_size = size;
    return 0;
}

/* A place in code that is seen for the first time. -1: interrupted; -2: no room. */
static int64_t new_site(Recorder *r, Thread *t, PyObject *code, int at)
{
    if (r->site_used >= MAX_SITES || (2 * (r->site_used + 1) > r->site_size && grow_sites(r) < 0)) return -2;
    PyObject *answer;
    Py_INCREF(code);
    if (call_hook(r, t, r->is_mine, &code, 1, &answer) < 0) {
        Py_DECREF(code);
        return -1;
    }
    int mine = answer != NULL && PyObject_IsTrue(answer) > 0;
    Py_XDECREF(answer);
    if (PyErr_Occurred()) drop_hook_error(r);
    if (mine && r->site_count + 1 >= r->site_room) {
        uint32_t room = r->site_room ? 2 * r->site_room : 256;
        Site *list = PyMem_RawRealloc(r->site_list, room * sizeof(Site));
        if (list == NULL) {
            Py_DECREF(code);
            return -2;
        }
        r->site_list = list;
        r->site_room = room;
    }
    /* The hook is Python: another thread may have been here meanwhile, or made the table grow. */
    if (2 * (r->site_used + 1) > r->site_size && grow_sites(r) < 0) mine = -1;
    size_t place = mine < 0 ? 0 : site_at(r->sites, r->site_size, code, at);
    if (mine < 0 || r->sites[place].code != NULL) {
        Py_DECREF(code);
        return mine < 0 ? -2 : (int64_t)r->sites[place].site;
    }
    uint32_t number = mine ? ++r->site_count : 0;
    r->sites[place] = (Site){code, at, number};
    if (mine) r->site_list[number] = r->sites[place];
    r->site_used++;
    return number;
}

static inline int64_t site_in(Recorder *r, Thread *t, PyObject *code, int at)
{
    if (LIKELY(r->site_size)) {
        const Site *known = &r->sites[site_at(r->sites, r->site_size, code, at)];
        if (LIKELY(known->code != NULL)) return known->site;
    }
    return new_site(r, t, code, at);
}

/* By frame objects: for a Python whose own frames are not known. */
static int64_t site_of_objects(Recorder *r, Thread *t)
{
    PyFrameObject *f = PyEval_GetFrame();
    int64_t found = 0;
    Py_XINCREF(f);
    while (f != NULL && found == 0) {
        PyObject *code = (PyObject *)PyFrame_GetCode(f);
        found = site_in(r, t, code, PyFrame_GetLasti(f));
        Py_DECREF(code);
        PyFrameObject *outer = found == 0 ? PyFrame_GetBack(f) : NULL;
        Py_DECREF(f);
        f = outer;
    }
    return found;
}

/* The number of the line that calls now; 0 for none of the user's. -1: a hook was interrupted. */
static inline int site_of(Recorder *r, Thread *t, Frame *made)
{
    int64_t found = 0;
    made->site = 0;
    made->python = NULL;
    if (r->is_mine == NULL) return 0;
#ifdef HAVE_FRAMES
    if (LIKELY(frames_known)) {
        InnerFrame *f = inner_frame();
        made->python = f;
        for (int at = 0; f != NULL; f = outer_frame(f)) {
            if (t->top != NULL && t->top->python == f) { /* within an open call, whose line is known */
                found = t->top->site;
                break;
            }
            PyObject *code = code_of(f, &at);
            if (code != NULL && (found = site_in(r, t, code, at)) != 0) break;
        }
    } else
#endif
        found = site_of_objects(r, t);
    if (UNLIKELY(found < 0)) {
        if (found == -1) return -1;
        r->unplaced++;
        found = 0;
    }
    made->site = (uint32_t)found;
    return 0;
}

/* ---- the path of one call ---------------------------------------------------------------------------- */

static void set_on(Recorder *r)
{
    int on = r->running && !r->paused && !r->sampled_out;
    if (r->on && !on) r->epoch++;
    r->on = on;
}

static void count_step(Recorder *r)
{
    r->steps++;
    r->sampled_out = r->steps % r->every != 0;
    set_on(r);
}

static inline void end_boundary(Recorder *r, uint32_t callable)
{
    if (UNLIKELY(r->callables[callable].boundary) && r->running && !r->manual_steps) count_step(r);
}

typedef struct {
    PyObject *through; /* a callable, or a descriptor to read */
    PyObject *const *args;
    size_t nargsf;
    PyObject *kwnames;
    descrgetfunc getter; /* of the descriptor, with `owner` */
    PyObject *owner;
} Invocation;

static inline PyObject *invoke(const Invocation *i)
{
    if (i->getter != NULL) return i->getter(i->through, i->args[0], i->owner);
    return PyObject_Vectorcall(i->through, i->args, i->nargsf, i->kwnames);
}

/* Waits for the device. What the device reports there is the failure of the call, unless that failed by itself. */
static int wait_for_device(Recorder *r, Thread *t, int failed)
{
    if (failed) return call_hook(r, t, r->sync, NULL, 0, NULL);
    int was = t->busy;
    t->busy = 1;
    PyObject *answer = PyObject_CallNoArgs(r->sync);
    t->busy = was;
    Py_XDECREF(answer);
    return answer == NULL ? -1 : 0;
}

/* Takes over `begun`, what `on_begin` answered. What the call raised stays set: call_hook keeps it. */
static int tell_end(Recorder *r, Thread *t, PyObject *begun, int64_t start)
{
    int status = 0;
    if (begun != Py_None) {
        PyObject *args[] = {begun, PyLong_FromUnsignedLong(t->no), PyLong_FromLongLong(start)};
        status = args[1] == NULL || args[2] == NULL ? -1 : call_hook(r, t, r->on_end, args, 3, NULL);
        Py_XDECREF(args[1]);
        Py_XDECREF(args[2]);
    }
    Py_DECREF(begun);
    return status;
}

static PyObject *run_call(Recorder *r, uint32_t callable, const Invocation *i)
{
    PyObject *result;
    Thread *t;
    if (UNLIKELY(!r->on) || UNLIKELY((t = this_thread(r)) == NULL)) {
        result = invoke(i);
        end_boundary(r, callable);
        return result;
    }
    if (UNLIKELY(t->busy)) return invoke(i);
    const Callable *c = &r->callables[callable];
    int kind = c->kind;
    if (UNLIKELY(kind == OPENS)) {
        uint32_t before = t->open;
        t->open = 0;
        result = invoke(i);
        t->open = before;
        return result;
    }
    if (t->open && !r->inside) {
        r->passed++;
        return invoke(i);
    }
    if (!c->record) {
        uint32_t before = t->open;
        t->open += kind == CALL;
        result = invoke(i);
        t->open = before;
        end_boundary(r, callable);
        return result;
    }
    int is_module = c->module;
    uint32_t signature = 0, known = r->signature_count;
    if (r->signatures &&
        signature_of(r, t, callable, i->args, PyVectorcall_NARGS(i->nargsf), i->kwnames, &signature) < 0)
        return NULL;
    Frame f;
    if (UNLIKELY(site_of(r, t, &f) < 0)) return NULL;
    PyObject *begun = NULL;
    if (UNLIKELY(r->on_begin != NULL) && call_hook(r, t, r->on_begin, NULL, 0, &begun) < 0) return NULL;
    f.prev = t->top;
    f.epoch = r->epoch;
    f.child = 0;
    f.own = t->own;
    f.callable = callable;
    f.section = t->section;
    f.module = t->module;
    f.open = t->open;
    f.depth = t->depth;
    t->top = &f;
    t->depth++;
    t->open += kind == CALL;
    if (is_module) t->module = callable;
    f.start = now();
    result = invoke(i);
    int64_t end = now(), wait = 0;
    int status = 0;
    uint32_t flags = (uint32_t)r->ended | (f.open ? INSIDE : 0) | (kind ? SPANNED : 0);
    if (UNLIKELY(result == NULL) && !PyErr_ExceptionMatches(PyExc_StopIteration)) flags |= RAISED;
    if (UNLIKELY(begun != NULL) && (status = tell_end(r, t, begun, f.start)) < 0) flags |= RAISED;
    if (r->sync != NULL) {
        int64_t waiting = now();
        if (LIKELY(status == 0)) status = wait_for_device(r, t, result == NULL);
        if (UNLIKELY(status < 0)) flags |= RAISED;
        wait = now() - waiting;
        end += wait;
    }
    t->top = f.prev;
    t->depth = f.depth;
    t->open = f.open;
    t->section = f.section;
    t->module = f.module;
    if (LIKELY(f.epoch == r->epoch && r->on)) {
        int64_t duration = end - f.start;
        if (f.prev != NULL) f.prev->child += duration;
        if (UNLIKELY(emit(r, t, &f, duration, wait, signature, flags) < 0)) status = -1;
        if (UNLIKELY(signature > known) && status == 0 && result != NULL && kind == CALL && r->on_result != NULL)
            status = describe_result(r, t, signature, result);
    } else if (r->running) {
        r->unfinished++;
    }
    end_boundary(r, callable);
    if (UNLIKELY(status < 0)) Py_CLEAR(result);
    return result;
}

/* ---- stand-in types ---------------------------------------------------------------------------------- */

static inline PyObject *referent(PyObject *ref) /* borrowed, only to be compared */
{
#if PY_VERSION_HEX >= 0x030D0000
    PyObject *object = NULL;
    if (PyWeakref_GetRef(ref, &object) < 0) PyErr_Clear();
    Py_XDECREF(object);
    return object;
#else
    return PyWeakref_GET_OBJECT(ref);
#endif
}

static inline size_t instance_at(const Instance *table, size_t size, PyObject *instance, uint32_t wrapper)
{
    size_t at = mix((uintptr_t)instance, wrapper) & (size - 1);
    while (table[at].ref != NULL && (table[at].instance != instance || table[at].wrapper != wrapper))
        at = (at + 1) & (size - 1);
    return at;
}

/* Makes room for one more; drops the entries of instances that are gone. Runs no Python code but frees of
 * weak references, after the table is whole again. */
static int grow_instances(Recorder *r)
{
    size_t living = 0, size = 64;
    for (size_t i = 0; i < r->instance_size; i++)
        living += r->instances[i].ref != NULL && referent(r->instances[i].ref) == r->instances[i].instance;
    while (size < 4 * (living + 1)) size *= 2;
    Instance *grown = PyMem_RawCalloc(size, sizeof(Instance)), *old = r->instances;
    if (grown == NULL) return -1;
    size_t old_size = r->instance_size;
    for (size_t i = 0; i < old_size; i++) {
        if (old[i].ref == NULL || referent(old[i].ref) != old[i].instance) continue;
        grown[instance_at(grown, size, old[i].instance, old[i].wrapper)] = old[i];
        old[i].ref = NULL;
    }
    r->instances = grown;
    r->instance_size = size;
    r->instance_used = living;
    for (size_t i = 0; i < old_size; i++) Py_XDECREF(old[i].ref);
    PyMem_RawFree(old);
    return 0;
}

static void remember_instance(Recorder *r, PyObject *instance, uint32_t wrapper, int64_t callable)
{
    PyObject *ref = PyWeakref_NewRef(instance, NULL);
    if (ref == NULL) { /* cannot be weakly referenced: asked every time */
        PyErr_Clear();
        return;
    }
    if (2 * (r->instance_used + 1) > r->instance_size && grow_instances(r) < 0) {
        Py_DECREF(ref);
        return;
    }
    size_t at = instance_at(r->instances, r->instance_size, instance, wrapper);
    PyObject *old = r->instances[at].ref;
    if (old == NULL) r->instance_used++;
    r->instances[at] = (Instance){instance, ref, wrapper, (int32_t)callable};
    Py_XDECREF(old);
}

/* The callable id for this instance; -1: pass straight on; -2: interrupted. */
static int64_t resolve(Wrapper *w, PyObject *instance)
{
    Recorder *r = w->recorder;
    if (r->instance_size) {
        size_t at = instance_at(r->instances, r->instance_size, instance, w->serial);
        if (LIKELY(r->instances[at].ref != NULL) && LIKELY(referent(r->instances[at].ref) == instance))
            return r->instances[at].callable;
    }
    Thread *t = this_thread(r);
    if (t == NULL || t->busy) return -1;
    PyObject *answer;
    int64_t start = now();
    if (call_hook(r, t, w->resolve, &instance, 1, &answer) < 0) return -2;
    int64_t callable = -1;
    if (answer != NULL) {
        callable = PyLong_AsLongLong(answer);
        Py_DECREF(answer);
        if (PyErr_Occurred() || callable < -1 || callable >= (int64_t)r->callable_count) {
            drop_hook_error(r);
            callable = -1;
        }
    }
    remember_instance(r, instance, w->serial, callable);
    return r->on && t->top != NULL && own_work(r, t, start) < 0 ? -2 : callable;
}

static PyObject *wrapper_vectorcall(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    Wrapper *w = (Wrapper *)self;
    Recorder *r = w->recorder;
    if (UNLIKELY(!r->running)) return PyObject_Vectorcall(w->through, args, nargsf, kwnames);
    int64_t callable = w->callable;
    if (w->resolve != NULL && PyVectorcall_NARGS(nargsf) > 0) {
        callable = resolve(w, args[0]);
        if (UNLIKELY(callable == -2)) return NULL;
    }
    if (UNLIKELY(callable < 0)) return PyObject_Vectorcall(w->through, args, nargsf, kwnames);
    Invocation i = {w->through, args, nargsf, kwnames, NULL, NULL};
    Py_INCREF(self); /* the caller may let go of it meanwhile, and with it of the recorder */
    PyObject *result = run_call(r, (uint32_t)callable, &i);
    Py_DECREF(self);
    return result;
}

static PyObject *wrapper_bind(PyObject *self, PyObject *instance, PyObject *owner)
{
    if (instance == NULL || instance == Py_None) return Py_NewRef(self);
    return PyMethod_New(self, instance);
}

static PyObject *property_get(PyObject *self, PyObject *instance, PyObject *owner)
{
    Wrapper *w = (Wrapper *)self;
    if (instance == NULL) return Py_NewRef(w->wrapped);
    descrgetfunc getter = Py_TYPE(w->wrapped)->tp_descr_get;
    if (!w->recorder->running || w->callable < 0) return getter(w->wrapped, instance, owner);
    Invocation i = {w->wrapped, &instance, 1, NULL, getter, owner};
    Py_INCREF(self);
    PyObject *result = run_call(w->recorder, (uint32_t)w->callable, &i);
    Py_DECREF(self);
    return result;
}

static int property_set(PyObject *self, PyObject *instance, PyObject *value)
{
    PyObject *wrapped = ((Wrapper *)self)->wrapped;
    descrsetfunc setter = Py_TYPE(wrapped)->tp_descr_set;
    if (setter == NULL) {
        PyErr_SetString(PyExc_AttributeError, value == NULL ? "__delete__" : "__set__");
        return -1;
    }
    return setter(wrapped, instance, value);
}

static PyObject *wrapper_getattr(PyObject *self, PyObject *name)
{
    PyObject *wrapped = ((Wrapper *)self)->wrapped;
    const State *state = ((Wrapper *)self)->recorder->state;
    /* Found on the type before anything else: these are what it wraps has. With __class__, isinstance() agrees. */
    if (PyUnicode_Check(name) &&
        (PyUnicode_Compare(name, state->str_module) == 0 || PyUnicode_Compare(name, state->str_doc) == 0 ||
         PyUnicode_Compare(name, state->str_class) == 0))
        return PyObject_GetAttr(wrapped, name);
    PyObject *found = PyObject_GenericGetAttr(self, name);
    if (found != NULL || !PyErr_ExceptionMatches(PyExc_AttributeError)) return found;
    PyErr_Clear();
    return PyObject_GetAttr(wrapped, name);
}

static int wrapper_setattr(PyObject *self, PyObject *name, PyObject *value)
{
    return PyObject_SetAttr(((Wrapper *)self)->wrapped, name, value);
}

static Py_hash_t wrapper_hash(PyObject *self) { return PyObject_Hash(((Wrapper *)self)->wrapped); }

static PyObject *wrapper_repr(PyObject *self) { return PyObject_Repr(((Wrapper *)self)->wrapped); }

static int is_stand_in(const State *state, PyObject *object)
{
    return Py_TYPE(object) == state->wrapper_type || Py_TYPE(object) == state->plain_type;
}

static PyObject *wrapper_compare(PyObject *self, PyObject *other, int op)
{
    if (is_stand_in(((Wrapper *)self)->recorder->state, other)) other = ((Wrapper *)other)->wrapped;
    return PyObject_RichCompare(((Wrapper *)self)->wrapped, other, op);
}

static PyObject *wrapper_wrapped(PyObject *self, void *unused) { return Py_NewRef(((Wrapper *)self)->wrapped); }

static PyObject *wrapper_reduce(PyObject *self, PyObject *unused)
{
    PyObject *module = PyImport_ImportModule("luxmeter.calls.core._pywrap");
    if (module == NULL) return NULL;
    PyObject *result = PyObject_CallMethod(module, "reduce", "O", self);
    Py_DECREF(module);
    return result;
}

static PyObject *wrapper_self(PyObject *self, PyObject *unused) { return Py_NewRef(self); }

static int wrapper_traverse(PyObject *self, visitproc visit, void *arg)
{
    Wrapper *w = (Wrapper *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT((PyObject *)w->recorder);
    Py_VISIT(w->wrapped);
    Py_VISIT(w->through);
    Py_VISIT(w->resolve);
    return 0;
}

/* No tp_clear: a stand-in never loses what it wraps while somebody can still call it. A cycle through one is
 * broken in the recorder. */
static void wrapper_dealloc(PyObject *self)
{
    Wrapper *w = (Wrapper *)self;
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    if (w->weakrefs != NULL) PyObject_ClearWeakRefs(self);
    Py_XDECREF((PyObject *)w->recorder);
    Py_XDECREF(w->wrapped);
    Py_XDECREF(w->through);
    Py_XDECREF(w->resolve);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyGetSetDef wrapper_getset[] = {
    {"__wrapped__", wrapper_wrapped, NULL, NULL, NULL},
    /* Dynamo and torch.jit.script look through what has this and __script_if_tracing_wrapper on its type. */
    {"__original_fn", wrapper_wrapped, NULL, NULL, NULL},
    {NULL},
};

static PyMethodDef wrapper_methods[] = {
    {"__reduce__", wrapper_reduce, METH_NOARGS, NULL},
    {"__reduce_ex__", wrapper_reduce, METH_O, NULL},
    {"__copy__", wrapper_self, METH_NOARGS, NULL},
    {"__deepcopy__", wrapper_self, METH_O, NULL},
    {NULL},
};

static PyMemberDef wrapper_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Wrapper, vectorcall), READONLY, NULL},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(Wrapper, weakrefs), READONLY, NULL},
    {NULL},
};

#define COMMON_SLOTS                                                                                        \
    {Py_tp_dealloc, wrapper_dealloc}, {Py_tp_traverse, wrapper_traverse}, {Py_tp_getattro, wrapper_getattr}, \
    {Py_tp_members, wrapper_members}, {Py_tp_getset, wrapper_getset}
#define FUNCTION_SLOTS                                                                               \
    COMMON_SLOTS, {Py_tp_call, PyVectorcall_Call}, {Py_tp_setattro, wrapper_setattr},                \
    {Py_tp_hash, wrapper_hash}, {Py_tp_richcompare, wrapper_compare}, {Py_tp_repr, wrapper_repr},    \
    {Py_tp_methods, wrapper_methods}

static PyType_Slot wrapper_slots[] = {FUNCTION_SLOTS, {Py_tp_descr_get, wrapper_bind}, {0, NULL}};
static PyType_Slot plain_slots[] = {FUNCTION_SLOTS, {0, NULL}};
static PyType_Slot property_slots[] = {
    COMMON_SLOTS, {Py_tp_descr_get, property_get}, {Py_tp_descr_set, property_set}, {0, NULL}};

#define WRAPPER_FLAGS (Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION)
static PyType_Spec wrapper_spec = {"luxmeter.calls.core._core.Wrapper", sizeof(Wrapper), 0,
                                   WRAPPER_FLAGS | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR,
                                   wrapper_slots};
static PyType_Spec plain_spec = {"luxmeter.calls.core._core.PlainWrapper", sizeof(Wrapper), 0,
                                 WRAPPER_FLAGS | Py_TPFLAGS_HAVE_VECTORCALL, plain_slots};
static PyType_Spec property_spec = {"luxmeter.calls.core._core.PropertyWrapper", sizeof(Wrapper), 0, WRAPPER_FLAGS,
                                    property_slots};

static PyObject *new_wrapper(Recorder *r, PyTypeObject *type, PyObject *wrapped, PyObject *through,
                             PyObject *resolver, int64_t callable)
{
    Wrapper *w = PyObject_GC_New(Wrapper, type);
    if (w == NULL) return NULL;
    w->vectorcall = wrapper_vectorcall;
    w->recorder = (Recorder *)Py_NewRef((PyObject *)r);
    w->wrapped = Py_NewRef(wrapped);
    w->through = Py_NewRef(through == NULL || through == Py_None ? wrapped : through);
    w->resolve = Py_XNewRef(resolver);
    w->callable = callable;
    w->serial = ++r->wrapper_count;
    w->weakrefs = NULL;
    PyObject_GC_Track((PyObject *)w);
    return (PyObject *)w;
}

/* ---- sections ---------------------------------------------------------------------------------------- */

/* Takes the span out of its thread's chain, wherever it is; whether it was there. */
static int unlink_span(SpanObject *s)
{
    Thread *t = s->thread;
    Frame *below = t->top, *above = NULL;
    while (below != NULL && below != &s->frame) above = below, below = below->prev;
    if (below == NULL) return 0;
    Frame *other = NULL; /* the section opened right after this one that is still open: what is above it stays in it */
    for (Frame *f = t->top; f != &s->frame; f = f->prev) {
        f->depth--;
        if (s->recorder->callables[f->callable].kind == SECTION) other = f;
    }
    for (Frame *f = other != NULL ? other : t->top; f != &s->frame; f = f->prev) f->section = s->frame.section;
    if (other == NULL) t->section = s->frame.section;
    if (above == NULL) t->top = s->frame.prev;
    else above->prev = s->frame.prev;
    t->depth--;
    return 1;
}

static void span_dealloc(PyObject *self)
{
    SpanObject *s = (SpanObject *)self;
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    if (s->thread != NULL && s->serial == s->recorder->serial) unlink_span(s);
    Py_XDECREF((PyObject *)s->recorder);
    type->tp_free(self);
    Py_DECREF(type);
}

static int span_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT((PyObject *)((SpanObject *)self)->recorder);
    return 0;
}

static PyType_Slot span_slots[] = {
    {Py_tp_dealloc, span_dealloc}, {Py_tp_traverse, span_traverse}, {0, NULL}};
static PyType_Spec span_spec = {"luxmeter.calls.core._core.Span", sizeof(SpanObject), 0, WRAPPER_FLAGS, span_slots};

static int known_callable(Recorder *r, long long callable)
{
    if (callable >= -1 && callable < (long long)r->callable_count) return 1;
    PyErr_Format(PyExc_ValueError, "no callable has the id %lld", callable);
    return 0;
}

static PyObject *recorder_enter(PyObject *self, PyObject *number)
{
    Recorder *r = (Recorder *)self;
    long long callable = PyLong_AsLongLong(number);
    if ((callable == -1 && PyErr_Occurred()) || !known_callable(r, callable)) return NULL;
    if (callable < 0) callable = 0;
    Thread *t = this_thread(r);
    if (t == NULL) return PyErr_NoMemory();
    SpanObject *s = PyObject_GC_New(SpanObject, r->state->span_type);
    if (s == NULL) return NULL;
    s->recorder = (Recorder *)Py_NewRef(self);
    s->serial = r->serial;
    s->thread = t;
    s->frame = (Frame){.prev = t->top, .epoch = r->run, .own = t->own, .callable = (uint32_t)callable,
                       .section = t->section, .module = t->module, .open = t->open, .depth = t->depth};
    if (r->running && site_of(r, t, &s->frame) < 0) {
        PyObject_GC_Track((PyObject *)s);
        Py_DECREF(s);
        return NULL;
    }
    s->frame.python = NULL; /* its frame goes on while it is open */
    if (r->running) {
        t->top = &s->frame;
        t->section = (uint32_t)callable;
        t->depth++;
    }
    PyObject_GC_Track((PyObject *)s);
    s->frame.start = now();
    return (PyObject *)s;
}

static PyObject *recorder_leave(PyObject *self, PyObject *span)
{
    int64_t end = now();
    Recorder *r = (Recorder *)self;
    if (Py_TYPE(span) != r->state->span_type || ((SpanObject *)span)->recorder != r) {
        PyErr_SetString(PyExc_TypeError, "leave() takes what enter() of the same recorder gave");
        return NULL;
    }
    SpanObject *s = (SpanObject *)span;
    if (s->thread == NULL || s->serial != r->serial || s->thread->token != own_token) Py_RETURN_NONE;
    Thread *t = s->thread;
    int linked = unlink_span(s);
    s->thread = NULL;
    if (!r->running || s->frame.epoch != r->run) Py_RETURN_NONE;
    int64_t duration = end - s->frame.start;
    if (linked && s->frame.prev != NULL) s->frame.prev->child += duration;
    if (emit(r, t, &s->frame, duration, 0, 0, SPANNED | r->ended | (s->frame.open ? INSIDE : 0)) < 0) return NULL;
    Py_RETURN_NONE;
}

/* ---- Recorder ---------------------------------------------------------------------------------------- */

static PyObject *optional(PyObject *hook) { return hook == NULL || hook == Py_None ? NULL : Py_NewRef(hook); }

static PyObject *recorder_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"inside", "signatures", "strides", "totals", "completed", "max_signatures",
                            "max_pending", "tensor_type", "exchange", "classify", "key", "on_signature",
                            "on_result", "on_thread", "on_chunk", "sync", "samples", "is_mine", "on_begin", "on_end", NULL};
    int inside = 0, signatures = 1, strides = 0, totals = 0, completed = 1;
    unsigned int max_signatures = 4096, max_pending = 262144;
    PyObject *tensor_type = NULL, *exchange = NULL, *classify = NULL, *key = NULL, *on_signature = NULL,
             *on_result = NULL, *on_thread = NULL, *on_chunk = NULL, *sync = NULL, *samples = NULL, *is_mine = NULL, *on_begin = NULL,
             *on_end = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|$pppppIIOOOOOOOOOOOOO", names, &inside, &signatures, &strides,
                                     &totals, &completed, &max_signatures, &max_pending, &tensor_type, &exchange,
                                     &classify, &key, &on_signature, &on_result, &on_thread, &on_chunk, &sync,
                                     &samples, &is_mine, &on_begin, &on_end))
        return NULL;
    if ((on_begin == NULL || on_begin == Py_None) != (on_end == NULL || on_end == Py_None)) {
        PyErr_SetString(PyExc_ValueError, "on_begin and on_end go together");
        return NULL;
    }
    ExchangeTable *table = NULL;
    if (exchange != NULL && exchange != Py_None) {
        table = PyCapsule_GetPointer(exchange, "dlpack_exchange_api");
        if (table == NULL) return NULL;
        if (table->version.major != 1) table = NULL; /* another layout: read attributes */
    }
    measure_ticks();
    Recorder *r = (Recorder *)type->tp_alloc(type, 0);
    if (r == NULL) return NULL;
    r->state = PyType_GetModuleState(type);
    r->inside = inside;
    r->signatures = signatures;
    r->strides = strides;
    r->by_totals = totals;
    r->max_signatures = max_signatures;
    r->max_chunks = max_pending / CHUNK_EVENTS ? max_pending / CHUNK_EVENTS : 1;
    r->every = 1;
    r->serial = ++last_serial;
    r->full_tail = &r->full;
    r->classify = optional(classify);
    r->key = optional(key);
    r->on_signature = optional(on_signature);
    r->on_result = optional(on_result);
    r->on_thread = optional(on_thread);
    r->on_chunk = optional(on_chunk);
    r->sync = optional(sync);
    r->is_mine = optional(is_mine);
    r->on_begin = optional(on_begin);
    r->on_end = optional(on_end);
    if (r->is_mine != NULL && !frames_checked) check_frames();
    r->ended = completed || r->sync ? COMPLETED : 0;
    r->exchange = table != NULL ? Py_NewRef(exchange) : NULL;
    r->from_py_object = table != NULL ? table->dltensor_from_py_object : NULL;
    r->tensor_type = (PyTypeObject *)(table != NULL ? optional(tensor_type) : NULL);
    if (r->tensor_type != NULL && samples != NULL && PyList_Check(samples)) {
        Layout *layout = &r->state->layout;
        learn_layout(layout, r->tensor_type, r->from_py_object, samples);
        r->direct = layout->known && layout->type == r->tensor_type;
    }
    r->types = PyDict_New();
    r->apis = PyDict_New();
    r->callables = PyMem_RawCalloc(1024, sizeof(Callable));
    r->seen = PyMem_RawCalloc(1024, 1);
    if (!r->types || !r->apis || !r->callables || !r->seen) {
        Py_DECREF(r);
        return PyErr_NoMemory();
    }
    r->callable_room = r->api_room = 1024;
    r->callable_count = r->api_count = 1; /* 0 is the recorder itself */
    r->callables[0].kind = SPAN;
    r->callables[0].record = 1;
    r->seen[0] = 1;
    return (PyObject *)r;
}

static int recorder_traverse(PyObject *self, visitproc visit, void *arg)
{
    Recorder *r = (Recorder *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(r->types);
    Py_VISIT(r->apis);
    Py_VISIT(r->tensor_type);
    Py_VISIT(r->exchange);
    Py_VISIT(r->classify);
    Py_VISIT(r->key);
    Py_VISIT(r->on_signature);
    Py_VISIT(r->on_result);
    Py_VISIT(r->on_thread);
    Py_VISIT(r->on_chunk);
    Py_VISIT(r->sync);
    Py_VISIT(r->is_mine);
    Py_VISIT(r->on_begin);
    Py_VISIT(r->on_end);
    return 0;
}

static void forget_all_instances(Recorder *r)
{
    Instance *old = r->instances;
    size_t size = r->instance_size;
    r->instances = NULL;
    r->instance_size = r->instance_used = 0;
    for (size_t i = 0; i < size; i++) Py_XDECREF(old[i].ref);
    PyMem_RawFree(old);
}

static int recorder_clear(PyObject *self)
{
    Recorder *r = (Recorder *)self;
    r->running = 0; /* wrappers that are left only pass on: no hook is needed any more */
    set_on(r);
    Py_CLEAR(r->classify);
    Py_CLEAR(r->hook_error);
    Py_CLEAR(r->key);
    Py_CLEAR(r->on_signature);
    Py_CLEAR(r->on_result);
    Py_CLEAR(r->on_thread);
    Py_CLEAR(r->on_chunk);
    Py_CLEAR(r->sync);
    Py_CLEAR(r->is_mine);
    Py_CLEAR(r->on_begin);
    Py_CLEAR(r->on_end);
    forget_all_instances(r);
    return 0;
}

static void free_full(Recorder *r)
{
    while (r->full != NULL) {
        Chunk *next = r->full->next;
        PyMem_RawFree(r->full);
        r->full = next;
    }
    r->full_tail = &r->full;
    r->pending = r->waiting = 0;
}

static void free_totals(Recorder *r)
{
    for (size_t i = 0; i < r->total_count; i++) PyMem_RawFree(r->totals[i]);
    PyMem_RawFree(r->totals);
    PyMem_RawFree(r->total_index);
    r->totals = NULL;
    r->total_index = NULL;
    r->total_count = r->total_room = r->total_index_size = 0;
}

static void free_sites(Recorder *r)
{
    Site *sites = r->sites;
    size_t size = r->site_size;
    PyMem_RawFree(r->site_list);
    r->sites = r->site_list = NULL;
    r->site_size = r->site_used = 0;
    r->site_count = r->site_room = 0;
    for (size_t i = 0; i < size; i++) Py_XDECREF(sites[i].code);
    PyMem_RawFree(sites);
}

static void recorder_dealloc(PyObject *self)
{
    Recorder *r = (Recorder *)self;
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    recorder_clear(self);
    Py_XDECREF(r->types);
    Py_XDECREF(r->apis);
    Py_XDECREF((PyObject *)r->tensor_type);
    Py_XDECREF(r->exchange);
    free_threads(r->threads);
    free_threads(r->orphans);
    free_full(r);
    while (r->spare != NULL) {
        Chunk *next = r->spare->next;
        PyMem_RawFree(r->spare);
        r->spare = next;
    }
    free_totals(r);
    free_sites(r);
    for (size_t i = 0; i < r->ranges_size; i++) PyMem_RawFree(r->ranges[i]);
    PyMem_RawFree(r->ranges);
    PyMem_RawFree(r->interned);
    PyMem_RawFree(r->callables);
    PyMem_RawFree(r->seen);
    type->tp_free(self);
    Py_DECREF(type);
}

static int grow(void **array, size_t *room, size_t count, size_t item)
{
    if (count < *room) return 0;
    void *grown = PyMem_RawRealloc(*array, 2 * *room * item);
    if (grown == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    memset((char *)grown + *room * item, 0, *room * item);
    *array = grown;
    *room *= 2;
    return 0;
}

static PyObject *recorder_add_callable(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"name", "kind", "module", "record", "boundary", "floats", NULL};
    Recorder *r = (Recorder *)self;
    PyObject *name;
    int kind = CALL, module = 0, record = 1, boundary = 0, floats = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "U|$ipppp", names, &name, &kind, &module, &record, &boundary,
                                     &floats))
        return NULL;
    if (grow((void **)&r->callables, &r->callable_room, r->callable_count, sizeof(Callable)) < 0) return NULL;
    PyObject *known = PyDict_GetItemWithError(r->apis, name);
    uint32_t api;
    if (known != NULL) {
        api = (uint32_t)PyLong_AsUnsignedLong(known);
    } else {
        if (PyErr_Occurred() || grow((void **)&r->seen, &r->api_room, r->api_count, 1) < 0) return NULL;
        api = (uint32_t)r->api_count;
        PyObject *number = PyLong_FromUnsignedLong(api);
        if (number == NULL || PyDict_SetItem(r->apis, name, number) < 0) {
            Py_XDECREF(number);
            return NULL;
        }
        Py_DECREF(number);
        r->api_count++;
    }
    r->callables[r->callable_count] = (Callable){.api = api, .kind = (uint8_t)kind, .module = (uint8_t)module,
                                                 .record = (uint8_t)record, .boundary = (uint8_t)boundary,
                                                 .floats = (uint8_t)floats};
    return PyLong_FromSize_t(r->callable_count++);
}

static PyObject *wrap_function(Recorder *r, PyObject *function, PyObject *through, PyObject *resolver, int64_t id)
{
    const State *state = r->state;
    while (is_stand_in(state, function))
        function = ((Wrapper *)function)->wrapped; /* of an earlier recorder */
    PyTypeObject *type = Py_TYPE(function)->tp_descr_get != NULL ? state->wrapper_type : state->plain_type;
    return new_wrapper(r, type, function, through, resolver, id);
}

static PyObject *recorder_wrap(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"function", "callable_id", "through", NULL};
    PyObject *function, *through = NULL;
    long long callable;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OL|O", names, &function, &callable, &through)) return NULL;
    if (!known_callable((Recorder *)self, callable)) return NULL;
    return wrap_function((Recorder *)self, function, through, NULL, callable);
}

static PyObject *recorder_wrap_resolved(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"function", "resolve", "through", NULL};
    PyObject *function, *resolver, *through = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO|O", names, &function, &resolver, &through)) return NULL;
    return wrap_function((Recorder *)self, function, through, resolver, -1);
}

static PyObject *recorder_wrap_property(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"descriptor", "callable_id", NULL};
    PyObject *descriptor;
    long long callable;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OL", names, &descriptor, &callable)) return NULL;
    if (!known_callable((Recorder *)self, callable)) return NULL;
    if (Py_TYPE(descriptor)->tp_descr_get == NULL) {
        PyErr_SetString(PyExc_TypeError, "wrap_property() takes a descriptor");
        return NULL;
    }
    return new_wrapper((Recorder *)self, ((Recorder *)self)->state->property_type, descriptor, NULL, NULL, callable);
}

static PyObject *recorder_forget_instances(PyObject *self, PyObject *unused)
{
    forget_all_instances((Recorder *)self);
    Py_RETURN_NONE;
}

static PyObject *recorder_start(PyObject *self, PyObject *unused)
{
    Recorder *r = (Recorder *)self;
    if (!r->running) r->run++;
    r->running = 1;
    r->paused = 0;
    set_on(r);
    Py_RETURN_NONE;
}

static PyObject *recorder_pause(PyObject *self, PyObject *unused)
{
    Recorder *r = (Recorder *)self;
    r->paused = 1;
    set_on(r);
    Py_RETURN_NONE;
}

static PyObject *recorder_stop(PyObject *self, PyObject *unused)
{
    Recorder *r = (Recorder *)self;
    if (r->running) {
        r->run++;
        for (Thread *t = r->threads; t != NULL; t = t->next)
            for (Frame *f = t->top; f != NULL; f = f->prev) r->unfinished++;
    }
    r->running = 0;
    set_on(r);
    Py_RETURN_NONE;
}

static PyObject *recorder_sample(PyObject *self, PyObject *number)
{
    long long every = PyLong_AsLongLong(number);
    if (every == -1 && PyErr_Occurred()) return NULL;
    if (every < 1) {
        PyErr_SetString(PyExc_ValueError, "every must be at least 1");
        return NULL;
    }
    ((Recorder *)self)->every = (uint64_t)every;
    Py_RETURN_NONE;
}

static PyObject *recorder_step(PyObject *self, PyObject *args)
{
    Recorder *r = (Recorder *)self;
    long long callable = -1;
    if (!PyArg_ParseTuple(args, "|L", &callable) || !known_callable(r, callable)) return NULL;
    r->manual_steps = 1;
    if (callable >= 0 && r->running) {
        Thread *t = this_thread(r);
        if (t == NULL) return PyErr_NoMemory();
        Frame f = {.prev = t->top, .start = now(), .own = t->own, .callable = (uint32_t)callable, .section = t->section,
                   .module = t->module, .depth = t->depth};
        if (emit(r, t, &f, 0, 0, 0, OWN | SPANNED | r->ended) < 0) return NULL;
    }
    count_step(r);
    return PyBool_FromLong(r->on);
}

static PyObject *recorder_thread(PyObject *self, PyObject *unused)
{
    Thread *t = this_thread((Recorder *)self);
    return t == NULL ? PyErr_NoMemory() : PyLong_FromUnsignedLong(t->no);
}

static PyObject *recorder_section(PyObject *self, PyObject *unused)
{
    Thread *t = this_thread((Recorder *)self);
    return t == NULL ? PyErr_NoMemory() : PyLong_FromUnsignedLong(t->section);
}

static int append_chunk(PyObject *list, Chunk *chunk)
{
    PyObject *piece = piece_of(chunk);
    int status = piece != NULL ? PyList_Append(list, piece) : -1;
    Py_XDECREF(piece);
    return status;
}

static PyObject *recorder_take(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"partial", NULL};
    Recorder *r = (Recorder *)self;
    int partial = 1;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|p", names, &partial)) return NULL;
    PyObject *list = PyList_New(0);
    if (list == NULL) return NULL;
    while (r->full != NULL) {
        Chunk *chunk = r->full;
        if (append_chunk(list, chunk) < 0) goto failed;
        r->full = chunk->next;
        r->pending -= chunk->used;
        r->waiting--;
        if (r->full == NULL) r->full_tail = &r->full;
        give_chunk(r, chunk);
    }
    for (Thread *t = partial ? r->threads : NULL; t != NULL; t = t->next) {
        Chunk *chunk = t->chunk;
        if (chunk == NULL || chunk->used == 0) continue;
        if (append_chunk(list, chunk) < 0) goto failed;
        t->chunk = NULL;
        give_chunk(r, chunk);
    }
    return list;
failed: /* what was taken out is nowhere else any more */
    if (PyList_GET_SIZE(list)) {
        PyErr_Clear();
        return list;
    }
    Py_DECREF(list);
    return NULL;
}

static PyObject *recorder_drain(PyObject *self, PyObject *args, PyObject *kwargs)
{
    PyObject *list = recorder_take(self, args, kwargs);
    for (Py_ssize_t i = 0; list != NULL && i < PyList_GET_SIZE(list); i++) {
        PyObject *piece = PyList_GET_ITEM(list, i);
        PyObject *events = events_of((const uint8_t *)PyBytes_AS_STRING(piece), (size_t)PyBytes_GET_SIZE(piece));
        if (events == NULL || PyList_SetItem(list, i, events) < 0) Py_CLEAR(list);
    }
    return list;
}

static PyObject *recorder_totals(PyObject *self, PyObject *unused)
{
    Recorder *r = (Recorder *)self;
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list != NULL && i < r->total_count; i++) {
        const Total *t = r->totals[i];
        PyObject *row = Py_BuildValue("(IIIIIKLLLLLIy#)", t->callable, t->signature, t->section, t->thread, t->flags,
                                      (unsigned long long)t->n, (long long)t->total, (long long)t->child,
                                      (long long)t->wait, (long long)t->min, (long long)t->max, t->site,
                                      (const char *)t->histogram, (Py_ssize_t)sizeof(t->histogram));
        if (row == NULL || PyList_Append(list, row) < 0) Py_CLEAR(list);
        Py_XDECREF(row);
    }
    return list;
}

static PyObject *recorder_live(PyObject *self, PyObject *unused)
{
    Recorder *r = (Recorder *)self;
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list != NULL && i < r->callable_count; i++) {
        const Callable *c = &r->callables[i];
        if (c->n == 0) continue;
        PyObject *row = Py_BuildValue("(nKLLLLK)", (Py_ssize_t)i, (unsigned long long)c->n, (long long)c->total,
                                      (long long)c->child, (long long)c->min, (long long)c->max,
                                      (unsigned long long)c->raised);
        if (row == NULL || PyList_Append(list, row) < 0) Py_CLEAR(list);
        Py_XDECREF(row);
    }
    return list;
}

static PyObject *recorder_float_ranges(PyObject *self, PyObject *unused)
{
    Recorder *r = (Recorder *)self;
    PyObject *all = PyDict_New();
    for (size_t i = 0; all != NULL && i < r->ranges_size; i++) {
        const Ranges *ranges = r->ranges[i];
        if (ranges == NULL) continue;
        PyObject *key = PyLong_FromSize_t(i), *list = PyList_New(0);
        int ok = key != NULL && list != NULL;
        for (uint32_t k = 0; ok && k < ranges->n; k++) {
            PyObject *pair = Py_BuildValue("(dd)", ranges->low[k], ranges->high[k]);
            ok = pair != NULL && PyList_Append(list, pair) == 0;
            Py_XDECREF(pair);
        }
        if (!ok || PyDict_SetItem(all, key, list) < 0) Py_CLEAR(all);
        Py_XDECREF(key);
        Py_XDECREF(list);
    }
    return all;
}

static PyObject *recorder_stats(PyObject *self, PyObject *unused)
{
    Recorder *r = (Recorder *)self;
    unsigned long long pending = r->pending;
    for (Thread *t = r->threads; t != NULL; t = t->next) pending += t->chunk != NULL ? t->chunk->used : 0;
    return Py_BuildValue("{s:K,s:K,s:K,s:K,s:K,s:K,s:L,s:K,s:K,s:I,s:K,s:K}", "events", r->events, "lost", r->lost, "passed",
                         r->passed, "unfinished", r->unfinished, "generalised", r->generalised, "described", r->described,
                         "described_ns", (long long)r->described_ns, "hook_errors", r->hook_errors, "steps", r->steps,
                         "signatures", r->signature_count, "pending", pending,
                         "unplaced", r->unplaced);
}

static PyObject *recorder_site(PyObject *self, PyObject *number)
{
    Recorder *r = (Recorder *)self;
    long long site = PyLong_AsLongLong(number);
    if (site == -1 && PyErr_Occurred()) return NULL;
    if (site < 1 || site > (long long)r->site_count) {
        PyErr_Format(PyExc_ValueError, "no site has the number %lld", site);
        return NULL;
    }
    return Py_BuildValue("(Oi)", r->site_list[site].code, (int)r->site_list[site].at);
}

static PyObject *recorder_after_fork(PyObject *self, PyObject *unused)
{
    Recorder *r = (Recorder *)self;
    r->serial = ++last_serial; /* every thread makes itself known again */
    r->epoch++;                /* calls that are open belong to the parent */
    r->run++;
    for (Thread *t = r->threads, *next; t != NULL; t = next) {
        next = t->next;
        PyMem_RawFree(t->chunk);
        t->chunk = NULL;
        t->next = r->orphans; /* kept: open calls of this thread still point to theirs */
        r->orphans = t;
    }
    r->threads = NULL;
    r->thread_count = 0;
    free_full(r);
    free_totals(r);
    for (size_t i = 0; i < r->callable_count; i++) {
        Callable *c = &r->callables[i];
        c->n = c->raised = 0;
        c->total = c->child = c->min = c->max = 0;
    }
    r->events = r->lost = r->passed = r->unfinished = r->generalised = r->hook_errors = r->steps = r->unplaced = 0;
    r->described_ns = (int64_t)(r->described = 0);
    Py_CLEAR(r->hook_error);
    Py_RETURN_NONE;
}

static PyObject *recorder_recording(PyObject *self, void *unused) { return PyBool_FromLong(((Recorder *)self)->on); }

static PyObject *recorder_direct(PyObject *self, void *unused) { return PyBool_FromLong(((Recorder *)self)->direct); }

static PyObject *recorder_filled(PyObject *self, void *unused)
{
    return PyFloat_FromDouble((double)((Recorder *)self)->waiting / ((Recorder *)self)->max_chunks);
}

static PyObject *recorder_hook_error(PyObject *self, void *unused)
{
    PyObject *said = ((Recorder *)self)->hook_error;
    return said != NULL ? Py_NewRef(said) : PyUnicode_FromString("");
}

static PyGetSetDef recorder_getset[] = {{"recording", recorder_recording, NULL, NULL, NULL},
                                        {"filled", recorder_filled, NULL, NULL, NULL},
                                        {"hook_error", recorder_hook_error, NULL, NULL, NULL},
                                        {"direct", recorder_direct, NULL, NULL, NULL},
                                        {NULL}};

#define KEYWORDS(f) (PyCFunction)(void (*)(void))(f), METH_VARARGS | METH_KEYWORDS
static PyMethodDef recorder_methods[] = {
    {"add_callable", KEYWORDS(recorder_add_callable), NULL},
    {"wrap", KEYWORDS(recorder_wrap), NULL},
    {"wrap_resolved", KEYWORDS(recorder_wrap_resolved), NULL},
    {"wrap_property", KEYWORDS(recorder_wrap_property), NULL},
    {"forget_instances", recorder_forget_instances, METH_NOARGS, NULL},
    {"start", recorder_start, METH_NOARGS, NULL},
    {"pause", recorder_pause, METH_NOARGS, NULL},
    {"stop", recorder_stop, METH_NOARGS, NULL},
    {"sample", recorder_sample, METH_O, NULL},
    {"step", recorder_step, METH_VARARGS, NULL},
    {"enter", recorder_enter, METH_O, NULL},
    {"leave", recorder_leave, METH_O, NULL},
    {"section", recorder_section, METH_NOARGS, NULL},
    {"thread", recorder_thread, METH_NOARGS, NULL},
    {"take", KEYWORDS(recorder_take), NULL},
    {"drain", KEYWORDS(recorder_drain), NULL},
    {"totals", recorder_totals, METH_NOARGS, NULL},
    {"live", recorder_live, METH_NOARGS, NULL},
    {"float_ranges", recorder_float_ranges, METH_NOARGS, NULL},
    {"site", recorder_site, METH_O, NULL},
    {"stats", recorder_stats, METH_NOARGS, NULL},
    {"after_fork", recorder_after_fork, METH_NOARGS, NULL},
    {NULL},
};

static PyType_Slot recorder_slots[] = {
    {Py_tp_new, recorder_new}, {Py_tp_dealloc, recorder_dealloc}, {Py_tp_traverse, recorder_traverse},
    {Py_tp_clear, recorder_clear}, {Py_tp_methods, recorder_methods}, {Py_tp_getset, recorder_getset}, {0, NULL}};
static PyType_Spec recorder_spec = {"luxmeter.calls.core._core.Recorder", sizeof(Recorder), 0,
                                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, recorder_slots};

/* ---- module ------------------------------------------------------------------------------------------ */

static PyObject *core_now_ns(PyObject *self, PyObject *unused) { return PyLong_FromLongLong(now()); }

static PyObject *core_frames(PyObject *self, PyObject *unused)
{
    if (!frames_checked) check_frames();
    return PyUnicode_FromString(frames_known ? "direct" : "objects");
}

/* A table of the addresses that are the keys of `wanted`; NULL with an error set. */
static void **address_table(PyObject *wanted, size_t *room)
{
    *room = 64;
    while (*room < (size_t)PyDict_GET_SIZE(wanted) * 4) *room *= 2;
    void **table = PyMem_Calloc(*room, sizeof(void *));
    if (table == NULL) return (void **)PyErr_NoMemory();
    PyObject *key, *value;
    Py_ssize_t at = 0;
    while (PyDict_Next(wanted, &at, &key, &value)) {
        void *address = PyLong_AsVoidPtr(key);
        if (address == NULL) {
            if (!PyErr_Occurred()) continue;
            PyMem_Free(table);
            return NULL;
        }
        size_t slot = ((size_t)address >> 4) & (*room - 1);
        while (table[slot] != NULL && table[slot] != address) slot = (slot + 1) & (*room - 1);
        table[slot] = address;
    }
    return table;
}

static inline int is_in(void *const *table, size_t room, const void *address)
{
    size_t slot = ((size_t)address >> 4) & (room - 1);
    while (table[slot] != NULL && table[slot] != address) slot = (slot + 1) & (room - 1);
    return table[slot] != NULL;
}

typedef struct {
    void **table;
    size_t room;
} Wanted;

static int visit_wanted(PyObject *object, void *wanted)
{
    return is_in(((Wanted *)wanted)->table, ((Wanted *)wanted)->room, object);
}

/* holders(wanted): the containers of this process that hold an object whose address is a key of `wanted`. */
static PyObject *core_holders(PyObject *module, PyObject *wanted)
{
    if (!PyDict_Check(wanted)) {
        PyErr_SetString(PyExc_TypeError, "holders() takes a dict");
        return NULL;
    }
    PyObject *gc = PyImport_ImportModule("gc"), *found = NULL;
    PyObject *objects = gc != NULL ? PyObject_CallMethod(gc, "get_objects", NULL) : NULL;
    Py_XDECREF(gc);
    if (objects == NULL) return NULL;
    Wanted w;
    if ((w.table = address_table(wanted, &w.room)) != NULL && (found = PyList_New(0)) != NULL) {
        for (Py_ssize_t i = 0; found != NULL && i < PyList_GET_SIZE(objects); i++) {
            PyObject *holder = PyList_GET_ITEM(objects, i);
            traverseproc traverse = Py_TYPE(holder)->tp_traverse;
            if (traverse != NULL && traverse(holder, visit_wanted, &w) && PyList_Append(found, holder) < 0)
                Py_CLEAR(found);
        }
    }
    PyMem_Free(w.table);
    Py_DECREF(objects);
    return found;
}

/* holding(namespaces, wanted): which of these dicts hold a value whose address is a key of `wanted`. Nothing
   is allocated while a dict is walked, so no code of others runs and no dict changes under our feet. */
static PyObject *core_holding(PyObject *module, PyObject *args)
{
    PyObject *namespaces, *wanted, *found = NULL, *key, *value;
    if (!PyArg_ParseTuple(args, "O!O!", &PyList_Type, &namespaces, &PyDict_Type, &wanted)) return NULL;
    size_t room;
    void **table = address_table(wanted, &room);
    Py_ssize_t at;
    if (table == NULL) return NULL;
    if ((found = PyList_New(0)) == NULL) goto done;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(namespaces); i++) {
        PyObject *namespace = PyList_GET_ITEM(namespaces, i);
        if (!PyDict_Check(namespace)) continue;
        int holds = 0;
        for (at = 0; !holds && PyDict_Next(namespace, &at, &key, &value);) holds = is_in(table, room, value);
        if (holds && PyList_Append(found, namespace) < 0) Py_CLEAR(found);
        if (found == NULL) break;
    }
done:
    PyMem_Free(table);
    return found;
}

static PyObject *core_unpack(PyObject *module, PyObject *piece)
{
    Py_buffer view;
    if (PyObject_GetBuffer(piece, &view, PyBUF_SIMPLE) < 0) return NULL;
    PyObject *events = events_of(view.buf, (size_t)view.len);
    PyBuffer_Release(&view);
    return events;
}

/* pack(events): pieces, each as full as a buffer gets. */
static PyObject *core_pack(PyObject *module, PyObject *events)
{
    Py_buffer view;
    if (PyObject_GetBuffer(events, &view, PyBUF_SIMPLE) < 0) return NULL;
    PyObject *list = NULL;
    Chunk *chunk = NULL;
    if (view.len % (Py_ssize_t)sizeof(Event) != 0)
        PyErr_Format(PyExc_ValueError, "%zd bytes are no whole number of events", view.len);
    else if ((list = PyList_New(0)) != NULL && (chunk = PyMem_RawCalloc(1, sizeof(Chunk))) == NULL)
        PyErr_NoMemory();
    Py_ssize_t n = chunk != NULL ? view.len / (Py_ssize_t)sizeof(Event) : 0;
    int status = chunk != NULL ? 0 : -1;
    for (Py_ssize_t i = 0; status == 0 && i < n; i++) {
        Event e;
        memcpy(&e, (const char *)view.buf + i * (Py_ssize_t)sizeof(Event), sizeof(e));
        ShapeWords s = shape_of(e.callable, e.signature, e.thread, e.section, e.module, e.site, e.depth, e.flags,
                                e.child != 0, e.wait != 0);
        pack_event(chunk, &s, (uint64_t)e.start + (uint64_t)e.duration, (uint64_t)e.duration, (uint64_t)e.child,
                   (uint64_t)e.wait);
        if (is_full(chunk) || i == n - 1) {
            status = append_chunk(list, chunk);
            memset(chunk, 0, offsetof(Chunk, kinds));
        }
    }
    PyMem_RawFree(chunk);
    PyBuffer_Release(&view);
    if (status < 0) Py_CLEAR(list);
    return list;
}

static PyMethodDef core_methods[] = {
    {"pack", core_pack, METH_O, NULL},
    {"unpack", core_unpack, METH_O, NULL},
    {"now_ns", core_now_ns, METH_NOARGS, NULL}, {"frames", core_frames, METH_NOARGS, NULL},
    {"holding", core_holding, METH_VARARGS, NULL},
    {"holders", core_holders, METH_O, NULL}, {NULL}};

static PyTypeObject *add_type(PyObject *module, PyType_Spec *spec)
{
    PyTypeObject *type = (PyTypeObject *)PyType_FromModuleAndSpec(module, spec, NULL);
    if (type != NULL && PyModule_AddType(module, type) < 0) Py_CLEAR(type);
    return type;
}

static int core_exec(PyObject *module)
{
    static const struct { const char *name; int value; } constants[] = {
        {"CALL", CALL}, {"SPAN", SPAN}, {"SECTION", SECTION}, {"OPENS", OPENS}, {"RAISED", RAISED}, {"INSIDE", INSIDE},
        {"SPANNED", SPANNED}, {"FIRST", FIRST}, {"COMPLETED", COMPLETED}, {"OWN", OWN}, {"OPAQUE", OPAQUE},
        {"EXCHANGE", EXCHANGE}, {"KEY", KEY}, {"IDENTITY", IDENTITY}, {"HASH", HASH}, {"ATTRIBUTES", ATTRIBUTES},
        {"EVENT_SIZE", sizeof(Event)}, {"HISTOGRAM_BUCKETS", BUCKETS}};
    State *state = PyModule_GetState(module);
    begin_ticks();
    if (!(state->str_module = PyUnicode_InternFromString("__module__")) ||
        !(state->str_doc = PyUnicode_InternFromString("__doc__")) ||
        !(state->str_class = PyUnicode_InternFromString("__class__")) ||
        !(state->wrapper_type = add_type(module, &wrapper_spec)) || !(state->plain_type = add_type(module, &plain_spec)) ||
        !(state->property_type = add_type(module, &property_spec)) || !(state->span_type = add_type(module, &span_spec)) ||
        !(state->recorder_type = add_type(module, &recorder_spec)))
        return -1;
    if (PyObject_SetAttrString((PyObject *)state->wrapper_type, "__script_if_tracing_wrapper", Py_True) < 0 ||
        PyObject_SetAttrString((PyObject *)state->plain_type, "__script_if_tracing_wrapper", Py_True) < 0)
        return -1;
    for (size_t i = 0; i < sizeof(constants) / sizeof(constants[0]); i++)
        if (PyModule_AddIntConstant(module, constants[i].name, constants[i].value) < 0) return -1;
    return 0;
}

static int core_traverse(PyObject *module, visitproc visit, void *arg)
{
    State *state = PyModule_GetState(module);
    Py_VISIT(state->wrapper_type);
    Py_VISIT(state->plain_type);
    Py_VISIT(state->property_type);
    Py_VISIT(state->span_type);
    Py_VISIT(state->recorder_type);
    Py_VISIT(state->layout.type);
    return 0;
}

/* No m_clear: a stand-in that outlives all else may still be called, and asks the state. The cycle of the module and its types
 * is broken in the types. */
static void core_free(void *module)
{
    State *state = PyModule_GetState(module);
    if (state == NULL) return;
    Py_CLEAR(state->wrapper_type);
    Py_CLEAR(state->plain_type);
    Py_CLEAR(state->property_type);
    Py_CLEAR(state->span_type);
    Py_CLEAR(state->recorder_type);
    Py_CLEAR(state->layout.type);
    Py_CLEAR(state->str_module);
    Py_CLEAR(state->str_doc);
    Py_CLEAR(state->str_class);
}

/* Not said: that it may run in interpreters with locks of their own, or without one (Py_mod_gil). Threads are told apart by
 * numbers of the process, and buffers are touched under the one lock. */
static PyModuleDef_Slot core_slots[] = {{Py_mod_exec, core_exec}, {0, NULL}};

static struct PyModuleDef core_module = {
    PyModuleDef_HEAD_INIT, "_core", "The recorder core in C; its contract is _core.pyi.", sizeof(State), core_methods,
    core_slots, core_traverse, NULL, core_free};

PyMODINIT_FUNC PyInit__core(void) { return PyModuleDef_Init(&core_module); }
