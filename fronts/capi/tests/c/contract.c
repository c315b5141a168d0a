/*
 * The inline sequences, instruction by instruction, against what they promise: in an area that the kernel does not know, with words
 * and sheaves made here, and in place of the library two functions that count how often they are called. Needs no library and no
 * kernel support, so it runs in an emulator too.
 */
#include "check.h"
#include <stddef.h>
#include <stdint.h>

static ptrdiff_t area_offset;
#define QL_RSEQ_OFFSET area_offset
#include <quietline_inline.h>

#if !QL_HAS_INLINE
#error "the sequences are what is tested here"
#endif

/* As the kernel has it. */
static struct {
    uint32_t cpu_id_start, cpu_id;
    uint64_t sequence;
} area __attribute__((aligned(32)));

struct sheaf {
    uint64_t len, capacity;
    uint64_t others[4];
    void *slots[3];
};

enum { CPUS = 2 };

static struct sheaf sheaves[CPUS];
static struct {
    struct sheaf *main;
    char rest[(1 << QL_INLINE_CPU_SHIFT) - sizeof(struct sheaf *)];
} words[CPUS];

/* A cache's first word. */
static uintptr_t handle;
static int allocs, frees;
static char spare;

void *ql_cache_alloc(ql_cache *cache)
{
    CHECK((void *)cache == (void *)&handle);
    allocs++;
    return &spare;
}

void ql_cache_free(ql_cache *cache, void *object)
{
    CHECK((void *)cache == (void *)&handle);
    CHECK(object != NULL || frees == 0);
    frees++;
}

static char *thread_pointer(void)
{
#ifdef __x86_64__
    char *at;
    __asm__("movq %%fs:0, %0" : "=r"(at));
    return at;
#else
    return __builtin_thread_pointer();
#endif
}

int main(void)
{
    CHECK(offsetof(struct sheaf, capacity) == QL_INLINE_CAPACITY && offsetof(struct sheaf, slots) == QL_INLINE_SLOTS);
    area_offset = (char *)&area - thread_pointer();
    char objects[4];
    ql_cache *cache = (ql_cache *)(void *)&handle;
    handle = (uintptr_t)&words[0];
    for (uint32_t cpu = 0; cpu < CPUS; cpu++) {
        area.cpu_id = cpu;
        area.sequence = 0;
        words[cpu].main = &sheaves[cpu];
        sheaves[cpu] = (struct sheaf){.len = 0, .capacity = 3, .others = {7, 7, 7, 7}};
        allocs = frees = 0;

        ql_cache_free_inline(cache, NULL);
        CHECK(frees == 1 && area.sequence == 0);
        for (int i = 0; i < 3; i++) {
            ql_cache_free_inline(cache, &objects[i]);
            CHECK(frees == 1 && sheaves[cpu].len == (uint64_t)i + 1 && sheaves[cpu].slots[i] == &objects[i]);
        }
        /* Armed: a descriptor of version 0 without flags, aligned, with a way back behind the signature. */
        const uint32_t *descriptor = (const uint32_t *)(uintptr_t)area.sequence;
        CHECK(descriptor != NULL && area.sequence % 32 == 0 && descriptor[0] == 0 && descriptor[1] == 0);
        const uint64_t *ip = (const uint64_t *)(const void *)(descriptor + 2);
        CHECK(ip[1] > 8 && ip[1] < 128 && (ip[2] < ip[0] || ip[2] >= ip[0] + ip[1]));
#ifdef __x86_64__
        uint32_t signature = 0x53053053;
#else
        uint32_t signature = 0xd428bc00;
#endif
        CHECK(((const uint32_t *)(uintptr_t)ip[2])[-1] == signature);

        ql_cache_free_inline(cache, &objects[3]);
        CHECK(frees == 2 && sheaves[cpu].len == 3);
        for (int i = 2; i >= 0; i--) {
            CHECK(ql_cache_alloc_inline(cache) == &objects[i]);
            CHECK(allocs == 0 && sheaves[cpu].len == (uint64_t)i);
        }
        CHECK(ql_cache_alloc_inline(cache) == &spare && allocs == 1 && sheaves[cpu].len == 0);
        CHECK(sheaves[cpu].others[0] == 7 && sheaves[cpu].others[3] == 7 && sheaves[cpu].capacity == 3);
        /* The stub: empty and full at once. */
        sheaves[cpu].capacity = 0;
        ql_cache_free_inline(cache, &objects[0]);
        CHECK(frees == 3 && ql_cache_alloc_inline(cache) == &spare && sheaves[cpu].len == 0);
    }
    CHECK(sheaves[0].slots[0] == sheaves[1].slots[0]);

    handle = 0;
    area.sequence = 0;
    allocs = frees = 0;
    CHECK(ql_cache_alloc_inline(cache) == &spare && allocs == 1);
    ql_cache_free_inline(cache, &spare);
    CHECK(frees == 1 && area.sequence == 0);
    puts("contract: ok");
    return 0;
}
