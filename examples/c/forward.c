/* A router between two interfaces in C: packets come in bursts, go on by the routes, and are freed many at a time when the device
 * is done with them. Here the devices are arrays; yours have rings.
 *
 *   cc -O2 forward.c $(pkg-config --cflags --libs quietline) -o forward && ./forward
 */
#include <quietline.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BURST = 64, BURSTS = 20000, SIZE = 64 };

/* The side that packets leave by: a ring of one burst, which is completed before the next. */
struct device {
    ql_skb *ring[BURST];
    size_t filled;
    uint64_t sent, bytes;
};

static void transmit(uint32_t interface, ql_skb **skbs, size_t n, void *context)
{
    struct device *device = (struct device *)context + interface;
    for (size_t i = 0; i < n && device->filled < BURST; i++) {
        if (skbs[i] == NULL)
            continue;
        device->ring[device->filled++] = skbs[i];
        skbs[i] = NULL; /* taken: what stays is dropped by the forwarder, and counted */
    }
}

static void complete(struct device *device)
{
    ql_waitlist done = {0};
    for (size_t i = 0; i < device->filled; i++) {
        device->sent++;
        device->bytes += ql_skb_len(device->ring[i]);
        ql_waitlist_add(&done, device->ring[i]);
    }
    ql_waitlist_flush(&done);
    device->filled = 0;
}

/* A datagram from 10.0.0.9 to 203.0.113.n, with the checksum of its header. */
static void fill(unsigned char *bytes, unsigned char n)
{
    static const unsigned char headers[42] = {2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 8, 8, 0, 0x45, 0, 0, 50, 0, 0, 0, 0,
                                              64, 17, 0, 0, 10, 0, 0, 9, 203, 0, 113, 0, 0, 7, 0, 7, 0, 30, 0, 0};
    memcpy(bytes, headers, sizeof headers);
    memset(bytes + sizeof headers, 0, SIZE - sizeof headers);
    bytes[33] = n;
    unsigned sum = 0;
    for (int i = 14; i < 34; i += 2)
        sum += bytes[i] * 256u + bytes[i + 1];
    sum = ~((sum & 0xffff) + (sum >> 16));
    bytes[24] = (unsigned char)(sum >> 8);
    bytes[25] = (unsigned char)sum;
}

static uint64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static void must(ql_status status, const char *what)
{
    if (status != QL_OK) {
        fprintf(stderr, "%s: %s\n", what, ql_status_message(status));
        exit(EXIT_FAILURE);
    }
}

int main(void)
{
    const ql_prefix inside = {.family = 4, .bits = 24, .address = {10, 0, 0, 1}};
    const ql_prefix outside = {.family = 4, .bits = 24, .address = {192, 0, 2, 1}};
    const ql_interface interfaces[2] = {
        {.link = {2, 0, 0, 0, 0, 1}, .mtu = 1500, .addresses = &inside, .nr_addresses = 1},
        {.link = {2, 0, 0, 0, 0, 2}, .mtu = 1500, .addresses = &outside, .nr_addresses = 1},
    };
    ql_packets *packets;
    ql_forwarder *forwarder;
    ql_lane *lane;
    must(ql_packets_create(&packets), "packets");
    must(ql_forwarder_create(packets, interfaces, 2, &forwarder), "forwarder");
    must(ql_lane_create(forwarder, &lane), "lane");

    /* Everything goes to the router 192.0.2.254, whose address on the link is known. */
    const ql_prefix all = {.family = 4}, router = {.family = 4, .address = {192, 0, 2, 254}};
    const ql_next_hop hop = {.interface = 1, .via = QL_VIA_GATEWAY, .gateway = {192, 0, 2, 254}};
    const unsigned char link[6] = {2, 0, 0, 0, 0, 9};
    must(ql_forwarder_set_route(forwarder, &all, &hop), "route");
    must(ql_forwarder_set_neighbour(forwarder, 1, &router, link), "neighbour");

    struct device devices[2] = {0};
    const uint64_t start = now();
    for (unsigned burst = 0; burst < BURSTS; burst++) {
        ql_skb *batch[BURST];
        must(ql_skb_alloc_bulk(packets, SIZE, batch, BURST), "a burst of packets");
        for (unsigned i = 0; i < BURST; i++)
            fill(ql_skb_put(batch[i], SIZE), (unsigned char)(burst + i));
        must(ql_forwarder_handle(forwarder, lane, 0, batch, BURST, now() - start, transmit, devices), "forwarding");
        complete(&devices[1]);
    }
    const double ns = (double)(now() - start) / ((double)BURSTS * BURST);
    printf("%llu packets of %llu bytes forwarded, %.0f ns each with making, filling and freeing; %zu in use\n",
           (unsigned long long)devices[1].sent, (unsigned long long)devices[1].bytes, ns, ql_packets_active(packets));

    const int right = devices[1].sent == (uint64_t)BURSTS * BURST && ql_packets_active(packets) == 0;
    ql_lane_destroy(lane);
    ql_forwarder_destroy(forwarder);
    ql_packets_destroy(packets);
    return right ? EXIT_SUCCESS : EXIT_FAILURE;
}
