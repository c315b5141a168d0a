#define _GNU_SOURCE
/* Every function of quietline.h for packets and forwarding: what it does, and what it does with wrong arguments. */
#include "check.h"
#include <quietline.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static ql_packets *packets;
static uint64_t ended;

static void end(uint64_t argument)
{
    ended += argument;
}

/* A packet with one byte, which says so when it ends. */
static ql_skb *counted(void)
{
    ql_skb *skb = ql_skb_alloc(packets, 1);
    CHECK(skb != NULL && ql_skb_set_destructor(skb, end, 1) == QL_OK);
    memset(ql_skb_put(skb, 1), 7, 1);
    return skb;
}

static void memory(void)
{
    CHECK(ql_packets_create(NULL) == QL_INVALID);
    CHECK(ql_packets_create(&packets) == QL_OK && packets != NULL);
    CHECK(ql_packets_active(packets) == 0 && ql_packets_active(NULL) == 0);
    ql_packets_destroy(NULL);
    ql_packets_shrink(NULL);
    CHECK(ql_packets_take_deferred(NULL) == 0);
    CHECK(ql_skb_alloc(NULL, 1) == NULL);
    CHECK(ql_skb_alloc(packets, 16257) == NULL && ql_skb_alloc(packets, SIZE_MAX) == NULL);
    ql_skb *largest = ql_skb_alloc(packets, 16256);
    CHECK(largest != NULL && ql_skb_tailroom(largest) == 16256 && ql_packets_active(packets) == 1);
    ql_consume_skb(largest);
    CHECK(ql_packets_active(packets) == 0);
}

static void lengths(void)
{
    ql_skb *skb = ql_skb_alloc(packets, 100);
    CHECK(ql_skb_headroom(skb) == 64 && ql_skb_len(skb) == 0);
    CHECK(ql_skb_reserve(skb, 6) == QL_OK && ql_skb_headroom(skb) == 70);
    size_t room = ql_skb_tailroom(skb);
    CHECK(room >= 94);
    unsigned char *bytes = ql_skb_put(skb, 50);
    CHECK(bytes == ql_skb_data(skb));
    for (unsigned i = 0; i < 50; i++)
        bytes[i] = (unsigned char)i;
    CHECK(ql_skb_linear_len(skb) == 50 && ql_skb_tailroom(skb) == room - 50);
    CHECK(ql_skb_reserve(skb, 1) == QL_BAD_LENGTH);
    CHECK(ql_skb_put(skb, room - 49) == NULL && ql_skb_push(skb, 71) == NULL && ql_skb_pull(skb, 51) == NULL);
    CHECK(ql_skb_len(skb) == 50);
    CHECK(ql_skb_push(skb, 70) == bytes - 70 && ql_skb_headroom(skb) == 0 && ql_skb_len(skb) == 120);
    CHECK(ql_skb_pull(skb, 80) == bytes + 10 && bytes[10] == 10 && ql_skb_len(skb) == 40);
    CHECK(ql_skb_trim(skb, 5) == QL_OK && ql_skb_trim(skb, 30) == QL_OK && ql_skb_len(skb) == 5);

    ql_skb_fields fields;
    CHECK(ql_skb_get_fields(skb, &fields) == QL_OK && fields.mark == 0 && fields.timestamp == 0);
    fields = (ql_skb_fields){
        .timestamp = 1, .cb = {2, 3, 4, 5, 6}, .mark = 7, .hash = 8, .device = 9, .protocol = 10};
    CHECK(ql_skb_set_fields(skb, &fields) == QL_OK);
    ql_skb_fields again;
    CHECK(ql_skb_get_fields(skb, &again) == QL_OK && memcmp(&fields, &again, sizeof fields) == 0);
    fields.unused = 1;
    CHECK(ql_skb_set_fields(skb, &fields) == QL_INVALID);

    CHECK(ql_skb_add_frag(skb, "fragment", 8) == QL_OK && ql_skb_add_frag(skb, "", 0) == QL_BAD_LENGTH);
    CHECK(ql_skb_len(skb) == 13 && ql_skb_linear_len(skb) == 5 && ql_skb_tailroom(skb) == 0);
    CHECK(ql_skb_trim(skb, 1) == QL_BAD_LENGTH);
    size_t n = 1;
    CHECK(memcmp(ql_skb_frag(skb, 0, &n), "fragment", 8) == 0 && n == 8);
    CHECK(ql_skb_frag(skb, 1, &n) == NULL && n == 0);
    ql_skb *copy = ql_skb_copy(skb, 3, 4);
    CHECK(ql_skb_linear_len(copy) == 13 && ql_skb_headroom(copy) == 3 && ql_skb_tailroom(copy) >= 4);
    CHECK(memcmp((char *)ql_skb_data(copy) + 5, "fragment", 8) == 0);
    CHECK(ql_skb_get_fields(copy, &again) == QL_OK && again.mark == 7);
    for (int i = 1; i < 17; i++)
        CHECK(ql_skb_add_frag(skb, "x", 1) == QL_OK);
    CHECK(ql_skb_add_frag(skb, "x", 1) == QL_BAD_LENGTH);
    CHECK(ql_skb_copy(skb, 20000, 0) == NULL);
    ql_consume_skb(copy);
    ql_consume_skb(skb);
}

