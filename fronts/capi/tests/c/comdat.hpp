// See comdat_a.cpp.
#include <cstdio>
#include <quietline_inline.h>

template <typename T>
__attribute__((noinline)) int pairs(ql_cache *cache, T n)
{
    int done = 0;
    for (T i = 0; i < n; i++) {
        void *object = ql_cache_alloc_inline(cache);
        done += object != nullptr;
        ql_cache_free_inline(cache, object);
    }
    return done;
}
