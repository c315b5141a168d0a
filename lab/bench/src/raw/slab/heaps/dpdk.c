/* DPDK's mempool is inline functions in headers: what of it the bench uses, compiled by a C compiler. */
#include <stdint.h>
#include <string.h>

#include <rte_eal.h>
#include <rte_lcore.h>
#include <rte_mempool.h>

/* Starts the environment on one CPU, without devices or files, on huge pages or without them. 0 if that went well. */
int quietline_dpdk_init(const char *lcores, int on_huge_pages)
{
	char program[] = "ql", cpus[64] = "--lcores=";
	char none[] = "--no-huge", in_memory[] = "--in-memory", *pages = on_huge_pages ? in_memory : none;
	char files[] = "--no-shconf", pci[] = "--no-pci", telemetry[] = "--no-telemetry";
	char megabytes[] = "-m512", level[] = "--log-level=error";
	char *arguments[] = { program, cpus, pages, files, pci, telemetry, megabytes, level, NULL };

	strncat(cpus, lcores, sizeof(cpus) - strlen(cpus) - 1);
	return rte_eal_init(8, arguments) < 0;
}

/* Gives the calling thread a number, and with it a cache in every pool. 0 if that went well. */
int quietline_dpdk_enter(void)
{
	return rte_thread_register() < 0;
}

void quietline_dpdk_leave(void)
{
	rte_thread_unregister();
}

void *quietline_dpdk_create(const char *name, unsigned int objects, unsigned int size)
{
	return rte_mempool_create(name, objects, size, RTE_MEMPOOL_CACHE_MAX_SIZE, 0, NULL, NULL, NULL, NULL,
				  SOCKET_ID_ANY, 0);
}

void quietline_dpdk_destroy(void *pool)
{
	rte_mempool_free(pool);
}

unsigned int quietline_dpdk_active(void *pool)
{
	return rte_mempool_in_use_count(pool);
}

int quietline_dpdk_get(void *pool, void **objects, unsigned int n)
{
	return rte_mempool_get_bulk(pool, objects, n);
}

void quietline_dpdk_put(void *pool, void *const *objects, unsigned int n)
{
	rte_mempool_put_bulk(pool, objects, n);
}

/* The compiler must think that the array is read and written here. */
#define OPAQUE(objects) __asm__ volatile("" : : "r"(objects) : "memory")

static inline __attribute__((always_inline)) int bulk(void *pool, const unsigned int n, uint64_t cycles, uintptr_t *seen)
{
	void *objects[256];

	while (cycles--) {
		if (rte_mempool_get_bulk(pool, objects, n))
			return 1;
		OPAQUE(objects);
		*seen |= (uintptr_t)objects[0] | (uintptr_t)objects[n - 1];
		rte_mempool_put_bulk(pool, objects, n);
	}
	return 0;
}

static inline __attribute__((always_inline)) int single(void *pool, const unsigned int n, uint64_t cycles, uintptr_t *seen)
{
	void *objects[256];
	unsigned int i;

	while (cycles--) {
		for (i = 0; i < n; i++)
			if (rte_mempool_get(pool, &objects[i])) {
				rte_mempool_put_bulk(pool, objects, i);
				return 1;
			}
		OPAQUE(objects);
		*seen |= (uintptr_t)objects[0] | (uintptr_t)objects[n - 1];
		for (i = 0; i < n; i++)
			rte_mempool_put(pool, objects[i]);
	}
	return 0;
}

/* The sizes of the workload, each compiled for itself as the other columns are. */
#define SIZES(X) X(1) X(2) X(3) X(4) X(8) X(16) X(30) X(32) X(34) X(48) X(64) X(128) X(158) X(250)
#define BULK(n) case n: return bulk(pool, n, cycles, seen);
#define SINGLE(n) case n: return single(pool, n, cycles, seen);

/* 0, or 1 if there was no memory, or 2 if there is no such size. */
int quietline_dpdk_bulk_cycles(void *pool, unsigned int n, uint64_t cycles, uintptr_t *seen)
{
	switch (n) { SIZES(BULK) }
	return 2;
}

int quietline_dpdk_single_cycles(void *pool, unsigned int n, uint64_t cycles, uintptr_t *seen)
{
	switch (n) { SIZES(SINGLE) }
	return 2;
}