static void references(void)
{
    ended = 0;
    ql_skb *skb = counted();
    CHECK(!ql_skb_is_shared(skb) && !ql_skb_is_cloned(skb));
    ql_skb *other = ql_skb_get(skb);
    CHECK(ql_skb_is_shared(skb) && ql_skb_trim(skb, 0) == QL_SHARED && ql_skb_push(skb, 1) == NULL);
    CHECK(ql_skb_reserve(skb, 0) == QL_SHARED && ql_skb_set_destructor(skb, NULL, 0) == QL_SHARED);
    ql_skb_fields fields;
    CHECK(ql_skb_get_fields(skb, &fields) == QL_OK && ql_skb_set_fields(skb, &fields) == QL_SHARED);
    ql_consume_skb(other);
    CHECK(ended == 0 && !ql_skb_is_shared(skb));
    ql_skb *clone = ql_skb_clone(skb);
    CHECK(ql_skb_is_cloned(skb) && ql_skb_is_cloned(clone) && ql_skb_data(clone) == ql_skb_data(skb));
    CHECK(ql_skb_put(skb, 1) == NULL && ql_skb_add_frag(skb, "x", 1) == QL_SHARED);
    ql_kfree_skb(skb, QL_DROP_NO_ROUTE);
    CHECK(ended == 1 && *(char *)ql_skb_data(clone) == 7);
    ql_kfree_skb(clone, 12345);
    ql_skb *here = counted();
    ql_skb_defer_free(here);
    CHECK(ended == 2 && ql_packets_take_deferred(packets) == 0 && ql_packets_active(packets) == 0);
}

/* Made on one CPU, and ended on another: one that has two references must not be sent home twice. */
static void home(void)
{
    cpu_set_t all, one;
    CHECK(sched_getaffinity(0, sizeof all, &all) == 0);
    size_t cpus[2], n = 0;
    for (size_t cpu = 0; cpu < CPU_SETSIZE && n < 2; cpu++)
        if (CPU_ISSET(cpu, &all))
            cpus[n++] = cpu;
    if (n < 2) {
        puts("packets: one CPU, nothing is sent home");
        return;
    }
    ended = 0;
    CPU_ZERO(&one);
    CPU_SET(cpus[0], &one);
    CHECK(sched_setaffinity(0, sizeof one, &one) == 0);
    ql_skb *alone = counted(), *shared = counted(), *other = ql_skb_get(shared);
    CPU_ZERO(&one);
    CPU_SET(cpus[1], &one);
    CHECK(sched_setaffinity(0, sizeof one, &one) == 0);
    ql_skb_defer_free(shared);
    ql_skb_defer_free(alone);
    ql_skb_defer_free(other);
    CHECK(ended == 0 && ql_packets_take_deferred(packets) == 0);
    CPU_ZERO(&one);
    CPU_SET(cpus[0], &one);
    CHECK(sched_setaffinity(0, sizeof one, &one) == 0);
    CHECK(ql_packets_take_deferred(packets) == 2 && ended == 2 && ql_packets_active(packets) == 0);
    CHECK(sched_setaffinity(0, sizeof all, &all) == 0);
}

