// Two files with the same inline function, of which the linker keeps one: with the sequences that are compiled into it. The one
// that is dropped must not be named by anything that stays.
#include "comdat.hpp"
#include "check.h"

int comdat_b(ql_cache *cache);

int main()
{
    ql_cache_options options{};
    options.struct_size = sizeof options;
    options.name = "comdat";
    options.size = 64;
    ql_cache *cache = nullptr;
    CHECK(ql_cache_create(&options, &cache) == QL_OK);
    CHECK(pairs<int>(cache, 1000) == 1000 && comdat_b(cache) == 2000);
    ql_stats stats{};
    stats.struct_size = sizeof stats;
    CHECK(ql_cache_get_stats(cache, &stats) == QL_OK && stats.active == 0);
    ql_cache_destroy(cache);
    std::puts("comdat: ok");
    return 0;
}
