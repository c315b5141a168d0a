/* Every function of quietline.h: what it does, and what it does with wrong arguments. One test for each part. */
#include "check.h"
#include <quietline.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static ql_cache *make(const char *name, size_t size)
{
    ql_cache_options options = {.struct_size = sizeof options, .name = name, .size = size};
    ql_cache *cache = NULL;
    CHECK(ql_cache_create(&options, &cache) == QL_OK && cache != NULL);
    return cache;
}

static ql_stats stats_of(const ql_cache *cache)
{
    ql_stats stats = {.struct_size = sizeof stats};
    CHECK(ql_cache_get_stats(cache, &stats) == QL_OK);
    CHECK(stats.struct_size == sizeof stats);
    return stats;
}

static void version(void)
{
    CHECK(ql_version() == QL_VERSION);
    CHECK(strlen(ql_version_string()) >= 5);
    const char *unknown = ql_status_message((unsigned)-1);
    CHECK(strcmp(unknown, ql_status_message(12345u)) == 0);
    for (unsigned status = QL_OK; status <= QL_REFUSED; status++)
        /* 6 is the number of no status. */
        CHECK(status == 6 || (strlen(ql_status_message(status)) > 0 && strcmp(ql_status_message(status), unknown) != 0));
    CHECK(strcmp(ql_status_message(QL_REFUSED + 1), unknown) == 0);
}

static void create_refuses(void)
{
    ql_cache_options good = {.struct_size = sizeof good, .name = "good", .size = 64};
    ql_cache *cache = (ql_cache *)8;
    CHECK(ql_cache_create(&good, NULL) == QL_INVALID);
    CHECK(ql_cache_create(NULL, &cache) == QL_INVALID && cache == NULL);
    ql_cache_options options = good;
    options.struct_size = 0;
    CHECK(ql_cache_create(&options, &cache) == QL_INVALID && cache == NULL);
    options = good;
    options.struct_size = sizeof options - 1;
    CHECK(ql_cache_create(&options, &cache) == QL_INVALID);
    options = good;
    options.flags = 1u << 31;
    CHECK(ql_cache_create(&options, &cache) == QL_INVALID);
    options.flags = QL_CACHE_MERGE | QL_CACHE_NO_MERGE;
    CHECK(ql_cache_create(&options, &cache) == QL_INVALID);
    options = good;
    options.debug = 1u << 31;
    CHECK(ql_cache_create(&options, &cache) == QL_INVALID);
    options = good;
    options.align = 24;
    CHECK(ql_cache_create(&options, &cache) == QL_BAD_LAYOUT);
    options = good;
    options.flags = QL_CACHE_LINK_OFFSET;
    options.link_offset = 62;
    CHECK(ql_cache_create(&options, &cache) == QL_BAD_LAYOUT);
    options.link_offset = 61;
    CHECK(ql_cache_create(&options, &cache) == QL_BAD_LAYOUT);
    options.link_offset = 60;
    CHECK(ql_cache_create(&options, &cache) == QL_OK);
    ql_cache_destroy(cache);
    options = good;
    options.size = (16 << 10) + 1;
    CHECK(ql_cache_create(&options, &cache) == QL_TOO_LARGE && cache == NULL);
    options.size = SIZE_MAX;
    CHECK(ql_cache_create(&options, &cache) == QL_TOO_LARGE);
    options.size = 16 << 10;
    CHECK(ql_cache_create(&options, &cache) == QL_OK);
    ql_cache_destroy(cache);
    ql_cache_destroy(NULL);
}

static void names(void)
{
    char name[QL_NAME_MAX + 1];
    memset(name, 'n', sizeof name);
    name[QL_NAME_MAX] = 0;
    ql_cache_options options = {.struct_size = sizeof options, .name = name, .size = 64};
    ql_cache *cache;
    CHECK(ql_cache_create(&options, &cache) == QL_BAD_NAME);
    name[QL_NAME_MAX - 1] = 0;
    CHECK(ql_cache_create(&options, &cache) == QL_OK);
    /* Copied: what becomes of the caller's does not matter. */
    memset(name, 'x', 8);
    ql_stats stats = stats_of(cache);
    CHECK(strlen(stats.name) == QL_NAME_MAX - 1 && stats.name[0] == 'n');
    ql_cache_destroy(cache);
    options.name = "\xff\xfe";
    CHECK(ql_cache_create(&options, &cache) == QL_BAD_NAME);
    options.name = NULL;
    CHECK(ql_cache_create(&options, &cache) == QL_OK);
    CHECK(strcmp(stats_of(cache).name, "") == 0);
    ql_cache_destroy(cache);
}

