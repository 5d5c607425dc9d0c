#include "muster/model/args.h"

namespace muster::model {

Result<int64_t> get_count(config::ArgReader& args, std::string_view key,
                          std::optional<int64_t> fallback, int64_t least) {
  const config::Node* node = args.get(key);
  if (node == nullptr && fallback) return *fallback;
  MUSTER_TRY(const int64_t value, args.get_int(key));
  if (value < least) return node->error("{} must be at least {}, not {}", key, least, value);
  return value;
}

Result<Pair> get_pair(config::ArgReader& args, std::string_view key, std::optional<Pair> fallback,
                      int64_t least) {
  const config::Node* node = args.get(key);
  if (node == nullptr && fallback) return *fallback;
  Pair pair{};
  if (node != nullptr && node->is_list()) {
    MUSTER_TRY(const auto values, node->as_ints(key));
    if (values.size() != 2) {
      return node->error("{} must be one number or a list of two, height and width", key);
    }
    pair = {values[0], values[1]};
  } else {
    MUSTER_TRY(const int64_t value, args.get_int(key));
    pair = {value, value};
  }
  for (const int64_t value : pair) {
    if (value < least) return node->error("{} must be at least {}, not {}", key, least, value);
  }
  return pair;
}

Result<double> get_share(config::ArgReader& args, std::string_view key, double fallback) {
  MUSTER_TRY(const double value, args.get_number(key, fallback));
  if (value >= 0 && value < 1) return value;
  return args.get(key)->error("{} must be at least 0 and below 1, not {}", key, value);
}

Result<double> get_positive(config::ArgReader& args, std::string_view key, double fallback) {
  MUSTER_TRY(const double value, args.get_number(key, fallback));
  if (value > 0) return value;
  return args.get(key)->error("{} must be above 0, not {}", key, value);
}

}  // namespace muster::model
