/*
 * What the C interface costs: nanoseconds for an object allocated and freed, through the library's functions, through the inline
 * ones, and in bulk; beside two calls of a function of the library that does nothing, and malloc and free.
 *
 *   pairs [ROUNDS]
 *
 * Columns are interleaved; of the rounds, median, least and most are shown. Each column writes to every object it gets, and
 * the program ends with an error unless every object came back.
 */
#define _POSIX_C_SOURCE 200809L
#include <quietline_inline.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { SIZE = 192, BULK = 32, OBJECTS = 320000, COLUMNS = 5, MOST = 1001 };

static ql_cache *cache;

/* Of this thread, so that what else runs on the machine counts as little as can be. */
static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* The compiler must believe that the object is looked at. */
static void use(void *object)
{
    if (object == NULL)
        abort();
    *(volatile char *)object = 1;
}

static void calls(void)
{
    for (int i = 0; i < OBJECTS; i++) {
        ql_version();
        ql_version();
    }
}

static void functions(void)
{
    for (int i = 0; i < OBJECTS; i++) {
        void *object = ql_cache_alloc(cache);
        use(object);
        ql_cache_free(cache, object);
    }
}

static void inlined(void)
{
    for (int i = 0; i < OBJECTS; i++) {
        void *object = ql_cache_alloc_inline(cache);
        use(object);
        ql_cache_free_inline(cache, object);
    }
}

static void bulk(void)
{
    void *objects[BULK];
    for (int i = 0; i < OBJECTS; i += BULK) {
        if (ql_cache_alloc_bulk(cache, objects, BULK) != QL_OK)
            abort();
        use(objects[i / BULK % BULK]);
        ql_cache_free_bulk(cache, objects, BULK);
    }
}

static void system_heap(void)
{
    for (int i = 0; i < OBJECTS; i++) {
        void *object = malloc(SIZE);
        use(object);
        free(object);
    }
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } columns[COLUMNS] = {
        {"two empty calls", calls},   {"pair, functions", functions}, {"pair, inline", inlined},
        {"bulk of 32, each", bulk},   {"malloc and free", system_heap},
    };
    int rounds = argc > 1 ? atoi(argv[1]) : 101;
    if (rounds < 1 || rounds > MOST) {
        fprintf(stderr, "usage: %s [ROUNDS, 1 to %d]\n", argv[0], MOST);
        return 2;
    }
    ql_cache_options options = {.struct_size = sizeof options, .name = "pairs", .size = SIZE};
    ql_status status = ql_cache_create(&options, &cache);
    if (status != QL_OK) {
        fprintf(stderr, "ql_cache_create: %s\n", ql_status_message(status));
        return 1;
    }
    double ns[COLUMNS][MOST];
    for (int round = -1; round < rounds; round++) {
        for (int c = 0; c < COLUMNS; c++) {
            double start = now();
            columns[c].run();
            double each = (now() - start) / OBJECTS;
            if (round >= 0)
                ns[c][round] = each;
        }
    }
    printf("%-18s %8s %8s %8s   ns, %d rounds, inline %s\n", "", "median", "least", "most", rounds,
           QL_HAS_INLINE && *(const uintptr_t *)(const void *)cache != 0 ? "in use" : "not in use");
    for (int c = 0; c < COLUMNS; c++) {
        qsort(ns[c], (size_t)rounds, sizeof ns[c][0], by_value);
        printf("%-18s %8.2f %8.2f %8.2f\n", columns[c].name, ns[c][rounds / 2], ns[c][0], ns[c][rounds - 1]);
    }
    ql_stats stats = {.struct_size = sizeof stats};
    if (ql_cache_get_stats(cache, &stats) != QL_OK || stats.active != 0) {
        fprintf(stderr, "%zu objects did not come back\n", stats.active);
        return 1;
    }
    ql_cache_destroy(cache);
    return 0;
}