/* A caller with a newer header: more bytes than this library knows. */
static void grown_structures(void)
{
    struct {
        ql_cache_options options;
        uint64_t later;
    } grown = {.options = {.struct_size = sizeof grown, .name = "grown", .size = 64}};
    ql_cache *cache;
    CHECK(ql_cache_create(&grown.options, &cache) == QL_OK);
    struct {
        ql_stats stats;
        uint64_t later;
    } wide = {.stats = {.struct_size = sizeof wide}, .later = 7};
    CHECK(ql_cache_get_stats(cache, &wide.stats) == QL_OK);
    CHECK(wide.stats.struct_size == sizeof wide && wide.later == 0 && wide.stats.size == 64);
    ql_cache_destroy(cache);
    grown.later = 1;
    CHECK(ql_cache_create(&grown.options, &cache) == QL_INVALID && cache == NULL);
}

static void single_objects(void)
{
    enum { N = 5000 };
    static unsigned char *objects[N];
    ql_cache *cache = make("single", 96);
    for (int i = 0; i < N; i++) {
        objects[i] = ql_cache_alloc(cache);
        CHECK(objects[i] != NULL && (uintptr_t)objects[i] % 16 == 0);
        memset(objects[i], i & 0xff, 96);
    }
    for (int i = 0; i < N; i++)
        CHECK(objects[i][0] == (i & 0xff) && objects[i][95] == (i & 0xff));
    CHECK(stats_of(cache).active == N);
    for (int i = 0; i < N; i++)
        ql_cache_free(cache, objects[i]);
    ql_cache_free(cache, NULL);
    ql_cache_free(NULL, objects[0]);
    ql_cache_free(NULL, NULL);
    CHECK(ql_cache_alloc(NULL) == NULL);
    ql_stats stats = stats_of(cache);
    CHECK(stats.active == 0 && stats.slabs > 0 && stats.refills > 0 && stats.size == 96);
    ql_cache_shrink(cache);
    ql_cache_shrink(NULL);
    stats = stats_of(cache);
    CHECK(stats.cached == 0 && stats.slabs == 0 && stats.places == 0);
    ql_cache_destroy(cache);

    cache = make("empty", 0);
    void *a = ql_cache_alloc(cache), *b = ql_cache_alloc(cache);
    CHECK(a != NULL && b != NULL && a != b);
    ql_cache_free(cache, a);
    ql_cache_free(cache, b);
    ql_cache_destroy(cache);
}

static void bulk(void)
{
    enum { MOST = 3000 };
    static void *objects[MOST + 1];
    static const size_t sizes[] = {0, 1, 2, 3, 4, 8, 16, 30, 32, 34, 48, 64, 128, 158, 250, 511, 512, 513, MOST};
    ql_cache *cache = make("bulk", 192);
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        size_t n = sizes[s];
        for (size_t i = 0; i <= n; i++)
            objects[i] = (void *)1;
        CHECK(ql_cache_alloc_bulk(cache, objects, n) == QL_OK);
        CHECK(objects[n] == (void *)1);
        for (size_t i = 0; i < n; i++)
            memset(objects[i], (int)i & 0xff, 192);
        for (size_t i = 0; i < n; i++)
            CHECK(*(unsigned char *)objects[i] == (i & 0xff));
        CHECK(stats_of(cache).active == n);
        /* Every third is freed alone: the bulk free skips the nulls. */
        for (size_t i = 0; i < n; i += 3) {
            ql_cache_free(cache, objects[i]);
            objects[i] = NULL;
        }
        ql_cache_free_bulk(cache, objects, n);
        for (size_t i = 0; i < n; i++)
            CHECK(objects[i] == NULL);
        CHECK(stats_of(cache).active == 0);
    }
    CHECK(ql_cache_alloc_bulk(cache, NULL, 0) == QL_OK);
    CHECK(ql_cache_alloc_bulk(cache, NULL, 1) == QL_INVALID);
    CHECK(ql_cache_alloc_bulk(NULL, objects, 1) == QL_INVALID);
    ql_cache_free_bulk(cache, NULL, 0);
    ql_cache_free_bulk(cache, NULL, 5);
    ql_cache_free_bulk(NULL, objects, 1);
    ql_cache_destroy(cache);
}

struct counts {
    int made, ended, released;
};

static void count_made(void *object, void *context)
{
    memset(object, 0x11, 40);
    ((struct counts *)context)->made++;
}