static void nothing(void)
{
    size_t n = 0;
    ql_skb_fields fields = {0};
    ql_skb *skb = counted();
    CHECK(ql_skb_get(NULL) == NULL && ql_skb_clone(NULL) == NULL && ql_skb_copy(NULL, 0, 0) == NULL);
    ql_consume_skb(NULL);
    ql_kfree_skb(NULL, 0);
    ql_skb_defer_free(NULL);
    CHECK(!ql_skb_is_shared(NULL) && !ql_skb_is_cloned(NULL) && ql_skb_data(NULL) == NULL);
    CHECK(ql_skb_linear_len(NULL) == 0 && ql_skb_len(NULL) == 0 && ql_skb_headroom(NULL) == 0);
    CHECK(ql_skb_tailroom(NULL) == 0 && ql_skb_reserve(NULL, 0) == QL_INVALID && ql_skb_put(NULL, 0) == NULL);
    CHECK(ql_skb_push(NULL, 0) == NULL && ql_skb_pull(NULL, 0) == NULL && ql_skb_trim(NULL, 0) == QL_INVALID);
    CHECK(ql_skb_add_frag(NULL, "x", 1) == QL_INVALID && ql_skb_add_frag(skb, NULL, 1) == QL_INVALID);
    CHECK(ql_skb_frag(NULL, 0, &n) == NULL && ql_skb_frag(skb, 0, NULL) == NULL);
    CHECK(ql_skb_set_destructor(NULL, NULL, 0) == QL_INVALID);
    CHECK(ql_skb_get_fields(NULL, &fields) == QL_INVALID && ql_skb_get_fields(skb, NULL) == QL_INVALID);
    CHECK(ql_skb_set_fields(NULL, &fields) == QL_INVALID && ql_skb_set_fields(skb, NULL) == QL_INVALID);
    CHECK(ql_skb_set_destructor(skb, NULL, 0) == QL_OK);
    ended = 0;
    ql_consume_skb(skb);
    CHECK(ended == 0);
}

static ql_waitlist *parents;

static void end_parent_too(uint64_t parent)
{
    ql_waitlist_add(parents, (ql_skb *)(uintptr_t)parent);
}

/* Destructors that add to the list which is being flushed. */
static void families(void)
{
    ql_waitlist done = {0};
    parents = &done;
    ended = 0;
    for (int i = 0; i < QL_WAITLIST; i++) {
        ql_skb *child = ql_skb_alloc(packets, 1);
        CHECK(ql_skb_set_destructor(child, end_parent_too, (uint64_t)(uintptr_t)counted()) == QL_OK);
        ql_waitlist_add(&done, child);
    }
    CHECK(ended == QL_WAITLIST && ql_waitlist_len(&done) == 0);
    ql_skb *child = ql_skb_alloc(packets, 1);
    CHECK(ql_skb_set_destructor(child, end_parent_too, (uint64_t)(uintptr_t)counted()) == QL_OK);
    ql_waitlist_add(&done, child);
    ql_waitlist_flush(&done);
    CHECK(ended == QL_WAITLIST && ql_waitlist_len(&done) == 1);
    ql_waitlist_flush(&done);
    CHECK(ended == QL_WAITLIST + 1 && ql_packets_active(packets) == 0);
}

