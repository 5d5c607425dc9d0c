// As little of libtorch as proves that headers and library belong together (torch/torch.h would
// take half a minute), and fmt, of which some libtorch layouts carry a copy that must not be used.
#include <c10/core/Device.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <torch/version.h>

int main() {
  const c10::Device device("cpu:0");
  try {
    TORCH_CHECK(false, "thrown and caught");
  } catch (const c10::Error& error) {
    fmt::print("libtorch {}, device {}, an error {}\n", TORCH_VERSION, device.str(),
               error.what_without_backtrace());
  }
}