static void count_ended(void *object, void *context)
{
    CHECK(*(unsigned char *)object == 0x11);
    ((struct counts *)context)->ended++;
}

static void hooks(void)
{
    struct counts one = {0}, other = {0};
    ql_cache_options options = {
        .struct_size = sizeof options, .name = "hooks", .size = 40, .ctor = count_made, .dtor = count_ended, .context = &one};
    ql_cache *first, *second;
    CHECK(ql_cache_create(&options, &first) == QL_OK);
    options.context = &other;
    options.dtor = NULL;
    CHECK(ql_cache_create(&options, &second) == QL_OK);
    unsigned char *objects[3];
    for (int i = 0; i < 3; i++) {
        objects[i] = ql_cache_alloc(first);
        CHECK(objects[i][0] == 0x11 && objects[i][39] == 0x11);
        objects[i][39] = 0x22;
    }
    CHECK(one.made >= 3 && one.ended == 0 && other.made == 0);
    for (int i = 0; i < 3; i++)
        ql_cache_free(first, objects[i]);
    /* An object comes back as it was freed. */
    objects[0] = ql_cache_alloc(first);
    CHECK(objects[0][39] == 0x22);
    ql_cache_free(first, objects[0]);
    objects[0] = ql_cache_alloc(second);
    CHECK(other.made >= 1);
    ql_cache_free(second, objects[0]);
    ql_cache_destroy(second);
    ql_cache_destroy(first);
    CHECK(one.ended == one.made && other.ended == 0);
}

static void tunables(void)
{
    ql_cache *cache = make("tunables", 64);
    ql_tunables old = {.struct_size = sizeof old}, now = {.struct_size = sizeof now};
    CHECK(ql_cache_get_tunables(cache, &old) == QL_OK);
    CHECK(old.min_objects >= 32 && old.sheaf_capacity >= 12 && old.cpu_partial > 0 && old.look_ahead > 0);
    now = old;
    now.sheaf_capacity = 20;
    now.min_partial = 0;
    now.look_ahead = 1;
    CHECK(ql_cache_set_tunables(cache, &now) == QL_OK);
    ql_tunables seen = {.struct_size = sizeof seen};
    CHECK(ql_cache_get_tunables(cache, &seen) == QL_OK);
    CHECK(seen.sheaf_capacity == 20 && seen.min_partial == 0 && seen.look_ahead == 1);
    CHECK(stats_of(cache).tunables.sheaf_capacity == 20);
    memset(&now, 0, sizeof now);
    now.struct_size = sizeof now;
    CHECK(ql_cache_set_tunables(cache, &now) == QL_OK);
    CHECK(ql_cache_get_tunables(cache, &seen) == QL_OK && seen.sheaf_capacity == old.sheaf_capacity);
    now.struct_size = 8;
    CHECK(ql_cache_set_tunables(cache, &now) == QL_INVALID && ql_cache_get_tunables(cache, &now) == QL_INVALID);
    CHECK(ql_cache_set_tunables(cache, NULL) == QL_INVALID && ql_cache_get_tunables(cache, NULL) == QL_INVALID);
    CHECK(ql_cache_set_tunables(NULL, &seen) == QL_INVALID && ql_cache_get_tunables(NULL, &seen) == QL_INVALID);
    ql_cache_destroy(cache);

    ql_cache_options options = {.struct_size = sizeof options,
                                .size = 64,
                                .min_partial = QL_KEEP_NONE,
                                .min_order = 2,
                                .min_objects = 100,
                                .cpu_partial = 3,
                                .sheaf_capacity = 9,
                                .look_ahead = 2};
    CHECK(ql_cache_create(&options, &cache) == QL_OK);
    CHECK(ql_cache_get_tunables(cache, &seen) == QL_OK);
    CHECK(seen.min_partial == 0 && seen.min_order == 2 && seen.min_objects == 100 && seen.cpu_partial == 3 &&
          seen.sheaf_capacity == 9 && seen.look_ahead == 2);
    CHECK(stats_of(cache).slab_size >= 16384);
    ql_cache_destroy(cache);
    CHECK(ql_cache_get_stats(NULL, &(ql_stats){.struct_size = sizeof(ql_stats)}) == QL_INVALID);
    cache = make("stats", 8);
    CHECK(ql_cache_get_stats(cache, NULL) == QL_INVALID);
    CHECK(ql_cache_get_stats(cache, &(ql_stats){.struct_size = sizeof(ql_stats) - 8}) == QL_INVALID);
    ql_cache_destroy(cache);
}