static void many(void)
{
    ql_skb *burst[100];
    CHECK(ql_skb_alloc_bulk(NULL, 1, burst, 100) == QL_INVALID && burst[99] == NULL);
    CHECK(ql_skb_alloc_bulk(packets, 1, NULL, 1) == QL_INVALID && ql_skb_alloc_bulk(packets, 1, NULL, 0) == QL_OK);
    CHECK(ql_skb_alloc_bulk(packets, 20000, burst, 100) == QL_BAD_LENGTH && burst[0] == NULL);
    CHECK(ql_skb_alloc_bulk(packets, 1500, burst, 100) == QL_OK);
    CHECK(ql_packets_active(packets) == 100);
    ql_skb *kept = ql_skb_get(burst[50]);
    ql_consume_skb(burst[10]);
    burst[10] = NULL;
    ql_kfree_skb_bulk(burst, 100);
    for (int i = 0; i < 100; i++)
        CHECK(burst[i] == NULL);
    CHECK(ql_packets_active(packets) == 1 && ql_skb_tailroom(kept) >= 1500);
    ql_consume_skb(kept);
    ql_kfree_skb_bulk(NULL, 0);
    ql_kfree_skb_bulk(burst, 0);

    ql_waitlist done = {0};
    ended = 0;
    for (size_t i = 1; i <= 3 * QL_WAITLIST + 5; i++) {
        ql_waitlist_add(&done, counted());
        CHECK(ql_waitlist_len(&done) == i % QL_WAITLIST && ended == i - i % QL_WAITLIST);
    }
    ql_waitlist_add(&done, NULL);
    CHECK(ql_waitlist_len(&done) == 5);
    ql_waitlist_flush(&done);
    CHECK(ended == 3 * QL_WAITLIST + 5 && ql_waitlist_len(&done) == 0);
    ql_waitlist_flush(&done);
    ql_waitlist_flush(NULL);
    ql_waitlist_add(NULL, counted());
    CHECK(ended == 3 * QL_WAITLIST + 6 && ql_waitlist_len(NULL) == 0 && ql_packets_active(packets) == 0);

    /* In bulk, for a reason. */
    ended = 0;
    for (int i = 0; i < 100; i++)
        burst[i] = i % 3 ? counted() : NULL;
    ql_kfree_skb_bulk_reason(burst, 100, QL_DROP_NO_ROUTE);
    CHECK(ended == 66 && burst[1] == NULL && burst[98] == NULL);
    ql_kfree_skb_bulk_reason(NULL, 1, 0);
    burst[0] = counted();
    ql_kfree_skb_bulk_reason(burst, 1, 9999);
    CHECK(ended == 67 && ql_packets_active(packets) == 0);
}

static ql_skb *for_handler[40];
static volatile sig_atomic_t handled;

static void handler(int signal)
{
    (void)signal;
    ql_no_bulk_enter();
    ql_no_bulk_enter();
    ql_no_bulk_leave();
    ql_waitlist done = {0};
    for (int i = 0; i < 10; i++)
        ql_waitlist_add(&done, for_handler[i]);
    ql_waitlist_flush(&done);
    ql_consume_skb(for_handler[10]);
    ql_kfree_skb(for_handler[11], QL_DROP_QUEUE_FULL);
    ql_skb_defer_free(for_handler[12]);
    ql_kfree_skb_bulk(for_handler + 13, 10);
    ql_kfree_skb_bulk_reason(for_handler + 23, 17, QL_DROP_QUEUE_FULL);
    ql_no_bulk_leave();
    handled = 1;
}

/* What ends in a signal handler waits, and ends with the next packet that ends elsewhere. */
static void interrupted(void)
{
    ended = 0;
    for (int i = 0; i < 40; i++)
        for_handler[i] = counted();
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = handler;
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0 && raise(SIGUSR1) == 0 && handled);
    CHECK(ended == 0 && ql_packets_active(packets) == 40);
    ql_consume_skb(counted());
    ql_packets_shrink(packets);
    CHECK(ended == 41 && ql_packets_active(packets) == 0);
}

