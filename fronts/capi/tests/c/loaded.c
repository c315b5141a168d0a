/*
 * The shared library, loaded and unloaded while the program runs: what it has in the thread and in the kernel must survive.
 *
 *   loaded LIBRARY
 */
#define _GNU_SOURCE
#include "check.h"
#include <dlfcn.h>
#include <quietline.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    for (int round = 0; round < 3; round++) {
        void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
        CHECK(library != NULL);
        __typeof__(&ql_cache_create) create = (__typeof__(&ql_cache_create))dlsym(library, "ql_cache_create");
        __typeof__(&ql_cache_alloc) alloc = (__typeof__(&ql_cache_alloc))dlsym(library, "ql_cache_alloc");
        __typeof__(&ql_cache_free) give_back = (__typeof__(&ql_cache_free))dlsym(library, "ql_cache_free");
        CHECK(create != NULL && alloc != NULL && give_back != NULL);
        ql_cache_options options = {.struct_size = sizeof options, .name = "loaded", .size = 64};
        ql_cache *cache;
        CHECK(create(&options, &cache) == QL_OK);
        for (int i = 0; i < 1000; i++)
            give_back(cache, alloc(cache));
        CHECK(dlclose(library) == 0);
        /* The kernel looks at this thread's last sequence when it interrupts it. */
        for (int i = 0; i < 20; i++)
            usleep(1000);
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0)
            _exit(0);
        int status;
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    }
    puts("loaded: ok");
    return 0;
}