static void without_sheaves(void)
{
    ql_cache_options options = {
        .struct_size = sizeof options, .name = "without", .size = 64, .flags = QL_CACHE_NO_SHEAVES | QL_CACHE_NO_MERGE};
    ql_cache *cache;
    CHECK(ql_cache_create(&options, &cache) == QL_OK);
    void *objects[100];
    CHECK(ql_cache_alloc_bulk(cache, objects, 100) == QL_OK);
    ql_cache_free_bulk(cache, objects, 50);
    CHECK(stats_of(cache).cached == 0 && stats_of(cache).active == 50);
    for (int i = 50; i < 100; i++)
        ql_cache_free(cache, objects[i]);
    CHECK(stats_of(cache).active == 0);
    ql_cache_destroy(cache);
}

static void merging(void)
{
    ql_cache_options options = {.struct_size = sizeof options, .name = "merged", .size = 56, .flags = QL_CACHE_MERGE};
    ql_cache *one, *other;
    CHECK(ql_cache_create(&options, &one) == QL_OK && ql_cache_create(&options, &other) == QL_OK);
    CHECK(stats_of(one).aliases == 1 && stats_of(other).aliases == 1);
    ql_cache_free(other, ql_cache_alloc(one));
    ql_cache_destroy(one);
    CHECK(stats_of(other).aliases == 0);
    ql_cache_destroy(other);
    options.flags = 0;
    ql_set_merging(true);
    CHECK(ql_cache_create(&options, &one) == QL_OK && ql_cache_create(&options, &other) == QL_OK);
    ql_set_merging(false);
    CHECK(stats_of(other).aliases == 1);
    ql_cache_destroy(other);
    CHECK(ql_cache_create(&options, &other) == QL_OK && stats_of(other).aliases == 0);
    ql_cache_destroy(other);
    ql_cache_destroy(one);
}

static void note(const ql_stats *stats, void *context)
{
    int *seen = context;
    CHECK(stats->struct_size == sizeof *stats);
    if (strcmp(stats->name, "visited") == 0) {
        CHECK(stats->size == 24);
        ++*seen;
    }
}

static void every_cache(void)
{
    int seen = 0;
    ql_cache *one = make("visited", 24), *other = make("visited", 24);
    CHECK(ql_each_cache(note, &seen) == QL_OK && seen == 2);
    ql_cache_destroy(one);
    ql_cache_destroy(other);
    CHECK(ql_each_cache(note, &seen) == QL_OK && seen == 2);
    CHECK(ql_each_cache(NULL, &seen) == QL_INVALID);
}

struct called {
    int value;
    ql_rcu_head head;
};

static int called_sum;

static void call_back(ql_rcu_head *head)
{
    struct called *this = (struct called *)(void *)((char *)head - offsetof(struct called, head));
    called_sum += this->value;
    free(this);
}

static int stalls;

static void stall(uint64_t waited, uint64_t open, void *context)
{
    CHECK(waited >= 1000000 && open == 1);
    ++*(int *)context;
}

