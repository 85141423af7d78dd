# ddefuzz program v1
# inputs: x = normal
def program(x: Float32[Tensor, "u0=2048 64"]):
    kept = x[torch.sum(x, 1) > 0]
    return torch.sigmoid(kept) * kept
