/* A router on DPDK's libraries that does what `ql bench forward --case routed-64` does: packets written, routed, checked, freed.
 *
 *   route SECONDS [many] [EAL options]
 *
 * In turns of 64: buffers from a mempool (rte_pktmbuf_alloc_bulk); headers, both checksums and a number written; the header read as a
 * router must (version, lengths, checksum, martians, TTL, MTU), the route by rte_lpm and the neighbour by rte_hash, both in bulk; TTL,
 * checksum and link addresses changed; numbers looked at by a sink, which keeps 512 packets and frees in bulk.
 *
 * With `many` as `--case routed-64-many`: the same 131,072 routes of the same seed, each to one of 64 gateways, and the same 65,536
 * destinations, in the same order. The next hop that rte_lpm finds is the gateway's number, and its neighbour lies in an array. Link addresses
 * of what goes out are added up, and the sum compared with that of a reference.
 *
 * What it does not do and quietline does: look for ARP and IPv6; a table of routes that may change meanwhile; statistics for each CPU;
 * report what is freed to tracers. Prints packets, seconds, and CPU nanoseconds; fails if a packet is lost, or a buffer not given back.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <rte_byteorder.h>
#include <rte_eal.h>
#include <rte_ether.h>
#include <rte_hash.h>
#include <rte_ip.h>
#include <rte_jhash.h>
#include <rte_lpm.h>
#include <rte_mbuf.h>
#include <rte_udp.h>

enum { BATCH = 64, RING = 1024, IN_FLIGHT = 512, SIZE = 64, HEADERS = 42, NEIGHBOURS = 64 };

struct neighbour {
	struct rte_ether_addr link;
	uint32_t interface;
};

struct sink {
	struct rte_mbuf *ring[RING];
	uint64_t sent, freed, received, newest, seen, wrong;
};

static uint8_t template[HEADERS];
static uint64_t ip_sum, udp_sum, made;
static struct rte_lpm *routes;
static struct rte_hash *table;
static struct neighbour neighbours[NEIGHBOURS];
static const struct rte_ether_addr own[2] = {{{2, 0, 0, 0, 0, 2}}, {{2, 0, 0, 0, 0, 3}}};
static const uint16_t mtu[2] = {1500, 1500};
static struct sink sink;

enum { ROUTES = 1 << 17, DESTINATIONS = 1 << 16, GATEWAYS = 64, SLOTS = 1 << 19 };

struct aim {
	uint32_t to; /* as it lies in a packet */
	uint64_t link;
};

static int many;
static struct aim aims[DESTINATIONS];
static uint64_t came;

static uint64_t sum(const uint8_t *bytes, int n)
{
	uint64_t sum = 0;
	for (int i = 0; i < n; i += 2)
		sum += bytes[i] << 8 | bytes[i + 1];
	return sum;
}

static inline uint16_t fold(uint64_t sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~((sum & 0xffff) + (sum >> 16));
}

static inline void put16(uint8_t *at, uint16_t value)
{
	value = rte_cpu_to_be_16(value);
	memcpy(at, &value, 2);
}

static void make_template(void)
{
	static const uint8_t fixed[34] = {2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0, 0, SIZE - 14, 0, 0, 0x40, 0, 64, 17,
					  0, 0, 198, 18, 0, 0, 198, 19, 0, 1};
	memcpy(template, fixed, sizeof fixed);
	put16(template + 36, 9);
	put16(template + 38, SIZE - 34);
	ip_sum = sum(template + 14, 20);
	udp_sum = sum(template + 26, 16) + 17 + (SIZE - 34) + sum((const uint8_t *)"QLgn", 4);
}

/* The reference: a hash table of prefixes by length and address; 0 is free. */
static struct {
	uint64_t key;
	uint32_t gateway;
} reference[SLOTS];

static uint32_t slot(uint32_t address, uint32_t len)
{
	uint64_t key = (uint64_t)len << 32 | address;
	uint32_t at = key * 0x9e3779b97f4a7c15 >> 45;
	while (reference[at].key && reference[at].key != key)
		at = (at + 1) % SLOTS;
	return at;
}

static uint64_t state = 0x5eed2015;

static uint64_t next(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	return state ^= state << 17;
}

static uint64_t below(uint64_t n)
{
	return (next() >> 16) % n;
}

