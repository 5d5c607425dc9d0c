// One factory for each kind of optimizer; options have been checked by make_optimizer. Internal.
#pragma once

#include <memory>

#include "muster/optim/optimizer.h"

namespace muster::optim {

std::unique_ptr<Optimizer> make_adagrad(const config::OptimizerOptions& options);
std::unique_ptr<Optimizer> make_adam(const config::OptimizerOptions& options);
std::unique_ptr<Optimizer> make_adamw(const config::OptimizerOptions& options);
std::unique_ptr<Optimizer> make_lamb(const config::OptimizerOptions& options);
std::unique_ptr<Optimizer> make_lars(const config::OptimizerOptions& options);
std::unique_ptr<Optimizer> make_muon(const config::OptimizerOptions& options);
std::unique_ptr<Optimizer> make_rmsprop(const config::OptimizerOptions& options);
std::unique_ptr<Optimizer> make_sgd(const config::OptimizerOptions& options);

}  // namespace muster::optim