static void rcu(void)
{
    ql_rcu *domain, *again, *own;
    CHECK(ql_rcu_global(NULL) == QL_INVALID && ql_rcu_create(NULL) == QL_INVALID);
    CHECK(ql_rcu_global(&domain) == QL_OK && ql_rcu_global(&again) == QL_OK && domain == again);
    CHECK(ql_rcu_create(&own) == QL_OK && own != domain);
    ql_rcu_guard outer, inner;
    ql_rcu_read_lock(own, &outer);
    ql_rcu_read_lock(own, &inner);
    CHECK(ql_rcu_open_sections(own) == 2 && ql_rcu_open_sections(domain) == 0);
    uint64_t seq = ql_rcu_start_poll_synchronize(own);
    CHECK(seq != 0 && !ql_rcu_poll_state_synchronize(own, seq));
    ql_rcu_read_unlock(&inner);
    for (int i = 0; i < 100; i++)
        ql_rcu_poll(own);
    CHECK(!ql_rcu_poll_state_synchronize(own, seq));

    for (int i = 1; i <= 3; i++) {
        struct called *this = malloc(sizeof *this);
        this->value = i;
        CHECK(ql_rcu_call(own, &this->head, call_back) == QL_OK);
    }
    CHECK(ql_rcu_backlog(own) == 3 && called_sum == 0);
    ql_rcu_read_unlock(&outer);
    CHECK(ql_rcu_open_sections(own) == 0);
    ql_rcu_synchronize(own);
    CHECK(ql_rcu_poll_state_synchronize(own, seq));
    ql_rcu_barrier(own);
    CHECK(called_sum == 6 && ql_rcu_backlog(own) == 0 && !ql_rcu_poll(own));

    ql_rcu_head head;
    CHECK(ql_rcu_call(NULL, &head, call_back) == QL_INVALID && ql_rcu_call(own, NULL, call_back) == QL_INVALID);
    CHECK(ql_rcu_call(own, &head, NULL) == QL_INVALID);
    ql_rcu_guard none;
    ql_rcu_read_lock(NULL, &none);
    ql_rcu_read_unlock(&none);
    ql_rcu_read_unlock(&none);
    ql_rcu_read_unlock(NULL);
    CHECK(ql_rcu_open_sections(own) == 0);
    ql_rcu_synchronize(NULL);
    ql_rcu_barrier(NULL);
    CHECK(!ql_rcu_poll(NULL) && ql_rcu_start_poll_synchronize(NULL) == 0);
    CHECK(ql_rcu_poll_state_synchronize(NULL, 1));
    CHECK(ql_rcu_backlog(NULL) == 0 && ql_rcu_open_sections(NULL) == 0);

    CHECK(ql_rcu_set_stall_handler(stall, &stalls) == QL_OK);
    ql_rcu_set_stall_patience(own, 1000000);
    ql_rcu_set_stall_patience(NULL, 1);
    ql_rcu_read_lock(own, &outer);
    seq = ql_rcu_start_poll_synchronize(own);
    for (int i = 0; i < 5000 && stalls == 0; i++) {
        ql_rcu_poll(own);
        usleep(1000);
    }
    CHECK(stalls > 0 && !ql_rcu_poll_state_synchronize(own, seq));
    ql_rcu_read_unlock(&outer);
    ql_rcu_set_stall_patience(own, UINT64_MAX);
    CHECK(ql_rcu_set_stall_handler(NULL, NULL) == QL_INVALID);
    ql_rcu_synchronize(own);
}

static ql_rcu *misused;

static void close_twice(void)
{
    ql_rcu_guard guard;
    ql_rcu_read_lock(misused, &guard);
    ql_rcu_read_unlock(&guard);
    ql_rcu_read_unlock(&guard);
}

static void close_a_copy(void)
{
    ql_rcu_guard guards[3];
    ql_rcu_read_lock(misused, &guards[1]);
    guards[2] = guards[1];
    ql_rcu_read_unlock(&guards[2]);
}

static void close_the_original_and_a_copy(void)
{
    ql_rcu_guard guards[3];
    ql_rcu_read_lock(misused, &guards[1]);
    guards[0] = guards[1];
    ql_rcu_read_unlock(&guards[1]);
    ql_rcu_read_unlock(&guards[0]);
}

static void close_none(void)
{
    ql_rcu_guard guard;
    memset(&guard, 0x5a, sizeof guard);
    ql_rcu_read_unlock(&guard);
}

static void open_without_a_guard(void)
{
    ql_rcu_read_lock(misused, NULL);
}