static uint32_t length(void)
{
	uint64_t which = below(100);
	return which < 60 ? 24 : (which < 95 ? 16 : which < 99 ? 25 : 8) + below(8);
}

static int is_far(uint32_t address)
{
	uint8_t first = address >> 24;
	return first >= 1 && first < 224 && first != 127 && first != 169 && first != 198;
}

/* As `many.rs` of the bench, draw by draw. */
static int make_many(void)
{
	static struct {
		uint32_t len, address;
	} prefixes[ROUTES];
	for (int i = 0; i < GATEWAYS; i++) {
		uint64_t random = next();
		uint8_t link[6] = {2, i, random, random >> 8, random >> 16, random >> 24};
		memcpy(&neighbours[i].link, link, 6);
		neighbours[i].interface = 1;
	}
	for (int n = 0; n < ROUTES;) {
		uint32_t len = length(), address = next();
		address &= UINT32_MAX << (32 - len);
		uint32_t gateway = below(GATEWAYS);
		if (!is_far(address))
			continue;
		if (rte_lpm_add(routes, address, len, gateway))
			return 0;
		uint32_t at = slot(address, len);
		reference[at].key = (uint64_t)len << 32 | address;
		reference[at].gateway = gateway;
		prefixes[n].len = len;
		prefixes[n++].address = address;
	}
	for (int n = 0; n < DESTINATIONS;) {
		uint64_t which = below(ROUTES);
		uint32_t address = next(), len = prefixes[which].len;
		address = prefixes[which].address | (len == 32 ? 0 : address >> len);
		for (len = 32; len >= 8; len--) {
			uint32_t at = slot(address & UINT32_MAX << (32 - len), len);
			if (reference[at].key) {
				aims[n].to = rte_cpu_to_be_32(address);
				memcpy(&aims[n].link, &neighbours[reference[at].gateway].link, 6);
				n += is_far(address);
				break;
			}
		}
	}
	return 1;
}

/* Writes a destination over the template's; both checksums follow (RFC 1624). Words as they lie. */
static inline void aim(uint8_t *frame, uint32_t to)
{
	static const int checksums[2] = {24, 40};
	uint32_t before;
	memcpy(&before, frame + 30, 4);
	uint64_t differs = (uint64_t)(uint32_t)~before + to;
	for (int i = 0; i < 2; i++) {
		uint16_t check;
		memcpy(&check, frame + checksums[i], 2);
		uint64_t sum = differs + (uint16_t)~check;
		sum = (sum & 0xffffffff) + (sum >> 32);
		sum = (sum & 0xffff) + (sum >> 16);
		sum = (sum & 0xffff) + (sum >> 16);
		check = ~((sum & 0xffff) + (sum >> 16));
		if (i == 1 && check == 0)
			check = 0xffff;
		memcpy(frame + checksums[i], &check, 2);
	}
	memcpy(frame + 30, &to, 4);
}

static uint64_t expected(void)
{
	uint64_t sum = 0, rest = 0;
	for (uint32_t i = 0; i < DESTINATIONS; i++) {
		sum += aims[i].link;
		rest += i < made % DESTINATIONS ? aims[i].link : 0;
	}
	return sum * (made / DESTINATIONS) + rest;
}

static inline void write_packet(uint8_t *frame, uint64_t number)
{
	uint16_t source = 1, port = 1024;
	memcpy(frame, template, HEADERS);
	put16(frame + 28, source);
	put16(frame + 34, port);
	put16(frame + 24, fold(ip_sum + source));
	uint64_t words = (number & 0xffff) + (number >> 16 & 0xffff) + (number >> 32 & 0xffff) + (number >> 48);
	uint16_t check = fold(udp_sum + source + port + words);
	put16(frame + 40, check ? check : 0xffff);
	memcpy(frame + 42, "QLgn", 4);
	memset(frame + 46, 0, 4);
	number = rte_cpu_to_be_64(number);
	memcpy(frame + 50, &number, 8);
	memset(frame + 58, 0, SIZE - 58);
}

