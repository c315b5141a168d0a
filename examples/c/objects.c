/*
 * Connections by the million: a cache of objects, one at a time and in bulk, and objects that readers find without a lock.
 *
 *   cc -std=c11 -O2 objects.c $(pkg-config --cflags --libs quietline) -o objects && ./objects
 */
#include <assert.h>
#include <quietline_inline.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct connection {
    int socket;
    _Atomic(unsigned) requests;
    char peer[48];
};

static _Atomic(struct connection *) newest;

static void fail(const char *what, ql_status status)
{
    fprintf(stderr, "%s: %s\n", what, ql_status_message(status));
    exit(1);
}

int main(void)
{
    ql_cache_options options = {
        .struct_size = sizeof options,
        .name = "connection",
        .size = sizeof(struct connection),
        .align = _Alignof(struct connection),
    };
    ql_cache *connections;
    ql_status status = ql_cache_create(&options, &connections);
    if (status != QL_OK)
        fail("ql_cache_create", status);

    /* One at a time. */
    for (int i = 0; i < 1000000; i++) {
        struct connection *one = ql_cache_alloc_inline(connections);
        if (one == NULL)
            fail("ql_cache_alloc", QL_NO_MEMORY);
        one->socket = i;
        ql_cache_free_inline(connections, one);
    }

    /* Many at once: all or nothing. */
    void *batch[32];
    status = ql_cache_alloc_bulk(connections, batch, 32);
    if (status != QL_OK)
        fail("ql_cache_alloc_bulk", status);
    struct connection *kept = batch[7];
    batch[7] = NULL; /* skipped below */
    ql_cache_free_bulk(connections, batch, 32);
    assert(batch[0] == NULL);

    /* Published to readers, who take no lock and no reference. */
    ql_rcu *domain;
    status = ql_rcu_global(&domain);
    if (status != QL_OK)
        fail("ql_rcu_global", status);
    memset(kept, 0, sizeof *kept);
    strcpy(kept->peer, "192.0.2.1");
    atomic_store_explicit(&newest, kept, memory_order_release);
    {
        ql_rcu_guard section;
        ql_rcu_read_lock(domain, &section);
        struct connection *found = atomic_load_explicit(&newest, memory_order_acquire);
        atomic_fetch_add_explicit(&found->requests, 1, memory_order_relaxed);
        printf("newest peer %s, %u request\n", found->peer, atomic_load(&found->requests));
        ql_rcu_read_unlock(&section);
    }
    atomic_store_explicit(&newest, NULL, memory_order_release);
    ql_rcu_synchronize(domain); /* whoever found it has left by now */
    ql_cache_free(connections, kept);

    ql_stats stats = {.struct_size = sizeof stats};
    ql_cache_get_stats(connections, &stats);
    printf("%s: %zu in use, %zu ready, %zu slabs of %zu bytes\n", stats.name, stats.active, stats.cached, stats.slabs,
           stats.slab_size);
    assert(stats.active == 0);
    ql_cache_shrink(connections);
    ql_cache_destroy(connections);
    return 0;
}
