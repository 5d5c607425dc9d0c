#include "muster/sync/sparse_code.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "muster/base/check.h"
#include "muster/sync/bit_stream.h"
#include "muster/sync/largest.h"
#include "muster/sync/subset.h"

namespace muster::sync {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

// Sums in double and in order, so the bits are the same everywhere.
Sparse::Book make_book(std::span<const float> values, std::span<uint8_t> codes) {
  double sum = 0;
  double squares = 0;
  for (const float v : values) sum += v;
  const auto count = static_cast<double>(values.size());
  const double mean = sum / count;
  for (const float v : values) squares += (v - mean) * (v - mean);
  const double border = 1.5 * std::sqrt(squares / count);
  std::array<double, 4> sums = {};
  std::array<double, 4> counts = {};
  for (size_t i = 0; i < values.size(); ++i) {
    const double away = values[i] - mean;
    const size_t bin = (away >= 0 ? 2u : 0u) + (away >= border || (away < 0 && away >= -border));
    codes[i] = static_cast<uint8_t>(bin);
    sums[bin] += values[i];
    counts[bin] += 1;
  }
  Sparse::Book book = {};
  for (size_t bin = 0; bin < book.size(); ++bin) {
    if (counts[bin] > 0) book[bin] = static_cast<float>(sums[bin] / counts[bin]);
  }
  return book;
}

}  // namespace

SparseCode::SparseCode(const exact::BlockLayout& layout, size_t tensors, int64_t keep)
    : layout_(layout), tensors_(tensors) {
  MUSTER_CHECK(keep >= 1 && keep <= static_cast<int64_t>(exact::kBlockSize), "values to keep");
  const size_t blocks = layout.first_block(tensors);
  first_.reserve(blocks + 1);
  first_.push_back(0);
  for (size_t b = 0; b < blocks; ++b) {
    first_.push_back(first_.back() + share_of(layout.blocks()[b].size, keep));
  }
}

Sparse SparseCode::empty() const {
  return {.places = std::vector<uint16_t>(values()),
          .codes = std::vector<uint8_t>(values()),
          .books = std::vector<Sparse::Book>(tensors_)};
}

void SparseCode::select(size_t block, std::span<const float> values, Sparse& sparse,
                        Isa isa) const {
  const auto places =
      std::span(sparse.places).subspan(first_[block], first_[block + 1] - first_[block]);
  find_largest(exact::part(values, where(block)), places, isa);
}

void SparseCode::quantise(std::span<const float> values, Sparse& sparse) const {
  std::vector<float> sent;
  for (size_t t = 0; t < tensors_; ++t) {
    const size_t begin = first_[layout_.first_block(t)];
    const size_t end = first_[layout_.first_block(t + 1)];
    sparse.books[t] = {};
    if (begin == end) continue;
    sent.clear();
    for (size_t b = layout_.first_block(t); b < layout_.first_block(t + 1); ++b) {
      for (const uint16_t place : places_of(b, sparse))
        sent.push_back(values[where(b).begin + place]);
    }
    sparse.books[t] = make_book(sent, std::span(sparse.codes).subspan(begin, end - begin));
  }
}

void SparseCode::subtract(const Sparse& sparse, std::span<float> values) const {
  for (size_t b = 0; b < blocks(); ++b) {
    const auto& book = sparse.books[where(b).tensor];
    for (size_t i = first_[b]; i < first_[b + 1]; ++i) {
      values[where(b).begin + sparse.places[i]] -= book.at(sparse.codes[i]);
    }
  }
}

size_t SparseCode::largest_size() const {
  size_t bits = 0;
  for (size_t b = 0; b < blocks(); ++b) {
    const size_t count = first_[b + 1] - first_[b];
    bits += RiceCode(where(b).size, count).most_bits(count);
  }
  return tensors_ * sizeof(Sparse::Book) + (values() + 3) / 4 + (bits + 7) / 8;
}

void SparseCode::write(const Sparse& sparse, std::vector<std::byte>& out) const {
  const auto books = std::as_bytes(std::span(sparse.books));
  out.insert(out.end(), books.begin(), books.end());
  BitWriter codes(out);
  for (const uint8_t code : sparse.codes) codes.put(code, 2);
  codes.finish();
  BitWriter gaps(out);
  for (size_t b = 0; b < blocks(); ++b) {
    const auto places = places_of(b, sparse);
    RiceCode(where(b).size, places.size()).write(places, gaps);
  }
  gaps.finish();
}

bool SparseCode::read(std::span<const std::byte>& from, Sparse& sparse) const {
  const size_t books = tensors_ * sizeof(Sparse::Book);
  const size_t codes = (values() + 3) / 4;
  if (from.size() < books + codes) return false;
  std::memcpy(sparse.books.data(), from.data(), books);
  for (size_t i = 0; i < values(); ++i) {
    const auto byte = std::to_integer<unsigned>(from[books + i / 4]);
    sparse.codes[i] = static_cast<uint8_t>(byte >> (i % 4 * 2) & 3);
  }
  BitReader gaps(from.subspan(books + codes));
  for (size_t b = 0; b < blocks(); ++b) {
    const auto places = std::span(sparse.places).subspan(first_[b], first_[b + 1] - first_[b]);
    if (!RiceCode(where(b).size, places.size()).read(gaps, places)) return false;
  }
  from = from.subspan(books + codes + gaps.used());
  return true;
}

bool SparseCode::merge(size_t block, std::span<const Sparse> senders, float rate,
                       std::span<float> weights) const {
  std::array<float, exact::kBlockSize> sums;  // NOLINT(*-member-init): only where `count` is not 0
  std::array<uint16_t, exact::kBlockSize> count = {};
  for (const Sparse& sparse : senders) {
    const auto& book = sparse.books[where(block).tensor];
    for (size_t i = first_[block]; i < first_[block + 1]; ++i) {
      const uint16_t place = sparse.places[i];
      const float value = book.at(sparse.codes[i]);
      sums[place] = count[place] == 0 ? value : sums[place] + value;
      ++count[place];
    }
  }
  const auto part = exact::part(weights, where(block));
  bool finite = true;
  for (const Sparse& sparse : senders) {
    for (const uint16_t place : places_of(block, sparse)) {
      if (count[place] == 0) continue;  // done
      part[place] -= rate * (sums[place] / static_cast<float>(count[place]));
      finite &= std::isfinite(part[place]);
      count[place] = 0;
    }
  }
  return finite;
}

}  // namespace muster::sync
