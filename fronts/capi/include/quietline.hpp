/*
 * quietline for C++17: caches of a type, values that go back by themselves, read sections that end by themselves.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Nothing here allocates but the library; failure is std::bad_alloc or quietline::error. Link with the C library.
 */
#ifndef QUIETLINE_HPP
#define QUIETLINE_HPP

#include "quietline_inline.h"

#include <array>
#include <cstddef>
#include <exception>
#include <memory>
#include <new>
#include <stdexcept>
#include <type_traits>
#include <utility>

namespace quietline {

/* A status that is not QL_OK. */
class error : public std::runtime_error {
public:
    explicit error(ql_status status) : std::runtime_error(ql_status_message(status)), status_(status) {}
    ql_status status() const noexcept { return status_; }

private:
    ql_status status_;
};

inline void check(ql_status status)
{
    if (status == QL_NO_MEMORY)
        throw std::bad_alloc();
    if (status != QL_OK)
        throw error(status);
}

/*
 * A cache of T's: made by make(), destroyed and given back by the pointer that make() returns, or by destroy(). Any thread may
 * use it. It must outlive its pointers.
 */
template <typename T>
class cache {
public:
    /* What a unique_ptr needs to give a T back. */
    struct giver {
        cache *from;
        void operator()(T *value) const noexcept { from->destroy(value); }
    };
    using pointer = std::unique_ptr<T, giver>;

    explicit cache(const char *name) : cache(defaults(name)) {}

    /* With options other than the defaults; their size and alignment are taken from T. Hooks get memory, not T's. */
    explicit cache(ql_cache_options options)
    {
        options.size = sizeof(T);
        options.align = alignof(T);
        check(ql_cache_create(&options, &raw_));
    }

    cache(const cache &) = delete;
    cache &operator=(const cache &) = delete;
    ~cache() { ql_cache_destroy(raw_); }

    static ql_cache_options defaults(const char *name) noexcept
    {
        ql_cache_options options{};
        options.struct_size = sizeof options;
        options.name = name;
        return options;
    }

    template <typename... Arguments>
    pointer make(Arguments &&...arguments)
    {
        void *memory = ql_cache_alloc_inline(raw_);
        if (memory == nullptr)
            throw std::bad_alloc();
        memory_guard guard{raw_, memory};
        T *value = ::new (memory) T(std::forward<Arguments>(arguments)...);
        guard.memory = nullptr;
        return pointer(value, giver{this});
    }

    void destroy(T *value) noexcept
    {
        if (value != nullptr) {
            value->~T();
            ql_cache_free_inline(raw_, value);
        }
    }

    /* N values in one bulk operation, all or nothing; each is what make_one(index) returns. */
    template <std::size_t N, typename Make>
    std::array<pointer, N> make_bulk(Make make_one)
    {
        bulk_guard<N> guard{raw_, {}};
        check(ql_cache_alloc_bulk(raw_, guard.memory.data(), N));
        std::array<pointer, N> values;
        for (std::size_t i = 0; i < N; i++) {
            T *value = ::new (guard.memory[i]) T(make_one(i));
            guard.memory[i] = nullptr;
            values[i] = pointer(value, giver{this});
        }
        return values;
    }

    /*
     * Destroys the values and frees their memory in one bulk operation; empty pointers are skipped. A value of another cache
     * ends the program: its memory must not go to this one.
     */
    template <std::size_t N>
    void free_bulk(std::array<pointer, N> values) noexcept
    {
        std::array<void *, N> memory{};
        for (std::size_t i = 0; i < N; i++) {
            if (values[i] != nullptr && values[i].get_deleter().from != this)
                std::terminate();
            T *value = values[i].release();
            if (value != nullptr)
                value->~T();
            memory[i] = value;
        }
        ql_cache_free_bulk(raw_, memory.data(), N);
    }

    ql_stats stats() const
    {
        ql_stats stats{};
        stats.struct_size = sizeof stats;
        check(ql_cache_get_stats(raw_, &stats));
        return stats;
    }

    ql_cache *raw() const noexcept { return raw_; }

private:
    struct memory_guard {
        ql_cache *raw;
        void *memory;
        ~memory_guard() { ql_cache_free(raw, memory); }
    };
    template <std::size_t N>
    struct bulk_guard {
        ql_cache *raw;
        std::array<void *, N> memory;
        ~bulk_guard() { ql_cache_free_bulk(raw, memory.data(), N); }
    };

    ql_cache *raw_ = nullptr;
};

/* Readers that are waited for together; a handle on what lives as long as the process. */
class rcu {
public:
    static rcu global()
    {
        ql_rcu *raw = nullptr;
        check(ql_rcu_global(&raw));
        return rcu(raw);
    }

    /* A read section, from its making to its end. */
    class section {
    public:
        explicit section(rcu domain) noexcept { ql_rcu_read_lock(domain.raw_, &guard_); }
        section(const section &) = delete;
        section &operator=(const section &) = delete;
        ~section() { ql_rcu_read_unlock(&guard_); }

    private:
        ql_rcu_guard guard_;
    };

    section read() const noexcept { return section(*this); }
    void synchronize() const noexcept { ql_rcu_synchronize(raw_); }
    void barrier() const noexcept { ql_rcu_barrier(raw_); }
    ql_rcu *raw() const noexcept { return raw_; }

private:
    explicit rcu(ql_rcu *raw) noexcept : raw_(raw) {}
    ql_rcu *raw_;
};

} // namespace quietline

#endif // QUIETLINE_HPP
