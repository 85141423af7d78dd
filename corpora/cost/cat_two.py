# ddefuzz program v1
# inputs: x = normal; y = normal
def program(x: Float32[Tensor, "u0=2048 64"], y: Float32[Tensor, "u1=1024 64"]):
    return torch.relu(torch.cat([x, y], 0))