static ql_violation_kind violations[8];
static size_t nr_violations;

static void note(const ql_violation *violation, void *context)
{
    (void)context;
    if (nr_violations < 8)
        violations[nr_violations] = violation->kind;
    nr_violations++;
}

/* Wrong uses that the caches find, once they are asked to. */
static void checks(void)
{
    CHECK(ql_packets_set_debug(NULL, 0) == QL_INVALID && ql_packets_set_debug(packets, 16) == QL_INVALID);
    CHECK(ql_packets_validate(NULL) == 0 && ql_packets_validate(packets) == 0);
    CHECK(ql_set_violation_handler(note, NULL) == QL_OK);
    CHECK(ql_packets_set_debug(packets, QL_DEBUG_ALL) == QL_OK);
    ql_skb *skb = ql_skb_alloc(packets, 60);
    unsigned char *bytes = ql_skb_put(skb, ql_skb_tailroom(skb));
    size_t n = ql_skb_len(skb);
    memset(bytes, 1, n);
    CHECK(ql_packets_validate(packets) == 0);
    bytes[n] = 1; /* behind its end */
    ql_consume_skb(skb);
    CHECK(nr_violations == 1 && violations[0] == QL_OVERRUN);
    bytes[0] = 1; /* after its end */
    CHECK(ql_packets_validate(packets) == 1 && nr_violations == 2 && violations[1] == QL_USE_AFTER_FREE);
    CHECK(ql_packets_set_debug(packets, QL_DEBUG_CONSISTENCY) == QL_OK);
    /* Ended twice: the caches say so, of data and of the head; a library that was built with debug assertions ends the process. */
    pid_t child = fork();
    if (child == 0) {
        nr_violations = 0;
        skb = ql_skb_alloc(packets, 60);
        ql_consume_skb(skb);
        ql_consume_skb(skb);
        _exit(nr_violations == 2 && violations[0] == QL_DOUBLE_FREE && violations[1] == QL_DOUBLE_FREE ? 0 : 1);
    }
    int how;
    CHECK(child > 0 && waitpid(child, &how, 0) == child);
    CHECK((WIFEXITED(how) && WEXITSTATUS(how) == 0) || (WIFSIGNALED(how) && WTERMSIG(how) == SIGABRT));
    CHECK(ql_packets_set_debug(packets, 0) == QL_OK && ql_packets_active(packets) == 0);
}

#define V4(a, b, c, d, n) ((ql_prefix){.family = 4, .bits = (n), .address = {(a), (b), (c), (d)}})

static const unsigned char here[2][6] = {{2, 0, 0, 0, 0, 1}, {2, 0, 0, 0, 0, 2}};
static const unsigned char there[6] = {2, 0, 0, 0, 0, 9};

/* A datagram of 64 bytes, Ethernet's header included, from 10.0.0.9 to 10.1.0.9. */
static ql_skb *datagram(unsigned char ttl)
{
    ql_skb *skb = ql_skb_alloc(packets, 64);
    unsigned char *bytes = ql_skb_put(skb, 64);
    static const unsigned char headers[42] = {2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 8, 8, 0, 0x45, 0, 0, 50, 0, 0, 0, 0,
                                              0, 17, 0, 0, 10, 0, 0, 9, 10, 1, 0, 9, 0, 7, 0, 7, 0, 30, 0, 0};
    memset(bytes, 0, 64);
    memcpy(bytes, headers, sizeof headers);
    bytes[22] = ttl;
    unsigned sum = 0;
    for (int i = 14; i < 34; i += 2)
        sum += bytes[i] * 256u + bytes[i + 1];
    sum = ~((sum & 0xffff) + (sum >> 16));
    bytes[24] = (unsigned char)(sum >> 8);
    bytes[25] = (unsigned char)sum;
    return skb;
}

