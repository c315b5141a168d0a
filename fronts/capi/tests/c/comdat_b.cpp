// See comdat_a.cpp.
#include "comdat.hpp"

int comdat_b(ql_cache *cache)
{
    return pairs<int>(cache, 2000);
}
