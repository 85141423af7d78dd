# ddefuzz program v1
# inputs: x = normal; b = normal
def program(x: Float32[Tensor, "u0=2048 64"], b: Float32[Tensor, "64"]):
    return torch.relu(x * b + b)
