// std::ranges::stable_sort and stable_partition for vectors, without the buffer that libstdc++ 12
// gets by a function which clang reports as deprecated. Other names than the library's, which would
// be found for vectors as well.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <numeric>
#include <utility>
#include <vector>

namespace muster {

// Elements of which neither is less than the other keep their order.
template <typename T, typename Less = std::ranges::less, typename Key = std::identity>
void sort_stable(std::vector<T>& values, Less less = {}, Key key = {}) {
  std::vector<size_t> places(values.size());
  std::iota(places.begin(), places.end(), size_t{0});
  std::ranges::sort(places, [&](size_t a, size_t b) {
    const auto& first = std::invoke(key, values[a]);
    const auto& second = std::invoke(key, values[b]);
    if (std::invoke(less, first, second)) return true;
    return a < b && !std::invoke(less, second, first);
  });
  std::vector<T> sorted;
  sorted.reserve(values.size());
  for (const size_t place : places) sorted.push_back(std::move(values[place]));
  values = std::move(sorted);
}

// Those for which `first` holds, then the others, each in their order.
template <typename T, typename First>
void partition_stable(std::vector<T>& values, First first) {
  sort_stable(values, std::ranges::greater(),
              [&](const T& value) -> bool { return std::invoke(first, value); });
}

}  // namespace muster
