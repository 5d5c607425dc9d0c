// Sorting by keys that are spread over all 64 bits, such as hashes: several times faster than
// std::sort for thousands of them.
//
// The values are counted into buckets by the upper bits of their keys, which leaves a few in each,
// and the buckets are sorted. Any keys give the right order; those that are not spread are sorted
// no faster than before.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <utility>
#include <vector>

namespace muster {

namespace internal {

// Stable, for a bucket with far more than its share.
template <typename Iterator, typename Key>
void sort_by_place(Iterator begin, Iterator end, Key& key) {
  std::vector<std::pair<uint64_t, uint32_t>> order;  // key, place
  for (auto i = begin; i != end; ++i) {
    order.emplace_back(key(*i), static_cast<uint32_t>(i - begin));
  }
  std::ranges::sort(order);
  std::vector<typename std::iterator_traits<Iterator>::value_type> sorted;
  sorted.reserve(order.size());
  for (const auto& [k, place] : order) sorted.push_back(std::move(begin[place]));
  std::ranges::move(sorted, begin);
}

}  // namespace internal

// Stable: of equal keys, the first one stays the first.
template <typename T, typename Key = std::identity>
void sort_spread(std::vector<T>& values, Key key = {}) {
  constexpr size_t kFew = 64;      // are sorted as they are
  constexpr size_t kInBucket = 4;  // on average
  const auto less = [&](const T& a, const T& b) { return key(a) < key(b); };
  const auto insertion_sort = [&](auto begin, auto end) {
    for (auto next = begin; next != end; ++next) {
      std::rotate(std::upper_bound(begin, next, *next, less), next, next + 1);
    }
  };
  if (values.size() <= kFew) return insertion_sort(values.begin(), values.end());
  const int bits = std::bit_width(values.size() / kInBucket);
  const auto bucket_of = [&](const T& value) {
    return static_cast<size_t>(static_cast<uint64_t>(key(value)) >> (64 - bits));
  };
  std::vector<uint32_t> ends((size_t{1} << bits) + 1);
  for (const T& value : values) ++ends[bucket_of(value) + 1];
  for (size_t i = 1; i < ends.size(); ++i) ends[i] += ends[i - 1];
  std::vector<T> sorted(values.size());
  for (T& value : values) sorted[ends[bucket_of(value)]++] = std::move(value);
  for (size_t i = 0, begin = 0; i + 1 < ends.size(); begin = ends[i++]) {
    const auto first = sorted.begin() + static_cast<std::ptrdiff_t>(begin);
    const auto last = sorted.begin() + static_cast<std::ptrdiff_t>(ends[i]);
    if (ends[i] - begin <= kFew) {
      insertion_sort(first, last);
    } else {
      internal::sort_by_place(first, last, key);
    }
  }
  values = std::move(sorted);
}

}  // namespace muster
