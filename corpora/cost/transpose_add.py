# ddefuzz program v1
# inputs: x = normal
def program(x: Float32[Tensor, "u0=2048 64"]):
    y = torch.transpose(x, 0, 1)
    return torch.exp(y) + y