/* Whether the packet is one to forward; its destination. */
static inline int parse(struct rte_mbuf *packet, uint32_t *destination)
{
	const struct rte_ether_hdr *ether = rte_pktmbuf_mtod(packet, const struct rte_ether_hdr *);
	const struct rte_ipv4_hdr *ip = (const struct rte_ipv4_hdr *)(ether + 1);
	if (packet->data_len < sizeof *ether + sizeof *ip || ether->ether_type != RTE_BE16(RTE_ETHER_TYPE_IPV4))
		return 0;
	if (!rte_is_same_ether_addr(&ether->dst_addr, &own[0]) || ip->version_ihl != 0x45)
		return 0;
	uint16_t total = rte_be_to_cpu_16(ip->total_length);
	if (total < sizeof *ip || sizeof *ether + total > packet->data_len || rte_raw_cksum(ip, sizeof *ip) != 0xffff)
		return 0;
	uint32_t from = rte_be_to_cpu_32(ip->src_addr), to = rte_be_to_cpu_32(ip->dst_addr);
	uint8_t first = from >> 24, other = to >> 24;
	if (first == 0 || first == 127 || first >= 224 || other == 0 || other == 127 || other >= 224)
		return 0;
	if (from >> 16 == 0xa9fe || to >> 16 == 0xa9fe || ip->time_to_live <= 1)
		return 0;
	if (sizeof *ether + total < packet->data_len)
		rte_pktmbuf_trim(packet, packet->data_len - sizeof *ether - total);
	*destination = to;
	return 1;
}

static inline int send_on(struct rte_mbuf *packet, uint32_t interface, const struct neighbour *to)
{
	struct rte_ether_hdr *ether = rte_pktmbuf_mtod(packet, struct rte_ether_hdr *);
	struct rte_ipv4_hdr *ip = (struct rte_ipv4_hdr *)(ether + 1);
	if (interface > 1 || rte_be_to_cpu_16(ip->total_length) > mtu[interface])
		return 0;
	if (rte_mbuf_refcnt_read(packet) != 1 || !RTE_MBUF_DIRECT(packet))
		return 0;
	ip->time_to_live--;
	uint32_t check = ip->hdr_checksum + RTE_BE16(0x0100);
	ip->hdr_checksum = check + (check >> 16);
	ether->dst_addr = to->link;
	ether->src_addr = own[interface];
	return 1;
}

static inline void receive(struct rte_mbuf *packet)
{
	const uint8_t *frame = rte_pktmbuf_mtod(packet, const uint8_t *);
	uint64_t number;
	if (packet->data_len < 58 || memcmp(frame + 42, "QLgn", 4) != 0) {
		sink.wrong++;
	} else {
		memcpy(&number, frame + 50, 8);
		number = rte_be_to_cpu_64(number);
		sink.received++;
		if (number > sink.newest || !sink.seen) {
			uint64_t ahead = number - sink.newest;
			sink.seen = ahead < 64 ? sink.seen << ahead | 1 : 1;
			sink.newest = number;
		} else {
			sink.wrong++;
		}
	}
	sink.ring[sink.sent++ % RING] = packet;
}

static void free_down_to(uint64_t left)
{
	while (sink.sent - sink.freed > left) {
		unsigned int n = RTE_MIN(sink.sent - sink.freed, (uint64_t)BATCH);
		unsigned int at = sink.freed % RING;
		n = RTE_MIN(n, RING - at);
		rte_pktmbuf_free_bulk(&sink.ring[at], n);
		sink.freed += n;
	}
}

static int turn(struct rte_mempool *pool)
{
	struct rte_mbuf *packets[BATCH];
	uint32_t destinations[BATCH], hops[BATCH];
	const void *keys[BATCH];
	void *found[BATCH];
	uint8_t at[BATCH];
	uint64_t hits;
	int n = 0;
	if (rte_pktmbuf_alloc_bulk(pool, packets, BATCH) != 0)
		return 0;
	for (int i = 0; i < BATCH; i++) {
		uint8_t *frame = (uint8_t *)rte_pktmbuf_append(packets[i], SIZE);
		write_packet(frame, made);
		if (many)
			aim(frame, aims[made % DESTINATIONS].to);
		made++;
	}
	/* Destinations in a row that are the same are asked for once, as in quietline's router. */
	for (int i = 0; i < BATCH; i++) {
		uint32_t to;
		if (!parse(packets[i], &to))
			return 0;
		if (n == 0 || destinations[n - 1] != to) {
			destinations[n] = to;
			keys[n] = &destinations[n];
			n++;
		}
		at[i] = n - 1;
	}
	rte_lpm_lookup_bulk(routes, destinations, hops, n);
	if (many) {
		for (int i = 0; i < n; i++)
			found[i] = &neighbours[(hops[i] & 0xffffff) % NEIGHBOURS];
	} else if (rte_hash_lookup_bulk_data(table, keys, n, &hits, found) != n) {
		return 0;
	}
	for (int i = 0; i < BATCH; i++) {
		const struct neighbour *next = found[at[i]];
		uint32_t hop = hops[at[i]], interface = many ? next->interface : hop & 0xffffff;
		if (!(hop & RTE_LPM_LOOKUP_SUCCESS) || !send_on(packets[i], interface, next))
			return 0;
		if (many) {
			uint64_t word;
			memcpy(&word, rte_pktmbuf_mtod(packets[i], void *), 8);
			came += word & 0xffffffffffff;
		}
	}
	for (int i = 0; i < BATCH; i++)
		receive(packets[i]);
	free_down_to(IN_FLIGHT);
	return 1;
}

