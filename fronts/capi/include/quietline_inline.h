/*
 * quietline: the hit paths of ql_cache_alloc() and ql_cache_free(), compiled into the caller.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * ql_cache_alloc_inline() and ql_cache_free_inline() do what ql_cache_alloc() and ql_cache_free() do; both may be used side by
 * side for one cache. While the CPU's sheaf has objects, or room, they are one restartable sequence and no call. Else, and
 * wherever the sequences cannot be used (QL_HAS_INLINE is 0, or the library found at start that they do not work here), they
 * call the library. Neither argument may be NULL, but for the object that is freed.
 *
 * Needs GCC 6 or Clang 9, Linux on x86_64 or aarch64 (64-bit, little endian), and glibc 2.35, both when the program is compiled
 * and when it runs; without, the functions are there and call the library. In C++, include it as it is.
 *
 * What it relies on, and who keeps the promise:
 *  - the first word of a cache is the address of CPU 0's words, or 0 for "call the library": ql_cache_create();
 *  - CPU n's copy of the words lies n << 16 bytes further, and its first word points to the CPU's main sheaf;
 *  - a sheaf has its length at offset 0, its capacity at 8, and objects from offset 48 on: part of this interface. A library with
 *    another layout stores 0 in the first word, and programs that were compiled before go on by calls;
 *  - glibc registered the thread's area at __rseq_offset, and the kernel restarts what it interrupts: the library's start.
 *
 * A shared object that includes this header must never be unmapped, because the kernel may still know its last sequence: link it
 * with -Wl,-z,nodelete if it might be given to dlclose().
 */
#ifndef QUIETLINE_INLINE_H
#define QUIETLINE_INLINE_H

#include "quietline.h"

#ifndef QL_HAS_INLINE
#if defined(__GNUC__) && defined(__linux__) && defined(__LP64__) && \
    (defined(__x86_64__) || (defined(__aarch64__) && defined(__AARCH64EL__)))
#ifdef __has_include
#if __has_include(<sys/rseq.h>)
#define QL_HAS_INLINE 1
#endif
#endif
#endif
#ifndef QL_HAS_INLINE
#define QL_HAS_INLINE 0
#endif
#endif