struct sent {
    uint32_t interface;
    size_t n;
    bool refuse;
    ql_skb *last;
    ql_forwarder *forwarder;
    ql_lane *lane;
};

static void transmit(uint32_t interface, ql_skb **skbs, size_t n, void *context)
{
    struct sent *sent = context;
    sent->interface = interface;
    CHECK(n <= 64);
    /* The lane is in use. */
    CHECK(ql_forwarder_handle(sent->forwarder, sent->lane, 0, skbs, n, 0, transmit, sent) == QL_INVALID);
    for (size_t i = 0; i < n && !sent->refuse; i++) {
        if (skbs[i] == NULL)
            continue;
        ql_consume_skb(sent->last);
        sent->last = skbs[i];
        sent->n++;
        skbs[i] = NULL;
    }
}

static uint64_t count_of(const ql_forwarder *forwarder, const char *name)
{
    ql_count counts[64];
    size_t n = ql_forwarder_get_counts(forwarder, counts, 64);
    CHECK(n > 0 && n <= 64 && ql_forwarder_get_counts(forwarder, NULL, 0) == n);
    for (size_t i = 0; i < n; i++)
        if (strcmp(counts[i].name, name) == 0)
            return counts[i].value;
    CHECK(!"there is such a count");
    return 0;
}