/* Whether a guard that is misused ends the process. */
static bool aborts(void (*misuse)(void))
{
    pid_t child = fork();
    if (child == 0) {
        close(STDERR_FILENO);
        misuse();
        _exit(0);
    }
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

static void guards(void)
{
    CHECK(ql_rcu_create(&misused) == QL_OK);
    CHECK(aborts(close_twice) && aborts(close_a_copy));
    CHECK(aborts(close_the_original_and_a_copy) && aborts(close_none));
    CHECK(aborts(open_without_a_guard));
    ql_rcu_read_lock(NULL, NULL);
    CHECK(ql_rcu_open_sections(misused) == 0);
}

static void typesafe(void)
{
    struct counts counts = {0};
    ql_rcu *domain;
    CHECK(ql_rcu_create(&domain) == QL_OK);
    ql_cache_options options = {.struct_size = sizeof options,
                                .name = "typesafe",
                                .size = 40,
                                .ctor = count_made,
                                .dtor = count_ended,
                                .context = &counts,
                                .rcu = domain,
                                .flags = QL_CACHE_TYPESAFE_BY_RCU};
    ql_cache *cache;
    CHECK(ql_cache_create(&options, &cache) == QL_OK);
    unsigned char *object = ql_cache_alloc(cache);
    ql_rcu_guard section;
    ql_rcu_read_lock(domain, &section);
    ql_cache_free(cache, object);
    ql_cache_shrink(cache);
    /* Given back, but a section is open that may look at it. */
    CHECK(object[0] == 0x11 && counts.made > 0 && counts.ended == 0);
    ql_cache_destroy(cache);
    CHECK(object[0] == 0x11 && counts.ended == 0);
    ql_rcu_read_unlock(&section);
    ql_rcu_barrier(domain);
    CHECK(counts.ended == counts.made);

    options = (ql_cache_options){.struct_size = sizeof options, .size = 40, .flags = QL_CACHE_TYPESAFE_BY_RCU};
    CHECK(ql_cache_create(&options, &cache) == QL_OK);
    object = ql_cache_alloc(cache);
    CHECK(object != NULL);
    ql_cache_free(cache, object);
    ql_cache_destroy(cache);
}

static void batches(void)
{
    ql_cache *cache = make("batch", 64);
    ql_batch batch;
    CHECK(ql_cache_alloc_batch(cache, 40, &batch) == QL_OK);
    size_t n = ql_batch_left(&batch), taken = 0;
    CHECK(n >= 1 && stats_of(cache).active == n);
    void *first = ql_batch_next(&batch);
    CHECK(first != NULL && ql_batch_left(&batch) == n - 1);
    memset(first, 0xff, 64);
    if (ql_batch_left(&batch) > 2) {
        void *second = ql_batch_next(&batch);
        CHECK(second != NULL && second != first);
        ql_cache_free(cache, second);
    }
    ql_batch_end(&batch);
    CHECK(ql_batch_left(&batch) == 0 && ql_batch_next(&batch) == NULL && stats_of(cache).active == 1);
    ql_batch_end(&batch);
    ql_cache_free(cache, first);
    CHECK(ql_cache_alloc_batch(cache, SIZE_MAX, &batch) == QL_OK);
    n = ql_batch_left(&batch);
    for (void *object; (object = ql_batch_next(&batch)) != NULL; taken++)
        ql_cache_free(cache, object);
    CHECK(taken == n && ql_batch_left(&batch) == 0 && stats_of(cache).active == 0);
    ql_batch_end(&batch);
    CHECK(ql_cache_alloc_batch(cache, 1, NULL) == QL_INVALID);
    CHECK(ql_cache_alloc_batch(NULL, 1, &batch) == QL_INVALID && ql_batch_left(&batch) == 0);
    CHECK(ql_batch_next(NULL) == NULL && ql_batch_left(NULL) == 0);
    ql_batch_end(NULL);
    ql_cache_destroy(cache);
}

static void count_released(void *object, void *context)
{
    CHECK(*(unsigned char *)object == 0x77);
    ((struct counts *)context)->released++;
}

static void free_after_grace_period(void)
{
    enum { N = 2000 };
    struct counts counts = {0};
    ql_rcu *domain;
    CHECK(ql_rcu_create(&domain) == QL_OK);
    ql_cache_options options = {.struct_size = sizeof options,
                                .name = "free_rcu",
                                .size = 64,
                                .release = count_released,
                                .context = &counts,
                                .rcu = domain};
    ql_cache *cache;
    CHECK(ql_cache_create(&options, &cache) == QL_OK);
    unsigned char *found = ql_cache_alloc(cache);
    memset(found, 0x77, 64);
    ql_rcu_guard section;
    ql_rcu_read_lock(domain, &section);
    ql_cache_free_rcu(cache, found);
    for (int i = 1; i < N; i++) {
        unsigned char *object = ql_cache_alloc(cache);
        CHECK(object != NULL && object != found);
        object[0] = 0x77;
        ql_cache_free_rcu(cache, object);
    }
    CHECK(found[0] == 0x77 && counts.released == 0 && stats_of(cache).waiting == N && stats_of(cache).active == 0);
    ql_rcu_read_unlock(&section);
    ql_cache_flush_rcu(cache);
    CHECK(counts.released == N && stats_of(cache).waiting == 0);
    ql_cache_free_rcu(cache, NULL);
    ql_cache_free_rcu(NULL, found);
    ql_cache_flush_rcu(NULL);
    /* At the limit an object is released before the call returns, without a poll. */
    ql_cache_set_rcu_limit(cache, 1);
    ql_cache_set_rcu_limit(NULL, 1);
    for (int i = 0; i < N; i++) {
        unsigned char *object = ql_cache_alloc(cache);
        object[0] = 0x77;
        ql_cache_free_rcu(cache, object);
    }
    CHECK(counts.released > N);
    ql_cache_set_rcu_limit(cache, SIZE_MAX);
    ql_cache_flush_rcu(cache);
    CHECK(counts.released == 2 * N);
    /* What waits when the cache goes is released after it. */
    found = ql_cache_alloc(cache);
    found[0] = 0x77;
    ql_cache_free_rcu(cache, found);
    ql_cache_destroy(cache);
    ql_rcu_barrier(domain);
    CHECK(counts.released == 2 * N + 1);
}

struct seen {
    int violations;
    ql_violation_kind last;
    char text[256];
    void *object;
};

static void see(const ql_violation *violation, void *context)
{
    struct seen *seen = context;
    CHECK(violation->struct_size >= sizeof *violation && strcmp(violation->cache, "checked") == 0);
    CHECK(strstr(violation->text, "checked") != NULL && violation->size == 48);
    if (violation->found != NULL)
        CHECK(violation->found->thread != 0 && violation->found->depth <= QL_CALL_SITE_DEPTH);
    seen->violations++;
    seen->last = violation->kind;
    seen->object = violation->object;
    strncpy(seen->text, violation->text, sizeof seen->text - 1);
}

static void debugging(void)
{
    uint32_t flags = 77;
    CHECK(ql_debug_parse("FZPU", &flags) == QL_OK && flags == QL_DEBUG_ALL);
    CHECK(ql_debug_parse("z", &flags) == QL_OK && (flags & QL_DEBUG_RED_ZONE) != 0);
    CHECK(ql_debug_parse("-", &flags) == QL_OK && flags == 0);
    flags = 77;
    CHECK(ql_debug_parse("FX", &flags) == QL_INVALID && ql_debug_parse("", &flags) == QL_INVALID && flags == 77);
    CHECK(ql_debug_parse(NULL, &flags) == QL_INVALID && ql_debug_parse("F", NULL) == QL_INVALID);
    CHECK(ql_set_violation_handler(NULL, NULL) == QL_INVALID);

    struct seen seen = {0};
    CHECK(ql_set_violation_handler(see, &seen) == QL_OK);
    ql_cache_options options = {.struct_size = sizeof options, .name = "checked", .size = 48, .debug = QL_DEBUG_ALL};
    ql_cache *cache, *other = make("other", 48);
    CHECK(ql_cache_create(&options, &cache) == QL_OK);
    CHECK(ql_cache_get_debug(cache) == QL_DEBUG_ALL && ql_cache_get_debug(other) == 0 && ql_cache_get_debug(NULL) == 0);
    unsigned char *object = ql_cache_alloc(cache);
    CHECK(object != NULL && ql_cache_validate(cache) == 0 && seen.violations == 0);

    ql_cache_free(cache, object);
    ql_cache_free(cache, object);
    CHECK(seen.violations == 1 && seen.last == QL_DOUBLE_FREE && seen.object == object);
    object = ql_cache_alloc(cache);
    ql_cache_free(cache, object + 4);
    CHECK(seen.violations == 2 && seen.last == QL_INVALID_POINTER);
    void *foreign = ql_cache_alloc(other);
    ql_cache_free(cache, foreign);
    CHECK(seen.violations == 3 && seen.last == QL_WRONG_CACHE);
    ql_cache_free(other, foreign);
    object[48] ^= 0xff;
    CHECK(ql_cache_validate(cache) == 1 && seen.violations == 4 && seen.last == QL_OVERRUN);
    void *bulk[2] = {object, NULL};
    ql_cache_free_bulk(cache, bulk, 2);
    CHECK(seen.violations == 4 && bulk[0] == NULL);
    object[20] = 1; /* after it was freed */
    CHECK(ql_cache_validate(cache) == 1 && seen.violations == 5 && seen.last == QL_USE_AFTER_FREE);

    CHECK(ql_cache_set_debug(cache, 0) == QL_OK && ql_cache_get_debug(cache) == 0 && ql_cache_validate(cache) == 0);
    object = ql_cache_alloc(cache);
    ql_cache_free(cache, object);
    CHECK(ql_cache_set_debug(cache, QL_DEBUG_CONSISTENCY | QL_DEBUG_TRACK) == QL_OK);
    CHECK(ql_cache_set_debug(cache, 1u << 20) == QL_INVALID && ql_cache_set_debug(NULL, 0) == QL_INVALID);
    CHECK(ql_cache_validate(NULL) == 0);
    seen.violations = 0;
    object = ql_cache_alloc(cache);
    ql_cache_destroy(cache);
    CHECK(seen.violations == 1 && seen.last == QL_LEAK && seen.object == object);
    ql_cache_destroy(other);
}

static void reclaiming(void)
{
    enum { N = 4000 };
    static void *objects[N];
    ql_cache *cache = make("idle", 1024);
    size_t before = ql_memory_used();
    CHECK(ql_cache_alloc_bulk(cache, objects, N) == QL_OK);
    CHECK(ql_memory_used() >= before + N * 1024);
    ql_cache_free_bulk(cache, objects, N);
    CHECK(ql_shrink_all() > 0 && stats_of(cache).slabs == 0 && ql_memory_used() <= before);

    /* Given back in steps, to whoever asks often enough. */
    ql_set_decay_interval(1);
    CHECK(ql_cache_alloc_bulk(cache, objects, 40) == QL_OK);
    for (int i = 0; i < 40; i++)
        ql_cache_free(cache, objects[i]);
    CHECK(stats_of(cache).cached > 0);
    size_t given = 0;
    for (int i = 0; i < 1000 && stats_of(cache).slabs > 0; i++) {
        usleep(1000);
        given += ql_decay();
    }
    CHECK(given > 0 && stats_of(cache).cached == 0 && stats_of(cache).slabs == 0);
    ql_set_decay_interval(100000000);

    /* A limit below what is used is soft. */
    ql_set_memory_limit(4096);
    CHECK(ql_cache_alloc_bulk(cache, objects, N) == QL_OK);
    ql_cache_free_bulk(cache, objects, N);
    ql_set_memory_limit(0);
    ql_cache_destroy(cache);
}

static void slabinfo(void)
{
    ql_cache *cache = make("shown", 64);
    size_t needed = 0, again = 0;
    CHECK(ql_slabinfo(NULL, 0, &needed) == QL_OK && needed > 100);
    char *text = malloc(needed);
    CHECK(ql_slabinfo(text, needed, &again) == QL_OK && again == needed && strlen(text) == needed - 1);
    CHECK(strncmp(text, "slabinfo - version: 2.1\n", 24) == 0 && strstr(text, "\nshown ") != NULL);
    memset(text, 'x', needed);
    CHECK(ql_slabinfo(text, 9, NULL) == QL_OK && strcmp(text, "slabinfo") == 0 && text[9] == 'x');
    CHECK(ql_slabinfo(NULL, 9, &needed) == QL_INVALID);
    free(text);
    ql_cache_destroy(cache);
}

static void after_fork(void)
{
    ql_cache *cache = make("forked", 64);
    void *before = ql_cache_alloc(cache);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        ql_cache_free(cache, before);
        void *objects[700];
        CHECK(ql_cache_alloc_bulk(cache, objects, 700) == QL_OK);
        ql_cache_free_bulk(cache, objects, 700);
        CHECK(stats_of(cache).active == 0);
        ql_rcu *domain;
        CHECK(ql_rcu_global(&domain) == QL_OK);
        ql_rcu_synchronize(domain);
        ql_cache *another = make("made in the child", 64);
        ql_cache_free(another, ql_cache_alloc(another));
        ql_cache_destroy(another);
        ql_cache_destroy(cache);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(stats_of(cache).active == 1);
    ql_cache_free(cache, before);
    ql_cache_destroy(cache);
}

/* In a child, because what is used up stays so. */
static void in_child(void (*test)(void))
{
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        test();
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* The number of different names has no limit. */
static void names_from_a_counter(void)
{
    enum { MOST = 70000 };
    char name[QL_NAME_MAX];
    ql_cache_options options = {.struct_size = sizeof options, .name = name, .size = 64};
    ql_cache *cache;
    for (int made = 0; made <= MOST; made++) {
        snprintf(name, sizeof name, "name %d", made);
        CHECK(ql_cache_create(&options, &cache) == QL_OK);
        if (made == MOST)
            CHECK(strcmp(stats_of(cache).name, "name 70000") == 0);
        ql_cache_destroy(cache);
    }
}

static void many_caches_with_hooks(void)
{
    struct counts counts = {0};
    ql_cache_options options = {.struct_size = sizeof options, .size = 64, .ctor = count_made, .context = &counts};
    for (int made = 1; made <= 1000; made++) {
        ql_cache *cache;
        CHECK(ql_cache_create(&options, &cache) == QL_OK);
        ql_cache_free(cache, ql_cache_alloc(cache));
        ql_cache_destroy(cache);
        CHECK(counts.made >= made);
    }
}

int main(void)
{
    version();
    create_refuses();
    names();
    grown_structures();
    single_objects();
    bulk();
    hooks();
    tunables();
    without_sheaves();
    merging();
    every_cache();
    rcu();
    guards();
    typesafe();
    batches();
    free_after_grace_period();
    debugging();
    reclaiming();
    slabinfo();
    after_fork();
    in_child(names_from_a_counter);
    many_caches_with_hooks();
    puts("api: ok");
    return 0;
}
