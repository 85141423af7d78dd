# ddefuzz program v1
# inputs: x = normal
def program(x: Float32[Tensor, "u0=2048 64"]):
    return torch.sum(x)
