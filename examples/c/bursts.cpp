// Packets in bursts, from C++: values that go back by themselves, and bursts that are freed in one operation.
//
//   c++ -std=c++17 -O2 bursts.cpp $(pkg-config --cflags --libs quietline) -o bursts && ./bursts
#include <quietline.hpp>

#include <cstdio>
#include <cstdlib>
#include <cstdint>
#include <thread>
#include <vector>

struct packet {
    std::uint32_t length = 0;
    std::uint32_t queue = 0;
    std::array<unsigned char, 240> data{};

    explicit packet(std::uint32_t n) : length(n) {}
};

constexpr std::size_t burst = 32;

static std::uint64_t receive(quietline::cache<packet> &packets, std::uint32_t queue)
{
    std::uint64_t bytes = 0;
    for (int round = 0; round < 10000; round++) {
        auto received = packets.make_bulk<burst>([](std::size_t i) { return packet(64 + std::uint32_t(i)); });
        auto mine = std::move(received[3]); // one is kept a little longer
        for (auto &one : received) {
            if (one) {
                one->queue = queue;
                bytes += one->length;
            }
        }
        packets.free_bulk(std::move(received));
        bytes += mine->length;
    } // and goes back here
    return bytes;
}

int main()
{
    quietline::cache<packet> packets("packet");
    std::vector<std::thread> queues;
    std::array<std::uint64_t, 2> bytes{};
    for (std::uint32_t queue = 0; queue < bytes.size(); queue++)
        queues.emplace_back([&, queue] { bytes[queue] = receive(packets, queue); });
    for (auto &queue : queues)
        queue.join();
    std::uint64_t expected = 0;
    for (std::uint32_t i = 0; i < burst; i++)
        expected += 10000 * (64 + i);
    const ql_stats stats = packets.stats();
    std::printf("%s: %llu and %llu bytes received, %zu packets in use, %zu ready\n", stats.name,
                static_cast<unsigned long long>(bytes[0]), static_cast<unsigned long long>(bytes[1]), stats.active,
                stats.cached);
    return bytes[0] == expected && bytes[1] == expected && stats.active == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
