// Describes a tensor with an installed moetune: shows that the package is found, compiles and
// links.
#include <cstdio>
#include <vector>

#include "moetune/result.h"
#include "moetune/tensor.h"

namespace {

/// The tensor of that name, or an error that says what to do.
moetune::Result<const moetune::Tensor*> get(const moetune::Tensors& tensors, const char* name) {
  if (const moetune::Tensor* tensor = moetune::find(tensors, name)) return tensor;
  return moetune::Error{moetune::ErrorCode::kNotFound, std::string("no tensor named ") + name};
}

}  // namespace

int main() {
  std::vector<float> values(6, 1.0f);
  const moetune::Tensors tensors = {{"hidden", moetune::DataType::kF32, {2, 3}, values.data()}};
  const auto hidden = get(tensors, "hidden");
  if (!hidden.ok()) {
    std::fprintf(stderr, "%s\n", hidden.error().message.c_str());
    return 1;
  }
  std::printf("hidden: %s, %zu bytes\n", moetune::to_string((*hidden)->type), (*hidden)->bytes());
  return get(tensors, "w13").ok() ? 1 : 0;
}