/* Whether the first packet has come out as it should: once, before anything is timed. */
static int is_forwarded(void)
{
	const struct rte_ether_hdr *ether = rte_pktmbuf_mtod(sink.ring[0], const struct rte_ether_hdr *);
	const struct rte_ipv4_hdr *ip = (const struct rte_ipv4_hdr *)(ether + 1);
	const struct rte_udp_hdr *udp = (const struct rte_udp_hdr *)(ip + 1);
	return ip->time_to_live == 63 && rte_raw_cksum(ip, sizeof *ip) == 0xffff && !rte_ipv4_udptcp_cksum_verify(ip, udp) &&
	       rte_is_same_ether_addr(&ether->src_addr, &own[1]) && (many || ether->dst_addr.addr_bytes[5] == 4);
}

static double now(clockid_t clock)
{
	struct timespec time;
	clock_gettime(clock, &time);
	return time.tv_sec + time.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
	if (argc < 2)
		return 2;
	double seconds = atof(argv[1]);
	many = argc > 2 && strcmp(argv[2], "many") == 0;
	argc -= many;
	argv += many;
	argv[1] = argv[0];
	if (rte_eal_init(argc - 1, argv + 1) < 0)
		return 1;
	struct rte_mempool *pool = rte_pktmbuf_pool_create("packets", 8191, 256, 0, RTE_MBUF_DEFAULT_BUF_SIZE, SOCKET_ID_ANY);
	struct rte_lpm_config of_routes = {.max_rules = 2 * ROUTES, .number_tbl8s = 1 << 14};
	routes = rte_lpm_create("routes", SOCKET_ID_ANY, &of_routes);
	struct rte_hash_parameters of_table = {.name = "neighbours", .entries = NEIGHBOURS, .key_len = 4, .hash_func = rte_jhash,
					       .socket_id = SOCKET_ID_ANY};
	table = rte_hash_create(&of_table);
	uint32_t destination = RTE_IPV4(198, 19, 0, 1);
	if (!pool || !routes || !table)
		return 1;
	neighbours[0] = (struct neighbour){{{2, 0, 0, 0, 0, 4}}, 1};
	if (rte_lpm_add(routes, RTE_IPV4(198, 18, 0, 0), 16, 0) || rte_lpm_add(routes, RTE_IPV4(198, 19, 0, 0), 16, 1) ||
	    rte_hash_add_key_data(table, &destination, &neighbours[0]))
		return 1;
	if (many && !make_many())
		return 1;
	make_template();
	if (!turn(pool) || !is_forwarded())
		return 1;
	for (int i = 0; i < 100000; i++)
		if (!turn(pool))
			return 1;
	uint64_t before = made;
	double clock = now(CLOCK_MONOTONIC), cpu = now(CLOCK_THREAD_CPUTIME_ID), end = clock + seconds;
	do {
		for (int i = 0; i < 1000; i++)
			if (!turn(pool))
				return 1;
	} while (now(CLOCK_MONOTONIC) < end);
	uint64_t packets = made - before;
	clock = now(CLOCK_MONOTONIC) - clock;
	cpu = now(CLOCK_THREAD_CPUTIME_ID) - cpu;
	free_down_to(0);
	if (many && came != expected())
		return 1;
	if (sink.received != made || sink.wrong || sink.newest + 1 != made || rte_mempool_in_use_count(pool))
		return 1;
	printf("route: %lu %.6f %.0f\n", packets, clock, cpu * 1e9);
	return 0;
}