static void forwarding(void)
{
    ql_prefix addresses[2] = {V4(10, 0, 0, 1, 24), V4(10, 1, 0, 1, 24)};
    ql_interface interfaces[2] = {{.mtu = 1500, .addresses = &addresses[0], .nr_addresses = 1},
                                  {.mtu = 1500, .addresses = &addresses[1], .nr_addresses = 1}};
    memcpy(interfaces[0].link, here[0], 6);
    memcpy(interfaces[1].link, here[1], 6);
    ql_forwarder *forwarder;
    ql_lane *lane;
    CHECK(ql_forwarder_create(packets, interfaces, 2, NULL) == QL_INVALID);
    CHECK(ql_forwarder_create(NULL, interfaces, 2, &forwarder) == QL_INVALID && forwarder == NULL);
    CHECK(ql_forwarder_create(packets, NULL, 2, &forwarder) == QL_INVALID && forwarder == NULL);
    addresses[0].bits = 33;
    CHECK(ql_forwarder_create(packets, interfaces, 2, &forwarder) == QL_INVALID && forwarder == NULL);
    addresses[0] = V4(224, 0, 0, 1, 24);
    CHECK(ql_forwarder_create(packets, interfaces, 2, &forwarder) == QL_INVALID);
    addresses[0] = V4(10, 0, 0, 1, 24);
    CHECK(ql_forwarder_create(packets, interfaces, 2, &forwarder) == QL_OK && forwarder != NULL);
    CHECK(ql_lane_create(NULL, &lane) == QL_INVALID && lane == NULL && ql_lane_create(forwarder, NULL) == QL_INVALID);
    CHECK(ql_lane_create(forwarder, &lane) == QL_OK && lane != NULL);

    /* Routes. */
    ql_prefix net = V4(192, 168, 7, 7, 16), inside = V4(192, 168, 9, 9, 32), bad = V4(1, 1, 1, 1, 33);
    ql_next_hop hop = {.interface = 1, .via = QL_VIA_GATEWAY, .gateway = {10, 1, 0, 7}}, found = {.interface = 99};
    CHECK(!ql_forwarder_lookup(forwarder, &inside, &found) && found.interface == 99);
    CHECK(ql_forwarder_set_route(forwarder, &net, &hop) == QL_OK);
    CHECK(ql_forwarder_lookup(forwarder, &inside, &found) && memcmp(&found, &hop, sizeof hop) == 0);
    found = (ql_next_hop){.interface = 0, .via = QL_VIA_UNREACHABLE};
    CHECK(ql_forwarder_set_route(forwarder, &inside, &found) == QL_OK);
    CHECK(ql_forwarder_lookup(forwarder, &inside, &found) && found.via == QL_VIA_UNREACHABLE);
    CHECK(ql_forwarder_remove_route(forwarder, &inside) && !ql_forwarder_remove_route(forwarder, &inside));
    CHECK(ql_forwarder_lookup(forwarder, &inside, &found) && found.via == QL_VIA_GATEWAY);
    ql_prefix six = {.family = 6, .bits = 32, .address = {0x20, 1, 0xd, 0xb8}};
    ql_next_hop link = {.interface = 1, .via = QL_VIA_LINK};
    CHECK(ql_forwarder_set_route(forwarder, &six, &link) == QL_OK);
    six.address[15] = 1;
    CHECK(ql_forwarder_lookup(forwarder, &six, &found) && memcmp(&found, &link, sizeof link) == 0);
    CHECK(ql_forwarder_remove_route(forwarder, &six) && !ql_forwarder_lookup(forwarder, &six, &found));
    CHECK(ql_forwarder_set_route(forwarder, &bad, &hop) == QL_INVALID && !ql_forwarder_remove_route(forwarder, &bad));
    hop.interface = 2;
    CHECK(ql_forwarder_set_route(forwarder, &net, &hop) == QL_INVALID);
    hop = (ql_next_hop){.interface = 1, .via = 77};
    CHECK(ql_forwarder_set_route(forwarder, &net, &hop) == QL_INVALID);
    hop = (ql_next_hop){.interface = 1, .via = QL_VIA_LINK, .gateway = {1}};
    CHECK(ql_forwarder_set_route(forwarder, &net, &hop) == QL_INVALID);
    six.bits = 129;
    CHECK(ql_forwarder_set_route(forwarder, &six, &link) == QL_INVALID);
    six.bits = 128;
    CHECK(ql_forwarder_set_route(forwarder, &six, &link) == QL_OK && ql_forwarder_remove_route(forwarder, &six));
    six.bits = 0;
    CHECK(ql_forwarder_set_neighbour(forwarder, 1, &six, there) == QL_OK);
    bad.family = 5;
    CHECK(ql_forwarder_set_route(forwarder, &bad, &link) == QL_INVALID && !ql_forwarder_lookup(forwarder, &bad, &found));
    CHECK(ql_forwarder_set_route(NULL, &net, &link) == QL_INVALID && ql_forwarder_set_route(forwarder, NULL, &link) == QL_INVALID);
    CHECK(ql_forwarder_set_route(forwarder, &net, NULL) == QL_INVALID && !ql_forwarder_remove_route(NULL, &net));
    CHECK(!ql_forwarder_remove_route(forwarder, NULL) && !ql_forwarder_lookup(NULL, &net, &found));
    CHECK(!ql_forwarder_lookup(forwarder, NULL, &found) && !ql_forwarder_lookup(forwarder, &net, NULL));

    /* Packets. */
    ql_prefix neighbour = V4(10, 1, 0, 9, 0);
    CHECK(ql_forwarder_set_neighbour(forwarder, 2, &neighbour, there) == QL_INVALID);
    CHECK(ql_forwarder_set_neighbour(forwarder, 1, &bad, there) == QL_INVALID);
    CHECK(ql_forwarder_set_neighbour(forwarder, 1, NULL, there) == QL_INVALID);
    CHECK(ql_forwarder_set_neighbour(forwarder, 1, &neighbour, NULL) == QL_INVALID);
    CHECK(ql_forwarder_set_neighbour(NULL, 1, &neighbour, there) == QL_INVALID);
    CHECK(ql_forwarder_set_neighbour(forwarder, 1, &neighbour, there) == QL_OK);
    struct sent sent = {.forwarder = forwarder, .lane = lane};
    ql_skb *batch[3] = {datagram(9), NULL, datagram(64)};
    CHECK(ql_forwarder_handle(NULL, lane, 0, batch, 3, 0, transmit, &sent) == QL_INVALID);
    CHECK(ql_forwarder_handle(forwarder, NULL, 0, batch, 3, 0, transmit, &sent) == QL_INVALID);
    CHECK(ql_forwarder_handle(forwarder, lane, 2, batch, 3, 0, transmit, &sent) == QL_INVALID);
    CHECK(ql_forwarder_handle(forwarder, lane, 0, NULL, 3, 0, transmit, &sent) == QL_INVALID);
    CHECK(ql_forwarder_handle(forwarder, lane, 0, batch, 3, 0, NULL, &sent) == QL_INVALID);
    CHECK(batch[0] != NULL && sent.n == 0);
    CHECK(ql_forwarder_handle(forwarder, lane, 0, batch, 3, 0, transmit, &sent) == QL_OK);
    CHECK(batch[0] == NULL && batch[2] == NULL && sent.n == 2 && sent.interface == 1);
    unsigned char *bytes = ql_skb_data(sent.last);
    CHECK(ql_skb_len(sent.last) == 64 && memcmp(bytes, there, 6) == 0 && memcmp(bytes + 6, here[1], 6) == 0);
    CHECK(bytes[22] == 63);
    CHECK(count_of(forwarder, "received") == 2 && count_of(forwarder, "forwarded IPv4") == 2);

    /* One that has passed too many routers: the sender, who is not known, is asked for. */
    batch[0] = datagram(1);
    CHECK(ql_forwarder_handle(forwarder, lane, 0, batch, 1, 1, transmit, &sent) == QL_OK);
    CHECK(count_of(forwarder, "IP_TTL_EXPIRED") == 1 && sent.n == 3 && sent.interface == 0);
    sent.refuse = true;
    batch[0] = datagram(2);
    CHECK(ql_forwarder_handle(forwarder, lane, 0, batch, 1, 2, transmit, &sent) == QL_OK);
    CHECK(sent.n == 3 && count_of(forwarder, "FULL_RING") == 1);
    CHECK(count_of(forwarder, "not sent") == 1);
    sent.refuse = false;
    CHECK(ql_forwarder_handle(forwarder, lane, 0, NULL, 0, 3, transmit, &sent) == QL_OK && sent.n == 3);
    ql_skb *burst[100];
    for (int i = 0; i < 100; i++)
        burst[i] = datagram(9);
    CHECK(ql_forwarder_handle(forwarder, lane, 0, burst, 100, 4, transmit, &sent) == QL_OK && sent.n == 103);
    ql_skb *twice[2] = {datagram(9), NULL};
    twice[1] = ql_skb_clone(twice[0]);
    CHECK(ql_forwarder_handle(forwarder, lane, 0, twice, 2, 5, transmit, &sent) == QL_OK && sent.n == 105);
    ql_consume_skb(sent.last);
    CHECK(ql_forwarder_get_counts(NULL, NULL, 0) == 0);
    ql_count counts[2] = {{.value = 77}, {.value = 77}};
    CHECK(ql_forwarder_get_counts(forwarder, counts, 1) > 2 && counts[0].value != 77 && counts[1].value == 77);
    CHECK(ql_forwarder_get_counts(forwarder, NULL, 5) > 2);
    ql_lane_destroy(NULL);
    ql_lane_destroy(lane);
    ql_forwarder_destroy(NULL);
    CHECK(ql_packets_active(packets) == 1); /* the error waits for its neighbour */
    ql_forwarder_destroy(forwarder);
}

int main(void)
{
    memory();
    lengths();
    references();
    home();
    nothing();
    families();
    many();
    interrupted();
    checks();
    forwarding();
    CHECK(ql_packets_active(packets) == 0);
    ql_packets_shrink(packets);
    ql_packets_destroy(packets);
    puts("packets: ok");
    return 0;
}
