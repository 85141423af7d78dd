# ddefuzz program v1
# inputs: x = normal; index = ones
def program(x: Float32[Tensor, "2 2"], index: Int64[Tensor, ""]):
    return torch.nn.functional.adaptive_max_pool1d(x, index)
