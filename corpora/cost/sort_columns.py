# ddefuzz program v1
# inputs: x = normal
def program(x: Float32[Tensor, "64 u0=512"]):
    return torch.sort(x, 1)