#ifdef __cplusplus
extern "C" {
#endif

#if QL_HAS_INLINE

#include <sys/rseq.h>

/* Where the thread's area is, from its thread pointer. */
#ifndef QL_RSEQ_OFFSET
#define QL_RSEQ_OFFSET __rseq_offset
#endif

#define QL_STRING_(x) #x
#define QL_STRING(x) QL_STRING_(x)

/*
 * A sequence, in both architectures:
 *   2:  arm: area.rseq_cs (8 bytes into the area) := 5
 *   3:  t := area.cpu_id (4 bytes into the area); from here on, an interruption leads to 6
 *       ...
 *       the commit, one store
 *   4:
 *   5:  (section __rseq_cs) version 0, flags 0, from 3, bytes to 4, 6
 *   6:  (section __rseq_failure) after the signature that the kernel wants: back to 2
 * The sections belong to the group of the function they are used in ("?"), so that the linker drops them together with it.
 */

#if defined(__x86_64__)

#define QL_SEQUENCE_BEGIN_                         \
    "2:\n\tleaq 5f(%%rip), %[t]\n\t"               \
    "movq %[t], %%fs:8(%[o])\n"                    \
    "3:\n\tmovl %%fs:4(%[o]), %k[t]\n\t"           \
    "shlq $" QL_STRING(QL_INLINE_CPU_SHIFT) ", %[t]\n\t" \
    "movq (%[b], %[t]), %[t]\n\t"                  \
    "movq (%[t]), %[i]\n\t"

#define QL_SEQUENCE_END_                                            \
    "4:\n\t"                                                        \
    ".pushsection __rseq_cs, \"aw?\", @progbits\n\t"                \
    ".balign 32\n"                                                  \
    "5:\n\t.long 0, 0\n\t.quad 3b, 4b - 3b, 6f\n\t"                 \
    ".popsection\n\t"                                               \
    ".pushsection __rseq_failure, \"ax?\", @progbits\n\t"           \
    ".byte 0x0f, 0xb9, 0x3d\n\t.long 0x53053053\n"                  \
    "6:\n\tjmp 2b\n\t"                                              \
    ".popsection"

/* Stores the object pushed last on this CPU in *object; false if there is none. */
static inline bool ql_inline_pop_(uintptr_t words, void **object)
{
    uintptr_t t, i;
    int empty;
    __asm__ __volatile__(
        QL_SEQUENCE_BEGIN_
        "subq $1, %[i]\n\t"
        "jb 4f\n\t"
        "movq " QL_STRING(QL_INLINE_SLOTS) "(%[t], %[i], 8), %[r]\n\t"
        "movq %[i], (%[t])\n" /* the commit; sets no flags */
        QL_SEQUENCE_END_
        : [t] "=&r"(t), [i] "=&r"(i), [r] "=&r"(*object), "=@ccc"(empty)
        : [b] "r"(words), [o] "r"(QL_RSEQ_OFFSET)
        : "memory");
    return !empty;
}

/* Whether there was room on this CPU for the object. */
static inline bool ql_inline_push_(uintptr_t words, void *object)
{
    uintptr_t t, i;
    int room;
    __asm__ __volatile__(
        QL_SEQUENCE_BEGIN_
        "cmpq " QL_STRING(QL_INLINE_CAPACITY) "(%[t]), %[i]\n\t"
        "jae 4f\n\t"
        "movq %[v], " QL_STRING(QL_INLINE_SLOTS) "(%[t], %[i], 8)\n\t"
        "leaq 1(%[i]), %[i]\n\t"
        "movq %[i], (%[t])\n" /* the commit; the flags are still those of the comparison */
        QL_SEQUENCE_END_
        : [t] "=&r"(t), [i] "=&r"(i), "=@ccc"(room)
        : [b] "r"(words), [o] "r"(QL_RSEQ_OFFSET), [v] "r"(object)
        : "memory");
    return room;
}

#else /* __aarch64__ */

#define QL_SEQUENCE_BEGIN_                          \
    "mrs %[a], tpidr_el0\n\t"                       \
    "add %[a], %[a], %[o]\n"                        \
    "2:\n\tadrp %[t], 5f\n\t"                       \
    "add %[t], %[t], :lo12:5f\n\t"                  \
    "str %[t], [%[a], #8]\n"                        \
    "3:\n\tldr %w[t], [%[a], #4]\n\t"               \
    "lsl %[t], %[t], #" QL_STRING(QL_INLINE_CPU_SHIFT) "\n\t" \
    "ldr %[t], [%[b], %[t]]\n\t"                    \
    "ldr %[i], [%[t]]\n\t"

#define QL_SEQUENCE_END_                                            \
    "4:\n\t"                                                        \
    ".pushsection __rseq_cs, \"aw?\", %%progbits\n\t"               \
    ".balign 32\n"                                                  \
    "5:\n\t.word 0, 0\n\t.xword 3b, 4b - 3b, 6f\n\t"                \
    ".popsection\n\t"                                               \
    ".pushsection __rseq_failure, \"ax?\", %%progbits\n\t"          \
    ".inst 0xd428bc00\n"                                            \
    "6:\n\tb 2b\n\t"                                                \
    ".popsection"

/* Stores the object pushed last on this CPU in *object; false if there is none. */
static inline bool ql_inline_pop_(uintptr_t words, void **object)
{
    uintptr_t a, t, i;
    __asm__ __volatile__(
        QL_SEQUENCE_BEGIN_
        "mov %[r], #0\n\t"
        "cbz %[i], 4f\n\t"
        "sub %[i], %[i], #1\n\t"
        "add %[r], %[t], %[i], lsl #3\n\t"
        "ldr %[r], [%[r], #" QL_STRING(QL_INLINE_SLOTS) "]\n\t"
        "str %[i], [%[t]]\n" /* the commit */
        QL_SEQUENCE_END_
        : [a] "=&r"(a), [t] "=&r"(t), [i] "=&r"(i), [r] "=&r"(*object)
        : [b] "r"(words), [o] "r"(QL_RSEQ_OFFSET)
        : "memory");
    return *object != NULL;
}

/* Whether there was room on this CPU for the object. */
static inline bool ql_inline_push_(uintptr_t words, void *object)
{
    uintptr_t a, t, i, room, at;
    __asm__ __volatile__(
        QL_SEQUENCE_BEGIN_
        "ldr %[r], [%[t], #" QL_STRING(QL_INLINE_CAPACITY) "]\n\t"
        "subs %[r], %[r], %[i]\n\t"
        "b.eq 4f\n\t"
        "add %[p], %[t], %[i], lsl #3\n\t"
        "str %[v], [%[p], #" QL_STRING(QL_INLINE_SLOTS) "]\n\t"
        "add %[i], %[i], #1\n\t"
        "str %[i], [%[t]]\n" /* the commit */
        QL_SEQUENCE_END_
        : [a] "=&r"(a), [t] "=&r"(t), [i] "=&r"(i), [r] "=&r"(room), [p] "=&r"(at)
        : [b] "r"(words), [o] "r"(QL_RSEQ_OFFSET), [v] "r"(object)
        : "cc", "memory");
    return room != 0;
}

#endif

static inline uintptr_t ql_inline_words_(const ql_cache *cache)
{
    return *(const uintptr_t *)(const void *)cache;
}

#endif /* QL_HAS_INLINE */

/* As ql_cache_alloc(), for a cache that is not NULL. */
static inline void *ql_cache_alloc_inline(ql_cache *cache)
{
#if QL_HAS_INLINE
    uintptr_t words = ql_inline_words_(cache);
    void *object;
    if (__builtin_expect(words != 0, 1) && __builtin_expect(ql_inline_pop_(words, &object), 1))
        return object;
#endif
    return ql_cache_alloc(cache);
}

/* As ql_cache_free(), for a cache that is not NULL. */
static inline void ql_cache_free_inline(ql_cache *cache, void *object)
{
#if QL_HAS_INLINE
    uintptr_t words = ql_inline_words_(cache);
    if (__builtin_expect(words != 0 && object != NULL, 1) && __builtin_expect(ql_inline_push_(words, object), 1))
        return;
#endif
    ql_cache_free(cache, object);
}

#ifdef __cplusplus
}
#endif

#endif /* QUIETLINE_INLINE_H */
