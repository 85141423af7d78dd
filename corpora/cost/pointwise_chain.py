# ddefuzz program v1
# inputs: x = normal; y = normal
def program(x: Float32[Tensor, "u0=2048 64"], y: Float32[Tensor, "u0=2048 64"]):
    z = torch.sigmoid(x) * torch.tanh(y)
    return torch.exp(z) - torch.sin(x)
