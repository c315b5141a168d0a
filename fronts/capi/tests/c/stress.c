/*
 * The inline paths, the functions and bulk operations side by side on one cache, from more threads than CPUs, with signals that
 * interrupt them and a cache whose sheaves are taken away meanwhile: no object may have two owners.
 *
 *   stress [SECONDS]
 */
#define _GNU_SOURCE
#include "check.h"
#include <pthread.h>
#include <quietline_inline.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>

enum { THREADS = 4, HELD = 64 };

struct object {
    _Atomic(uintptr_t) owner;
    uintptr_t rest[3];
};

static ql_cache *cache;
static atomic_bool stop;
static atomic_ulong signals;

static void on_signal(int number)
{
    (void)number;
    atomic_fetch_add_explicit(&signals, 1, memory_order_relaxed);
}

static void claim(struct object *object, uintptr_t me)
{
    CHECK(object != NULL);
    CHECK(atomic_exchange_explicit(&object->owner, me, memory_order_relaxed) == 0);
    object->rest[2] = me;
}

static void release(struct object *object, uintptr_t me)
{
    CHECK(object->rest[2] == me);
    CHECK(atomic_exchange_explicit(&object->owner, 0, memory_order_relaxed) == me);
}

/* The owner is 0 in an object that nobody has; the constructor says so first. */
static void construct(void *object, void *context)
{
    (void)context;
    memset(object, 0, sizeof(struct object));
}

static void *churn(void *number)
{
    uintptr_t me = (uintptr_t)number;
    unsigned long rounds = 0;
    void *held[HELD];
    while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
        size_t n = rounds * 7 % HELD + 1;
        switch (rounds++ % 4) {
        case 0:
            CHECK(ql_cache_alloc_bulk(cache, held, n) == QL_OK);
            break;
        case 1:
            for (size_t i = 0; i < n; i++)
                held[i] = ql_cache_alloc(cache);
            break;
        default:
            for (size_t i = 0; i < n; i++)
                held[i] = ql_cache_alloc_inline(cache);
        }
        for (size_t i = 0; i < n; i++)
            claim(held[i], me);
        for (size_t i = 0; i < n; i++)
            release(held[i], me);
        switch (rounds % 3) {
        case 0:
            ql_cache_free_bulk(cache, held, n);
            break;
        case 1:
            for (size_t i = 0; i < n; i++)
                ql_cache_free(cache, held[i]);
            break;
        default:
            for (size_t i = 0; i < n; i++)
                ql_cache_free_inline(cache, held[i]);
        }
    }
    ql_cache_free_inline(cache, NULL);
    return (void *)rounds;
}

int main(int argc, char **argv)
{
    double seconds = argc > 1 ? atof(argv[1]) : 2;
    ql_cache_options options = {.struct_size = sizeof options,
                                .name = "stress",
                                .size = sizeof(struct object),
                                .sheaf_capacity = 24,
                                .ctor = construct};
    CHECK(ql_cache_create(&options, &cache) == QL_OK);
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    struct itimerval often = {.it_interval = {.tv_usec = 100}, .it_value = {.tv_usec = 100}};
    CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0);

    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, churn, (void *)(i + 1)) == 0);
    struct timespec start, now;
    clock_gettime(CLOCK_MONOTONIC, &start);
    do {
        struct timespec pause = {.tv_nsec = 1000000};
        nanosleep(&pause, NULL);
        ql_cache_shrink(cache);
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while ((double)(now.tv_sec - start.tv_sec) + (double)(now.tv_nsec - start.tv_nsec) / 1e9 < seconds);
    atomic_store(&stop, true);
    unsigned long rounds = 0;
    for (int i = 0; i < THREADS; i++) {
        void *mine;
        CHECK(pthread_join(threads[i], &mine) == 0);
        rounds += (unsigned long)mine;
    }
    setitimer(ITIMER_REAL, &(struct itimerval){.it_value = {0}}, NULL);
    ql_stats stats = {.struct_size = sizeof stats};
    CHECK(ql_cache_get_stats(cache, &stats) == QL_OK && stats.active == 0);
    CHECK(rounds > THREADS);
    ql_cache_destroy(cache);
    printf("stress: ok, %lu rounds, %lu signals, inline %s\n", rounds, atomic_load(&signals),
           QL_HAS_INLINE ? "compiled in" : "not there");
    return 0;
}
