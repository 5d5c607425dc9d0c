// Muon's matrix in double precision, as plainly as it can be written; tests compare newton_schulz.h
// and what uses it with this.
#pragma once

#include <cmath>
#include <cstddef>
#include <vector>

namespace muster::optim {

using PlainMatrix = std::vector<std::vector<double>>;

inline PlainMatrix product(const PlainMatrix& a, const PlainMatrix& b) {
  PlainMatrix c(a.size(), std::vector<double>(b[0].size()));
  for (size_t i = 0; i < a.size(); ++i) {
    for (size_t k = 0; k < b.size(); ++k) {
      for (size_t j = 0; j < b[0].size(); ++j) c[i][j] += a[i][k] * b[k][j];
    }
  }
  return c;
}

inline PlainMatrix transposed(const PlainMatrix& a) {
  PlainMatrix t(a[0].size(), std::vector<double>(a.size()));
  for (size_t i = 0; i < a.size(); ++i) {
    for (size_t j = 0; j < a[0].size(); ++j) t[j][i] = a[i][j];
  }
  return t;
}

// As torch.optim.Muon does it, but for bfloat16.
inline std::vector<double> orthogonalized(const std::vector<double>& flat, size_t columns) {
  double squares = 0;
  for (const double v : flat) squares += v * v;
  PlainMatrix x(flat.size() / columns, std::vector<double>(columns));
  for (size_t i = 0; i < flat.size(); ++i) {
    x[i / columns][i % columns] = flat[i] / std::sqrt(squares);
  }
  const bool tall = x.size() > columns;
  if (tall) x = transposed(x);
  for (int step = 0; step < 5; ++step) {
    const PlainMatrix a = product(x, transposed(x));
    PlainMatrix u = product(a, a);
    for (size_t i = 0; i < u.size(); ++i) {
      for (size_t j = 0; j < u.size(); ++j) u[i][j] = -4.7750 * a[i][j] + 2.0315 * u[i][j];
    }
    const PlainMatrix more = product(u, x);
    for (size_t i = 0; i < x.size(); ++i) {
      for (size_t j = 0; j < x[0].size(); ++j) x[i][j] = 3.4445 * x[i][j] + more[i][j];
    }
  }
  if (tall) x = transposed(x);
  std::vector<double> result;
  for (const auto& row : x) result.insert(result.end(), row.begin(), row.end());
  return result;
}

}  // namespace muster::optim
